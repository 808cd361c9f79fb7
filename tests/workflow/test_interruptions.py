"""A run that is interrupted at any point is finished by the same command."""

import json
import re
import signal
from pathlib import Path

import pytest

from workflow.interruptions import Finished, Trial, attempt, deal
from workflow.project import Project

STAGES = (
    "merge_sources",
    "regenerate_responses",
    "tokenize_conversations",
    "verify_dataset",
    "extract_hidden_states",
)
"""Those that keep work of their own, and some that do not; `make soak` hits every stage."""

AFTER_TRAINING = {
    *("plot_training", "export_drafter", "evaluate_drafter", "plot_evaluation", "report"),
}
"""Stale after another training of the same drafter, for `train.json` says how fast it was."""


@pytest.mark.parametrize("trial", list(deal(3, STAGES, len(STAGES))), ids=str)
def test_interrupted_stage_ends_in_the_same_bytes(small: Finished, trial: Trial) -> None:
    attempt(small, trial)
    assert small.project.stale() <= AFTER_TRAINING


def test_interrupted_training_goes_on_where_it_was(small: Finished) -> None:
    """The first checkpoint is there when the run is killed."""
    results = small.project.folder / "results/toy"
    small.forget("train_drafter")
    run = small.project.start(*small.command("train_drafter"))
    run.wait_for(lambda: any(results.glob("checkpoints/*/0/training_state.json")))
    run.hit(signal.SIGKILL, everyone=False)
    assert not (results / "train.json").exists()
    mended = small.project.snakemake(*small.command("train_drafter"))
    assert mended.returncode == 0, mended.stdout
    assert "going on after step" in mended.stdout
    small.check("training")
    metrics = next(results.glob("checkpoints/*/metrics.jsonl")).read_text().splitlines()
    steps = [line["global_step"] for line in map(json.loads, metrics) if "train" in line]
    assert sorted(set(steps)) == list(range(max(steps) + 1))


def test_second_run_in_the_same_folder_is_told_to_wait_and_a_stale_lock_is_explained(
    project: Project,
) -> None:
    locks = project.folder / ".snakemake/locks"
    first = project.start("--cores", "1", "weights")
    first.wait_for(lambda: any(locks.glob("*.lock")))
    second = project.snakemake("--cores", "1", "weights")
    assert second.returncode != 0
    assert re.search(
        rf"^another run is alive in this folder: process {first.process.pid} on .*"
        r"snakemake --cores 1 weights$",
        second.stdout,
        re.M,
    )
    assert "wait for the other" in second.stdout
    assert first.process.poll() is None
    first.hit(signal.SIGKILL, everyone=False)
    assert any(locks.glob("*.lock"))
    after = project.snakemake("-n", "weights")
    assert "a run that was killed had left its lock here" in after.stdout
    assert not any(locks.glob("*.lock"))
    assert "another run" not in after.stdout


def test_lock_of_a_living_run_stays_while_others_come_and_go(project: Project) -> None:
    """A second run of other files is let in; when it has gone, the first one is still alive."""
    first = project.start("--cores", "1", "weights")
    locks: Path = project.folder / ".snakemake/locks"
    first.wait_for(lambda: any(locks.glob("*.lock")))
    held = {path.name for path in locks.glob("*.lock")}
    for _ in range(2):
        assert "another run is alive" in project.snakemake("-n", "weights").stdout
        assert held <= {path.name for path in locks.glob("*.lock")}
    first.hit(signal.SIGTERM, everyone=True)
