"""Raw rows come out of files as they went in, and damage is named where it is."""

import json

import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lib import readers
from lib.readers import read_rows

ROWS = [
    {"id": 1, "text": "2024-05-01"},
    {"id": 2, "text": "42"},
    {"id": 3, "text": "null"},
    {"id": 4, "text": '{"a": 1}'},
    {"id": 5, "text": "true\u2028\u0085 😀 \ud83d"},
    {"id": 6, "text": ["another", {"type": 12345678901234567890}]},
]
LAYOUTS = {
    "array.json": lambda rows: json.dumps(rows),
    "indented.json": lambda rows: json.dumps(rows, indent=2, ensure_ascii=True),
    "crlf_array.json": lambda rows: json.dumps(rows, indent=1).replace("\n", "\r\n"),
    "concatenated.json": lambda rows: "".join(map(json.dumps, rows)),
    "lines.jsonl": lambda rows: "".join(json.dumps(row) + "\n" for row in rows),
    "no_final_newline.jsonl": lambda rows: "\n".join(map(json.dumps, rows)),
    "crlf.jsonl": lambda rows: "".join(json.dumps(row) + "\r\n" for row in rows),
    "blank_lines.jsonl": lambda rows: "\n \n".join(["", *map(json.dumps, rows), "\t\n"]),
    "bom.jsonl": lambda rows: "\ufeff" + "\n".join(map(json.dumps, rows)),
    "bom.json": lambda rows: "\ufeff" + json.dumps(rows),
}


def write(path, text):
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def rows_before_damage(path):
    """Read until the error that must come; return the rows and the message."""
    rows = []
    with pytest.raises(ValueError) as caught:
        for row in read_rows(path):
            rows.append(row)
    return rows, str(caught.value)


@pytest.mark.parametrize("name", LAYOUTS)
@pytest.mark.parametrize("piece", [1, 7, 1 << 20])
def test_every_layout_gives_the_rows_as_they_are(tmp_path, monkeypatch, name, piece):
    monkeypatch.setattr(readers, "_PIECE", piece)
    path = write(tmp_path / name, LAYOUTS[name](ROWS))
    assert list(read_rows(path)) == ROWS


@pytest.mark.parametrize("name", ["a.json", "a.jsonl"])
def test_rows_larger_than_the_read_piece(tmp_path, name):
    rows = [{"text": "ä" * (3 << 20)}, {"text": "small"}, {"text": "x" * (2 << 20)}]
    layout = "array.json" if name.endswith(".json") else "lines.jsonl"
    assert list(read_rows(write(tmp_path / name, LAYOUTS[layout](rows)))) == rows


@pytest.mark.parametrize("text", ["", " \n", "[]", " [ ] \n"])
def test_files_without_rows(tmp_path, text):
    assert list(read_rows(write(tmp_path / "a.json", text))) == []


@pytest.mark.parametrize("name", ["array.json", "lines.jsonl", "concatenated.json"])
@pytest.mark.parametrize("lost", [2, 5, 30])
def test_a_cut_file_gives_the_rows_before_the_cut_then_says_where(tmp_path, name, lost):
    text = LAYOUTS[name](ROWS)
    rows, message = rows_before_damage(write(tmp_path / name, text[:-lost]))
    assert rows == ROWS[:-1]
    assert name in message
    assert f"character {text.index(json.dumps(ROWS[-1]))}" in message


def test_an_array_that_is_cut_between_rows_is_damaged(tmp_path):
    text = json.dumps(ROWS)
    end = text.index(json.dumps(ROWS[2]))
    for cut in (end, end - len(", "), len(text) - 1):
        rows, message = rows_before_damage(write(tmp_path / "cut.json", text[:cut]))
        assert rows == ROWS[: 2 if cut <= end else len(ROWS)]
        assert "cut.json" in message


@settings(max_examples=40, derandomize=True, deadline=None)
@given(data=st.data())
def test_no_cut_of_an_array_passes_for_a_whole_file(tmp_path_factory, data):
    text = json.dumps(ROWS)
    cut = data.draw(st.integers(1, len(text) - 1))
    path = write(tmp_path_factory.getbasetemp() / "any_cut.json", text[:cut])
    rows, _ = rows_before_damage(path)
    assert rows == ROWS[: len(rows)]


def test_text_after_the_array_is_damage(tmp_path):
    rows, message = rows_before_damage(write(tmp_path / "a.json", json.dumps(ROWS) + '{"id": 9}'))
    assert rows == ROWS
    assert "after the array" in message


def test_a_missing_comma_in_an_array_is_damage(tmp_path):
    rows, message = rows_before_damage(write(tmp_path / "a.json", '[{"id": 1} {"id": 2}]'))
    assert rows == [{"id": 1}]
    assert "comma" in message


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(b'{"text": "\xff"}\n', id="byte that is no UTF-8 in text"),
        pytest.param(b"\xff\n", id="byte that is no UTF-8 between rows"),
        pytest.param("é".encode()[:1], id="character cut in the middle"),
        pytest.param(b'{"text": "\xf0\x9f', id="emoji cut in the middle"),
        pytest.param(b'{"text": ' + b"9" * 5000 + b"}\n", id="number beyond all limits"),
        pytest.param(b"[" * 100_000, id="nesting beyond all limits"),
        pytest.param(b'{"text" 1}\n', id="missing colon"),
    ],
)
def test_damage_after_good_rows_is_named_and_the_rows_come_first(tmp_path, damage):
    good = b'{"id": 1}\n{"id": 2}\n'
    rows, message = rows_before_damage(write(tmp_path / "bad.jsonl", good + damage + b'{"id": 3}'))
    assert rows == [{"id": 1}, {"id": 2}]
    assert "bad.jsonl" in message
    assert f"character {len(good)}" in message


def test_a_bad_row_is_found_without_reading_the_rest_of_the_file(tmp_path, monkeypatch):
    monkeypatch.setattr(readers, "_PIECE", 1000)
    path = write(tmp_path / "a.jsonl", '{"id": 1}\n{"id" 2}\n' + '{"id": 3}\n' * 100_000)
    asked = []
    plain = readers._Buffer._read
    monkeypatch.setattr(
        readers._Buffer, "_read", lambda self, size: asked.append(size) or plain(self, size)
    )
    rows_before_damage(path)
    assert sum(asked) < path.stat().st_size / 10


def test_rows_are_streamed_not_collected(tmp_path, monkeypatch):
    monkeypatch.setattr(readers, "_PIECE", 1000)
    path = write(tmp_path / "a.jsonl", '{"id": 1}\n' * 100_000)
    longest = 0
    plain = readers._Buffer._read

    def read(self, size):
        nonlocal longest
        found = plain(self, size)
        longest = max(longest, len(self._text))
        return found

    monkeypatch.setattr(readers._Buffer, "_read", read)
    assert sum(1 for _ in read_rows(path)) == 100_000
    assert longest < 10_000


def test_an_unknown_suffix_is_refused_with_the_known_ones(tmp_path):
    with pytest.raises(ValueError, match=r"rows\.csv.*\.parquet.*\.jsonl.*\.json"):
        list(read_rows(write(tmp_path / "rows.csv", "a,b")))


def test_parquet_keeps_text_and_order(tmp_path):
    rows = [{"n": n, "text": text} for n, text in enumerate(["2024-05-01", "42", "null", "{}"])]
    path = tmp_path / "a.parquet"
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows * 700), path, row_group_size=300)
    assert list(read_rows(path)) == rows * 700


def test_keys_that_arrow_added_to_nested_values_are_gone(tmp_path):
    rows = [
        {"messages": [{"role": "user", "args": {"city": "Paris"}}, {"role": "assistant"}]},
        {"messages": [{"role": "user", "args": {"n": 1}, "content": "hi"}]},
    ]
    table = pyarrow.Table.from_pylist(rows)
    assert "n" in table.to_pylist()[0]["messages"][0]["args"], "Arrow adds what is undone here"
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet")
    assert list(read_rows(tmp_path / "a.parquet")) == rows


def test_a_null_column_stays_visible(tmp_path):
    rows = [{"question": "a", "response": None}, {"question": "b", "response": "c"}]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "a.parquet")
    assert list(read_rows(tmp_path / "a.parquet")) == rows


def test_a_damaged_parquet_file_is_named(tmp_path):
    whole = tmp_path / "whole.parquet"
    rows = [{"text": f"row {n}"} for n in range(5000)]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), whole, row_group_size=1000)
    content = whole.read_bytes()
    cut = write(tmp_path / "cut.parquet", content[:-50])
    assert rows_before_damage(cut)[0] == []
    assert "cut.parquet" in rows_before_damage(cut)[1]
    middle = len(content) // 2
    torn = content[:middle] + b"\xff" * 400 + content[middle + 400 :]
    found, message = rows_before_damage(write(tmp_path / "torn.parquet", torn))
    assert 0 < len(found) < len(rows)
    assert found == rows[: len(found)]
    assert "torn.parquet" in message
    assert str(len(found)) in message


@settings(max_examples=40, derandomize=True, deadline=None)
@given(
    rows=st.lists(st.dictionaries(st.text(max_size=5), st.text(max_size=20), max_size=3)),
    piece=st.integers(1, 40),
    layout=st.sampled_from(sorted(LAYOUTS)),
)
def test_the_size_of_the_pieces_never_matters(tmp_path_factory, rows, piece, layout):
    path = write(tmp_path_factory.getbasetemp() / layout, LAYOUTS[layout](rows))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(readers, "_PIECE", piece)
        assert list(read_rows(path)) == rows


def test_numbers_at_the_edge_of_a_piece_are_not_cut_in_two(tmp_path, monkeypatch):
    numbers = [12345, -0.5e-10, 7]
    path = write(tmp_path / "a.json", json.dumps(numbers))
    for piece in range(1, 12):
        monkeypatch.setattr(readers, "_PIECE", piece)
        assert list(read_rows(path)) == numbers
