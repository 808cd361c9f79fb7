"""Rows that belong together come together, whatever they hold and however many they are."""

import datetime
import json
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lib.grouping import grouped
from lib.readers import read_rows

ROWS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


def key_of(number, row):
    return row[0]


@settings(deadline=None, max_examples=40)
@given(
    st.lists(st.tuples(st.sampled_from("abcdefgh") | st.text(), ROWS), max_size=40),
    st.randoms(use_true_random=False),
)
def test_every_row_comes_out_once_with_its_key_and_in_an_order_of_keys(
    tmp_path_factory, rows, dice
):
    folder = tmp_path_factory.getbasetemp()
    numbered = list(enumerate(rows))
    groups = list(grouped(numbered, key_of, folder))
    assert sorted((number, row) for group in groups for number, row in group) == numbered
    for group in groups:
        assert len({key for _, (key, _) in group}) == 1
        assert [number for number, _ in group] == sorted(number for number, _ in group)
    order = [group[0][1][0] for group in groups]
    assert len(order) == len(set(order))

    dice.shuffle(numbered)
    again = list(grouped(numbered, key_of, folder))
    assert [group[0][1][0] for group in again] == order


def test_rows_come_back_from_the_disk_as_they_were(tmp_path):
    rows = [
        {"text": "\ud83d lone", "odd \udc80 key": ["\0", "\u2028"]},
        {"time": datetime.datetime(2024, 5, 1), "number": 10**400, "low": -0.0},
        ["2024-05-01", None, True, 1.5, {}, []],
        "text",
    ]
    groups = list(grouped(enumerate(rows), lambda number, row: "\ud83d", tmp_path))
    assert groups == [list(enumerate(rows))]
    assert [type(value) for value in groups[0][2][1]] == [type(value) for value in rows[2]]


def deepest_row(path):
    """Return the row that is nested as deeply as can be read."""

    def rows(depth):
        path.write_text('{"a": [' * depth + "]}" * depth)
        try:
            return list(read_rows(path))
        except ValueError:
            return []

    readable, beyond = 100, 100_000
    while beyond - readable > 1:
        middle = (readable + beyond) // 2
        readable, beyond = (middle, beyond) if rows(middle) else (readable, middle)
    [row] = rows(readable)
    return row


def test_whatever_nesting_can_be_read_comes_back(tmp_path):
    row = deepest_row(tmp_path / "deep.json")
    rows = [(0, {"a": 1}), (1, row), (2, {"a": 2})]
    [[first, (number, deep), last]] = grouped(rows, lambda number, row: "k", tmp_path / "folder")
    assert (first, number, last) == (rows[0], 1, rows[2])
    assert json.dumps(deep) == json.dumps(row)


def test_memory_is_that_of_a_small_part_of_the_rows(tmp_path):
    size, count = 20_000, 1500
    rows = ((number, f"{number:0{size}}") for number in range(count))
    tracemalloc.start()
    try:
        groups = grouped(rows, lambda number, row: str(number // 2), tmp_path)
        assert sum(len(group) for group in groups) == count
        assert tracemalloc.get_traced_memory()[1] < size * count / 5
    finally:
        tracemalloc.stop()


def open_files():
    return len(list(Path("/dev/fd").iterdir()))


def rows_until_failure():
    yield from ((number, "row") for number in range(50))
    raise OSError("the disk is gone")


@pytest.mark.parametrize(
    ("rows", "key", "failure"),
    [
        (rows_until_failure(), lambda number, row: str(number), OSError),
        ([(0, "row"), (1, "row")], lambda number, row: {0: "k"}[number], KeyError),
    ],
)
def test_nothing_stays_when_the_rows_or_their_keys_fail(tmp_path, rows, key, failure):
    before = open_files()
    with pytest.raises(failure):
        list(grouped(rows, key, tmp_path))
    assert list(tmp_path.iterdir()) == []
    assert open_files() == before


def test_space_on_the_disk_is_given_back_file_by_file(tmp_path):
    groups = grouped(enumerate("r" * 400), lambda number, row: str(number), tmp_path)
    next(groups)
    at_first = open_files()
    for _ in range(300):
        next(groups)
    assert open_files() < at_first / 2


@pytest.mark.parametrize("taken", [0, 1, 30])
def test_nothing_stays_when_the_consumer_stops_early(tmp_path, taken):
    before = open_files()
    groups = grouped(enumerate("r" * 60), lambda number, row: str(number), tmp_path)
    for _ in range(taken):
        next(groups)
        assert list(tmp_path.iterdir()) == [], "nor would anything stay of a run that is killed now"
    del groups
    assert open_files() == before
