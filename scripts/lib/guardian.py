"""Runs a command and ends it, with all its children, as soon as standard input closes.

Usage: python guardian.py GRACE COMMAND [ARGUMENT ...]. GRACE is the number of seconds that the
command has to end by itself after SIGTERM; SIGQUIT to the guardian kills it at once. Exits with
the command's own exit code, or 128 + signal. The command has a folder of its own for temporary
files, which goes with it: a server that is killed leaves its sockets there.
It needs nothing but the standard library, so it starts at once.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading


def run(command: list[str], grace: float) -> int:
    """Run `command` until it ends or standard input closes; return its exit code."""
    # A short name: the path of a socket has room for about a hundred characters.
    scratch = tempfile.mkdtemp(prefix="dm-")
    variables = {**os.environ, "TMPDIR": scratch}
    # Kernels that PyTorch has compiled stay where every command finds them.
    kernels = f"{tempfile.gettempdir()}/torchinductor_{os.getuid()}"
    variables.setdefault("TORCHINDUCTOR_CACHE_DIR", kernels)
    try:
        return _run(command, grace, variables)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _run(command: list[str], grace: float, variables: dict[str, str]) -> int:
    child = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, env=variables, start_new_session=True
    )
    signal.signal(signal.SIGTERM, lambda *_: end(child, grace))
    signal.signal(signal.SIGQUIT, lambda *_: _kill_group(child.pid))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, args=(child, grace), daemon=True).start()
    code = child.wait()
    _kill_group(child.pid)
    return code if code >= 0 else 128 - code


def end(child: "subprocess.Popen[bytes]", grace: float) -> None:
    """Ask the command's process group to end, and make it when it does not."""
    try:
        os.killpg(child.pid, signal.SIGTERM)
    except ProcessLookupError:
        return
    threading.Timer(grace, _kill_group, args=(child.pid,)).start()


def _end_with_parent(child: "subprocess.Popen[bytes]", grace: float) -> None:
    while os.read(0, 1024):
        pass
    end(child, grace)


def _kill_group(group: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)


if __name__ == "__main__":
    code = run(sys.argv[2:], float(sys.argv[1]))
    os._exit(code)
