"""Each mistake in the configuration gives one clear line and exit code 1 before any job starts."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from lib.configuration import ConfigurationError, complete, load_schema
from workflow.project import ROOT, Project

Change = Callable[[dict[str, Any]], Any]


def prompt_set(**changes: Any) -> dict[str, Any]:
    """Return a set of prompts of which nothing is wrong but the changes."""
    samples = ["resources/samples/prompts.jsonl"]
    return {"name": "asked", "format": "prompts", "domain": "chat", "files": samples, **changes}


def with_sets(*sets: dict[str, Any]) -> Change:
    return lambda c: c["evaluate"].update(prompt_sets=list(sets))


def on_hub(**changes: Any) -> dict[str, Any]:
    hub = {"dataset": "a/b", "revision": "0" * 40, "files": ["x.parquet"], **changes}
    given = prompt_set(hub={key: value for key, value in hub.items() if value is not None})
    return {key: value for key, value in given.items() if key != "files"}


MISTAKES: dict[str, tuple[Change, str]] = {
    "wrong type": (lambda c: c["train"].update(epochs="5"), "train.epochs"),
    "unknown key": (lambda c: c["train"].update(block_sise=8), "train.block_sise"),
    "unknown section": (lambda c: c.update(training={}), "training"),
    "missing key": (lambda c: c["train"].pop("mask_token"), "train.mask_token"),
    "missing file": (
        lambda c: c["sources"][0].update(files=["nowhere.parquet"]),
        "sources[0].files[0]",
    ),
    "missing evaluation file": (
        lambda c: c["evaluate"].update(prompts=["nowhere.jsonl"]),
        "evaluate.prompts[0]",
    ),
    "nothing to ask": (lambda c: c["evaluate"].update(prompts=[]), "evaluate.prompts"),
    "two sets of one name": (
        with_sets(prompt_set(), prompt_set()),
        "evaluate.prompt_sets[1].name",
    ),
    "a set with the name of a source": (
        with_sets(prompt_set(name="openorca")),
        "evaluate.prompt_sets[0].name",
    ),
    "set name that leaves its folder": (
        with_sets(prompt_set(name="../chat")),
        "evaluate.prompt_sets[0].name",
    ),
    "unknown format of a set": (
        with_sets(prompt_set(format="openorca")),
        "evaluate.prompt_sets[0].format",
    ),
    "a set of all domains": (
        with_sets(prompt_set(domain="all")),
        "evaluate.prompt_sets[0].domain",
    ),
    "missing file of a set": (
        with_sets(prompt_set(files=["nowhere.jsonl"])),
        "evaluate.prompt_sets[0].files[0]",
    ),
    "two places of a set": (
        with_sets({**on_hub(), **prompt_set()}),
        "evaluate.prompt_sets[0]",
    ),
    "a set without a revision": (
        with_sets(on_hub(revision=None)),
        "evaluate.prompt_sets[0].hub.revision",
    ),
    "a set at a moving revision": (
        with_sets(on_hub(revision="main")),
        "evaluate.prompt_sets[0].hub.revision",
    ),
    "a file of a set that leaves its folder": (
        with_sets(on_hub(files=["../../x.parquet"])),
        "evaluate.prompt_sets[0].hub.files[0]",
    ),
    "no requests at a time": (
        lambda c: c["evaluate"].update(concurrency=[0]),
        "evaluate.concurrency[0]",
    ),
    "unknown baseline": (
        lambda c: c["evaluate"].update(baseline=["ngram"]),
        "evaluate.baseline[0]",
    ),
    "baseline that no server gives": (
        lambda c: c["evaluate"].update(baseline=["mtp"]),
        "evaluate.baseline",
    ),
    "head of a target that has none": (
        lambda c: c["evaluate"].update(backend="vllm", baseline=["none", "mtp"]),
        "evaluate.baseline",
    ),
    "published drafter that is not there": (
        lambda c: c["evaluate"].update(published={"path": "nowhere"}),
        "evaluate.published.path",
    ),
    "published drafter of no place": (
        lambda c: c["evaluate"].update(published={}),
        "evaluate.published",
    ),
    "acceptance length of nothing": (
        lambda c: c["evaluate"].update(minimum_acceptance_length={"chat": 0.5}),
        "evaluate.minimum_acceptance_length.chat",
    ),
    "unknown format": (lambda c: c["sources"][1].update(format="csv"), "sources[1].format"),
    "duplicate source": (
        lambda c: c["sources"][2].update(name=c["sources"][0]["name"]),
        "sources[2].name",
    ),
    "run name that leaves its folder": (lambda c: c.update(run="../elsewhere"), "run"),
    "source name that leaves its folder": (
        lambda c: c["sources"][0].update(name="../openorca"),
        "sources[0].name",
    ),
    "hub file that leaves its folder": (
        lambda c: c["sources"].__setitem__(
            0,
            {
                "name": "x",
                "format": "openorca",
                "hub": {"dataset": "a/b", "revision": "0" * 40, "files": ["../../x.parquet"]},
            },
        ),
        "sources[0].hub.files[0]",
    ),
    "moving revision": (
        lambda c: c.update(target={"name": "x", "hub": {"repo": "a/b", "revision": "main"}}),
        "target.hub.revision",
    ),
    "two places of a target": (lambda c: c["target"].update(path="resources/toy_target"), "target"),
    "quota of nothing": (lambda c: c["sources"][3].update(quota=0), "sources[3].quota"),
    "weight of one source only": (
        lambda c: (
            c["merge"].update(max_samples=9),
            [s.update(weight=1) for s in c["sources"][1:]],
        ),
        "sources[0].weight",
    ),
    "weights of no total": (
        lambda c: [s.update(weight=1) for s in c["sources"]],
        "merge.max_samples",
    ),
    "threshold above one": (
        lambda c: c["merge"].update(near_duplicates={"threshold": 85}),
        "merge.near_duplicates.threshold",
    ),
    "no place of a source": (lambda c: c["sources"][3].pop("files"), "sources[3]"),
    "mask token that ends a turn": (
        lambda c: c["train"].update(mask_token="<|im_end|>"),
        "train.mask_token",
    ),
    "layer out of range": (
        lambda c: c["train"].update(target_layer_ids=[1, 3, 6]),
        "train.target_layer_ids",
    ),
    "layers out of order": (
        lambda c: c["train"].update(target_layer_ids=[3, 1]),
        "train.target_layer_ids",
    ),
    "full attention in a layer that is not there": (
        lambda c: c["train"].update(full_attention_layers=[2]),
        "train.full_attention_layers[0]",
    ),
    "packed sequence below the longest row": (
        lambda c: c["train"].update(sequence_length=256),
        "train.sequence_length",
    ),
}


def toy_configuration() -> dict[str, Any]:
    config: dict[str, Any] = yaml.safe_load((ROOT / "config/config.yaml").read_text())
    return config


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistake_gives_one_line_that_names_its_key(mistake: str) -> None:
    change, key = MISTAKES[mistake]
    config = toy_configuration()
    change(config)
    with pytest.raises(ConfigurationError) as caught:
        complete(config, load_schema(ROOT / "config/schema.yaml"), ROOT)
    lines = str(caught.value).splitlines()
    assert len(lines) == 1
    assert lines[0].startswith(f"{key}:")


def test_every_mistake_is_named_at_once() -> None:
    config = toy_configuration()
    config["train"]["epochs"] = 0
    config["run"] = "a/b"
    with pytest.raises(ConfigurationError) as caught:
        complete(config, load_schema(ROOT / "config/schema.yaml"), ROOT)
    assert [line.split(":")[0] for line in str(caught.value).splitlines()] == [
        "run",
        "train.epochs",
    ]


def test_snakemake_ends_with_the_line_and_code_1_before_any_job(project: Project) -> None:
    project.configure(lambda c: c["train"].update(mask_token="<|im_end|>"))
    result = project.snakemake("--cores", "1", "train")
    assert result.returncode == 1
    about = [line for line in result.stdout.splitlines() if "mask_token" in line]
    assert len(about) == 1
    assert about[0].startswith("configuration: train.mask_token:")
    assert "Traceback" not in result.stdout
    assert not (project.folder / "results").exists()


def test_values_of_the_command_line_that_stay_text_are_refused(project: Project) -> None:
    result = project.snakemake("-n", "--config", "train={epochs: 3}")
    assert result.returncode == 1
    assert re.search(r"^configuration: train\.epochs: must be integer", result.stdout, re.M)


def test_a_given_configuration_stands_alone(project: Project, tmp_path: Path) -> None:
    config = toy_configuration()
    config["target"] = {
        "name": "other",
        "hub": {"repo": "some/model", "revision": "0123456789abcdef0123456789abcdef01234567"},
    }
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump(config))
    result = project.snakemake("-n", "train", "--configfile", str(path))
    assert result.returncode == 0, result.stdout
    assert "fetch_target" in result.stdout
    assert "build_toy_target" not in result.stdout
