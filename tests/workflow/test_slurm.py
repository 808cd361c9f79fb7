"""The profile for Slurm, on a real cluster: two nodes on this machine, with fake GPUs."""

import re
import shutil
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from lib.metrics_file import new_lines
from workflow.project import Project, Run
from workflow.slurm_cluster import Cluster, Job, missing, slurm_cluster

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing())

SITE = "profiles/site"
SHORT_TRAINING = {"epochs": 1, "anchors": 16, "sequence_length": 2048}


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
    profile["slurm-init-seconds-before-status-checks"] = 1
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
            program, *arguments = (entry / "cmdline").read_bytes().decode().split("\0")
            run = next((word for word in arguments if not word.startswith("-")), "")
            if "python" not in program or not run.endswith(script):
                continue
            lines = (entry / "environ").read_text().split("\0")
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


def start(project: Project, *command: str) -> Run:
    (project.folder / "run.log").unlink(missing_ok=True)
    return project.start("--workflow-profile", SITE, *command)


def require_success(running: Run) -> None:
    running.process.wait(timeout=300)
    assert running.process.returncode == 0, (running.project.folder / "run.log").read_text()


def test_shards_run_at_once_each_with_gpus_of_its_own(project: Project, cluster: Cluster) -> None:
    project.configure(lambda config: config["responses"].update(shards=2))
    write_site_profile(project, {}, {"gpu": 2})
    responses = project.folder / "results/toy/responses/sharegpt.jsonl"
    before = responses.read_bytes()
    running = start(project, "all", "--until", "gather_responses")
    seen = seen_at_once(running, "scripts/regenerate_responses.py")
    require_success(running)
    assert len({(node, gpu) for node, gpus in seen for gpu in gpus.split(",")}) == 4, seen
    assert ended(project, cluster) == {
        ("regenerate_responses", "COMPLETED"): 2,
        ("gather_responses", "COMPLETED"): 1,
    }
    assert responses.read_bytes() == before


def seen_at_once(running: Run, script: str) -> list[tuple[str, str]]:
    """Wait until two processes run a script; return node and GPUs of each."""
    seen: list[tuple[str, str]] = []

    def both() -> bool:
        seen[:] = gpus_of(running.project, script)
        return len(seen) == 2

    running.wait_for(both)
    return seen


def test_a_cancelled_training_goes_on_in_another_job(project: Project, cluster: Cluster) -> None:
    project.configure(lambda config: config["train"].update(SHORT_TRAINING))
    write_site_profile(project, {"gpu": 2}, {})
    checkpoints = project.folder / "results/toy/checkpoints"
    shutil.rmtree(checkpoints)
    running = start(project, "train")
    running.wait_for(lambda: any(len(steps) > 10 for steps in trainings(checkpoints)))
    assert gpus_of(project, "training_launcher.py") == [("node0", "0,1")]
    (job,) = submitted(project, cluster)
    cluster.command("scancel", str(job.number))
    require_success(running)
    assert "status is: 'CANCELLED'" in (project.folder / "run.log").read_text()
    assert ended(project, cluster) == {
        ("train_drafter", "CANCELLED"): 1,
        ("train_drafter", "COMPLETED"): 1,
        ("export_drafter", "COMPLETED"): 1,
        ("plot_training", "COMPLETED"): 1,
    }
    for training in submitted(project, cluster)[:2]:
        assert training.record["TresPerJob"] == "gres:gpu:2"
    _, second = trainings(checkpoints)
    assert second[0] > 0, "it began from the start"


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


def test_a_training_has_gpus_on_each_node_and_ctrl_c_cancels_it(
    project: Project, cluster: Cluster
) -> None:
    project.configure(lambda config: config["train"].update(SHORT_TRAINING, nodes=2))
    write_site_profile(project, {"gres": "gpu:2", "tasks_per_gpu": 0}, {})
    running = start(project, "train")
    seen = seen_at_once(running, "training_launcher.py")
    assert seen == [("node0", "0,1"), ("node1", "0,1")]
    running.interrupt(signal.SIGINT)
    assert running.process.returncode != 0
    cluster.wait_until_empty()
    assert ended(project, cluster) == {("train_drafter", "CANCELLED"): 1}
    assert gpus_of(project, "training_launcher.py") == []


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
