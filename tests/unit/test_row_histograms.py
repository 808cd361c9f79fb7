"""Histograms of token rows hold every row once, whatever its length."""

from hypothesis import given
from hypothesis import strategies as st

from lib.row_histograms import RowHistograms

ROWS = st.lists(
    st.integers(1, 40_000).flatmap(
        lambda length: st.tuples(st.just(length), st.integers(1, length), st.integers(1, 40))
    ),
    max_size=60,
)


def histograms(rows):
    made = RowHistograms()
    for row in rows:
        made.count(*row)
    return made


@given(ROWS)
def test_every_row_is_between_the_limits_of_its_bar(rows):
    found = histograms(rows).stats()
    values = {
        "tokens": [length for length, _, _ in rows],
        "supervised_share": [supervised / length for length, supervised, _ in rows],
        "turns": [turns for _, _, turns in rows],
    }
    for name, known in values.items():
        width, counts = found[name]["width"], found[name]["counts"]
        assert len(counts) <= 40
        for place, count in enumerate(counts):
            low, high = place * width, (place + 1) * width
            assert count == sum(low + 1e-9 < value <= high + 1e-9 for value in known)


@given(ROWS, ROWS)
def test_parts_add_up_to_the_whole(first, second):
    added = histograms(first)
    added.add(histograms(second))
    assert added.stats() == histograms(first + second).stats()
