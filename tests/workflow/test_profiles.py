"""What the profiles ask for: of a cluster in dry runs, and of this machine."""

import re
from pathlib import Path

import pytest
import yaml

from workflow.project import ROOT, Project

SOURCES = yaml.safe_load((ROOT / "config/config.yaml").read_text())["sources"]
RECIPE = ("--configfile", "config/qwen3.6-27b.yaml")


def resources(output: str) -> dict[str, dict[str, str]]:
    """Return the resources of the rules that a dry run shows, by rule."""
    found: dict[str, dict[str, str]] = {}
    for block in re.split(r"^(?:local)?rule ", output, flags=re.M)[1:]:
        line = re.search(r"^ *resources: (.*)$", block, flags=re.M)
        assert line is not None, block
        found[block.split(":")[0]] = dict(re.findall(r"(\w+)=([^,]*)", line[1]))
    return found


def dry_run(project: Project, *arguments: str) -> str:
    result = project.snakemake("-n", "all", *arguments, "--quiet", "host")
    assert result.returncode == 0, result.stdout
    return result.stdout


@pytest.mark.parametrize("name", ["slurm", "kubernetes"])
def test_a_profile_of_a_cluster_says_all_that_the_default_one_says(name: str) -> None:
    default, profile = (
        yaml.safe_load((ROOT / f"profiles/{folder}/profile.yaml").read_text())
        for folder in ("default", name)
    )
    # A limit of GPUs is for one machine.
    assert set(default) - {"resources"} <= set(profile)


def test_slurm_is_asked_for_what_the_recipe_configures(project: Project) -> None:
    output = dry_run(project, "--workflow-profile", "profiles/slurm", *RECIPE)
    asked = resources(output)
    recipe = yaml.safe_load((project.folder / RECIPE[1]).read_text())
    serving, train = recipe["serving"]["gpus"], recipe["train"]["gpus"]
    with_gpus = {
        rule: found["gpu"] for rule, found in asked.items() if found.get("gpu", "0") != "0"
    }
    assert with_gpus == {
        "regenerate_responses": str(serving),
        "train_drafter": str(serving + train),
        "evaluate_drafter": str(serving),
    }
    for rule, found in asked.items():
        assert found["slurm_partition"] == ("gpu" if rule in with_gpus else "cpu"), rule
        assert found["nodes"] == "1", rule
        assert int(found["mem_mb"]) > 0, rule
        assert int(found["runtime"]) > 0, rule
    shards = recipe["responses"]["shards"]
    assert len(re.findall(r"^rule regenerate_responses:", output, flags=re.M)) == shards


def test_a_training_over_nodes_asks_for_gpus_by_node(project: Project) -> None:
    project.configure(lambda config: config["train"].update(gpus=4, nodes=2))
    output = dry_run(project, "--workflow-profile", "profiles/slurm")
    asked = resources(output)["train_drafter"]
    assert (asked["nodes"], asked["tasks"], asked["gres"]) == ("2", "2", "gpu:4")
    assert asked["tasks_per_gpu"] == "0"
    assert "gpu" not in asked


def test_kubernetes_is_asked_for_gpus_with_their_maker(project: Project, tmp_path: Path) -> None:
    project.configure(lambda config: config["train"].update(gpus=4))
    volume = ("--default-storage-prefix", str(project.folder), "--local-storage-prefix", "files")
    output = dry_run(project, "--workflow-profile", "profiles/kubernetes", *volume)
    asked = resources(output)["train_drafter"]
    assert (asked["gpu"], asked["gpu_manufacturer"], asked["scale"]) == ("4", "nvidia", "0")


def test_jobs_with_gpus_run_one_after_another_unless_told(project: Project) -> None:
    project.configure(lambda config: config.update(sources=config["sources"][:2]))
    targets = [f"results/toy/sources/{source['name']}.jsonl" for source in SOURCES[:2]]
    assert project.snakemake(*targets, "--cores", "4").returncode == 0
    # More than the limit of the profile: such a job runs, and alone.
    asked = ("--cores", "4", "--force", "--quiet", "host", "--set-resources")

    def at_once(*arguments: str) -> int:
        result = project.snakemake(*targets, *asked, "normalize_source:gpu=4", *arguments)
        assert result.returncode == 0, result.stdout
        return most_at_once(result.stdout, "normalize_source")

    assert at_once() == 1
    assert at_once("--resources", "gpu=8") == 2
    # What docs/cluster.md warns of: the limit of the profile is gone.
    assert at_once("--resources", "mem_mb=100000") == 2


def most_at_once(output: str, rule: str) -> int:
    """Return how many jobs of a rule a run had under way at a time."""
    running = most = 0
    for line in output.splitlines():
        running += line == f"localrule {rule}:"
        running -= line.startswith("Finished jobid") and line.endswith(f"(Rule: {rule})")
        most = max(most, running)
    return most
