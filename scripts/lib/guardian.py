"""Runs a command and ends it, with all its children, as soon as standard input closes.

Usage: python guardian.py COMMAND [ARGUMENT ...]. Exits with the command's own exit code, or 128 +
signal. It needs nothing but the standard library, so it starts at once.
"""

import contextlib
import os
import signal
import subprocess
import sys
import threading

GRACE = 15.0
"""Seconds that the command has to end by itself after SIGTERM."""


def run(command: list[str]) -> int:
    """Run `command` until it ends or standard input closes; return its exit code."""
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)
    signal.signal(signal.SIGTERM, lambda *_: end(child))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, args=(child,), daemon=True).start()
    code = child.wait()
    _kill_group(child.pid)
    return code if code >= 0 else 128 - code


def end(child: "subprocess.Popen[bytes]") -> None:
    """Ask the command's process group to end, and make it when it does not."""
    try:
        os.killpg(child.pid, signal.SIGTERM)
    except ProcessLookupError:
        return
    threading.Timer(GRACE, _kill_group, args=(child.pid,)).start()


def _end_with_parent(child: "subprocess.Popen[bytes]") -> None:
    while os.read(0, 1024):
        pass
    end(child)


def _kill_group(group: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)


if __name__ == "__main__":
    code = run(sys.argv[1:])
    os._exit(code)
