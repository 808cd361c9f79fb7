"""Texts that use nearly the same words, found without comparing each with each.

Every text gets a MinHash signature (Broder 1997), cut into bands; texts that agree in a whole band
are candidates (locality-sensitive hashing: Leskovec, Rajaraman and Ullman, "Mining of Massive
Datasets", chapter 3). Whether a candidate is similar is for the caller to check on the words
themselves. The library's own index holds a Python object a band and text, several gigabytes for a
million texts; here a band of a text is four bytes.
"""

import math
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from rensa import RMinHash

BandKeys = NDArray[np.uint32]
"""One row a text, one column a band; texts with equal keys in a column are candidates."""

_ROWS = 8
"""Rows a band: many, so that few texts below the threshold are candidates."""

_MISSED = 0.02
"""Share of the pairs that are exactly at the threshold which may be missed."""

_SEED = 1
_FACTORS = np.random.default_rng(_SEED).integers(1, 2**63, _ROWS, np.uint64) * 2 + 1


@dataclass(frozen=True)
class Bands:
    """How signatures are cut so that pairs with a similarity of `threshold` are found."""

    threshold: float

    @property
    def count(self) -> int:
        """Number of bands."""
        if self.threshold == 1:
            return 1
        return math.ceil(math.log(_MISSED) / math.log1p(-(self.threshold**_ROWS)))

    def keys(self, texts: Sequence[Collection[str]]) -> BandKeys:
        """Return the keys of texts, each given as its different words."""
        permutations = self.count * _ROWS
        if not texts:
            return np.zeros((0, self.count), np.uint32)
        digests = RMinHash.digests_from_token_sets(
            [list(words) for words in texts], permutations, _SEED
        )
        rows = np.array(digests, np.uint64).reshape(len(texts), self.count, _ROWS)
        mixed = (rows * _FACTORS).sum(axis=2, dtype=np.uint64) >> np.uint64(32)
        return np.asarray(mixed, np.uint32)


def similarity(words: frozenset[str], others: frozenset[str]) -> float:
    """Return the Jaccard similarity of two sets, 1 for two empty ones."""
    both = len(words & others)
    return both / (len(words) + len(others) - both) if words or others else 1.0


class Neighbours:
    """Those texts, entered so far, that agree with a text in at least one band."""

    def __init__(self, keys: BandKeys):
        self._first, self._buckets = _buckets(keys)
        self._members: defaultdict[int, list[int]] = defaultdict(list)

    def texts(self) -> Iterator[int]:
        """Yield in order the texts that agree in a band with any other at all."""
        yield from map(int, np.flatnonzero(np.diff(self._first)))

    def of(self, text: int) -> list[int]:
        """Return the entered neighbours of a text in order."""
        found: set[int] = set()
        for bucket in self._buckets_of(text):
            found.update(self._members.get(bucket, ()))
        return sorted(found)

    def enter(self, text: int) -> None:
        """Make a text one that others can be neighbours of."""
        for bucket in self._buckets_of(text):
            self._members[bucket].append(text)

    def _buckets_of(self, text: int) -> list[int]:
        buckets: list[int] = self._buckets[self._first[text] : self._first[text + 1]].tolist()
        return buckets


def _buckets(keys: BandKeys) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the buckets with at least two texts.

    Returns:
        Where the buckets of each text start in the second array (one more than there are texts),
        and the numbers of the buckets.
    """
    texts, buckets = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    count = 0
    for column in keys.T:
        order = np.argsort(column, kind="stable")
        borders = np.flatnonzero(np.diff(column[order])) + 1
        sizes = np.diff(np.concatenate(([0], borders, [len(order)])))
        numbers = np.repeat(np.cumsum(sizes > 1) - 1, sizes)
        shared = np.repeat(sizes > 1, sizes)
        texts.append(order[shared])
        buckets.append(numbers[shared] + count)
        count += int((sizes > 1).sum())
    of_text, bucket = np.concatenate(texts), np.concatenate(buckets)
    order = np.argsort(of_text, kind="stable")
    first = np.searchsorted(of_text[order], np.arange(len(keys) + 1))
    return first, bucket[order]
