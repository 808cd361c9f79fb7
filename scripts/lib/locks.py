"""Locks of Snakemake runs that were killed.

Snakemake leaves its lock behind when it is killed and then refuses to run. The operating system
drops a file lock when its process ends, so it tells whether a run is alive.
"""

import fcntl
from pathlib import Path
from typing import TextIO


def clear_stale_locks(folder: Path) -> TextIO | None:
    """Remove the locks in Snakemake's folder if no other run is alive, and mark this one as alive.

    Where another run is alive, Snakemake's own lock stays and speaks for it.

    Args:
        folder: `.snakemake` of the working directory.

    Returns:
        The open file that marks this run as alive for as long as it is kept; None if another
        run is alive.
    """
    folder.mkdir(exist_ok=True)
    alive = (folder / "draftmill.alive").open("w")
    try:
        fcntl.flock(alive, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        alive.close()
        return None
    for lock in (folder / "locks").glob("*.lock"):
        lock.unlink(missing_ok=True)
    return alive
