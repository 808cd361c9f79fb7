"""Files that appear whole or not at all."""

import errno
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from glob import escape
from pathlib import Path
from typing import Any

_FULL = (errno.ENOSPC, errno.EDQUOT)


def says_disk_is_full(error: BaseException) -> bool:
    """Return whether an error is that of a full disk, or of a quota that is used up."""
    return isinstance(error, OSError) and error.errno in _FULL


@contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """Give a path beside `path` to write to; rename it to `path` when the block ends well.

    Works for a file and for a folder (a folder that is already there is replaced). After an
    exception nothing is left behind and `path` is as it was; what a killed process left behind is
    removed by the next one.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    for left in path.parent.glob(f".{escape(path.name)}.*.partial"):
        remove(left)
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        yield partial
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        partial.replace(path)
    finally:
        remove(partial)


@contextmanager
def emptied(folder: Path) -> Iterator[Path]:
    """Have an empty folder while the block runs, whatever a killed run left in it."""
    remove(folder)
    folder.mkdir()
    try:
        yield folder
    finally:
        remove(folder)


def remove(path: Path) -> None:
    """Delete a file, a link or a folder with all that is in it; do nothing if it is not there."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write a UTF-8 text file atomically."""
    with atomic_path(path) as partial:
        partial.write_text(text, encoding="utf-8")


def write_json(path: Path, value: Any) -> None:
    """Write a small JSON file for people and programs: indented, keys in the order given."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def read_json(path: Path) -> Any:
    """Read a JSON file."""
    return json.loads(path.read_text(encoding="utf-8"))


def sha256_of_file(path: Path) -> str:
    """Return the SHA-256 of a file's content as 64 hexadecimal digits, reading it in pieces."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def describe_files(
    folder: Path, names: list[str], sha256: Callable[[Path], str] = sha256_of_file
) -> list[dict[str, Any]]:
    """Return `{"name", "size", "sha256"}` for each file of a folder, in the order given.

    Args:
        sha256: gives the SHA-256 of a file, for those who know it without reading the file again.
    """
    return [
        {
            "name": name,
            "size": (folder / name).stat().st_size,
            "sha256": sha256(folder / name),
        }
        for name in names
    ]
