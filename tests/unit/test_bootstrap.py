"""Intervals of acceptance lengths."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lib.bootstrap import CONFIDENCE, Counts, Estimate, acceptance_length, compare_lengths

LONGEST = 15
"""Tokens that a draft proposes."""


def conversations(smallest: int) -> st.SearchStrategy[Counts]:
    """Give counts of conversations in which something was drafted."""
    one = st.integers(1, 200).flatmap(
        lambda drafts: st.tuples(st.just(drafts), st.integers(0, LONGEST * drafts))
    )
    return st.lists(one, min_size=smallest, max_size=40)


def width(estimate: Estimate) -> float:
    return estimate.high - estimate.low


def drawn(size: int, seed: int) -> list[tuple[int, int]]:
    """Return conversations of a drafter whose acceptance length is 3 over very many of them."""
    numbers = np.random.default_rng(seed)
    drafts = numbers.integers(10, 60, size)
    rates = numbers.gamma(4, 0.5, size)  # accepted a draft: 2 on average, whatever the drafts
    return [(int(d), int(a)) for d, a in zip(drafts, numbers.poisson(drafts * rates), strict=True)]


@settings(max_examples=50, deadline=None)
@given(conversations(1))
def test_an_interval_holds_the_ratio_of_the_sums_within_what_is_possible(counts):
    estimate = acceptance_length(counts)
    drafts, accepted = (sum(column) for column in zip(*counts, strict=True))
    assert estimate.value == pytest.approx(1 + accepted / drafts)
    assert 1 <= estimate.low <= estimate.value <= estimate.high <= 1 + LONGEST


@settings(max_examples=30, deadline=None)
@given(conversations(8), st.integers(1, 5))
def test_conversations_that_are_alike_have_no_interval_and_order_does_not_matter(counts, rate):
    alike = acceptance_length([(drafts, rate * drafts) for drafts, _ in counts])
    assert alike == Estimate(1 + rate, 1 + rate, 1 + rate)
    assert acceptance_length(counts).value == acceptance_length(counts[::-1]).value


@pytest.mark.parametrize("seed", range(5))
def test_an_interval_narrows_with_the_root_of_the_number_of_conversations(seed):
    few, many = drawn(40, seed), drawn(640, seed)
    assert width(acceptance_length(many)) < 0.4 * width(acceptance_length(few))


def test_intervals_hold_the_truth_as_often_as_they_say():
    estimates = [acceptance_length(drawn(40, seed)) for seed in range(100)]
    held = sum(estimate.low <= 3 <= estimate.high for estimate in estimates)
    assert 100 * CONFIDENCE - 8 <= held < 100


def test_the_same_counts_give_the_same_interval():
    counts = drawn(30, 0)
    assert acceptance_length(counts) == acceptance_length(list(counts))


def test_without_drafts_each_step_gives_the_target_s_own_token():
    assert acceptance_length([]) == Estimate(1, 1, 1) == acceptance_length([(0, 0), (0, 0)])


@settings(max_examples=30, deadline=None)
@given(conversations(1))
def test_a_drafter_does_not_differ_from_itself(counts):
    difference, ratio = compare_lengths(counts, counts)
    assert difference == Estimate(0, 0, 0)
    assert ratio == Estimate(1, 1, 1)


def test_pairing_finds_a_gain_that_is_smaller_than_the_spread_of_the_conversations():
    before = drawn(60, 3)
    after = [(drafts, accepted + drafts // 5) for drafts, accepted in before]
    difference, ratio = compare_lengths(before, after)
    assert 0 < difference.low <= difference.value <= difference.high
    assert 1 < ratio.low <= ratio.value <= ratio.high
    assert width(difference) < 0.2 * width(acceptance_length(before))
    back, _ = compare_lengths(after, before)
    assert (back.value, back.low) == pytest.approx((-difference.value, -difference.high))


def test_only_pairs_are_compared():
    with pytest.raises(ValueError, match="2 and 1 conversations"):
        compare_lengths([(1, 1), (2, 2)], [(1, 1)])
