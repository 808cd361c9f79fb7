"""Raw rows from files, streamed: Parquet, JSON lines, and JSON arrays, each also compressed."""

import tempfile
import zlib
from collections.abc import Generator, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pyarrow

from lib.json_rows import json_line_rows, json_rows
from lib.parquet_rows import parquet_rows

_JSON_ROWS = {".json": json_rows, ".jsonl": json_line_rows}

_PIECE = 1 << 15
"""Bytes; larger pieces of text leave the processor's cache before they are decoded."""

_PACKED_PIECE = 1 << 12
"""Bytes of a gzip file; they unpack to at most about a thousand times as many."""


def read_rows(path: Path) -> Iterator[Any]:
    """Yield the raw rows of a file in order; memory does not grow with the file.

    The kind of file follows from its suffix: `.parquet`, `.jsonl` (rows one after another), or
    `.json` (one array of rows, or rows one after another), each also with `.gz` or `.zst` after
    it. A compressed Parquet file is unpacked into a temporary file, which needs the space on the
    disk.

    Raises:
        ValueError: the file ends early or is damaged; names the file and the 0-based byte (of the
            decompressed data if it is compressed) where the row that cannot be read begins, for
            Parquet where its row group begins. The rows before it have been yielded by then.
    """
    unpack = {".gz": _gzip_pieces, ".zst": _zstd_pieces}.get(path.suffix)
    kind = Path(path.stem).suffix if unpack else path.suffix

    def damaged(what: str, byte: int) -> ValueError:
        data = " of the decompressed data" if unpack else ""
        return ValueError(f"{path}: {what} at byte {byte}{data}; the file is damaged")

    if kind in _JSON_ROWS:
        with closing((unpack or _pieces)(path)) as pieces:
            yield from _JSON_ROWS[kind](pieces, damaged)
    elif kind == ".parquet" and unpack:
        with tempfile.TemporaryFile() as unpacked:
            try:
                unpacked.writelines(unpack(path))
            except ValueError as error:
                raise damaged(str(error), unpacked.tell()) from error
            yield from parquet_rows(unpacked, damaged)
    elif kind == ".parquet":
        with path.open("rb") as file:
            yield from parquet_rows(file, damaged)
    else:
        raise ValueError(
            f"{path}: unknown kind of file; use .parquet, .jsonl or .json, each also with .gz or "
            ".zst after it"
        )


def _pieces(path: Path) -> Generator[bytes, None, None]:
    with path.open("rb", buffering=0) as file:
        while piece := file.read(_PIECE):
            yield piece


def _gzip_pieces(path: Path) -> Generator[bytes, None, None]:
    """Decompress the members of a file; a ValueError follows the last byte that can be had."""
    member = zlib.decompressobj(zlib.MAX_WBITS | 16)
    with path.open("rb") as file:
        while packed := file.read(_PACKED_PIECE):
            while packed:
                if member.eof:
                    packed = packed.lstrip(b"\0")  # padding after a member
                    if not packed:
                        break
                    member = zlib.decompressobj(zlib.MAX_WBITS | 16)
                before = member.copy()
                try:
                    yield member.decompress(packed)
                except zlib.error as error:
                    with suppress(zlib.error):  # the failed call kept what it had unpacked
                        for byte in packed:
                            yield before.decompress(bytes([byte]))
                    raise ValueError(f"the gzip compression is damaged ({error})") from error
                packed = member.unused_data
    if not member.eof:
        raise ValueError("the gzip compression is damaged (it ends early)")


def _zstd_pieces(path: Path) -> Generator[bytes, None, None]:
    """Decompress the frames of a file; a ValueError follows the last byte that can be had."""
    if not path.stat().st_size:
        raise ValueError("the zstd compression is damaged (the file is empty)")
    count = 0
    with pyarrow.input_stream(str(path), compression="zstd") as stream:
        while True:
            try:
                piece = stream.read(_PIECE)
            except OSError as error:
                yield from _zstd_bytes(path, count)
                raise ValueError(f"the zstd compression is damaged ({error})") from error
            if not piece:
                return
            yield piece
            count += len(piece)


def _zstd_bytes(path: Path, start: int) -> Generator[bytes, None, None]:
    """Yield single bytes up to the damage: a call that fails keeps what it had unpacked."""
    with pyarrow.input_stream(str(path), compression="zstd") as stream:
        while start:
            start -= len(stream.read(min(start, _PIECE)))
        with suppress(OSError):
            while byte := stream.read(1):
                yield byte
