"""Files that come from elsewhere: resumed where they stopped, checked, and renamed when right."""

import os
import shutil
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

from lib.console import Progress, Stage
from lib.files import atomic_path, remove, says_disk_is_full
from lib.sizes import show_bytes


def download(
    what: str,
    path: Path,
    expected: str | None,
    go_on: Callable[[Path, Progress], None],
    stage: Stage,
) -> str:
    """Download beside `path` and rename if the content is right; once more if it is not.

    Args:
        what: how messages name the file.
        expected: the right SHA-256; None if nobody states one.
        go_on: downloads what is missing at a path.

    Returns:
        The SHA-256 of the file.

    Raises:
        ValueError: the content is wrong twice, or the disk is full.
    """
    partial = partial_path(path)
    partial.parent.mkdir(parents=True, exist_ok=True)
    if expected is None:
        remove(partial)  # nothing would show that it is the beginning of another content
    for last in (False, True):
        try:
            with stage.progress(f"bytes of {path.name}") as progress:
                go_on(partial, progress)
        except OSError as error:
            if not says_disk_is_full(error):
                raise
            raise ValueError(
                f"no space left for {path}: make room and run the same command again, "
                "it goes on from here"
            ) from error
        found = hash_file(partial, stage)
        if expected in (None, found):
            partial.replace(path)
            return found
        remove(partial)
        problem = f"{what} has the SHA-256 {found} instead of {expected}"
        if not last:
            stage.say(f"{problem}; fetching it once more")
    raise ValueError(f"{problem}, twice: its origin has another content")


def partial_path(path: Path) -> Path:
    """Return where a file is downloaded to before it gets its name."""
    return path.with_name(f".{path.name}.download")


def check_space(folder: Path, needed: int) -> None:
    """Stop before a download that the disk of `folder` has no room for.

    Raises:
        ValueError: fewer than `needed` bytes are free.
    """
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise ValueError(
            f"{folder} needs {show_bytes(needed)} more, but its disk has {show_bytes(free)} free: "
            "make room there and run the same command again"
        )


def link(source: Path, path: Path, stage: Stage) -> str:
    """Make `path` a link to a file on this machine, relative so that both can move together.

    Returns:
        The SHA-256 of the file.

    Raises:
        ValueError: there is no such file.
    """
    if not source.is_file():
        raise ValueError(f"{source} is not there")
    with atomic_path(path) as partial:
        partial.symlink_to(os.path.relpath(source.resolve(), path.parent.resolve()))
    return hash_file(path, stage)


def has_content(path: Path, expected: str, stage: Stage) -> bool:
    """Return whether a file is there and has the SHA-256 `expected`."""
    return path.is_file() and hash_file(path, stage) == expected


def hash_file(path: Path, stage: Stage) -> str:
    """Return the SHA-256 of a file, showing the progress."""
    digest = sha256()
    size = path.stat().st_size
    with path.open("rb") as file, stage.progress(f"checking {path.name}", size) as progress:
        while piece := file.read(1 << 20):
            digest.update(piece)
            progress.advance(len(piece))
    return digest.hexdigest()
