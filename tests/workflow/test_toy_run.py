"""The toy run, from raw data to an evaluated drafter, and what it leaves behind."""

import json
import re
from collections import Counter
from pathlib import Path

import pytest
import torch
from hs_connectors import FileTransfer
from speculators import SpeculatorModel
from speculators.train.data import ArrowDataset

from lib.jsonl import read_jsonl
from workflow.project import Project

STAGES = (
    "fetch_source",
    "normalize_source",
    "merge_sources",
    "build_toy_target",
    "regenerate_responses",
    "gather_responses",
    "tokenize_conversations",
    "verify_dataset",
    "extract_hidden_states",
    "train_drafter",
    "plot_training",
    "export_drafter",
    "evaluate_drafter",
    "plot_evaluation",
    "report",
)


def results(project: Project) -> Path:
    return project.folder / "results/toy"


def test_every_stage_shows_a_line_with_its_time(finished: Project) -> None:
    output = (finished.folder / "run.log").read_text()
    for stage in STAGES:
        assert re.search(rf"^{stage}.*\(\d+\.\d s\)$", output, re.M), stage


def test_run_ends_with_what_was_made_and_the_three_numbers(finished: Project) -> None:
    output = (finished.folder / "run.log").read_text()
    stamp = json.loads((results(finished) / "verified.json").read_text())
    training = json.loads((results(finished) / "train.json").read_text())
    assert re.search(r"^drafter +results/toy/drafter/$", output, re.M)
    assert re.search(rf"^token rows +{stamp['rows']:,}$", output, re.M)
    assert re.search(rf"^supervised tokens +{stamp['supervised_tokens']:,}$", output, re.M)
    length = training["validation_acceptance_length"]
    assert re.search(rf"^validation acceptance length +{length:.2f}$", output, re.M)


def test_nothing_is_to_be_done_afterwards(finished: Project) -> None:
    result = finished.snakemake("-n", "all")
    assert result.returncode == 0
    assert "Nothing to be done" in result.stdout


def test_every_raw_row_is_written_or_rejected(finished: Project) -> None:
    for stats_path in sorted((results(finished) / "sources").glob("*.stats.json")):
        stats = json.loads(stats_path.read_text())
        name = stats["source"]
        written = list(read_jsonl(results(finished) / f"sources/{name}.jsonl"))
        rejected = list(read_jsonl(results(finished) / f"sources/{name}.rejects.jsonl"))
        assert len(written) == stats["conversations"] <= stats["rows_written"]
        assert stats["rows_written"] + len(rejected) == stats["rows_in"] > 0
        assert Counter(entry["reason"] for entry in rejected) == stats["rejected_by_reason"]


def test_every_record_is_kept_or_dropped_by_name(finished: Project) -> None:
    kept = list(read_jsonl(results(finished) / "merged/sharegpt.jsonl"))
    dropped = list(read_jsonl(results(finished) / "merged/dropped.jsonl"))
    for path in sorted((results(finished) / "sources").glob("*.stats.json")):
        stats = json.loads(path.read_text())
        found = [record for record in [*kept, *dropped] if record["source"] == stats["source"]]
        assert len(found) == stats["conversations"]
    present = {record["id"] for record in kept}
    assert all(entry["winner"] in present for entry in dropped)


def test_sources_that_overlap_lose_what_another_has(finished: Project) -> None:
    """Magicoder's samples repeat tasks of Evol-CodeAlpaca, as the public sets do."""
    stats = json.loads((results(finished) / "merged/stats.json").read_text())
    assert stats["overlap"]["magicoder"]["evol_codealpaca"] >= 5
    assert stats["lost_to"]["magicoder"]["evol_codealpaca"] >= 5
    kept = read_jsonl(results(finished) / "merged/sharegpt.jsonl")
    contents = [json.dumps([record["conversations"], record.get("tools")]) for record in kept]
    assert len(set(contents)) == len(contents)


def test_drafter_learned_to_draft_unseen_conversations(finished: Project) -> None:
    training = json.loads((results(finished) / "train.json").read_text())
    assert training["validation_acceptance_length"] >= 3


def test_no_conversation_is_on_both_sides_of_the_split(finished: Project) -> None:
    rows = list(read_jsonl(results(finished) / "tokenized/rows.jsonl"))
    train = {row["id"] for row in rows if row["split"] == "train"}
    validation = {row["id"] for row in rows if row["split"] == "validation"}
    assert train and validation and not train & validation


def test_speculators_reads_rows_and_hidden_states_as_they_are(finished: Project) -> None:
    stats = json.loads((results(finished) / "tokenized/stats.json").read_text())
    states = json.loads((results(finished) / "hidden_states.json").read_text())
    lengths = {}
    for split in ("train", "val"):
        data = ArrowDataset(
            max_len=512,
            datapath=results(finished) / "tokenized",
            transfer=FileTransfer(results(finished) / "hidden_states" / states["folder"]),
            train_ratio=stats["train_data_ratio"],
            split=split,
            on_missing="raise",
            hidden_states_dtype=torch.float32,
        )
        lengths[split] = len(data)
        sample = data[len(data) - 1]
        assert sample["hidden_states"].shape == (len(sample["input_ids"]), 3 * 128)
        assert sample["loss_mask"].shape == sample["input_ids"].shape
    assert lengths == {"train": stats["train_rows"], "val": stats["validation_rows"]}


def test_speculators_loads_the_drafter(finished: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(finished.folder)
    model = SpeculatorModel.from_pretrained(str(results(finished) / "drafter"))
    assert model.config.block_size == 8
    assert list(model.config.aux_hidden_state_layer_ids) == [1, 3, 5]
