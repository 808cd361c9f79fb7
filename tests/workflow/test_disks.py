"""Disks that are full or may not be written to end a stage with a clear line, and lose nothing."""

import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from workflow.interruptions import Finished

SPACE = 100 * 2**20


@contextmanager
def mounted(folder: Path, *arguments: str) -> Iterator[None]:
    """Mount something at a folder while the block runs; skip the test where that is forbidden."""
    mount = ["mount", *arguments, str(folder)]
    result = subprocess.run(mount, capture_output=True, text=True, check=False)
    if result.returncode:
        pytest.skip(f"this machine does not let a test mount a disk: {result.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(folder: Path) -> Path:
    """Write a file that takes all the room of a disk."""
    filler = folder / "filler"
    with filler.open("wb", buffering=0) as file:
        for block in (2**20, 2**12):
            try:
                while True:
                    file.write(bytes(block))
            except OSError:
                continue
    return filler


@pytest.fixture
def on_small_disk(small: Finished, tmp_path: Path) -> Iterator[Finished]:
    """A copy of the small run whose results lie on a small disk of their own."""
    results = tmp_path / "draftmill/results"
    results.mkdir(parents=True)
    with mounted(results, "-t", "tmpfs", "-o", f"size={SPACE}", "tmpfs"):
        yield small.copy(tmp_path / "draftmill")


@pytest.mark.parametrize(
    "stage", ["regenerate_responses", "tokenize_conversations", "extract_hidden_states"]
)
def test_full_disk_is_said_and_the_same_command_goes_on(
    on_small_disk: Finished, stage: str
) -> None:
    """The disk is filled while the stage runs."""
    project, command = on_small_disk.project, on_small_disk.command(stage)
    on_small_disk.forget(stage)
    run = project.start(*command)
    run.wait_for(lambda: on_small_disk.has_started(stage))
    filler = fill(project.folder / "results")
    assert run.process.wait() != 0
    said = (project.folder / "run.log").read_text()
    about = [line for line in said.splitlines() if re.match(rf"{stage}.*: error: ", line)]
    assert len(about) == 1, said
    assert "the disk is full: make room, and give the same command again" in about[0]
    assert not all(path.exists() for path in on_small_disk.outputs[stage])
    filler.unlink()
    again = project.snakemake(*command)
    assert again.returncode == 0, again.stdout
    on_small_disk.check(stage)


def test_results_that_may_not_be_written_to_are_said_before_any_job(
    small: Finished, tmp_path: Path
) -> None:
    here = small.copy(tmp_path / "draftmill")
    here.forget("merge_sources")
    results = here.project.folder / "results"
    with mounted(results, "--bind", str(results)):
        subprocess.run(["mount", "-o", "remount,bind,ro", str(results)], check=True)
        refused = here.project.snakemake(*here.command("merge_sources"))
        assert refused.returncode != 0
        assert re.search(r"^results/toy/ cannot be written to: ", refused.stdout, re.M)
        assert "Traceback" not in refused.stdout
        said = here.project.snakemake("-n", *here.command("merge_sources"))
        assert said.returncode == 0
        assert "results/toy/ cannot be written to: " in said.stdout
    again = here.project.snakemake(*here.command("merge_sources"))
    assert again.returncode == 0, again.stdout
    here.check("read-only results")
