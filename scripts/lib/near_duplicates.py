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
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from rensa import RMinHash
from xxhash import xxh32_intdigest

BandKeys = NDArray[np.uint32]
"""One row a text, one column a band; texts with equal keys in a column are suspects."""

WordHashes = NDArray[np.uint32]

_FEW = 32
"""Entries of shared bands up to which looking at rare words does not pay."""

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


@dataclass(frozen=True)
class Suspects:
    """The texts that agree with another one in at least one band.

    Attributes:
        places: where they are among the texts, rising.
        owner: numbers of suspects, rising, one entry for each band that it shares.
        band: what identifies that band and its content.
    """

    places: NDArray[np.int64]
    owner: NDArray[np.int64]
    band: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.places)


def find_suspects(keys: BandKeys) -> Suspects:
    """Return the suspects among texts with these keys."""
    texts, bands = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    count = 0
    for column in keys.T:
        order = np.argsort(column)
        borders = np.flatnonzero(np.diff(column[order])) + 1
        sizes = np.diff(np.concatenate(([0], borders, [len(order)])))
        shared = np.repeat(sizes > 1, sizes)
        texts.append(order[shared])
        bands.append(np.repeat(np.arange(len(sizes)), sizes)[shared] + count)
        count += len(sizes)
    text, band = np.concatenate(texts), np.concatenate(bands)
    order = np.argsort(text, kind="stable")
    places, owner = np.unique(text[order], return_inverse=True)
    return Suspects(places, owner, band[order])


class Candidates:
    """Those suspects, entered so far, that may be similar to one that comes after them.

    Args:
        suspects: what shares which bands.
        words: hashes of the different words of each suspect.
        threshold: of the similarity.
    """

    def __init__(self, suspects: Suspects, words: Sequence[WordHashes], threshold: float):
        self._threshold = threshold
        self._sizes = np.fromiter(map(len, words), np.int64, len(words))
        self._entered = np.zeros(len(words), np.bool_)
        self._by_band = _Earlier(suspects.owner, suspects.band, len(words))
        rarest = list(_rarest(words, threshold))
        counts = np.fromiter(map(len, rarest), np.int64, len(rarest))
        owner = np.repeat(np.arange(len(words)), counts)
        self._position = np.arange(len(owner)) - np.repeat(np.cumsum(counts) - counts, counts)
        rare = np.concatenate([np.zeros(0, np.uint32), *rarest]).astype(np.int64)
        self._by_word = _Earlier(owner, rare, len(words))

    def of(self, suspect: int) -> list[int]:
        """Return the entered suspects before this one that may be similar, in order.

        They share a band or, where bands have many members, enough rare words.
        """
        if self._by_band.count(suspect) <= _FEW:
            _, entries = self._by_band.entries(suspect)
            others = self._by_band.owner[entries]
            common = np.minimum(self._sizes[suspect], self._sizes[others])
        else:
            own, entries = self._by_word.entries(suspect)
            others = self._by_word.owner[entries]
            # this word is in both; more can only be behind it
            common = np.minimum(
                self._sizes[suspect] - self._position[own],
                self._sizes[others] - self._position[entries],
            )
        # in common / in either >= threshold
        needed = self._threshold * (self._sizes[suspect] + self._sizes[others])
        enough = common * (1 + self._threshold) >= needed - 1e-6
        return list(map(int, np.unique(others[enough & self._entered[others]])))

    def enter(self, suspect: int) -> None:
        """Make a suspect a candidate for those that follow."""
        self._entered[suspect] = True


class _Earlier:
    """For each owner of features the entries of earlier owners with the same features."""

    def __init__(self, owner: NDArray[np.int64], feature: NDArray[np.int64], owners: int):
        self.owner = owner
        self._first = np.searchsorted(owner, np.arange(owners + 1))
        self._order = np.argsort(feature, kind="stable")
        by_feature = feature[self._order]
        self._start = np.searchsorted(by_feature, feature)
        end = np.empty_like(self._order)
        end[self._order] = np.arange(len(end))
        self._counts = end - self._start
        self._totals = np.concatenate(([0], np.cumsum(self._counts)))

    def count(self, owner: int) -> int:
        """Return the number of entries that `entries` gives."""
        return int(self._totals[self._first[owner + 1]] - self._totals[self._first[owner]])

    def entries(self, owner: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return pairs of an entry of the owner and one of an earlier owner."""
        first, last = self._first[owner], self._first[owner + 1]
        counts = self._counts[first:last]
        own = np.repeat(np.arange(first, last), counts)
        shifts = self._start[first:last] - (np.cumsum(counts) - counts)
        places = np.repeat(shifts, counts) + np.arange(len(own))
        return own, self._order[places]


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
