"""Values that are kept between runs by their keys, for millions of them.

Many processes may read and add at once: values are added as whole files that never change, and a
file counts only when its index is there. So a kill at any moment loses what was not added, no more.
"""

import os
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from lib.files import atomic_path
from lib.keyed_files import INDEX, KeyedFiles, split_keys


class RowCache(KeyedFiles):
    """Bytes by keys of 128 bits, in the files of a folder."""

    def __init__(self, folder: Path):
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        indexes = sorted(folder.glob("*.npy"))
        super().__init__(
            [(path.with_suffix(".values"), np.load(path, allow_pickle=False)) for path in indexes]
        )

    def add(self, values: Mapping[int, bytes]) -> None:
        """Keep values for later runs; this object does not find them."""
        if not values:
            return
        entries = np.zeros(len(values), INDEX)
        entries["key"] = split_keys(list(values))
        entries["length"] = [len(value) for value in values.values()]
        entries["offset"] = np.concatenate(([0], np.cumsum(entries["length"])[:-1]))
        name = f"{min(values):032x}-{os.getpid()}"
        with atomic_path(self._folder / f"{name}.values") as path:
            path.write_bytes(b"".join(values.values()))
        with atomic_path(self._folder / f"{name}.npy") as path, path.open("wb") as file:
            np.save(file, entries, allow_pickle=False)
