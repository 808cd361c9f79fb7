"""Configurations besides the toy run: a local target, recorded answers, thinking on, a quota."""

import json
import shutil
from pathlib import Path
from typing import Any

import yaml

from lib.jsonl import read_jsonl
from workflow.project import Project


def own_configuration(finished: Project, folder: Path, **sections: Any) -> Path:
    """Write a configuration whose target is a local model folder."""
    config = yaml.safe_load((finished.folder / "config/config.yaml").read_text())
    config["run"] = "own"
    built = next((finished.folder / "models").glob("toy@*"))
    shutil.copytree(built, folder / "local model")
    config["target"] = {"name": "local", "path": str(folder / "local model")}
    config |= {"responses": {"mode": "keep"}}
    for name, values in sections.items():
        config[name] = {**config[name], **values} if isinstance(values, dict) else values
    path = folder / "own.yaml"
    path.write_text(yaml.safe_dump(config, sort_keys=False))
    return path


def test_recorded_answers_for_a_local_target_give_a_verified_data_set(
    finished: Project, project: Project, tmp_path: Path
) -> None:
    config = own_configuration(finished, tmp_path)
    raw = yaml.safe_load(config.read_text())
    raw["sources"][0]["max_samples"] = 40
    config.write_text(yaml.safe_dump(raw, sort_keys=False))
    result = project.snakemake("dataset", "--cores", "all", "--configfile", str(config))
    assert result.returncode == 0, result.stdout
    results = project.folder / "results/own"
    assert not (results / "responses").exists()
    weights = next((project.folder / "models").glob("local@*/model.safetensors"))
    assert weights.is_symlink()
    limited = json.loads((results / "sources/openorca.stats.json").read_text())
    assert limited["rows_written"] == 40
    assert limited["rows_written"] + limited["rows_rejected"] == limited["rows_in"]
    template = tmp_path / "local model/chat_template.jinja"
    template.write_text(template.read_text() + "{# another version #}")
    again = project.snakemake("dataset", "-n", "--configfile", str(config))
    assert "fetch_target" in again.stdout
    recorded = {record["id"] for record in read_jsonl(results / "merged/sharegpt.jsonl")}
    assert {row["id"] for row in read_jsonl(results / "tokenized/rows.jsonl")} <= recorded


def test_thinking_without_recorded_reasoning_stops_with_the_reason(
    finished: Project, project: Project, tmp_path: Path
) -> None:
    config = own_configuration(finished, tmp_path, target={"thinking": True})
    raw = yaml.safe_load(config.read_text())
    raw["sources"] = [each for each in raw["sources"] if each["name"] in ("openorca", "magicoder")]
    config.write_text(yaml.safe_dump(raw, sort_keys=False))
    result = project.snakemake("dataset", "--cores", "all", "--configfile", str(config))
    assert result.returncode != 0
    assert "no row is left for train" in result.stdout
    assert "no_reasoning" in result.stdout
    assert not (project.folder / "results/own/verified.json").exists()


def test_too_many_rejected_rows_stop_the_run_with_reasons_and_examples(
    finished: Project, project: Project, tmp_path: Path
) -> None:
    config = own_configuration(finished, tmp_path)
    raw = yaml.safe_load(config.read_text())
    raw["sources"] = [{**raw["sources"][4], "max_reject_rate": 0.01}]
    config.write_text(yaml.safe_dump(raw, sort_keys=False))
    result = project.snakemake("dataset", "--cores", "all", "--configfile", str(config))
    assert result.returncode != 0
    assert "more than max_reject_rate 0.01 allows" in result.stdout
    assert result.stdout.count("  row ") == 3
