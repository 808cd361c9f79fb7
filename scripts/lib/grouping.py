"""Rows that belong together, brought together in bounded memory."""

import pickle
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from lib.digest import digest

_BUCKETS = 256


def grouped(
    rows: Iterable[tuple[int, Any]], key: Callable[[int, Any], str], folder: Path
) -> Iterator[list[tuple[int, Any]]]:
    """Yield the rows of each key, in order, as one list a key.

    The rows are spread over files by a hash of their key, then one file at a time is read: the
    memory is that of the largest file, about 1/256 of the data.

    Args:
        rows: numbered rows.
        key: from the number and the row to the key.
        folder: where the files may be written; they are removed at the end.

    Yields:
        Groups in the order of the hash of their key.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix=".groups-", dir=folder) as scratch:
        paths = [Path(scratch, f"{n:02x}") for n in range(_BUCKETS)]
        with ExitStack() as files:
            buckets = [files.enter_context(path.open("wb")) for path in paths]
            for number, row in rows:
                name = digest(key(number, row))
                pickle.dump((name, number, row), buckets[int(name[:2], 16)])
        for path in paths:
            groups: dict[str, list[tuple[int, Any]]] = {}
            with path.open("rb") as file:
                while file.peek(1):
                    name, number, row = pickle.load(file)
                    groups.setdefault(name, []).append((number, row))
            path.unlink()
            for name in sorted(groups):
                yield groups[name]
