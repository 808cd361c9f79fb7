"""Raw rows come out of files as they went in, and damage is named where it is."""

import gzip
import json
import os
import threading
import zlib
from itertools import islice

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from unit.reading import needs_proc, rows_and_peaks, rows_before_damage, zstd

from lib import json_rows, readers
from lib.readers import read_rows

ROWS = [
    {"id": 1, "text": "2024-05-01"},
    {"id": 2, "text": "42"},
    {"id": 3, "text": "null"},
    {"id": 4, "text": '{"a": 1}'},
    {"id": 5, "text": "true\u2028\u0085 😀 \ud83d"},
    {"id": 6, "text": ["another", {"type": 12345678901234567890}]},
]
ARRAYS = {
    "array.json": lambda rows: json.dumps(rows),
    "indented.json": lambda rows: json.dumps(rows, indent=2),
    "crlf_array.json": lambda rows: json.dumps(rows, indent=1).replace("\n", "\r\n"),
    "bom.json": lambda rows: "\ufeff" + json.dumps(rows),
}
LAYOUTS = ARRAYS | {
    "concatenated.json": lambda rows: "".join(map(json.dumps, rows)),
    "lines.jsonl": lambda rows: "".join(json.dumps(row) + "\n" for row in rows),
    "several_lines_each.jsonl": lambda rows: "\n".join(json.dumps(row, indent=1) for row in rows),
    "all_on_a_line.jsonl": lambda rows: " ".join(map(json.dumps, rows)),
    "no_final_newline.jsonl": lambda rows: "\n".join(map(json.dumps, rows)),
    "crlf.jsonl": lambda rows: "".join(json.dumps(row) + "\r\n" for row in rows),
    "blank_lines.jsonl": lambda rows: "\n \n".join(["", *map(json.dumps, rows), "\t\n"]),
    "bom.jsonl": lambda rows: "\ufeff" + "\n".join(map(json.dumps, rows)),
}


def in_two(pack):
    return lambda data: pack(data[: len(data) // 2]) + pack(data[len(data) // 2 :])


COMPRESSIONS = {
    "plain": ("", bytes),
    "gzip": (".gz", gzip.compress),
    "zstd": (".zst", zstd),
    "gzip of two members": (".gz", in_two(gzip.compress)),
    "gzip with padding": (".gz", lambda data: in_two(gzip.compress)(data) + bytes(9000)),
    "zstd of two frames": (".zst", in_two(zstd)),
}

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=9),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=5,
)
OBJECTS = st.dictionaries(st.text(max_size=5), VALUES, max_size=3)
PROPERTY = settings(max_examples=60, derandomize=True, deadline=None)


def write(path, content):
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def read_in_pieces(path, piece):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(readers, "_PIECE", piece)
        patch.setattr(readers, "_PACKED_PIECE", piece)
        return list(read_rows(path))


# Layouts, compressions, pieces


@pytest.mark.parametrize("name", LAYOUTS)
@pytest.mark.parametrize("compression", COMPRESSIONS)
@pytest.mark.parametrize("piece", [1, 7, 1 << 15])
def test_every_layout_gives_the_rows_as_they_are(tmp_path, name, compression, piece):
    suffix, pack = COMPRESSIONS[compression]
    path = write(tmp_path / (name + suffix), pack(LAYOUTS[name](ROWS).encode()))
    assert read_in_pieces(path, piece) == ROWS


@PROPERTY
@given(
    rows=st.lists(OBJECTS, max_size=4),
    piece=st.integers(1, 40),
    layout=st.sampled_from(sorted(LAYOUTS)),
    compression=st.sampled_from(sorted(COMPRESSIONS)),
)
def test_the_size_of_the_pieces_never_matters(tmp_path_factory, rows, piece, layout, compression):
    suffix, pack = COMPRESSIONS[compression]
    content = pack(LAYOUTS[layout](rows).encode())
    path = write(tmp_path_factory.getbasetemp() / (layout + suffix), content)
    assert read_in_pieces(path, piece) == rows


@PROPERTY
@given(
    rows=st.lists(VALUES, max_size=4),
    piece=st.integers(1, 40),
    layout=st.sampled_from(sorted(ARRAYS)),
)
def test_an_array_may_hold_values_of_any_kind(tmp_path_factory, rows, piece, layout):
    path = write(tmp_path_factory.getbasetemp() / layout, ARRAYS[layout](rows))
    assert read_in_pieces(path, piece) == rows


@PROPERTY
@given(
    rows=st.lists(VALUES, max_size=4),
    piece=st.integers(1, 40),
    layout=st.sampled_from([name for name in sorted(LAYOUTS) if name.endswith(".jsonl")]),
)
def test_lines_may_hold_values_of_any_kind_lists_too(tmp_path_factory, rows, piece, layout):
    path = write(tmp_path_factory.getbasetemp() / layout, LAYOUTS[layout](rows))
    assert read_in_pieces(path, piece) == rows


@pytest.mark.parametrize("layout", ["array.json", "no_final_newline.jsonl"])
def test_numbers_at_the_edge_of_a_piece_are_not_cut_in_two(tmp_path, layout):
    numbers = [12345, -0.5e-10, 1e300, 7]
    path = write(tmp_path / layout, LAYOUTS[layout](numbers))
    for piece in range(1, 12):
        assert read_in_pieces(path, piece) == numbers


@pytest.mark.parametrize("name", ["array.json", "lines.jsonl", "lines.jsonl.gz", "lines.jsonl.zst"])
def test_rows_larger_than_the_read_piece(tmp_path, name):
    rows = [{"text": "ä" * (3 << 20)}, {"text": "small"}, {"numbers": list(range(300_000))}]
    layout, _, suffix = name.partition(".js")
    pack = {"gz": gzip.compress, "zst": zstd}.get(suffix.split(".")[-1], bytes)
    text = LAYOUTS["array.json" if layout == "array" else "lines.jsonl"](rows)
    assert list(read_rows(write(tmp_path / name, pack(text.encode())))) == rows


@pytest.mark.parametrize("text", ["", " \n", "[]", " [ ] \n", "\ufeff", "\ufeff[]"])
def test_files_without_rows(tmp_path, text):
    assert list(read_rows(write(tmp_path / "a.json", text))) == []
    assert list(read_rows(write(tmp_path / "a.json.gz", gzip.compress(text.encode())))) == []
    assert list(read_rows(write(tmp_path / "a.json.zst", zstd(text.encode())))) == []


@pytest.mark.parametrize("name", ["rows.csv", "rows.csv.gz", "rows.gz", "rows", "rows.json.bz2"])
def test_an_unknown_suffix_is_refused_with_the_known_ones(tmp_path, name):
    known = r"\.parquet.*\.jsonl.*\.json.*\.gz.*\.zst"
    with pytest.raises(ValueError, match=f"{name}.*{known}"):
        list(read_rows(write(tmp_path / name, "a,b")))


@pytest.mark.parametrize("kind", [".json", ".jsonl", ".parquet"])
@pytest.mark.parametrize("compression", ["", ".gz", ".zst"])
def test_a_missing_file_is_not_called_damaged(tmp_path, kind, compression):
    with pytest.raises(FileNotFoundError):
        list(read_rows(tmp_path / f"none{kind}{compression}"))


# Damage of the text


@pytest.mark.parametrize("name", ["array.json", "lines.jsonl", "concatenated.json"])
@pytest.mark.parametrize("lost", [2, 5, 30])
def test_a_cut_file_gives_the_rows_before_the_cut_then_says_where(tmp_path, name, lost):
    text = LAYOUTS[name](ROWS)
    rows, message = rows_before_damage(write(tmp_path / name, text[:-lost]))
    assert rows == ROWS[:-1]
    assert f"at byte {text.index(json.dumps(ROWS[-1]))};" in message


def test_an_array_that_is_cut_between_rows_is_damaged(tmp_path):
    text = json.dumps(ROWS)
    end = text.index(json.dumps(ROWS[2]))
    for cut in (end, end - len(", "), len(text) - 1):
        rows, message = rows_before_damage(write(tmp_path / "cut.json", text[:cut]))
        assert rows == ROWS[: 2 if cut <= end else len(ROWS)]
        assert f"the array is not closed at byte {cut};" in message


@PROPERTY
@given(rows=st.lists(VALUES, max_size=4), data=st.data())
def test_no_cut_of_an_array_passes_for_a_whole_file(tmp_path_factory, rows, data):
    content = json.dumps(rows, ensure_ascii=data.draw(st.booleans()))
    content = content.encode("utf-8", "replace")
    cut = data.draw(st.integers(1, len(content) - 1))
    path = write(tmp_path_factory.getbasetemp() / "any_cut.json", content[:cut])
    found, _ = rows_before_damage(path)
    assert found == json.loads(content)[: len(found)]


@pytest.mark.parametrize(
    ("text", "rows", "what", "byte"),
    [
        ("[1, 2, ]", [1, 2], "no value after the last comma", 7),
        ("[,1]", [], "no complete JSON value", 1),
        ("[1,,2]", [1], "no complete JSON value", 3),
        ("[1 2]", [1], "a comma or ] is missing", 3),
        ('[{"id": 1} {"id": 2}]', [{"id": 1}], "a comma or ] is missing", 11),
        ("[1] {}", [1], "text after the array", 4),
        ("[1]]", [1], "text after the array", 3),
        ("[1, 2", [1], "a number is cut", 4),
        ("[1, 2.", [1], "a number is cut", 4),
        ("[1, 2e+", [1], "a number is cut", 4),
        ("1 2.", [1], "a number is cut", 2),
        ("{},{}", [{}], "no complete JSON value", 2),
        ("\ufeff\ufeff{}", [], "no complete JSON value", 3),
    ],
)
def test_what_is_no_list_of_rows_is_damage(tmp_path, text, rows, what, byte):
    found, message = rows_before_damage(write(tmp_path / "a.json", text))
    assert found == rows
    assert what in message
    assert f"at byte {byte};" in message


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(b'{"text": "\xff"}\n', id="byte that is no UTF-8 in text"),
        pytest.param(b"\xff\n", id="byte that is no UTF-8 between rows"),
        pytest.param(b"12\xff\n", id="byte that is no UTF-8 after a number"),
        pytest.param(b'{"text": "\xed\xa0\xbd"}\n', id="surrogate in three bytes"),
        pytest.param("é".encode()[:1], id="character cut in the middle"),
        pytest.param(b'{"text": "\xf0\x9f', id="emoji cut in the middle"),
        pytest.param(b'{"text": ' + b"9" * 5000 + b"}\n", id="number beyond all limits"),
        pytest.param(b"[" * 100_000, id="nesting beyond all limits"),
        pytest.param(b'{"text" 1}\n', id="missing colon"),
        pytest.param(b'{"text": "a\nb"}\n', id="newline in a string"),
    ],
)
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"], ids=["plain", "bom"])
@pytest.mark.parametrize("newline", [b"\n", b"\r\n\r\n"], ids=["lf", "crlf"])
@pytest.mark.parametrize("piece", [4, 1 << 15])
def test_damage_after_good_rows_is_named_by_byte_and_the_rows_come_first(
    tmp_path, monkeypatch, damage, mark, newline, piece
):
    monkeypatch.setattr(readers, "_PIECE", piece)
    good = mark + '{"text": "naïve 😀"}'.encode() + newline + b'{"id": 2}' + newline
    for after in (b"", '{"text": "€€€€€€€€€€€€€€€€€€€€"}\n'.encode()):
        rows, message = rows_before_damage(write(tmp_path / "bad.jsonl", good + damage + after))
        assert rows == [{"text": "naïve 😀"}, {"id": 2}]
        assert f"at byte {len(good)};" in message


def test_a_row_that_swallows_the_rows_after_it_is_given_up(tmp_path, monkeypatch):
    monkeypatch.setattr(readers, "_PIECE", 1000)
    monkeypatch.setattr(json_rows, "_LONGEST_ROW", 10_000)
    lost_brackets = '[{"id": 1}, {"messages": [{"role": "user"}' + ', {"id": 2}' * 100_000 + "]"
    rows, message = rows_before_damage(write(tmp_path / "a.json", lost_brackets))
    assert rows == [{"id": 1}]
    assert "no end of the JSON value" in message
    assert "at byte 12;" in message


# Damage of the compression


@PROPERTY
@given(data=st.data(), suffix=st.sampled_from([".gz", ".zst"]), piece=st.integers(1, 5000))
def test_no_cut_of_a_compressed_file_passes_for_a_whole_file(tmp_path_factory, data, suffix, piece):
    text = LAYOUTS["lines.jsonl"](ROWS).encode()
    content = {".gz": gzip.compress, ".zst": zstd}[suffix](text)
    cut = content[: data.draw(st.integers(0, len(content) - 1))]
    path = write(tmp_path_factory.getbasetemp() / f"any_cut.jsonl{suffix}", cut)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(readers, "_PIECE", piece)
        patch.setattr(readers, "_PACKED_PIECE", piece)
        rows, message = rows_before_damage(path)
    assert rows == ROWS[: len(rows)]
    assert "compression is damaged" in message
    start = len(LAYOUTS["lines.jsonl"](rows))
    assert any(
        f"at byte {byte} of the decompressed data;" in message for byte in (start, start - 1)
    )
    if suffix == ".gz":
        unpacked = zlib.decompressobj(zlib.MAX_WBITS | 16).decompress(cut)
        assert len(rows) == unpacked.count(b"}\n") + unpacked.endswith(b"}")


BLOCK_OF_NO_TYPE = b"\x07"


def gzip_that_breaks_off(data):
    """Compress so that all of the data can be had, and nothing after it."""
    packer = zlib.compressobj(wbits=zlib.MAX_WBITS | 16)
    return packer.compress(data) + packer.flush(zlib.Z_FULL_FLUSH) + BLOCK_OF_NO_TYPE + bytes(9)


@pytest.mark.parametrize(
    ("suffix", "pack"),
    [
        pytest.param(".gz", gzip_that_breaks_off, id="gzip, bad block"),
        pytest.param(".gz", lambda data: gzip.compress(data)[:-8] + bytes(8), id="gzip, bad sum"),
        pytest.param(".gz", lambda data: gzip.compress(data)[:-1], id="gzip, cut sum"),
        pytest.param(".gz", lambda data: gzip.compress(data) + b"more", id="gzip, text after it"),
        pytest.param(".zst", lambda data: zstd(data) + b"more", id="zstd, text after it"),
        pytest.param(".zst", lambda data: zstd(data) + zstd(b"more")[:-1], id="zstd, cut frame"),
    ],
)
@pytest.mark.parametrize("count", [3, 5000])
def test_all_rows_before_damage_of_the_compression_come(tmp_path, suffix, pack, count):
    rows = [{"id": index, "text": f"é {index * 7919}"} for index in range(count)]
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()
    found, message = rows_before_damage(write(tmp_path / f"a.jsonl{suffix}", pack(text)))
    assert found == rows
    assert "compression is damaged" in message
    assert f"at byte {len(text)} of the decompressed data;" in message


def test_damage_of_the_text_in_a_compressed_file_is_none_of_the_compression(tmp_path):
    text = b'{"id": 1}\n{"id" 2}\n'
    for suffix, pack in COMPRESSIONS.values():
        rows, message = rows_before_damage(write(tmp_path / f"a.jsonl{suffix}", pack(text)))
        assert rows == [{"id": 1}]
        assert "compression" not in message
        assert f"at byte 10{' of the decompressed data' if suffix else ''};" in message


# Streaming


def write_without_end(pipe, line):
    """Start to write lines to a named pipe until nobody reads; return where the count is kept."""
    os.mkfifo(pipe)
    written = []

    def run():
        try:
            with pipe.open("wb", buffering=0) as file:
                while True:
                    written.append(file.write(line))
        except BrokenPipeError:
            pass

    writer = threading.Thread(target=run, daemon=True)
    writer.start()
    return writer, written


def test_rows_come_before_the_rest_of_the_file_is_read(tmp_path):
    writer, written = write_without_end(tmp_path / "a.jsonl", b'{"id": 1}\n' * 100)
    rows = read_rows(tmp_path / "a.jsonl")
    assert list(islice(rows, 100)) == [{"id": 1}] * 100
    rows.close()
    writer.join(timeout=20)
    assert not writer.is_alive()
    assert sum(written) < 1 << 20


def test_a_bad_row_is_found_without_reading_the_rest_of_the_file(tmp_path):
    writer, written = write_without_end(tmp_path / "a.json", b'{"id": 1} {"id" 2}')
    rows, message = rows_before_damage(tmp_path / "a.json")
    assert rows == [{"id": 1}]
    assert "at byte 10;" in message
    writer.join(timeout=20)
    assert not writer.is_alive()
    assert sum(written) < 1 << 20


@needs_proc
def test_memory_does_not_grow_with_the_file(tmp_path):
    line = json.dumps({"text": "some text " * 200}).encode() + b"\n"
    paths = []
    for folder, count in ((tmp_path / "small", 1), (tmp_path / "large", 20_000)):
        folder.mkdir()
        lines = line * count
        paths.append(write(folder / "a.jsonl", lines))
        paths.append(write(folder / "a.json", b"[" + lines[:-1].replace(b"\n", b",") + b"]"))
        paths.append(write(folder / "a.jsonl.gz", gzip.compress(lines, 1)))
        paths.append(write(folder / "a.jsonl.zst", zstd(lines)))
    rows, peaks = rows_and_peaks(paths)
    assert rows == (1,) * 4 + (20_000,) * 4
    assert max(peaks) < peaks[3] + 10, "MiB; the large files have 40"
