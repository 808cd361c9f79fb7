"""How a total is shared out between sources."""

from hypothesis import given, settings
from hypothesis import strategies as st

from lib.mixing import allotments

WEIGHTS = st.just(0.0) | st.floats(0.01, 10)
SOURCES = st.lists(st.tuples(st.integers(0, 1000), WEIGHTS), min_size=1, max_size=8)


@settings(max_examples=300, derandomize=True)
@given(sources=SOURCES, total=st.integers(0, 5000))
def test_allotments_fill_the_total_in_proportion(sources, total):
    available, weights = zip(*sources, strict=True)
    found = allotments(available, weights, total)
    possible = sum(count for count, weight in sources if weight > 0)
    assert sum(found) == min(total, possible)
    assert all(0 <= part <= count for part, count in zip(found, available, strict=True))
    assert all(part == 0 for part, weight in zip(found, weights, strict=True) if weight == 0)
    weighted = [(part, *source) for part, source in zip(found, sources, strict=True) if source[1]]
    could_give_more = [(part, weight) for part, count, weight in weighted if part < count]
    for part, _, weight in weighted:
        for other, other_weight in could_give_more:
            # nobody is more than what rounding does above one that could give more
            assert (part - 1) / weight <= (other + 1) / other_weight + 1e-6
