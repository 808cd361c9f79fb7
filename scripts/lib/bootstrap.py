"""Acceptance lengths with intervals: what other conversations of the same kind might have given.

A step gives the tokens that were accepted and one of the target's own, so the acceptance length of
several conversations is 1 + accepted / drafts, both summed over them. Conversations are what is
drawn again (the tokens of one are no independent measurements), each with all of its counts.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

CONFIDENCE = 0.95
"""Share of the resampled values that an interval holds."""

_RESAMPLES = 5000
_SEED = 0

Counts = Sequence[tuple[int, int]]
"""Drafts and accepted tokens of each conversation."""

_Numbers = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Estimate:
    """A value with its interval."""

    value: float
    low: float
    high: float


def acceptance_length(counts: Counts) -> Estimate:
    """Return the acceptance length of conversations; 1 if nothing was drafted for any."""
    table = _table(counts)
    return _estimate(_lengths(table.sum(axis=0)), _lengths(_resampled(table)))


def compare_lengths(first: Counts, second: Counts) -> tuple[Estimate, Estimate]:
    """Return how the acceptance length changes from the first to the second.

    Both hold the same conversations in the same order, and each resample draws the same ones from
    both, so what makes a conversation easy or hard for any drafter does not widen the intervals.

    Returns:
        The difference (second - first) and the ratio (second / first).

    Raises:
        ValueError: they do not hold as many conversations.
    """
    if len(first) != len(second):
        raise ValueError(f"{len(first)} and {len(second)} conversations are not pairs")
    tables = _table(first), _table(second)
    old, new = (_lengths(table.sum(axis=0)) for table in tables)
    olds, news = (_lengths(_resampled(table)) for table in tables)
    return _estimate(new - old, news - olds), _estimate(new / old, news / olds)


def _table(counts: Counts) -> _Numbers:
    return np.asarray(counts, dtype=np.float64).reshape(-1, 2)


def _resampled(table: _Numbers) -> _Numbers:
    """Return the summed counts of each resample; the same draws for as many conversations."""
    size = len(table)
    if not size:
        return np.zeros((1, 2))
    draws = np.random.default_rng(_SEED).multinomial(size, np.full(size, 1 / size), _RESAMPLES)
    sums: _Numbers = draws @ table
    return sums


def _lengths(sums: _Numbers) -> Any:
    """Return the acceptance length of summed counts, shape [..., 2]."""
    drafts, accepted = sums[..., 0], sums[..., 1]
    return 1 + np.divide(accepted, drafts, out=np.zeros_like(drafts), where=drafts > 0)


def _estimate(value: Any, resampled: Any) -> Estimate:
    outside = (1 - CONFIDENCE) / 2
    low, high = np.quantile(resampled, [outside, 1 - outside])
    # A few conversations can leave the value itself just outside.
    return Estimate(float(value), min(float(low), float(value)), max(float(high), float(value)))
