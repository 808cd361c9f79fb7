"""Token rows on disk, as datasets and speculators read them."""

import json
import os
import subprocess
import sys
from pathlib import Path

import datasets
import pytest
import torch
from datasets import load_from_disk
from hypothesis import given, settings
from hypothesis import strategies as st
from rows import tokenize_into
from speculators.train.data import ArrowDataset
from speculators.train.vocab_mapping import save_token_frequency_distribution

from lib import arrow_rows, pieces
from lib.arrow_rows import ArrowWriter, RowBatch, content_digest, read_token_rows
from lib.files import read_json
from lib.jsonl import jsonl_writer, read_jsonl
from lib.row_counts import training_ratio
from lib.token_rows import TokenRow


def some_rows(count, first=0):
    lengths = [3 + number % 5 for number in range(count)]
    return [
        TokenRow(tuple(range(first + number, first + number + length)), ((1, length),), (number,))
        for number, length in enumerate(lengths)
    ]


def write(folder, rows):
    folder.mkdir(parents=True)
    with ArrowWriter(folder, ["train"]) as writer:
        for start in range(0, len(rows), 100):
            writer.write("train", RowBatch.of(rows[start : start + 100]))
    return writer.shards


def as_lists(rows):
    return [(list(row.ids), list(row.mask), len(row.ids)) for row in rows]


def test_datasets_loads_the_rows_as_int64_tensors(tmp_path):
    rows = some_rows(10)
    write(tmp_path / "data", rows)
    data = load_from_disk(tmp_path / "data")
    assert data.format["type"] == "torch"
    columns = {name: getattr(kind, "feature", kind).dtype for name, kind in data.features.items()}
    assert columns == {"input_ids": "int32", "loss_mask": "uint8", "seq_len": "int32"}
    loaded = [(r["input_ids"], r["loss_mask"], r["seq_len"]) for r in data]
    assert all(tensor.dtype == torch.int64 for row in loaded for tensor in row)
    assert [tuple(tensor.tolist() for tensor in row) for row in loaded] == as_lists(rows)


def test_equal_rows_give_equal_bytes_in_every_file(tmp_path):
    for name in ("one", "other"):
        write(tmp_path / name, some_rows(300))
    one, other = (
        {path.name: path.read_bytes() for path in (tmp_path / name).iterdir()}
        for name in ("one", "other")
    )
    assert one == other
    assert set(one) == {"data-00000-of-00001.arrow", "dataset_info.json", "state.json"}


def test_other_rows_give_another_digest_and_fingerprint(tmp_path):
    digests = {
        content_digest(write(tmp_path / str(first), some_rows(5, first))) for first in (0, 1)
    }
    fingerprints = {load_from_disk(tmp_path / str(first))._fingerprint for first in (0, 1)}
    assert len(digests) == len(fingerprints) == 2


def test_large_data_is_cut_into_shards_in_order(tmp_path, monkeypatch):
    monkeypatch.setattr(arrow_rows, "SHARD_BYTES", 1)
    rows = some_rows(600)
    shards = write(tmp_path / "data", rows)
    assert len(shards) > 1
    assert sum(shard["rows"] for shard in shards) == len(rows)
    assert {shard["name"] for shard in shards} == {p.name for p in tmp_path.rglob("*.arrow")}
    assert list(read_token_rows(tmp_path / "data")) == as_lists(rows)
    data = load_from_disk(tmp_path / "data").with_format(None)
    assert data["input_ids"][:] == [list(row.ids) for row in rows]


def test_only_the_last_shard_is_smaller_than_a_shard_should_be(tmp_path, monkeypatch):
    size = 5 * sum(len(row.ids) for row in some_rows(300))
    monkeypatch.setattr(arrow_rows, "SHARD_BYTES", size)
    shards = write(tmp_path / "data", some_rows(1500))
    assert len(shards) > 2
    rows = read_token_rows(tmp_path / "data")
    for shard in shards[:-1]:
        assert sum(5 * next(rows)[2] for _ in range(shard["rows"])) >= size


@settings(derandomize=True, max_examples=500)
@given(st.integers(1, 5_000_000).flatmap(lambda n: st.tuples(st.integers(1, n), st.just(n + 1))))
def test_the_ratio_puts_the_boundary_exactly_after_the_training_rows(counts):
    train, rows = counts
    ratio = training_ratio(train, rows)
    assert 0 < ratio < 1
    assert int(rows * ratio) == train


@pytest.mark.parametrize(("train", "rows"), [(1, 2), (2, 3), (6, 7), (19, 21), (40, 41)])
def test_speculators_splits_at_the_training_rows(tmp_path, train, rows):
    written = some_rows(rows)
    write(tmp_path / "data", written)
    sides = {
        split: ArrowDataset(
            max_len=64,
            datapath=tmp_path / "data",
            train_ratio=training_ratio(train, rows),
            split=split,
        )
        for split in ("train", "val")
    }
    assert len(sides["train"]) == train
    assert sides["val"].start_file_idx == train
    for side, expected in (("train", written[:train]), ("val", written[train:])):
        found = [tuple(item["input_ids"].tolist()) for item in sides[side].data]
        assert found == [row.ids for row in expected]
        assert sides[side].approx_lengths == [len(row.ids) for row in expected]


def record(number, split, answer="Red."):
    turns = [
        {"from": "human", "value": f"Question {number}?"},
        {"from": "gpt", "value": answer, "reasoning_content": "a thought"},
        {"from": "human", "value": "Sure?"},
        {"from": "gpt", "value": f"Yes, {number}."},
    ]
    return {"id": f"s-{number}", "source": "s", "conversations": turns, "split": split}


def corpus_of(path, records):
    with jsonl_writer(path) as writer:
        for one in records:
            writer.write(one)
    return path


def test_validation_rows_stand_last_whatever_the_order_of_the_corpus(tmp_path, target, render):
    splits = ["validation", "train", "validation", "train", "train"]
    corpus = corpus_of(tmp_path / "c.jsonl", [record(n, s) for n, s in enumerate(splits)])
    stats = tokenize_into(tmp_path / "data", corpus, target)
    index = list(read_jsonl(tmp_path / "data" / "rows.jsonl"))
    assert [row["split"] for row in index] == ["train"] * 6 + ["validation"] * 4
    assert (stats["rows"], stats["train_rows"], stats["validation_rows"]) == (10, 6, 4)
    rows = read_token_rows(tmp_path / "data")
    for entry, (ids, _, _) in zip(index, rows, strict=True):
        number = entry["id"].removeprefix("s-")
        assert f"Question {number}?" in render().tokenizer.decode(ids)


def test_counts_follow_from_the_rows_and_add_up(tmp_path, target):
    records = [record(0, "train", "long " * 200), record(1, "train"), record(2, "validation")]
    corpus = corpus_of(tmp_path / "c.jsonl", records)
    stats = tokenize_into(tmp_path / "data", corpus, target, seq_length=128)
    rows = list(read_token_rows(tmp_path / "data"))
    assert stats["rows"] == len(rows)
    assert stats["tokens"] == sum(length for _, _, length in rows)
    assert stats["supervised_tokens"] == sum(sum(mask) for _, mask, _ in rows)
    assert stats["turns_lost_by_reason"] == {"answer_too_long": 1, "context_too_long": 1}
    assert stats["turns_in"] == stats["turns_supervised"] + stats["turns_lost"] == 6
    assert stats["reasoning_left_out"] == 2
    assert stats["conversations_in"] == 3
    assert stats == read_json(tmp_path / "data" / "stats.json")


def test_token_frequencies_are_those_that_speculators_counts(tmp_path, target):
    records = [record(n, "train" if n else "validation") for n in range(8)]
    tokenize_into(tmp_path / "data", corpus_of(tmp_path / "c.jsonl", records), target)
    save_token_frequency_distribution(load_from_disk(tmp_path / "data"), tmp_path / "theirs.pt")
    ours, theirs = (
        torch.load(path, weights_only=True)
        for path in (tmp_path / "data" / "token_freq.pt", tmp_path / "theirs.pt")
    )
    assert ours == theirs


def test_a_repeated_run_gives_equal_bytes(tmp_path, target):
    corpus = corpus_of(tmp_path / "c.jsonl", [record(0, "train"), record(1, "validation")])
    runs = []
    for name in ("one", "other"):
        tokenize_into(tmp_path / name, corpus, target)
        runs.append({p.name: p.read_bytes() for p in (tmp_path / name).iterdir()})
    assert runs[0] == runs[1]


@pytest.mark.parametrize("left", ["train", "validation"])
def test_a_side_without_rows_fails_and_leaves_nothing(tmp_path, target, left):
    corpus = corpus_of(tmp_path / "good.jsonl", [record(0, "train"), record(1, "validation")])
    tokenize_into(tmp_path / "data", corpus, target)
    corpus = corpus_of(tmp_path / "bad.jsonl", [record(0, left), record(1, left)])
    with pytest.raises(ValueError, match="no row is left for"):
        tokenize_into(tmp_path / "data", corpus, target)
    assert not (tmp_path / "data").exists()


def test_a_broken_corpus_leaves_nothing(tmp_path, target):
    lines = [json.dumps(record(0, "train")), json.dumps(record(1, "validation")), '{"id": ']
    (tmp_path / "c.jsonl").write_text("\n".join(lines))
    with pytest.raises(ValueError, match="the line at byte"):
        tokenize_into(tmp_path / "data", tmp_path / "c.jsonl", target)
    assert not (tmp_path / "data").exists()


def test_shards_of_an_earlier_run_do_not_stay(tmp_path, target, monkeypatch):
    monkeypatch.setattr(arrow_rows, "SHARD_BYTES", 1)
    monkeypatch.setattr(pieces, "PIECE_BYTES", 5000)
    many = [record(n, "validation" if n == 0 else "train") for n in range(200)]
    tokenize_into(tmp_path / "data", corpus_of(tmp_path / "many.jsonl", many), target)
    assert len(list((tmp_path / "data").glob("*.arrow"))) > 2
    tokenize_into(tmp_path / "data", corpus_of(tmp_path / "few.jsonl", many[:2]), target)
    assert len(list((tmp_path / "data").glob("*.arrow"))) == 2
    assert len(datasets.load_from_disk(tmp_path / "data")) == 4


def test_speculators_own_command_makes_the_same_samples_of_the_same_rows(tmp_path, target):
    """`prepare-data` takes rows that are tokenized; it may put them in another order."""
    records = [record(n, "train" if n % 4 else "validation") for n in range(12)]
    tokenize_into(tmp_path / "ours", corpus_of(tmp_path / "c.jsonl", records), target)
    with jsonl_writer(tmp_path / "rows.jsonl") as writer:
        for ids, mask, _ in read_token_rows(tmp_path / "ours"):
            writer.write({"input_ids": ids, "loss_mask": mask})
    command = [
        *(str(Path(sys.executable).with_name("speculators")), "prepare-data"),
        *("--model", str(target), "--data", str(tmp_path / "rows.jsonl")),
        *("--output", str(tmp_path / "theirs"), "--seq-length", "4096"),
        *("--num-preprocessing-workers", "1"),
    ]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path / "home")}
    result = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert result.returncode == 0, result.stderr[-2000:]
    samples = []
    for name in ("ours", "theirs"):
        data = ArrowDataset(max_len=4096, datapath=tmp_path / name).data
        samples.append(
            sorted(
                tuple(
                    (key, str(row[key].dtype), tuple(row[key].flatten().tolist())) for key in KEYS
                )
                for row in data
            )
        )
    assert samples[0] == samples[1]
    assert len(samples[0]) == 24


KEYS = ("input_ids", "loss_mask", "seq_len")
