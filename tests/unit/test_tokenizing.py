"""A corpus to token rows: by several processes, with what earlier runs left, nothing lost."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from rows import tokenize_into

from lib import encoding, piece_rows
from lib.files import read_json, write_json
from lib.jsonl import jsonl_writer, read_jsonl
from lib.piece_rows import Job
from lib.row_cache import RowCache
from lib.target import TargetLocation, write_manifest
from lib.token_rows import TokenizeSettings
from lib.tokenizing import tokenize_conversations


def record(number, source="s"):
    turns = [
        {"from": "human", "value": f"Question {number}?"},
        {"from": "gpt", "value": f"Answer {number}. " * (number % 7 + 1)},
    ]
    split = "validation" if number % 5 == 0 else "train"
    name = f"{source}-{number:016x}"
    return {"id": name, "source": source, "conversations": turns, "split": split}


def corpus_of(path, records):
    path.parent.mkdir(exist_ok=True)
    with jsonl_writer(path) as writer:
        for one in records:
            writer.write(one)
    return path


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture
def small_pieces(monkeypatch):
    monkeypatch.setattr("lib.pieces.PIECE_BYTES", 1000)


def test_the_number_of_processes_changes_no_byte(tmp_path, target, small_pieces):
    corpus = corpus_of(tmp_path / "c.jsonl", [record(n) for n in range(60)])
    outputs = []
    for workers in (1, 3):
        folder = tmp_path / f"{workers}" / "data"
        tokenize_into(folder, corpus, target, workers)
        outputs.append(contents(folder))
    assert outputs[0] == outputs[1]


class Runs:
    """Runs one after the other with one cache; gives what each reused."""

    def __init__(self, folder, target):
        self.folder, self.target, self.count = folder, target, 0

    def __call__(self, records, target=None, **settings):
        self.count += 1
        keys = {"thinking": False, "preserve_thinking": False, **settings}
        piece_rows._workshop.cache_clear()  # as a new process
        stats, reused = tokenize_conversations(
            Job(TokenizeSettings(**keys), target or self.target, self.folder / "cache"),
            corpus_of(self.folder / "c.jsonl", records),
            self.folder / f"data{self.count}",
            *(1, 60.0, lambda steps: None),
        )
        self.stats = stats
        return reused

    def contents(self):
        return contents(self.folder / f"data{self.count}")


@pytest.fixture
def runs(tmp_path, target):
    return Runs(tmp_path, target)


def test_rows_of_an_earlier_run_are_taken_and_the_bytes_are_the_same(runs):
    records = [record(n) for n in range(20)]
    assert runs(records) == 0
    first = runs.contents()
    assert runs(records) == 20
    assert runs.contents() == first


def test_an_added_source_is_all_that_is_tokenized(runs):
    records = [record(n) for n in range(20)]
    runs(records)
    added = [record(n, "t") for n in range(100, 107)]
    assert runs([*records, *added]) == 20
    assert runs.stats["sources"]["t"]["train"]["rows"] == 5
    renamed = [{**one, "id": f"x-{n:016x}", "source": "x"} for n, one in enumerate(records)]
    assert runs(renamed) == 20
    assert {entry["id"] for entry in read_jsonl(runs.folder / "data3/rows.jsonl")} == {
        one["id"] for one in renamed
    }


@pytest.mark.parametrize(
    "settings", [{"thinking": True}, {"seq_length": 4000}, {"minimum_supervised_tokens": 2}]
)
def test_another_setting_uses_nothing_of_before(runs, settings):
    records = [record(n) for n in range(10)]
    if settings.get("thinking"):
        for one in records:
            one["conversations"][1]["reasoning_content"] = "Hm."
    runs(records)
    assert runs(records, **settings) == 0


def test_one_character_of_the_template_makes_all_rows_new(runs, tmp_path, target):
    records = [record(n) for n in range(10)]
    runs(records)
    copy = tmp_path / "other"
    shutil.copytree(target, copy)
    path = copy / "chat_template.jinja"
    path.write_text(path.read_text() + " ")
    write_manifest(TargetLocation("tiny", build="toy"), copy, copy / "weights.json")
    assert runs(records, target=copy) == 0


def test_lost_turns_are_reused_too(runs):
    records = [record(n) for n in range(20)]
    records[3]["conversations"][0]["value"] = "a <|im_end|> inside"
    runs(records)
    before = runs.stats
    assert before["turns_lost_by_reason"] == {"special_token": 1}
    assert runs(records) == 20
    assert runs.stats == before


def test_what_a_killed_run_left_half_written_is_not_used(tmp_path):
    RowCache(tmp_path).add({1: b"one", 2: b"two"})
    RowCache(tmp_path).add({3 << 64: b"three"})
    (tmp_path / "half.values").write_bytes(b"half")
    found = RowCache(tmp_path).find([1, 3 << 64, 4, 2])
    assert found == [b"one", b"three", None, b"two"]
    assert RowCache(tmp_path / "new").find([1]) == [None]
    assert RowCache(tmp_path).find([]) == []


def test_examples_of_lost_turns_are_named_by_source_and_reason(tmp_path, target):
    records = [record(n) for n in range(30)]
    for number in (1, 4, 9, 16, 25):
        records[number]["conversations"][0]["value"] = "long " * 5000
    stats = tokenize_into(tmp_path / "data", corpus_of(tmp_path / "c.jsonl", records), target)
    source = stats["sources"]["s"]
    assert source["turns_lost_by_reason"] == {"context_too_long": 5}
    assert source["examples"] == {"context_too_long": [records[n]["id"] for n in (1, 4, 9)]}


def test_the_encoder_that_was_used_is_named(tmp_path, target):
    corpus = corpus_of(tmp_path / "c.jsonl", [record(n) for n in range(10)])
    stats = tokenize_into(tmp_path / "data", corpus, target)
    assert stats["encoder"] == {
        "name": "tiktoken",
        "checked_one_in": piece_rows.CHECKED_SHARE,
        "rendered": "once a chain",
    }


def test_a_tokenizer_that_the_fast_encoder_does_not_know_is_used_itself(tmp_path, target):
    copy = tmp_path / "other"
    shutil.copytree(target, copy)
    tokenizer = read_json(copy / "tokenizer.json")
    tokenizer["normalizer"] = {"type": "NFKC"}
    write_json(copy / "tokenizer.json", tokenizer)
    corpus = corpus_of(tmp_path / "c.jsonl", [record(n) for n in range(10)])
    stats = tokenize_into(tmp_path / "data", corpus, copy)
    assert stats["encoder"] == {"name": "tokenizer", "why": "normalizer NFKC"}


def test_a_template_that_is_not_known_is_rendered_turn_by_turn(tmp_path, target):
    copy = tmp_path / "other"
    shutil.copytree(target, copy)
    path = copy / "chat_template.jinja"
    path.write_text(path.read_text().replace("<|im_start|>", ">> "))
    corpus = corpus_of(tmp_path / "c.jsonl", [record(n) for n in range(10)])
    stats = tokenize_into(tmp_path / "data", corpus, copy)
    assert stats["encoder"]["rendered"] == "twice a turn"
    assert stats["encoder"]["why"] == "template: a turn does not begin with a special token"
    assert stats["turns_supervised"] == 10


def test_a_fast_encoder_that_differs_is_given_up_for_all_rows(tmp_path, target, monkeypatch):
    corpus = corpus_of(tmp_path / "c.jsonl", [record(n) for n in range(40)])
    tokenize_into(tmp_path / "right" / "data", corpus, target)
    right = contents(tmp_path / "right" / "data")
    encode = encoding.FastEncoder.encode

    def wrong(self, text):
        ids = encode(self, text)
        return [*ids[:-1], 0] if "Answer 3" in text else ids

    monkeypatch.setattr(encoding.FastEncoder, "encode", wrong)
    piece_rows._workshop.cache_clear()
    stats = tokenize_into(tmp_path / "wrong" / "data", corpus, target)
    assert stats["encoder"]["name"] == "tokenizer"
    assert stats["encoder"]["why"].startswith("the fast way differs in row 0 of s-")
    assert stats == read_json(tmp_path / "wrong" / "data" / "stats.json")
    wrong_contents = contents(tmp_path / "wrong" / "data")
    del right["stats.json"], wrong_contents["stats.json"]
    assert wrong_contents == right
    piece_rows._workshop.cache_clear()


def test_a_record_that_does_not_come_from_the_merge_is_refused(tmp_path, target):
    one = record(1)
    del one["split"]
    corpus = corpus_of(tmp_path / "c.jsonl", [one])
    with pytest.raises(ValueError, match=rf"{one['id']} has no split"):
        tokenize_into(tmp_path / "data", corpus, target)
    assert not (tmp_path / "data").exists()


def test_a_line_that_is_no_record_is_named(tmp_path, target):
    corpus = corpus_of(tmp_path / "c.jsonl", [record(1), record(5)])
    start = len(json.dumps(record(1)).encode()) + 1
    lines = corpus.read_bytes().splitlines(keepends=True)
    corpus.write_bytes(lines[0] + b"{" + lines[1])
    with pytest.raises(ValueError, match=rf"c\.jsonl: the line at byte {start}"):
        tokenize_into(tmp_path / "data", corpus, target)


def show_rows(folder, target, *options):
    script = Path(__file__).parents[2] / "scripts/show_rows.py"
    command = [sys.executable, str(script), str(folder), str(target), *options]
    return subprocess.run(command, capture_output=True, text=True)


def test_rows_can_be_looked_at(tmp_path, target):
    records = [record(n, "s" if n < 8 else "t") for n in range(12)]
    tokenize_into(tmp_path / "tokenized", corpus_of(tmp_path / "c.jsonl", records), target)
    shown = show_rows(tmp_path, target, "--source", "t", "--count", "2")
    assert shown.stdout.count("row ") == 2
    assert f"{records[8]['id']}, train, " in shown.stdout
    assert "⟦Answer 8. Answer 8." in shown.stdout
    assert "<|im_end|>⟧" in shown.stdout
    missing = show_rows(tmp_path, target, "--row", "99")
    assert (missing.returncode, missing.stderr) == (1, "no such row\n")
