"""Rows of Parquet files are what was put in, whatever Arrow makes of them on the way."""

import datetime
import decimal
import gzip
import tempfile

import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from unit.reading import needs_proc, rows_and_peaks, rows_before_damage, zstd

from lib.readers import read_rows


def write_parquet(path, table, **options):
    pyarrow.parquet.write_table(table, path, **options)
    return path


def first_byte(path, group):
    column = pyarrow.parquet.ParquetFile(path).metadata.row_group(group).column(0)
    return column.dictionary_page_offset or column.data_page_offset


# Values


def test_parquet_keeps_text_and_order(tmp_path):
    rows = [{"n": n, "text": text} for n, text in enumerate(["2024-05-01", "42", "null", "{}"])]
    table = pyarrow.Table.from_pylist(rows * 700)
    assert list(read_rows(write_parquet(tmp_path / "a.parquet", table))) == rows * 700
    path = write_parquet(tmp_path / "b.parquet", table, row_group_size=300)
    assert list(read_rows(path)) == rows * 700


def test_keys_that_arrow_added_to_nested_values_are_gone(tmp_path):
    rows = [
        {"messages": [{"role": "user", "args": {"city": "Paris"}}, {"role": "assistant"}]},
        {"messages": [{"role": "user", "args": {"n": 1}, "content": "hi"}]},
    ]
    table = pyarrow.Table.from_pylist(rows)
    assert "n" in table.to_pylist()[0]["messages"][0]["args"], "Arrow adds what is undone here"
    assert list(read_rows(write_parquet(tmp_path / "a.parquet", table))) == rows


def test_a_null_column_stays_visible(tmp_path):
    rows = [{"question": "a", "response": None}, {"question": "b", "response": "c"}]
    path = write_parquet(tmp_path / "a.parquet", pyarrow.Table.from_pylist(rows))
    assert list(read_rows(path)) == rows


ARGUMENTS = pyarrow.struct({"city": pyarrow.string(), "numbers": pyarrow.list_(pyarrow.int64())})
MESSAGE = pyarrow.struct(
    {"role": pyarrow.string(), "arguments": ARGUMENTS, "score": pyarrow.float64()}
)
SCHEMA = pyarrow.schema(
    {
        "id": pyarrow.int64(),
        "messages": pyarrow.list_(MESSAGE),
        "facts": pyarrow.map_(pyarrow.string(), MESSAGE),
        "first": MESSAGE,
    }
)
INTEGERS = st.integers(-(2**63), 2**63 - 1)
CITIES_AND_NUMBERS = {
    "city": st.text(max_size=5),
    "numbers": st.lists(st.none() | INTEGERS, max_size=3),
}
MESSAGES = st.fixed_dictionaries(
    {},
    optional={
        "role": st.text(max_size=5),
        "arguments": st.fixed_dictionaries({}, optional=CITIES_AND_NUMBERS),
        "score": st.floats(allow_nan=False),
    },
)
NESTED_ROWS = st.fixed_dictionaries(
    {
        "id": st.none() | INTEGERS,
        "messages": st.none() | st.lists(st.none() | MESSAGES, max_size=3),
        "facts": st.none()
        | st.lists(st.tuples(st.text(max_size=3), st.none() | MESSAGES), max_size=2),
        "first": st.none() | MESSAGES,
    }
)


@settings(max_examples=60, derandomize=True, deadline=None)
@given(
    rows=st.lists(NESTED_ROWS, min_size=1, max_size=6),
    times=st.sampled_from([1, 20]),
    group=st.integers(1, 50),
)
def test_nested_rows_come_back_whatever_keys_they_lack(tmp_path_factory, rows, times, group):
    table = pyarrow.Table.from_pylist(rows * times, schema=SCHEMA)
    path = tmp_path_factory.getbasetemp() / "nested.parquet"
    assert list(read_rows(write_parquet(path, table, row_group_size=group))) == rows * times


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pyarrow.string(), ["a", "", "é😀\u2028"]),
        (pyarrow.large_string(), ["a", "", "é😀"]),
        (pyarrow.dictionary(pyarrow.int32(), pyarrow.string()), ["a", "b", "a"]),
        (pyarrow.binary(), [b"\xff", b""]),
        (pyarrow.int8(), [-128, 127]),
        (pyarrow.int64(), [-(2**63), 2**63 - 1, 2**53 + 1]),
        (pyarrow.uint64(), [2**64 - 1, 0]),
        (pyarrow.float32(), [0.5, float("inf")]),
        (pyarrow.float64(), [0.1, -1e300]),
        (pyarrow.bool_(), [True, False]),
        (pyarrow.decimal128(9, 2), [decimal.Decimal("12345.67")]),
        (pyarrow.date32(), [datetime.date(2024, 5, 1)]),
        (pyarrow.timestamp("us"), [datetime.datetime(2024, 5, 1, 12, 30)]),
        (pyarrow.timestamp("ms", "UTC"), [datetime.datetime(2024, 5, 1, tzinfo=datetime.UTC)]),
        (pyarrow.null(), [None]),
        (pyarrow.list_(pyarrow.string()), [["a", None], []]),
        (pyarrow.large_list(pyarrow.list_(pyarrow.int16())), [[[1], [], [2, None]], []]),
        (pyarrow.list_(pyarrow.int64(), 2), [[1, 2], [3, 4]]),
        (pyarrow.list_(pyarrow.struct({"a": pyarrow.int8()}), 2), [[{"a": 1}, {}], [None, {}]]),
        (pyarrow.map_(pyarrow.string(), pyarrow.int64()), [[("a", 1), ("b", None)], []]),
        (pyarrow.struct({"a": pyarrow.int64()}), [{"a": 1}, {"a": 2}]),
        (pyarrow.list_(pyarrow.struct({"a": pyarrow.bool_()})), [[{"a": True}, None, {}], []]),
        (
            pyarrow.list_(pyarrow.dictionary(pyarrow.int8(), pyarrow.string())),
            [["user", "assistant"], ["user"]],
        ),
    ],
    ids=str,
)
def test_every_type_of_column_survives(tmp_path, kind, values):
    expected = [*values, None] * 30
    table = pyarrow.table({"column": pyarrow.array(expected, kind)})
    path = write_parquet(tmp_path / "a.parquet", table)
    assert list(read_rows(path)) == [{"column": value} for value in expected]


@pytest.mark.parametrize("unit", ["ms", "us"])
@pytest.mark.parametrize("zone", [None, "UTC"])
def test_times_that_python_cannot_hold_come_as_the_number_that_is_stored(tmp_path, unit, zone):
    numbers = [2**62, -(2**63), 2**63 - 1]
    stored = pyarrow.array([0, *numbers, None], pyarrow.int64()).view(pyarrow.timestamp(unit, zone))
    table = pyarrow.table(
        {"at": stored, "all": pyarrow.ListArray.from_arrays([0, 1, 1, 1, 1, 5], stored)}
    )
    path = write_parquet(tmp_path / "a.parquet", table)
    rows = list(read_rows(path))
    epoch = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC if zone else None)
    assert [row["at"] for row in rows] == [epoch, *numbers, None]
    assert rows[-1]["all"] == [*numbers, None]


@pytest.mark.parametrize("zone", [None, "UTC", "Asia/Kolkata"])
def test_nanoseconds_survive(tmp_path, zone):
    numbers = [0, 1, 2**63 - 1, None, 1_700_000_000_123_456_789]
    stored = pyarrow.array(numbers, pyarrow.int64()).view(pyarrow.timestamp("ns", zone))
    path = write_parquet(tmp_path / "a.parquet", pyarrow.table({"at": stored}))
    rows = list(read_rows(path))
    assert [row["at"] is None for row in rows] == [number is None for number in numbers]
    assert rows[0]["at"].timestamp() == 0 if zone else rows[0]["at"].year == 1970


@pytest.mark.parametrize(("suffix", "pack"), [(".gz", gzip.compress), (".zst", zstd)])
def test_a_compressed_file_is_unpacked_and_leaves_nothing_behind(
    tmp_path, monkeypatch, suffix, pack
):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    rows = [{"id": index} for index in range(100)]
    whole = write_parquet(tmp_path / "a.parquet", pyarrow.Table.from_pylist(rows))
    path = tmp_path / f"a.parquet{suffix}"
    path.write_bytes(pack(whole.read_bytes()))
    assert list(read_rows(path)) == rows
    path.write_bytes(pack(whole.read_bytes())[:-9])
    found, message = rows_before_damage(path)
    assert found == []
    assert "compression is damaged" in message
    assert " of the decompressed data;" in message
    path.write_bytes(pack(whole.read_bytes()[:-9]))
    _, message = rows_before_damage(path)
    assert "footer is missing" in message
    assert f"at byte {whole.stat().st_size - 9} of the decompressed data;" in message
    assert list((tmp_path / "temporary").iterdir()) == []


# Damage


@pytest.mark.parametrize("lost", [1, 50, 10_000])
def test_a_missing_footer_is_named_with_the_size_of_the_file(tmp_path, lost):
    rows = [{"text": f"row {n}"} for n in range(5000)]
    path = write_parquet(tmp_path / "cut.parquet", pyarrow.Table.from_pylist(rows))
    path.write_bytes(path.read_bytes()[:-lost])
    found, message = rows_before_damage(path)
    assert found == []
    assert "footer is missing" in message
    assert f"the file ends at byte {path.stat().st_size};" in message


def test_an_empty_file_has_no_footer(tmp_path):
    (tmp_path / "a.parquet").touch()
    found, message = rows_before_damage(tmp_path / "a.parquet")
    assert found == []
    assert "footer is missing" in message
    assert "at byte 0;" in message


def test_a_damaged_footer_is_named(tmp_path):
    path = write_parquet(tmp_path / "a.parquet", pyarrow.table({"n": [1, 2, 3]}))
    content = path.read_bytes()
    path.write_bytes(content[:-40] + b"\xff" * 32 + content[-8:])
    _, message = rows_before_damage(path)
    assert "footer is damaged" in message


@pytest.mark.parametrize("group", range(5))
@pytest.mark.parametrize("compression", ["snappy", "zstd", "none"])
def test_a_damaged_row_group_is_named_with_its_place_and_the_row(tmp_path, group, compression):
    rows = [{"text": f"row {n}", "list": [{"a": n}]} for n in range(5000)]
    table = pyarrow.Table.from_pylist(rows)
    path = write_parquet(
        tmp_path / "a.parquet", table, row_group_size=1000, compression=compression
    )
    start = first_byte(path, group)
    content = bytearray(path.read_bytes())
    content[start + 10 : start + 300] = b"\xff" * 290
    path.write_bytes(content)
    found, message = rows_before_damage(path)
    assert found == rows[: group * 1000]
    assert f"row {len(found)} cannot be read" in message
    assert f"its row group begins at byte {start};" in message


def test_a_page_whose_sum_is_wrong_is_damage(tmp_path):
    table = pyarrow.table({"text": [f"text {n}" for n in range(100)]})
    options = {"compression": "none", "use_dictionary": False, "write_page_checksum": True}
    path = write_parquet(tmp_path / "a.parquet", table, **options)
    path.write_bytes(path.read_bytes().replace(b"text 77", b"test 77", 1))
    _, message = rows_before_damage(path)
    assert f"its row group begins at byte {first_byte(path, 0)};" in message


def test_a_row_group_that_ends_early_is_no_short_file(tmp_path):
    path = write_parquet(tmp_path / "a.parquet", pyarrow.table({"n": list(range(77))}))
    rows_77, rows_89 = b"\x16\x9a\x01", b"\x16\xb2\x01"
    content = path.read_bytes()
    path.write_bytes(content.replace(rows_77, rows_89))
    assert pyarrow.parquet.ParquetFile(path).metadata.num_rows == 89
    found, message = rows_before_damage(path)
    assert found == [{"n": n} for n in range(77)]
    assert "row 77 cannot be read" in message


def test_text_that_is_no_utf8_is_damage_after_the_rows_before_it(tmp_path):
    rows = [{"list": [{"n": n}] * (n % 3), "text": f"text {n}"} for n in range(100)]
    table = pyarrow.Table.from_pylist(rows)
    path = write_parquet(tmp_path / "a.parquet", table, compression="none", use_dictionary=False)
    path.write_bytes(path.read_bytes().replace(b"text 77", b"te\xfft 77", 1))
    found, message = rows_before_damage(path)
    assert found == rows[:77]
    assert "row 77 cannot be read" in message


# Memory


@needs_proc
def test_memory_grows_neither_with_a_row_group_nor_with_the_largest_row(tmp_path):
    few = pyarrow.table({"text": ["some text " * 200] * 1000})
    one_group = {"row_group_size": 10**9, "use_dictionary": False, "compression": "none"}
    long_text = pyarrow.array(["😀" + "a" * (1 << 20)]).take([0] * 200)
    paths = [
        write_parquet(tmp_path / "small.parquet", few, **one_group),
        write_parquet(tmp_path / "large.parquet", pyarrow.concat_tables([few] * 60), **one_group),
        write_parquet(
            tmp_path / "same.parquet", pyarrow.table({"text": long_text}), row_group_size=10**9
        ),
    ]
    rows, peaks = rows_and_peaks(paths)
    assert rows == (1000, 60_000, 200)
    assert peaks[1] < peaks[0] + 60, "MiB; the row group has 120"
    assert peaks[2] < peaks[0] + 150, "MiB; the rows have 200, hardly any in the file"
