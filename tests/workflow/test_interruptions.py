"""A run that is interrupted at any point is finished by the same command."""

import json
import signal
import time
from pathlib import Path

import yaml

from workflow.project import Project

COMMAND = ("--cores", "all", "train")


def test_interrupted_run_is_finished_by_the_same_command(
    finished: Project, project: Project
) -> None:
    # The target is built already, as it is when a second run shares it.
    (project.folder / "models").symlink_to(finished.folder / "models")
    project.configure(lambda config: config["train"].update(epochs=2))
    results = project.folder / "results/toy"

    run = project.start(*COMMAND)
    run.wait_for(lambda: any((project.folder / "cache/responses").glob("*/*.journal")))
    run.interrupt(signal.SIGINT)
    assert run.process.returncode != 0
    assert not (results / "responses/sharegpt.jsonl").exists()

    run = project.start(*COMMAND)
    run.wait_for(lambda: (results / "responses/sharegpt.jsonl").exists())
    run.interrupt(signal.SIGTERM)
    assert not (results / "train.json").exists()

    run = project.start(*COMMAND)
    run.wait_for(lambda: any(results.glob("checkpoints/*/0/training_state.json")))
    run.interrupt(signal.SIGKILL)
    end = time.monotonic() + 30
    while project.processes() and time.monotonic() < end:
        time.sleep(0.1)
    assert project.processes() == []
    assert not (results / "train.json").exists()

    final = project.snakemake(*COMMAND)
    assert final.returncode == 0, final.stdout
    assert "going on after step" in final.stdout
    assert "Nothing to be done" in project.snakemake("-n", "train").stdout
    assert data_of(results) == data_of(finished.folder / "results/toy")
    metrics = next(results.glob("checkpoints/*/metrics.jsonl")).read_text().splitlines()
    steps = [line["global_step"] for line in map(json.loads, metrics) if "train" in line]
    assert sorted(set(steps)) == list(range(max(steps) + 1))


def data_of(results: Path) -> dict[str, bytes]:
    """Return the bytes of what training reads."""
    paths = [results / "verified.json", *sorted((results / "tokenized").glob("*"))]
    return {path.name: path.read_bytes() for path in paths}


def test_second_run_in_the_same_folder_is_refused(project: Project) -> None:
    config = yaml.safe_load((project.folder / "config/config.yaml").read_text())
    assert config["run"] == "toy"
    first = project.start("--cores", "1", "weights")
    first.wait_for(lambda: any((project.folder / ".snakemake/locks").glob("*.lock")))
    second = project.snakemake("--cores", "1", "weights")
    assert second.returncode != 0
    assert "lock" in second.stdout.lower()
    assert first.process.poll() is None
    first.interrupt(signal.SIGINT)
