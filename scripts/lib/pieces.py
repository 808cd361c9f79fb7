"""Files of records in pieces of whole lines, for several processes."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from lib.conversation import Conversation, from_line

Parsed = TypeVar("Parsed")

PIECE_BYTES = 4 << 20
"""Bytes of records that a process reads at a time."""


@dataclass(frozen=True)
class Piece:
    """Whole lines of a file."""

    path: Path
    start: int
    end: int

    def __str__(self) -> str:
        return f"bytes {self.start} to {self.end} of {self.path}"


def pieces(path: Path) -> Iterator[Piece]:
    """Yield the pieces of a file in order."""
    size = path.stat().st_size
    start = 0
    with path.open("rb") as file:
        while start < size:
            file.seek(min(start + PIECE_BYTES, size))
            file.readline()
            yield Piece(path, start, file.tell())
            start = file.tell()


def read_piece(piece: Piece) -> Iterator[tuple[Conversation, int, int]]:
    """Yield each conversation of a piece, the byte where its line starts, and the line's length.

    Raises:
        ValueError: a line is no record; names the file and the byte where the line starts.
    """
    return parse_piece(piece, from_line)


def parse_piece(
    piece: Piece, parse: Callable[[bytes], Parsed]
) -> Iterator[tuple[Parsed, int, int]]:
    """Yield what `parse` makes of each line of a piece, where the line starts, and its length.

    Args:
        parse: raises a `ValueError` where a line is no record.

    Raises:
        ValueError: a line is no record; names the file and the byte where the line starts.
    """
    offset = piece.start
    with piece.path.open("rb") as file:
        file.seek(piece.start)
        for line in file.read(piece.end - piece.start).splitlines(keepends=True):
            try:
                parsed = parse(line)
            except ValueError as error:
                raise ValueError(f"{piece.path}: the line at byte {offset}: {error}") from error
            yield parsed, offset, len(line)
            offset += len(line)
