"""Values that are kept one by one as they are made, and found by later runs.

Each process writes a file of its own, so many may add at once, on any file system. A value is on
its way to the disk when `add` returns: a kill at any moment loses at most the value that was just
being written, and a half-written one is not used.
"""

import os
import socket
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lib.keyed_files import INDEX, KeyedFiles

_HEAD = struct.Struct("<QQII")
"""Of each value: its key, the higher half first; its length; its CRC-32."""


class Journal:
    """Bytes by keys of 128 bits, in the files of a folder; for use in a `with` block."""

    def __init__(self, folder: Path):
        folder.mkdir(parents=True, exist_ok=True)
        earlier = [(path, _index(path)) for path in sorted(folder.glob("*.journal"))]
        self._earlier = KeyedFiles(earlier)
        taken = {path.name for path, _ in earlier}
        owner = f"{socket.gethostname()}-{os.getpid()}"
        number = next(n for n in range(len(taken) + 1) if f"{owner}-{n}.journal" not in taken)
        self._path = folder / f"{owner}-{number}.journal"
        self._file: Any = None

    def __enter__(self) -> "Journal":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._file is not None:
            self._file.close()

    def find(self, key: int) -> bytes | None:
        """Return the value that an earlier run added, None if there is none or it is damaged."""
        (found,) = self._earlier.find([key])
        if found is None:
            return None
        *_, check = _HEAD.unpack_from(found)
        value = found[_HEAD.size :]
        return value if zlib.crc32(value) == check else None

    def add(self, key: int, value: bytes) -> None:
        """Keep a value for later runs; this object does not find it."""
        if self._file is None:
            self._file = self._path.open("ab", buffering=0)
        head = _HEAD.pack(key >> 64, key & ((1 << 64) - 1), len(value), zlib.crc32(value))
        self._file.write(head + value)


def _index(path: Path) -> NDArray[Any]:
    """Return where the whole values of a file lie, each with its head."""
    return np.array(list(_entries(path)), INDEX)


def _entries(path: Path) -> Iterator[tuple[tuple[int, int], int, int]]:
    size = path.stat().st_size
    place = 0
    with path.open("rb") as file:
        while len(head := file.read(_HEAD.size)) == _HEAD.size:
            high, low, length, _ = _HEAD.unpack(head)
            end = place + _HEAD.size + length
            if end > size:
                return
            yield (high, low), place, end - place
            place = file.seek(end)
