import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lib.gpus import job_gpus, own_gpus

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"

JOB = """
import json, os, sys
from lib.gpus import own_gpus
with own_gpus(int(sys.argv[1]), lambda text: print(json.dumps(text), flush=True)):
    print(json.dumps(os.environ["CUDA_VISIBLE_DEVICES"]), flush=True)
    sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def _machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine that no other test uses."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)


@pytest.fixture
def jobs() -> Iterator[list["subprocess.Popen[str]"]]:
    started: list[subprocess.Popen[str]] = []
    yield started
    for job in started:
        job.kill()
        job.communicate()


def start(jobs: list["subprocess.Popen[str]"], gpus: int, **variables: str) -> None:
    """Start a job that keeps its GPUs until its standard input is closed."""
    job = subprocess.Popen(
        [sys.executable, "-c", JOB, str(gpus)],
        env={**os.environ, "PYTHONPATH": str(SCRIPTS), **variables},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    jobs.append(job)


def says(job: "subprocess.Popen[str]") -> str:
    assert job.stdout is not None
    return json.loads(job.stdout.readline())


def test_a_job_takes_the_first_gpus_that_it_was_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,GPU-7a,6")
    assert job_gpus(2) == ["4", "GPU-7a"]
    with pytest.raises(ValueError, match=r"4 GPUs are configured.* given 3 \('4,GPU-7a,6'\)"):
        job_gpus(4)


def test_a_machine_of_ones_own_gives_its_gpus_in_their_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert job_gpus(2) == ["0", "1"]


def test_jobs_at_once_have_different_gpus_and_the_next_one_waits(jobs) -> None:
    for _ in range(2):
        start(jobs, 2, CUDA_VISIBLE_DEVICES="3,GPU-7a,5,MIG-1/2/0,8")
        assert says(jobs[-1]).startswith("GPU ")
    assert says(jobs[0]) == "3,GPU-7a"
    assert says(jobs[1]) == "5,MIG-1/2/0"
    start(jobs, 2, CUDA_VISIBLE_DEVICES="3,GPU-7a,5,MIG-1/2/0,8")
    assert "waiting" in says(jobs[2])
    jobs[0].kill()  # without a word, as when memory runs out
    assert says(jobs[2]) == "GPU 3, GPU-7a"


def test_jobs_of_a_batch_system_may_have_gpus_of_the_same_names(jobs) -> None:
    for number in ("17", "18"):
        start(jobs, 1, CUDA_VISIBLE_DEVICES="0", SLURM_JOB_ID=number)
        assert says(jobs[-1]) == "GPU 0"


def test_what_is_visible_is_as_before_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1,2,3")
    with own_gpus(1, print):
        assert os.environ["CUDA_VISIBLE_DEVICES"] == "1"
        with own_gpus(0, print):
            assert os.environ["CUDA_VISIBLE_DEVICES"] == "1"
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "1,2,3"


def test_more_gpus_than_there_are_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with pytest.raises(ValueError, match="2 GPUs are configured"), own_gpus(2, print):
        pass
