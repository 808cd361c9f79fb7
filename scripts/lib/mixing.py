"""How many conversations each source gives, and which: all by hash, so that little ever moves."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from xxhash import xxh3_64_intdigest

Hashes = NDArray[np.uint64]


def ranks(identities: Hashes, seed: int) -> Hashes:
    """Return a number for each identity that depends on it and on the seed alone.

    A choice of the smallest ranks stays as it is when others are added, but for what they displace.
    """
    raw = identities.astype("<u8").tobytes()
    # xxh3 takes seeds of 64 bits; a seed of the configuration may be any number
    mixed = xxh3_64_intdigest(str(seed).encode())
    each = (xxh3_64_intdigest(raw[n : n + 8], mixed) for n in range(0, len(raw), 8))
    return np.fromiter(each, np.uint64)


def shares(identities: Hashes, seed: int) -> NDArray[np.float64]:
    """Return the ranks as numbers in [0, 1)."""
    return (ranks(identities, seed) >> np.uint64(11)).astype(np.float64) / 2**53


def smallest(values: Hashes, count: int) -> NDArray[np.bool_]:
    """Mark the `count` smallest of different values."""
    chosen = np.zeros(len(values), np.bool_)
    chosen[np.argsort(values, kind="stable")[:count]] = True
    return chosen


def allotments(available: Sequence[int], weights: Sequence[float], total: int) -> list[int]:
    """Return how many of `total` each source gives when their shares follow the weights.

    A source that has too few gives all it has; the others share the rest by their weights. What
    rounding leaves goes to the largest remainders, the first source first among equal ones.
    The sum is `total`, or all that is available with a weight above 0.
    """
    result = [0] * len(available)
    open_sources = [n for n, weight in enumerate(weights) if weight > 0]
    left = total
    while open_sources:
        scale = left / sum(weights[n] for n in open_sources)
        full = [n for n in open_sources if weights[n] * scale >= available[n]]
        if not full:
            break
        for n in full:
            result[n] = available[n]
            left -= available[n]
        open_sources = [n for n in open_sources if n not in full]
    else:
        return result
    exact = {n: weights[n] * scale for n in open_sources}
    for n in open_sources:
        result[n] = int(exact[n])
    spare = left - sum(result[n] for n in open_sources)
    for n in sorted(open_sources, key=lambda n: (result[n] - exact[n], n))[:spare]:
        result[n] += 1
    return result
