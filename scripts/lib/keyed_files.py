"""Values in files that are found by keys of 128 bits, millions of them, from an index in memory."""

import os
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

INDEX = np.dtype([("key", "<u8", 2), ("offset", "<i8"), ("length", "<i8")])
"""Where a value lies in its file."""

_OPEN_FILES = 64


class KeyedFiles:
    """Files and the index of each; a key that is there twice gives one of its values."""

    def __init__(self, files: Sequence[tuple[Path, NDArray[Any]]]):
        self._paths = [path for path, _ in files]
        parts = [index for _, index in files]
        entries = np.concatenate([np.zeros(0, INDEX), *parts])
        owners = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
        order = np.argsort(entries["key"][:, 0], kind="stable")
        self._entries, self._owners = entries[order], owners[order]
        self._open = lru_cache(maxsize=_OPEN_FILES)(lambda path: path.open("rb"))

    def find(self, keys: Sequence[int]) -> list[bytes | None]:
        """Return the value of each key, None for those that are not there."""
        if not len(self._entries) or not keys:
            return [None] * len(keys)
        wanted = split_keys(keys)
        known = self._entries["key"]
        last = len(known) - 1
        places = np.searchsorted(known[:, 0], wanted[:, 0]).clip(max=last)
        found = (known[places] == wanted).all(axis=1)
        while (beside := ~found & (known[places, 0] == wanted[:, 0]) & (places < last)).any():
            places[beside] += 1
            found = (known[places] == wanted).all(axis=1)
        return [
            self._read(place) if here else None
            for place, here in zip(places.tolist(), found.tolist(), strict=True)
        ]

    def _read(self, place: int) -> bytes:
        file = self._open(self._paths[self._owners[place]])
        entry = self._entries[place]
        return os.pread(file.fileno(), int(entry["length"]), int(entry["offset"]))


def split_keys(keys: Sequence[int]) -> NDArray[np.uint64]:
    """Return keys of 128 bits as pairs of 64 bits, the higher ones first; shape [keys, 2]."""
    low = (1 << 64) - 1
    return np.array([(key >> 64, key & low) for key in keys], np.uint64).reshape(-1, 2)
