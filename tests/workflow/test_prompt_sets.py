"""Public sets of prompts in the workflow: made by rules, measured with, and never trained on."""

import json
from typing import Any

from lib.jsonl import read_jsonl
from workflow.project import ROOT, Project

SHELF = "A shelf holds 7 jars and 3 of them are empty. How many of the jars are full?"
HENS = "Nine hens lay two eggs a day each. How many eggs do they lay in a week?"
MERGED = "results/toy/merged/stats.json"
ASKED = "results/toy/evaluation/prompts/sums.jsonl"


def planned(project: Project, *arguments: str) -> list[str]:
    """Return the name of the rule of each job that a dry run would run, but of target rules."""
    result = project.snakemake("-n", *arguments, "--quiet", "host")
    assert result.returncode == 0, result.stdout
    lines = result.stdout.splitlines()
    return [line.split()[1].rstrip(":") for line in lines if line.startswith("rule ")]


def test_a_set_becomes_prompts_that_no_training_data_quotes(project: Project) -> None:
    data = project.folder / "data"
    data.mkdir()
    rows = [{"question": text, "answer": "#### 4"} for text in (SHELF, HENS, HENS)]
    (data / "test.jsonl").write_text("".join(json.dumps(row) + "\n" for row in [*rows, {}]))
    taught = [{"instruction": f"Please: {SHELF}", "input": "", "output": "Four."}]
    taught += [{"instruction": f"Say the number {n}.", "input": "", "output": "."} for n in (1, 2)]
    (data / "train.json").write_text(json.dumps(taught))

    def change(config: dict[str, Any]) -> None:
        source = {"name": "taught", "format": "codealpaca", "files": ["data/train.json"]}
        sums = {"name": "sums", "format": "gsm8k", "domain": "math", "files": ["data/test.jsonl"]}
        config["sources"] = [source]
        config["evaluate"] = {"prompts": [], "prompt_sets": [sums]}

    project.configure(change)
    result = project.snakemake("--cores", "all", MERGED)
    assert result.returncode == 0, result.stdout
    shelf, hens = read_jsonl(project.folder / ASKED)
    assert [prompt["question"] for prompt in (shelf, hens)] == [SHELF, HENS]
    counts = json.loads((project.folder / ASKED.replace(".jsonl", ".stats.json")).read_text())
    assert counts["rejected_by_reason"] == {"malformed_row": 1, "repeated_prompt": 1}
    (dropped,) = read_jsonl(project.folder / "results/toy/merged/dropped.jsonl")
    assert (dropped["reason"], dropped["winner"]) == ("contaminated", shelf["id"])

    assert planned(project, MERGED) == []
    project.configure(lambda c: c["evaluate"]["prompt_sets"][0].update(max_prompts=1))
    assert set(planned(project, MERGED)) == {"prepare_prompts", "merge_sources"}
    again = planned(project, "evaluate")
    assert {"verify_dataset", "evaluate_drafter"} <= set(again)
    assert "fetch_source" not in again


def test_the_recipe_measures_with_the_usual_sets(project: Project) -> None:
    recipe = ("--configfile", str(ROOT / "config/qwen3.6-27b.yaml"))
    names = planned(project, "results/qwen3.6-27b/merged/stats.json", *recipe)
    assert names.count("prepare_prompts") == 10
    assert names.count("fetch_source") == names.count("normalize_source") + 10
