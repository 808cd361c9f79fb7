"""The profile for Slurm, on a real cluster: two nodes on this machine, with fake GPUs."""

import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from lib.metrics_file import new_lines
from workflow.project import Project
from workflow.slurm_cluster import Cluster, Job, missing, slurm_cluster

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing())

SITE = "profiles/site"
SHORT_TRAINING = {"epochs": 1, "anchors": 16}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with slurm_cluster(tmp_path_factory.mktemp("slurm") / "cluster", nodes=2) as running:
        yield running


@pytest.fixture
def project(finished: Project, cluster: Cluster, tmp_path: Path) -> Iterator[Project]:
    """A finished project on a file system that the nodes share."""
    folder = tmp_path / "draftmill"
    shutil.copytree(finished.folder, folder, symlinks=True)
    yield Project(folder, cluster.environment)
    shutil.rmtree(folder)


def write_site_profile(project: Project, train: dict[str, Any], shard: dict[str, Any]) -> None:
    """Write the profile as a site edits it; only GPUs that nothing here uses are asked for, too."""
    profile = yaml.safe_load((project.folder / "profiles/slurm/profile.yaml").read_text())
    profile["slurm-status-command"] = "squeue"
    profile["slurm-init-seconds-before-status-checks"] = 2
    profile["latency-wait"] = 5
    profile["set-resources"]["train_drafter"] |= train
    profile["set-resources"]["regenerate_responses"] |= shard
    path = project.folder / SITE / "profile.yaml"
    path.parent.mkdir()
    path.write_text(yaml.safe_dump(profile))


def gpus_of(project: Project, script: str) -> list[tuple[str, str]]:
    """Return node and GPUs of each process that runs a script, as its environment has them."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if not entry.name.isdecimal() or (entry / "cwd").readlink() != project.folder:
                continue
            program, argument, *_ = (entry / "cmdline").read_bytes().split(b"\0")
            if b"python" not in program or not argument.decode().endswith(script):
                continue
            lines = (entry / "environ").read_bytes().decode().split("\0")
        except (OSError, ValueError):
            continue
        variables = dict(line.split("=", 1) for line in lines if "=" in line)
        found.append((variables["SLURMD_NODENAME"], variables["CUDA_VISIBLE_DEVICES"]))
    return sorted(found)


def submitted(project: Project, cluster: Cluster) -> list[Job]:
    """Return the jobs that the run says it submitted; Slurm knows all of them, and their ends."""
    log = (project.folder / "run.log").read_text()
    numbers = [int(number) for number in re.findall(r"submitted with SLURM jobid (\d+)", log)]
    known = {job.number: job for job in cluster.jobs()}
    return [known[number] for number in numbers]


def ended(project: Project, cluster: Cluster) -> Counter[tuple[str, str]]:
    return Counter((job.rule, job.state) for job in submitted(project, cluster))


def run(
    project: Project, wait: Callable[[], bool], meanwhile: Callable[[], None], *command: str
) -> None:
    """Run to the end; once `wait` holds, do something meanwhile."""
    (project.folder / "run.log").unlink(missing_ok=True)
    running = project.start("--workflow-profile", SITE, *command)
    running.wait_for(wait)
    meanwhile()
    running.process.wait(timeout=300)
    assert running.process.returncode == 0, (project.folder / "run.log").read_text()


def test_shards_run_at_once_each_with_gpus_of_its_own(project: Project, cluster: Cluster) -> None:
    project.configure(lambda config: config["responses"].update(shards=2))
    write_site_profile(project, {}, {"gpu": 2})
    responses = project.folder / "results/toy/responses/sharegpt.jsonl"
    before = responses.read_bytes()
    seen: list[tuple[str, str]] = []

    def both() -> bool:
        seen[:] = gpus_of(project, "scripts/regenerate_responses.py")
        return len(seen) == 2

    run(project, both, lambda: None, "all", "--until", "gather_responses")
    assert len({(node, gpu) for node, gpus in seen for gpu in gpus.split(",")}) == 4, seen
    assert ended(project, cluster) == {
        ("regenerate_responses", "COMPLETED"): 2,
        ("gather_responses", "COMPLETED"): 1,
    }
    assert responses.read_bytes() == before


def test_a_cancelled_training_goes_on_in_another_job(project: Project, cluster: Cluster) -> None:
    write_site_profile(project, {"gpu": 2}, {})
    project.configure(lambda config: config["train"].update(SHORT_TRAINING))
    seen = interrupted_training(project, cluster, "scancel")
    assert seen == [("node0", "0,1")]
    first, second = submitted(project, cluster)[:2]
    assert first.record["TresPerJob"] == second.record["TresPerJob"] == "gres:gpu:2"
    assert ended(project, cluster) == {
        ("train_drafter", "CANCELLED"): 1,
        ("train_drafter", "COMPLETED"): 1,
        ("export_drafter", "COMPLETED"): 1,
    }


def test_a_training_over_nodes_that_is_told_to_end_goes_on(
    project: Project, cluster: Cluster
) -> None:
    write_site_profile(project, {"gres": "gpu:2", "tasks_per_gpu": 0}, {})
    project.configure(lambda config: config["train"].update(SHORT_TRAINING, nodes=2))
    # What `--signal` in the profile sends before the time limit.
    seen = interrupted_training(project, cluster, "scancel", "--signal=TERM")
    assert seen == [("node0", "0,1"), ("node1", "0,1")]
    assert ended(project, cluster) == {
        ("train_drafter", "FAILED"): 1,
        ("train_drafter", "COMPLETED"): 1,
        ("export_drafter", "COMPLETED"): 1,
    }


def interrupted_training(
    project: Project, cluster: Cluster, *command: str
) -> list[tuple[str, str]]:
    """Interrupt the job that trains, once, and let the run end; return its nodes and GPUs.

    Args:
        command: interrupts the job whose number is put behind it.
    """
    checkpoints = project.folder / "results/toy/checkpoints"
    shutil.rmtree(checkpoints)
    seen: list[tuple[str, str]] = []

    def trains() -> bool:
        return any(steps > 20 for steps in map(len, trainings(checkpoints)))

    def interrupt() -> None:
        seen.extend(gpus_of(project, "training_launcher.py"))
        (job,) = submitted(project, cluster)
        cluster.command(*command, str(job.number))

    run(project, trains, interrupt, "train")
    _, second = trainings(checkpoints)
    assert second[0] > 0, "it began from the start"
    return seen


def trainings(checkpoints: Path) -> list[list[int]]:
    """Return the steps of each time that a trainer started."""
    found: list[list[int]] = []
    for metrics in checkpoints.glob("*/metrics.jsonl"):
        for line, _ in new_lines(metrics, 0):
            if "steps_per_epoch" in line:
                found.append([])
            elif "train" in line:
                found[-1].append(line["global_step"])
    return found


def test_what_needs_the_network_runs_where_snakemake_runs(
    project: Project, cluster: Cluster
) -> None:
    write_site_profile(project, {}, {})
    before = len(cluster.jobs())
    manifest = "results/toy/raw/openorca.manifest.json"
    result = project.snakemake("--workflow-profile", SITE, manifest, "--force")
    assert result.returncode == 0, result.stdout
    assert "fetch_source" in result.stdout
    assert len(cluster.jobs()) == before
