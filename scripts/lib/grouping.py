"""Rows that belong together, brought together in bounded memory."""

import json
import pickle
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, NamedTuple

from lib.digest import digest

_FILES = 128
"""Open at once; some systems allow a process no more than 256."""


class _AsJson(NamedTuple):
    """A row nested so deeply that pickle gives up; the JSON encoder goes as deep as the decoder."""

    text: str


def grouped(
    rows: Iterable[tuple[int, Any]], key: Callable[[int, Any], str], folder: Path
) -> Iterator[list[tuple[int, Any]]]:
    """Yield the rows of each key, in order, as one list a key.

    The rows are spread over files by a hash of their key, then one file at a time is read: the
    memory is that of the largest file, about 1/128 of the data.

    Args:
        rows: numbered rows.
        key: from the number and the row to the key.
        folder: where the files lie; they have no names, so that nothing stays of a killed run.

    Yields:
        Groups in an order that follows from their keys alone.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as opened:
        files = [opened.enter_context(TemporaryFile(dir=folder)) for _ in range(_FILES)]
        for number, row in rows:
            name = digest(key(number, row))
            files[int(name, 16) % _FILES].write(_packed(name, number, row))
        for file in files:
            with file:  # closed right after it is read, which gives its space back
                groups: dict[str, list[tuple[int, Any]]] = {}
                file.seek(0)
                while file.peek(1):
                    name, number, row = pickle.load(file)
                    row = json.loads(row.text) if isinstance(row, _AsJson) else row
                    groups.setdefault(name, []).append((number, row))
                for name in sorted(groups):
                    yield groups.pop(name)


def _packed(name: str, number: int, row: Any) -> bytes:
    try:
        return pickle.dumps((name, number, row))
    except RecursionError:
        return pickle.dumps((name, number, _AsJson(json.dumps(row))))
