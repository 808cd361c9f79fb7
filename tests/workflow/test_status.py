"""`snakemake status` says what is stale and why; slips of the command line are answered."""

import copy
import re
import signal
import time

from workflow.dry_runs import edited, without
from workflow.project import Project
from workflow.staleness import Bases


def test_status_runs_nothing_takes_no_lock_and_needs_no_cores(bases: Bases) -> None:
    project = bases.dry_runs.project
    times = {path: path.stat().st_mtime_ns for path in project.folder.glob("results/toy/**/*")}
    lock = project.folder / ".snakemake/locks/0.output.lock"
    bases.plan("toy")  # another run, alive as long as its process is
    lock.parent.mkdir(exist_ok=True)
    lock.write_text("results/toy/train.json\n")
    with edited(project.folder / "config/config.yaml", old="epochs: 4", new="epochs: 6"):
        result = project.snakemake("status")
    assert lock.exists()
    lock.unlink()
    assert result.returncode == 0, result.stdout
    assert re.search(
        r"^train_drafter +stale .* settings changed: epochs 4 -> 6$", result.stdout, re.M
    )
    assert times == {path: path.stat().st_mtime_ns for path in times}


def test_a_finished_run_is_fresh_and_says_what_it_took(bases: Bases) -> None:
    status = bases.dry_runs.status()
    assert status.pop("") == "Nothing is stale."
    assert set(status) == {job.partition(":")[0] for job in bases.plan("toy").jobs}
    assert all(re.fullmatch(r"fresh (\d+ min )?\d+ s", said) for said in status.values())


def test_status_calls_stale_what_a_dry_run_would_make_again(bases: Bases) -> None:
    config = copy.deepcopy(bases.configs["toy"])
    config["sources"][1]["max_samples"] = 20
    config["evaluate"]["max_tokens"] = 64
    status = bases.dry_runs.status(config)
    plan = bases.dry_runs.plan(config)
    stale = {name for name, said in status.items() if said.startswith("stale")}
    assert stale == plan.stale_stages
    assert status[""].startswith(
        f"{len(plan.stale)} of {len(plan.jobs)} jobs are stale; they took "
    )
    changed = "evol_codealpaca: settings changed: max_samples null -> 20"
    assert re.fullmatch(rf"stale, 1 of 12 \d+ s {changed}", status["normalize_source"])
    assert status["merge_sources"].endswith("follows normalize_source")
    assert status["evaluate_drafter"].endswith("settings changed: max_tokens 128 -> 64")


def test_status_of_a_target_looks_only_at_what_it_needs(bases: Bases) -> None:
    assert set(bases.dry_runs.status(None, "weights")) == {"build_toy_target", ""}


def test_changes_are_told_in_words(bases: Bases) -> None:
    folder = bases.dry_runs.project.folder
    toy = bases.configs["toy"]
    with edited(folder / "scripts/lib/verification.py", end="\n# edited\n"):
        assert bases.dry_runs.status()["verify_dataset"].endswith("code or environment changed")
    with edited(folder / "rules/report.smk", old="python scripts/rep", new="python -u scripts/rep"):
        assert bases.dry_runs.status()["report"].endswith("command changed")
    with edited(folder / "resources/evaluation/chat.jsonl", end="\n"):
        said = bases.dry_runs.status()["merge_sources"]
        assert said.endswith("resources/evaluation/chat.jsonl changed")
    status = bases.dry_runs.status({**toy, "sources": toy["sources"][1:]})
    assert "settings changed: sources without openorca; no longer reads " in status["merge_sources"]
    status = bases.dry_runs.status({**toy, "sources": toy["sources"][::-1]})
    assert status["merge_sources"].endswith("settings changed: sources in another order")


def test_what_was_never_made_and_what_is_gone(bases: Bases) -> None:
    status = bases.dry_runs.status({**bases.configs["toy"], "run": "another"})
    assert status["build_toy_target"].startswith("fresh")
    assert status["train_drafter"] == "stale – never made"
    assert status[""].endswith("no time is known.")
    folder = bases.dry_runs.project.folder
    with without(folder / "results/toy/merged/dropped.jsonl"):
        assert bases.dry_runs.status()["merge_sources"].startswith("gone, not needed")
    with without(folder / "results/toy/report.html"):
        assert bases.dry_runs.status()["report"].endswith("results/toy/report.html not there")


def test_an_interrupted_stage_is_named(project: Project) -> None:
    run = project.start("--cores", "1", "weights")
    run.wait_for((project.folder / "results/toy/logs/build_toy_target.log").exists)
    run.interrupt(signal.SIGKILL)
    end = time.monotonic() + 30
    while project.processes() and time.monotonic() < end:
        time.sleep(0.1)
    said = project.snakemake("status", "weights").stdout
    assert re.search(
        r"^build_toy_target +stale .* left unfinished by an interrupted run$", said, re.M
    )


def test_slips_of_the_command_line_get_a_line_that_helps(bases: Bases) -> None:
    answer = bases.dry_runs.ask("-n", "trian")
    assert not answer["ended_well"]
    assert "target trian is not known; did you mean train?" in answer["said"]
    answer = bases.dry_runs.ask("-n", "train", "--config", "train={epochs: 3}")
    assert not answer["ended_well"]
    assert "train.epochs: must be integer, is '3' (str)" in answer["said"]
    assert "--configfile config/config.yaml changes.yaml" in answer["said"]
