"""Files of records in pieces of whole lines, for several processes."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from lib.conversation import Conversation, from_line

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
    offset = piece.start
    with piece.path.open("rb") as file:
        file.seek(piece.start)
        for line in file.read(piece.end - piece.start).splitlines(keepends=True):
            try:
                conversation = from_line(line)
            except ValueError as error:
                raise ValueError(f"{piece.path}: the line at byte {offset}: {error}") from error
            yield conversation, offset, len(line)
            offset += len(line)
