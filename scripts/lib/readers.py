"""Raw rows from files, streamed: Parquet, JSON lines, and JSON arrays of any size.

The JSON readers use Python's own decoder, which keeps lone surrogates and large numbers as they
are; readers that infer column types change text (dates, numbers, nested JSON) in silence.
"""

import codecs
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TextIO

import pyarrow
import pyarrow.parquet

_PIECE = 1 << 20
"""Characters or rows are read in pieces of about this size."""

_DECODER = json.JSONDecoder()


def read_rows(path: Path) -> Iterator[Any]:
    """Yield the raw rows of a file in order; memory does not grow with the file.

    The kind of file follows from its suffix: `.parquet`, `.jsonl`, or `.json` (one array of
    rows, or rows one after another).

    Raises:
        ValueError: the file ends early or is damaged; names the file and the position. The rows
            before the damage have been yielded by then.
    """
    if path.suffix == ".parquet":
        yield from _parquet_rows(path)
    elif path.suffix in (".json", ".jsonl"):
        encoding = "utf-8-sig" if _has_byte_order_mark(path) else "utf-8"
        with path.open("r", encoding=encoding, errors="surrogateescape", newline="") as file:
            yield from _json_rows(file, path)
    else:
        raise ValueError(f"{path}: unknown kind of file; use .parquet, .jsonl or .json")


def _has_byte_order_mark(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(3) == codecs.BOM_UTF8


def _parquet_rows(path: Path) -> Iterator[Any]:
    rows = 0
    try:
        with pyarrow.parquet.ParquetFile(path) as table:
            for batch in table.iter_batches(batch_size=1000):
                for row in batch.to_pylist():
                    yield {name: _without_added_nulls(value) for name, value in row.items()}
                rows += batch.num_rows
    except (pyarrow.ArrowException, OSError) as error:
        raise ValueError(f"{path}: {error} after row {rows}; the file is damaged") from error


def _without_added_nulls(value: Any) -> Any:
    """Undo Arrow's union of keys: a null below the columns is a key that the row never had."""
    if isinstance(value, Mapping):
        return {key: _without_added_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_without_added_nulls(item) for item in value]
    return value


def _json_rows(file: TextIO, path: Path) -> Iterator[Any]:
    """Decode values one after another, inside an array or not, separated by white space."""
    buffer = _Buffer(file)
    in_array = buffer.skip_space() == "["
    if in_array:
        buffer.take()
    while True:
        mark = buffer.skip_space()
        if in_array and mark == "]":
            buffer.take()
            if buffer.skip_space():
                raise _damaged(path, buffer, "text after the array")
            return
        if not mark:
            if in_array:
                raise _damaged(path, buffer, "the array is not closed")
            return
        found, value = buffer.decode()
        if not found:
            raise _damaged(path, buffer, "no complete JSON value")
        yield value
        if in_array and buffer.skip_space() == ",":
            buffer.take()
        elif in_array and buffer.skip_space() != "]":
            raise _damaged(path, buffer, "a comma or ] is missing")


def _damaged(path: Path, buffer: "_Buffer", what: str) -> ValueError:
    return ValueError(f"{path}: {what} at character {buffer.position()}; the file is damaged")


class _Buffer:
    """Text of a file from the next character on, read as far as is needed."""

    def __init__(self, file: TextIO):
        self._file = file
        self._text = ""
        self._at = 0
        self._before = 0
        self._is_damaged = False

    def position(self) -> int:
        """Return the 0-based character of the file that comes next."""
        return self._before + self._at

    def take(self) -> None:
        """Step over one character."""
        self._at += 1

    def skip_space(self) -> str:
        """Step over white space and return the next character, "" at the end of the file."""
        while True:
            rest = len(self._text)
            while self._at < rest and self._text[self._at] in " \t\r\n":
                self._at += 1
            if self._at < rest:
                return self._text[self._at]
            if not self._read(_PIECE):
                return ""

    def decode(self) -> tuple[bool, Any]:
        """Decode the next value, reading on while it is incomplete; (False, None) if it is none."""
        piece = _PIECE
        while True:
            try:
                value, end = _DECODER.raw_decode(self._text, self._at)
            except json.JSONDecodeError as error:
                if not (self._may_be_cut(error) and self._read(piece)):
                    return False, None
                piece *= 2
                continue
            except (ValueError, RecursionError):  # a number or a nesting beyond Python's limits
                return False, None
            if len(self._text) - end < 3 and self._read(_PIECE):  # "-0.", "1e+": a cut number
                continue
            self._at = end
            return True, value

    def _may_be_cut(self, error: json.JSONDecodeError) -> bool:
        """Say whether more text could cure an error: it stands at the end, or in an open string."""
        return error.msg.startswith("Unterminated string") or len(self._text) - error.pos < 16

    def _read(self, size: int) -> bool:
        if self._is_damaged:
            return False
        piece = self._file.read(size)
        if not piece:
            return False
        try:
            piece.encode()
        except UnicodeEncodeError as error:  # the byte at its end is no UTF-8: nothing follows it
            self._is_damaged = True
            piece = piece[: error.end]
        self._before += self._at
        self._text = self._text[self._at :] + piece
        self._at = 0
        return True
