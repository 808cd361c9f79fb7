"""Values that are kept between runs by their keys, for millions of them.

Many processes may read and add at once: values are added as whole files that never change, and a
file counts only when its index is there. So a kill at any moment loses what was not added, no more.
"""

import os
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np

from lib.files import atomic_path

_INDEX = np.dtype([("key", "<u8", 2), ("offset", "<i8"), ("length", "<i8")])
_OPEN_FILES = 64


class RowCache:
    """Bytes by keys of 128 bits, in the files of a folder."""

    def __init__(self, folder: Path):
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._names = sorted(path.stem for path in folder.glob("*.npy"))
        parts = [np.load(folder / f"{name}.npy", allow_pickle=False) for name in self._names]
        entries = np.concatenate([np.zeros(0, _INDEX), *parts])
        files = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
        order = np.argsort(entries["key"][:, 0], kind="stable")
        self._entries, self._files = entries[order], files[order]
        self._open = lru_cache(maxsize=_OPEN_FILES)(lambda name: (folder / name).open("rb"))

    def find(self, keys: Sequence[int]) -> list[bytes | None]:
        """Return the value of each key, None for those that are not there."""
        if not len(self._entries) or not keys:
            return [None] * len(keys)
        wanted = _split(keys)
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

    def add(self, values: Mapping[int, bytes]) -> None:
        """Keep values for later runs; this object does not find them."""
        if not values:
            return
        entries = np.zeros(len(values), _INDEX)
        entries["key"] = _split(list(values))
        entries["length"] = [len(value) for value in values.values()]
        entries["offset"] = np.concatenate(([0], np.cumsum(entries["length"])[:-1]))
        name = f"{min(values):032x}-{os.getpid()}"
        with atomic_path(self._folder / f"{name}.values") as path:
            path.write_bytes(b"".join(values.values()))
        with atomic_path(self._folder / f"{name}.npy") as path, path.open("wb") as file:
            np.save(file, entries, allow_pickle=False)

    def _read(self, place: int) -> bytes:
        file = self._open(f"{self._names[self._files[place]]}.values")
        entry = self._entries[place]
        return os.pread(file.fileno(), int(entry["length"]), int(entry["offset"]))


def _split(keys: Sequence[int]) -> np.ndarray:
    low = (1 << 64) - 1
    return np.array([(key >> 64, key & low) for key in keys], np.uint64).reshape(-1, 2)
