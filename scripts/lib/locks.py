"""Snakemake runs that are alive in a folder, and the locks of those that were killed.

Snakemake leaves its lock behind when it is killed and then refuses to run. The operating system
drops a file lock when its process ends, so it tells which runs are alive: each has a file of its
own, locked for as long as it lives.
"""

import fcntl
import os
import shlex
import socket
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO
from uuid import uuid4


@dataclass(frozen=True)
class Presence:
    """This run among those of a folder.

    Attributes:
        file: tells others that this run is alive, for as long as it is kept open.
        others: what the other runs that are alive say of themselves.
        cleared: number of Snakemake's locks that killed runs had left and that are removed now.
    """

    file: TextIO
    others: tuple[str, ...]
    cleared: int

    def lines(self) -> list[str]:
        """Return what people should know of the other runs; nothing if there is nothing."""
        if self.others:
            return [
                *(f"another run is alive in this folder: {other}" for other in self.others),
                "where both make the same files this one is refused: wait for the other, or end it "
                "with Ctrl-C or kill, and give the same command again; --unlock is not needed",
            ]
        if self.cleared:
            return ["a run that was killed had left its lock here; it is removed, and work goes on"]
        return []


def enter(folder: Path, who: str) -> Presence:
    """Mark this run as alive, and remove Snakemake's locks if no other run is.

    Args:
        folder: `.snakemake` of the working directory.
        who: what others are told of this run, one line.

    Raises:
        OSError: the folder cannot be written to, or its file system has no locks.
    """
    runs = folder / "draftmill.runs"
    runs.mkdir(parents=True, exist_ok=True)
    mine = runs / uuid4().hex
    # Under its name only once it is locked, so that nobody takes it for that of a killed run.
    hidden = mine.with_name(f".{mine.name}")
    file = hidden.open("w", encoding="utf-8")
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    file.write(who)
    file.flush()
    hidden.rename(mine)
    others = [said for path in runs.glob("[!.]*") if path != mine and (said := _said(path))]
    locks = [] if others else list((folder / "locks").glob("*.lock"))
    for lock in locks:
        lock.unlink(missing_ok=True)
    return Presence(file, tuple(sorted(others)), len(locks))


def this_run() -> str:
    """Say in one line which Snakemake run this is: its process, machine, start and command."""
    command = shlex.join(["snakemake", *sys.argv[1:]])
    now = time.strftime("%Y-%m-%d %H:%M:%S")
    return f"process {os.getpid()} on {socket.gethostname()} since {now}: {command}"


def _said(path: Path) -> str:
    """Return what a living run says of itself; remove the file of a dead one and return nothing."""
    try:
        with path.open("r+", encoding="utf-8") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return file.read() or "a run that says nothing of itself"
            path.unlink()
    except FileNotFoundError:
        pass
    return ""
