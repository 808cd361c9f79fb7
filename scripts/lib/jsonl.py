"""The one reader and the one writer of JSON lines."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lib.files import atomic_path

_BUFFER = 1 << 20
"""Bytes that are collected before they are written."""

_ENCODE = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode


def json_line(value: Any) -> bytes:
    """Return the line of a value: UTF-8, keys in their order, ended by a line break."""
    return _ENCODE(value).encode() + b"\n"


class JsonlWriter:
    """Writes one JSON value a line and counts the lines."""

    def __init__(self, path: Path):
        self._file = path.open("wb", buffering=_BUFFER)
        self.count = 0

    def write(self, value: Any) -> None:
        """Append one value; keys keep their order and text its characters."""
        self.write_line(json_line(value))

    def write_line(self, line: bytes) -> None:
        """Append a line that `json_line` made."""
        self._file.write(line)
        self.count += 1

    def close(self) -> None:
        """Flush and close the file."""
        self._file.close()


@contextmanager
def jsonl_writer(path: Path) -> Iterator[JsonlWriter]:
    """Open `path` for streaming; the file appears only when the block ends well."""
    with atomic_path(path) as partial:
        writer = JsonlWriter(partial)
        try:
            yield writer
        finally:
            writer.close()


def read_jsonl(path: Path) -> Iterator[Any]:
    """Yield the value of each line, one at a time.

    Raises:
        ValueError: a line is not JSON; names the file and the byte where the line starts.
    """
    offset = 0
    with path.open("rb") as file:
        for line in file:
            try:
                yield json.loads(line)
            except ValueError as error:
                raise ValueError(
                    f"{path}: the line at byte {offset} is not JSON: {error}"
                ) from error
            offset += len(line)


def count_lines(path: Path) -> int:
    """Return the number of lines of a file."""
    with path.open("rb") as file:
        return sum(1 for _ in file)
