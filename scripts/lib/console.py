"""What a stage shows while it works, and where the rest goes.

A script's standard output and error go to its log file, with all that libraries print. The
terminal gets one line when the stage starts, a progress bar (or a line every ten seconds where
there is no terminal), and one line with the result and the time that it took.
"""

import os
import shutil
import signal
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO

from tqdm import tqdm

from lib.files import says_disk_is_full
from lib.jobs import MAIN_PROCESS

_SECONDS_BETWEEN_LINES = 10.0

_LITTLE = 2**20
"""Free bytes of a disk that is taken to be full when a stage fails."""


class Stage:
    """The terminal of a running stage."""

    def __init__(self, name: str, terminal: TextIO):
        self._name = name
        self._terminal = terminal
        self._start = time.monotonic()
        self._result = ""

    def say(self, text: str) -> None:
        """Show one line about the stage."""
        print(f"{self._name}: {text}", file=self._terminal, flush=True)

    def result(self, text: str) -> None:
        """Set what the last line of the stage will say."""
        self._result = text

    @contextmanager
    def progress(self, what: str, total: int | None = None) -> Iterator["Progress"]:
        """Show the progress of `total` steps (unknown if None) while the block runs."""
        with Progress(f"{self._name}: {what}", total, self._terminal) as progress:
            yield progress

    def close(self) -> None:
        """Show the result and the time that the stage took."""
        seconds = time.monotonic() - self._start
        self.say(f"{self._result or 'done'} ({seconds:.1f} s)")


class Progress:
    """A bar on a terminal; elsewhere a line every ten seconds."""

    def __init__(self, what: str, total: int | None, terminal: TextIO):
        self._is_terminal = terminal.isatty()
        self._terminal = terminal
        self._what = what
        self._bar = tqdm(
            desc=what,
            total=total,
            file=terminal,
            disable=not self._is_terminal,
            leave=False,
            mininterval=0.5,
            unit_scale=True,
        )
        self._total = total
        self._note = ""
        self._done = 0
        self._start = self._last = time.monotonic()

    def __enter__(self) -> "Progress":
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.close()

    def advance(self, steps: int = 1) -> None:
        """Note that `steps` more steps are done."""
        self._done += steps
        self._bar.update(steps)
        now = time.monotonic()
        if not self._is_terminal and now - self._last >= _SECONDS_BETWEEN_LINES:
            self._last = now
            print(self._line(now - self._start), file=self._terminal, flush=True)

    def reach(self, done: int, total: int, note: str = "") -> None:
        """Note that `done` of `total` steps are done, and what there is to say of the last."""
        self._total = self._bar.total = total
        self._note = note
        self._bar.set_postfix_str(note, refresh=False)
        self.advance(done - self._done)

    def _line(self, seconds: float) -> str:
        rate = self._done / seconds
        if not self._total:
            return f"{self._what}: {_short(self._done)} ({_short(rate)}/s)"
        left = (self._total - self._done) / rate if rate else 0.0
        counts = f"{_short(self._done)} of {_short(self._total)}"
        note = f"; {self._note}" if self._note else ""
        return f"{self._what}: {counts} ({_short(rate)}/s, {left:.0f} s left){note}"


def _short(number: float) -> str:
    """Return a number as people read it at a glance: 12, 12.3k, 629M."""
    return f"{number:.3g}" if number < 1000 else tqdm.format_sizeof(number)


@contextmanager
def stage(name: str, log: Path) -> Iterator[Stage]:
    """Run a script's work as a stage that logs to `log`.

    A `ValueError` or `OSError` is bad input: it ends the script with exit code 1 and its message
    as one line. Any other exception is a defect: it ends the script with a pointer to the log,
    which holds the traceback. The script stops by itself when the Snakemake run that started it
    is gone. SIGTERM ends it as Ctrl-C does: what it started has time to end, and a trainer to write
    a checkpoint.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    terminal = os.fdopen(os.dup(sys.stderr.fileno()), "w", encoding="utf-8")
    _send_output_to(log)
    _stop_with_main_process()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    current = Stage(name, terminal)
    try:
        yield current
    except (ValueError, OSError) as error:
        _note_traceback()
        current.say(f"error: {error}{_advice(error, log)}")
        sys.exit(1)
    except KeyboardInterrupt:
        current.say("interrupted; the same command goes on from here")
        sys.exit(130)
    except Exception as error:
        _note_traceback()
        advice = _advice(error, log) or f" (traceback in {log})"
        current.say(f"error: {type(error).__name__}: {error}{advice}")
        sys.exit(1)
    current.close()


def _note_traceback() -> None:
    """Write the traceback to the log, unless the disk is full."""
    with suppress(OSError):
        traceback.print_exc()


def _advice(error: Exception, log: Path) -> str:
    """Say what to do about a full disk, which libraries report in many ways; else nothing."""
    if says_disk_is_full(error) or shutil.disk_usage(log.parent).free < _LITTLE:
        return "; the disk is full: make room, and give the same command again"
    return ""


def _send_output_to(log: Path) -> None:
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o644)
    sys.stdout.flush()
    sys.stderr.flush()
    os.dup2(file, 1)
    os.dup2(file, 2)
    os.close(file)


def _stop_with_main_process() -> None:
    """End this process when the main process has gone without a chance to end it itself.

    It may be gone already, for scripts take their time to start.
    """
    if main := os.environ.get(MAIN_PROCESS):
        threading.Thread(target=_watch, args=(main,), daemon=True).start()


def _watch(main: str) -> None:
    while Path(f"/proc/{main}").exists():
        time.sleep(0.5)
    os._exit(143)
