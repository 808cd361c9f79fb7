"""Child processes that never outlive their parent, however it ends."""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

GUARDIAN = Path(__file__).with_name("guardian.py")


@contextmanager
def guarded_process(
    command: Sequence[str],
    log: Path,
    environment: Mapping[str, str] | None = None,
    grace: float = 15.0,
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a command in a process group of its own, with its output appended to `log`.

    The group is ended when the block ends, and also when this process dies without a word: a
    guardian between the two notices that its standard input has closed.

    Args:
        environment: variables that are added to this process's own.
        grace: seconds that the group has to end by itself before it is killed.
    """
    with log.open("ab") as output:
        process = subprocess.Popen(
            [sys.executable, str(GUARDIAN), str(grace), *command],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            env={**os.environ, **(environment or {})},
            start_new_session=True,
        )
    try:
        yield process
    finally:
        assert process.stdin is not None
        process.stdin.close()
        process.wait()
