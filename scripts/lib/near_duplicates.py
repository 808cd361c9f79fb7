"""Texts that use nearly the same words, found without comparing each with each.

Every text gets a MinHash signature (Broder 1997), cut into bands; only texts that agree with
another in a whole band are looked at further (locality-sensitive hashing: Leskovec, Rajaraman and
Ullman, "Mining of Massive Datasets", chapter 3). Of those, two are compared only if the first of
their words in common, from the rarest on, leaves room for enough others: prefix and positional
filtering (Bayardo, Ma and Srikant 2007, "Scaling Up All Pairs Similarity Search"; Xiao et al. 2008,
"Efficient Similarity Joins for Near Duplicate Detection"). They lose no pair, and without them many
texts that are made from one template, but not similar enough, would all be compared with each
other. The library's own index holds an object a band and text, several gigabytes for a million
texts; here a band of a text is four bytes.
"""

import math
from collections.abc import Collection, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray
from rensa import RMinHash
from xxhash import xxh32_intdigest

BandKeys = NDArray[np.uint32]
"""One row a text, one column a band; texts with equal keys in a column are suspects."""

WordHashes = NDArray[np.uint32]

_FREQUENCY_BITS = 22
"""Bits of a word's hash by which its frequency is counted: 16 MB for any number of words."""

_MOST_ROWS = 8
"""Rows a band: the more, the fewer texts below the threshold are suspects."""

_MOST_BANDS = 128
"""Bands a text, which is half a kilobyte; a low threshold takes fewer rows to stay below it."""

_MISSED = 0.02
"""Share of the pairs that are exactly at the threshold which may be missed."""

_SEED = 1
_FACTORS = np.random.default_rng(_SEED).integers(1, 2**63, _MOST_ROWS, np.uint64) * 2 + 1


class Bands:
    """How signatures are cut so that pairs with a similarity of `threshold` are found."""

    def __init__(self, threshold: float):
        for rows in range(_MOST_ROWS, 0, -1):
            self._rows = rows
            self._count = _bands(threshold, rows)
            if self._count <= _MOST_BANDS:
                break

    def keys(self, texts: Sequence[Collection[str]]) -> BandKeys:
        """Return the keys of texts, each given as its different words."""
        permutations = self._count * self._rows
        if not texts:
            return np.zeros((0, self._count), np.uint32)
        digests = RMinHash.digests_from_token_sets(
            [list(words) for words in texts], permutations, _SEED
        )
        rows = np.array(digests, np.uint64).reshape(len(texts), self._count, self._rows)
        mixed = (rows * _FACTORS[: self._rows]).sum(axis=2, dtype=np.uint64) >> np.uint64(32)
        return np.asarray(mixed, np.uint32)


def _bands(threshold: float, rows: int) -> int:
    """Return how many bands it takes to miss few of the pairs that are at the threshold."""
    if threshold == 1:
        return 1
    return math.ceil(math.log(_MISSED) / math.log1p(-(threshold**rows)))


def similarity(words: frozenset[str], others: frozenset[str]) -> float:
    """Return the Jaccard similarity of two sets, 1 for two empty ones."""
    both = len(words & others)
    return both / (len(words) + len(others) - both) if words or others else 1.0


def suspects(keys: BandKeys) -> NDArray[np.bool_]:
    """Mark the texts that agree with another one in at least one band."""
    found = np.zeros(len(keys), np.bool_)
    for column in keys.T:
        order = np.argsort(column, kind="stable")
        same = np.flatnonzero(np.diff(column[order]) == 0)
        found[order[same]] = found[order[same + 1]] = True
    return found


class Candidates:
    """Those texts, entered so far, that may be similar to a text that comes after them.

    Args:
        texts: hashes of the different words of each text.
        threshold: of the similarity.
    """

    def __init__(self, texts: Sequence[WordHashes], threshold: float):
        self._threshold = threshold
        self._sizes = np.fromiter(map(len, texts), np.int64, len(texts))
        self._entered = np.zeros(len(texts), np.bool_)
        rarest = list(_rarest(texts, threshold))
        counts = np.fromiter(map(len, rarest), np.int64, len(rarest))
        self._first = np.concatenate(([0], np.cumsum(counts)))
        words = np.concatenate([np.zeros(0, np.uint32), *rarest])
        owners = np.repeat(np.arange(len(texts)), counts)
        order = np.argsort(words, kind="stable")  # by word, the texts of a word in their order
        self._text = owners[order]
        self._position = (np.arange(len(words)) - self._first[owners])[order]
        self._end = np.empty_like(order)  # where the earlier texts with the same word end
        self._end[order] = np.arange(len(order))
        self._start = np.searchsorted(words[order], words)

    def of(self, text: int) -> list[int]:
        """Return the entered texts before this one that may be similar, in order."""
        own = slice(self._first[text], self._first[text + 1])
        starts, counts = self._start[own], self._end[own] - self._start[own]
        if not counts.any():
            return []
        shifts = starts - np.concatenate(([0], np.cumsum(counts)[:-1]))
        places = np.repeat(shifts, counts) + np.arange(counts.sum())
        others, size = self._text[places], self._sizes[text]
        behind = size - np.repeat(np.arange(len(counts)), counts)
        behind = np.minimum(behind, self._sizes[others] - self._position[places])
        # in common / in either >= threshold, with what is behind the word as the most in common
        needed = self._threshold * (size + self._sizes[others])
        enough = behind * (1 + self._threshold) >= needed - 1e-6
        return list(map(int, np.unique(others[enough & self._entered[others]])))

    def enter(self, text: int) -> None:
        """Make a text a candidate for those that follow."""
        self._entered[text] = True


def _rarest(texts: Sequence[WordHashes], threshold: float) -> Iterator[WordHashes]:
    """Yield of each text the rarest words, of which a similar text must hold one, in one order.

    Frequencies of words whose hashes begin alike fall together; that makes the order worse,
    not wrong.
    """
    shift = 32 - _FREQUENCY_BITS
    frequencies = np.zeros(1 << _FREQUENCY_BITS, np.uint32)
    for words in texts:
        frequencies[words >> shift] += 1
    for words in texts:
        count = len(words) - math.ceil(threshold * len(words) - 1e-6) + 1
        yield words[np.lexsort((words, frequencies[words >> shift]))[:count]]


def word_hashes(words: Collection[str]) -> WordHashes:
    """Return 32 bits for each different word."""
    return np.fromiter({xxh32_intdigest(word.encode()) for word in words}, np.uint32)
