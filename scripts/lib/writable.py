"""Whether a run may write where it will have to."""

import os
from collections.abc import Iterable
from pathlib import Path


def not_writable(folders: Iterable[Path]) -> list[str]:
    """Return a line for each folder that cannot be written to, and what to do about it.

    For a folder that is not there yet, the nearest one above it counts.
    """
    return [
        f"{folder}/ cannot be written to: it is mounted read-only, or belongs to someone else; "
        "make it writable, or work elsewhere with --directory"
        for folder in folders
        if not os.access(_nearest(folder), os.W_OK | os.X_OK)
    ]


def _nearest(folder: Path) -> Path:
    while not folder.exists():
        folder = folder.absolute().parent
    return folder
