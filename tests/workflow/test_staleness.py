"""Exactly what depends on a change is stale: docs/staleness.md says what, Snakemake must agree."""

import copy
import os
import re
import shutil
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest

from workflow.dry_runs import edited, without
from workflow.project import ROOT, Project, copy_project
from workflow.staleness import (
    OTHER_REVISION,
    Bases,
    base_of,
    changed,
    entries,
    entry_of,
    expected,
    leaves,
    record_as_made,
    table,
)

KEYS = {**table("## Keys of the configuration"), **table("## Keys of a source or a set of prompts")}
MODULES = table("## Scripts and modules")
FORMAT_MODULES = table("## Scripts and modules", 1)
FILES = table("## Files")
ENVIRONMENTS = table("## Environments")

SCRIPTS = sorted(
    path.relative_to(ROOT / "scripts").as_posix() for path in ROOT.glob("scripts/**/*.py")
)
RESOURCES = sorted(
    str(path.relative_to(ROOT)) for path in ROOT.glob("resources/**/*") if path.is_file()
)


def test_a_finished_run_is_fresh(bases: Bases) -> None:
    for base in bases.configs:
        assert bases.plan(base).stale == frozenset()


def test_every_key_has_a_row() -> None:
    assert set(KEYS) == set(leaves())


def row_of(name: str) -> set[str]:
    """Return the row of a script or module; most formats share one."""
    rows = {**MODULES, **FORMAT_MODULES}
    if name not in rows and Path(name).parent.name == "formats":
        return {Path(name).stem}
    return rows[name]


def test_every_script_and_module_has_a_row() -> None:
    named = {*MODULES, *FORMAT_MODULES} - {"lib/formats/{format}.py"}
    formats = {name for name in SCRIPTS if name.startswith("lib/formats/")}
    assert named - formats == set(SCRIPTS) - formats
    assert named & formats <= formats


def test_every_environment_has_a_row() -> None:
    assert set(ENVIRONMENTS) == {f"envs/{path.name}" for path in ROOT.glob("envs/*.yaml")}


def test_every_stage_has_a_row() -> None:
    rules = "".join(path.read_text() for path in ROOT.glob("rules/*.smk"))
    with_a_script = re.findall(r"python scripts/(\w+)\.py", rules)
    assert set(table("# What makes a stage stale")) == set(with_a_script)


@pytest.mark.parametrize("key", leaves())
def test_a_key_makes_stale_what_its_row_says(bases: Bases, key: str) -> None:
    base = base_of(key)
    config = changed(bases.configs[base], key, bases.dry_runs.project.folder)
    plan = bases.dry_runs.plan(config)
    concerned = [entry_of(config, key)] if "[]." in key else entries(config)
    sources = {entry["name"] for entry in concerned}
    assert plan.stale == expected(KEYS[key], plan, sources)


def assert_stale(bases: Bases, base: str, row: set[str]) -> None:
    """Compare the plan of a base with a row, where a name that is no stage is a format."""
    plan = bases.plan(base)
    sources = bases.sources(base)
    formats = {name for name, entry in sources.items() if entry["format"] in row}
    if formats:
        sets = {name for name, entry in sources.items() if "domain" in entry}
        stale = expected({"normalize_source", *row}, plan, formats | sets)
    else:
        stale = expected(row, plan, set(sources))
    assert plan.stale == stale, base


@pytest.mark.parametrize("name", SCRIPTS)
def test_code_makes_stale_what_its_row_says(bases: Bases, name: str) -> None:
    row = row_of(name)
    with edited(bases.dry_runs.project.folder / "scripts" / name, end="\n# edited\n"):
        assert_stale(bases, "toy", row)
        if "/formats/" in name or row & {"fetch_target", "fetch_drafter", "prepare_prompts"}:
            assert_stale(bases, "elsewhere", row)
        if "evaluate_published_drafter" in row:
            assert_stale(bases, "compared", row)


@pytest.mark.parametrize("name", RESOURCES)
def test_a_file_makes_stale_what_its_row_says(bases: Bases, name: str) -> None:
    (row,) = (FILES[pattern] for pattern in FILES if fnmatch(name, pattern))
    with edited(bases.dry_runs.project.folder / name, end="\n"):
        for base in ("toy", "nearby"):
            plan = bases.plan(base)
            found = bases.sources(base).values()
            sources = {entry["name"] for entry in found if name in entry.get("files", [])}
            first = row if sources or "fetch_source" not in row else set()
            assert plan.stale == expected(first, plan, sources)


@pytest.mark.parametrize("place", ["target", "drafter"])
@pytest.mark.parametrize("name", ["chat_template.jinja", "config.json"])
def test_a_file_of_a_local_model_is_noticed(bases: Bases, place: str, name: str) -> None:
    row = FILES["target.path/*" if place == "target" else "train.from.path/*"]
    with edited(bases.dry_runs.project.folder / "near" / place / name, end="\n"):
        plan = bases.plan("nearby")
        assert plan.stale == expected(row, plan, set())


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_a_pin_makes_stale_what_its_row_says_and_a_comment_nothing(bases: Bases, name: str) -> None:
    environment = bases.dry_runs.project.folder / name
    with edited(
        environment, old="- pip\n", new="- pip  # which one is all the same\n", end="\n# The end\n"
    ):
        assert bases.plan("toy").stale == bases.plan("elsewhere").stale == frozenset()
    with edited(environment, end="      - added==1.0\n"):
        assert_stale(bases, "toy", ENVIRONMENTS[name])
        assert_stale(bases, "elsewhere", ENVIRONMENTS[name])


def rules() -> list[tuple[str, str]]:
    """Return the file and the name of each rule that runs a script."""
    return [
        (path.name, name)
        for path in sorted(ROOT.glob("rules/*.smk"))
        for name in re.findall(r"python scripts/(\w+)\.py", path.read_text())
    ]


@pytest.mark.parametrize(("file", "rule"), rules())
def test_a_changed_command_makes_its_rule_stale(bases: Bases, file: str, rule: str) -> None:
    path = bases.dry_runs.project.folder / "rules" / file
    elsewhere = ("fetch_target", "fetch_drafter", "prepare_prompts")
    base = "elsewhere" if rule in elsewhere else "toy"
    base = "compared" if rule == "evaluate_published_drafter" else base
    with edited(path, old=f"python scripts/{rule}.py", new=f"python -u scripts/{rule}.py"):
        plan = bases.plan(base)
        assert plan.stale == expected({rule}, plan, set(bases.sources(base)))


def test_another_layout_log_and_threads_make_nothing_stale(bases: Bases) -> None:
    for path in sorted((bases.dry_runs.project.folder / "rules").glob("*.smk")):
        text = path.read_text()
        text = re.sub(r'"\n +" --', '"   " --', text)
        text = text.replace('.log"', '.txt"').replace("threads: 8", "threads: 3")
        text = re.sub(r"^( +)shell:$", r"\n\1priority: 5\n\n\1shell:", text, flags=re.M)
        with edited(path, old=path.read_text(), new=text):
            assert bases.plan("toy").stale == bases.plan("elsewhere").stale == frozenset()


def test_order_of_keys_comments_and_defaults_make_nothing_stale(bases: Bases) -> None:
    def reordered(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: reordered(value[key]) for key in reversed(value)}
        return [reordered(item) for item in value] if isinstance(value, list) else value

    config = reordered(bases.configs["toy"])
    config["responses"]["shards"] = 1
    assert bases.dry_runs.plan(config).stale == frozenset()


@pytest.mark.parametrize(
    "arguments", [("--cores", "7"), ("--sdm", "conda"), ("--resources", "gpu=4")], ids=" ".join
)
def test_how_it_is_run_makes_nothing_stale(bases: Bases, arguments: tuple[str, ...]) -> None:
    assert bases.dry_runs.plan(None, *arguments).stale == frozenset()


def test_a_run_that_conda_made_is_fresh_without_it(bases: Bases) -> None:
    with_conda = (*bases.dry_runs.given(bases.configs["nearby"]), "--sdm", "conda")
    record_as_made(bases.dry_runs, *with_conda)
    assert bases.dry_runs.ask("-n", "all", *with_conda)["ended_well"]
    assert bases.plan("nearby").stale == frozenset()


def test_a_fresh_clone_elsewhere_with_the_results_is_fresh(
    finished: Project, tmp_path: Path
) -> None:
    clone = copy_project(tmp_path / "somewhere else")
    for path in clone.folder.rglob("*"):
        os.utime(path)
    for part in ("results", "models", "cache", ".snakemake"):
        shutil.copytree(finished.folder / part, clone.folder / part, symlinks=True)
    assert clone.stale() == set()


def test_what_the_server_says_is_what_snakemake_says(bases: Bases) -> None:
    """The other tests ask one process for all; here the command line answers."""
    project = bases.dry_runs.project
    with edited(project.folder / "scripts/lib/stamp.py", end="\n# edited\n"):
        assert project.stale() == bases.plan("toy").stale_stages


def test_sources_in_another_order_and_sources_left_out_are_noticed(bases: Bases) -> None:
    toy = bases.configs["toy"]
    for sources in (toy["sources"][::-1], toy["sources"][1:]):
        plan = bases.dry_runs.plan({**toy, "sources": sources})
        assert plan.stale == expected({"merge_sources"}, plan, set())


def test_an_added_source_is_all_that_is_fetched_and_normalized(bases: Bases) -> None:
    toy = bases.configs["toy"]
    added = {"name": "mine", "format": "prompts", "files": ["resources/samples/prompts.jsonl"]}
    plan = bases.dry_runs.plan({**toy, "sources": [*toy["sources"], added]})
    assert plan.stale == expected({"fetch_source"}, plan, {"mine"})


def test_swapped_values_are_noticed(bases: Bases) -> None:
    config = copy.deepcopy(bases.configs["elsewhere"])
    config["target"] |= {"thinking": False, "preserve_thinking": True}
    plan = bases.dry_runs.plan(config)
    assert plan.stale == expected(KEYS["target.thinking"], plan, set())
    config = copy.deepcopy(bases.configs["toy"])
    config["verify"] = {"maximum_lost_share": 0.01, "minimum_supervised_share": 0.5}
    plan = bases.dry_runs.plan(config)
    assert plan.stale == expected({"verify_dataset"}, plan, set())


def test_a_prompt_file_of_ones_own_is_held_out_too(bases: Bases) -> None:
    config = copy.deepcopy(bases.configs["toy"])
    config["evaluate"]["prompts"].append("near/prompts.jsonl")
    plan = bases.dry_runs.plan(config)
    assert plan.stale == expected({"merge_sources"}, plan, set())


def test_a_deleted_shard_is_named_and_made_again_as_the_line_says(bases: Bases) -> None:
    tokenized = bases.dry_runs.project.folder / "results/toy/tokenized"
    shard, stats = sorted(tokenized.glob("*.arrow"))[0], tokenized / "stats.json"
    config = {**bases.configs["toy"], "train": {**bases.configs["toy"]["train"], "epochs": 6}}
    with without(shard):
        answer = bases.dry_runs.ask("-n", "all")
        line = next(line for line in answer["said"].splitlines() if shard.name in line)
        assert f"Delete results/toy/tokenized/{stats.name}" in line
        # Nothing that is to be made needs it, so nothing is stale.
        assert bases.plan("toy").stale == frozenset()
        with without(stats):
            plan = bases.dry_runs.plan(config)
            assert plan.stale == expected({"tokenize_conversations"}, plan, set())
    assert "Delete" not in bases.dry_runs.ask("-n", "all")["said"]


def test_a_damaged_shard_stops_training_before_it_starts(finished: Project, tmp_path: Path) -> None:
    shutil.copytree(finished.folder, tmp_path / "copy", symlinks=True)
    project = Project(tmp_path / "copy")
    shard = next((project.folder / "results/toy/tokenized").glob("*.arrow"))
    with shard.open("r+b") as file:
        file.seek(-100, os.SEEK_END)
        file.write(b"damaged")
    project.configure(lambda config: config["train"].update(epochs=6))
    result = project.snakemake("--cores", "all", "train")
    assert result.returncode != 0
    assert f"{shard.name} is not as it was verified" in result.stdout


def test_another_revision_with_the_same_first_digits_is_noticed(bases: Bases) -> None:
    config = copy.deepcopy(bases.configs["elsewhere"])
    revision = config["target"]["hub"]["revision"]
    config["target"]["hub"]["revision"] = revision[:8] + OTHER_REVISION[8:]
    plan = bases.dry_runs.plan(config)
    assert plan.stale == expected({"fetch_target"}, plan, set())
