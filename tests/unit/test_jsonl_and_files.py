"""JSON lines keep every character, and files appear whole or not at all."""

import hashlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lib.files import (
    atomic_path,
    describe_files,
    read_json,
    remove,
    sha256_of_file,
    write_json,
    write_text,
)
from lib.jsonl import (
    count_lines,
    jsonl_writer,
    read_jsonl,
)

# Characters that readers and writers of lines are known to get wrong.
ODD = "\u2028\u2029\u0085\x0b\x0c\x1c\x00\r\n\t\"\\\ufeff\u00a0😀é<|'"
TEXT = st.text(alphabet=st.one_of(st.sampled_from(ODD), st.characters(exclude_categories=["Cs"])))
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("jsonl")


@settings(max_examples=60, derandomize=True, deadline=None)
@given(values=st.lists(VALUES, max_size=6))
def test_jsonl_round_trip_keeps_every_character(folder, values):
    path = folder / "values.jsonl"
    with jsonl_writer(path) as writer:
        for value in values:
            writer.write(value)
    assert list(read_jsonl(path)) == values
    assert writer.count == count_lines(path) == len(values)


def test_keys_keep_their_order_and_text_is_not_escaped(tmp_path):
    path = tmp_path / "a.jsonl"
    with jsonl_writer(path) as writer:
        writer.write({"b": "é\u2028😀", "a": 1})
    assert path.read_bytes() == '{"b": "é\u2028😀", "a": 1}\n'.encode()


def test_a_line_that_is_not_json_is_named_by_file_and_byte(tmp_path):
    path = tmp_path / "bad.jsonl"
    first = '{"é": 1}\n'.encode()
    path.write_bytes(first + b'{"a": \n')
    rows = read_jsonl(path)
    assert next(rows) == {"é": 1}
    with pytest.raises(ValueError, match=rf"bad\.jsonl.* byte {len(first)} "):
        next(rows)


def test_text_that_no_file_can_hold_is_refused_and_leaves_no_file(tmp_path):
    path = tmp_path / "a.jsonl"
    with pytest.raises(ValueError), jsonl_writer(path) as writer:
        writer.write("lone surrogate \ud83d")
    with pytest.raises(ValueError), jsonl_writer(path) as writer:
        writer.write(float("nan"))
    assert list(tmp_path.iterdir()) == []


def test_a_failed_block_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "out.txt"
    write_text(path, "old")
    with pytest.raises(RuntimeError), atomic_path(path) as partial:
        partial.write_text("half")
        raise RuntimeError
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_nothing_is_at_the_path_before_the_block_ends(tmp_path):
    path = tmp_path / "deep" / "out.jsonl"
    with jsonl_writer(path) as writer:
        writer.write(1)
        assert not path.exists()
    assert path.exists()


def test_a_folder_replaces_a_folder_with_all_that_was_in_it(tmp_path):
    path = tmp_path / "data"
    path.mkdir()
    (path / "old").touch()
    with atomic_path(path) as partial:
        partial.mkdir()
        (partial / "new").touch()
    assert [entry.name for entry in path.iterdir()] == ["new"]
    assert list(tmp_path.iterdir()) == [path]


def test_replacing_a_link_to_a_folder_leaves_the_folder_alone(tmp_path):
    target = tmp_path / "target"
    target.mkdir()
    (target / "kept").touch()
    link = tmp_path / "link"
    link.symlink_to(target)
    with atomic_path(link) as partial:
        partial.write_text("now a file")
    assert link.read_text() == "now a file"
    assert (target / "kept").exists()


def test_remove_takes_files_links_folders_and_nothing(tmp_path):
    target = tmp_path / "target"
    target.mkdir()
    (target / "kept").touch()
    link, file, full = tmp_path / "link", tmp_path / "file", tmp_path / "full"
    link.symlink_to(target)
    file.touch()
    full.mkdir()
    (full / "inner").touch()
    for path in (link, file, full, tmp_path / "absent"):
        remove(path)
    assert list(tmp_path.iterdir()) == [target]
    assert (target / "kept").exists()


def test_json_files_keep_order_and_characters(tmp_path):
    value = {"z": "é\u2028", "a": [1, None]}
    write_json(tmp_path / "a.json", value)
    assert list(read_json(tmp_path / "a.json").items()) == list(value.items())
    with pytest.raises(ValueError):
        write_json(tmp_path / "b.json", float("inf"))
    assert not (tmp_path / "b.json").exists()


def test_files_are_described_in_the_order_given(tmp_path):
    contents = {"b.bin": b"\x00\x01", "a.txt": b"text"}
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    described = describe_files(tmp_path, list(contents))
    assert [entry["name"] for entry in described] == list(contents)
    for entry in described:
        content = contents[entry["name"]]
        assert entry["size"] == len(content)
        assert entry["sha256"] == hashlib.sha256(content).hexdigest()
        assert entry["sha256"] == sha256_of_file(tmp_path / entry["name"])
