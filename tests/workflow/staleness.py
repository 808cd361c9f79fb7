"""The tables of docs/staleness.md, and the configurations on which they are tried."""

import copy
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from lib.configuration import complete, load_schema
from workflow.dry_runs import OF_A_SOURCE, DryRuns, Plan
from workflow.project import ROOT, Project

Config = dict[str, Any]

SCHEMA = load_schema(ROOT / "config/schema.yaml")
REVISION = "0123456789abcdef0123456789abcdef01234567"
OTHER_REVISION = "89abcdef0123456789abcdef0123456789abcdef"


def table(heading: str, number: int = 0) -> dict[str, set[str]]:
    """Return a table of the page: the names of each row's first cell with those of its second."""
    page = (ROOT / "docs/staleness.md").read_text()
    section = f"\n{page}".partition(f"\n{heading}\n")[2].partition("\n## ")[0]
    found = re.findall(r"(?:^\|.*\|\n)+", section, re.M)[number].splitlines()[2:]
    rows: dict[str, set[str]] = {}
    for line in found:
        first, second = line.strip("|").split("|")[:2]
        for name in re.findall(r"`([^`]+)`", first):
            assert name not in rows, f"{name} has two rows"
            rows[name] = set(re.findall(r"`([^`]+)`", second))
    return rows


FOLLOWERS = table("# What makes a stage stale")


def expected(first: set[str], plan: Plan, sources: set[str]) -> set[str]:
    """Return the jobs of a plan that are stale by the page.

    Args:
        first: stages of a row.
        sources: those that the change concerns.
    """
    stages = {job.partition(":")[0] for job in plan.jobs}
    # No base has both, so a published drafter is for the one that it has.
    compared = "evaluate_published_drafter" in stages
    unread = {"train_drafter"} if compared else set[str]()
    followers = FOLLOWERS | {"fetch_drafter": FOLLOWERS["fetch_drafter"] - unread}
    stale, waiting = set[str](), first & stages
    while waiting:
        stale |= waiting
        waiting = set().union(*(followers[stage] for stage in waiting)) & stages - stale
    return {
        job
        for job in plan.jobs
        for stage, _, source in [job.partition(":")]
        if stage in stale and (stage not in OF_A_SOURCE or source in sources)
    }


def leaves(node: Config = SCHEMA, key: str = "") -> dict[str, Config]:
    """Return every key of the configuration that has a value of its own, with its schema."""
    if "$ref" in node:
        node = {**SCHEMA["$defs"][node["$ref"].rpartition("/")[2]], **node}
    if "properties" in node:
        found: dict[str, Config] = {}
        for name, child in node["properties"].items():
            found |= leaves(child, f"{key}.{name}".lstrip("."))
        return found
    if "properties" in node.get("items", {}):
        return leaves(node["items"], f"{key}[]")
    return {key: node}


@dataclass(frozen=True)
class Bases:
    """Finished runs of three configurations in one project, by name."""

    dry_runs: DryRuns
    configs: dict[str, Config]

    def plan(self, base: str) -> Plan:
        """Return what is stale of a base as the project is now."""
        return self.dry_runs.plan(self.configs[base])

    def sources(self, base: str) -> dict[str, Config]:
        """Return the sources and sets of prompts of a base by name."""
        return {entry["name"]: entry for entry in entries(self.configs[base])}


def entries(config: Config, kind: str = "") -> list[Config]:
    """Return the sources and sets of prompts of a configuration, or only one kind of them."""
    sets = config.get("evaluate", {}).get("prompt_sets", [])
    by_kind = {"sources": config["sources"], "evaluate.prompt_sets": sets}
    return by_kind[kind] if kind else [*config["sources"], *sets]


def elsewhere(toy: Config) -> Config:
    """Return a configuration in which all comes from the hub, and states come online."""
    return {
        "run": "elsewhere",
        "target": {
            "name": "remote",
            "hub": {"repo": "some/model", "revision": REVISION},
            "thinking": True,
        },
        "sources": [
            {
                "name": "hubbed",
                "format": "sharegpt",
                "hub": {"dataset": "some/data", "revision": REVISION, "files": ["chats.json"]},
            },
            {
                "name": "addressed",
                "format": "openai_messages",
                "urls": [{"url": "https://example.org/chats.jsonl", "sha256": "0" * 64}],
            },
            {"name": "local", "format": "prompts", "files": ["resources/samples/prompts.jsonl"]},
        ],
        "responses": {"backend": "vllm"},
        "hidden_states": {"mode": "online", "backend": "vllm"},
        "tokenize": {"seq_length": 512},
        "train": {**toy["train"], "from": {"hub": {"repo": "some/drafter", "revision": REVISION}}},
        "evaluate": {
            "backend": "vllm",
            "prompt_sets": [
                {
                    "name": "held_out",
                    "format": "gsm8k",
                    "domain": "math",
                    "hub": {"dataset": "some/set", "revision": REVISION, "files": ["test.jsonl"]},
                },
                {
                    "name": "held_out_too",
                    "format": "gsm8k",
                    "domain": "code",
                    "urls": [{"url": "https://example.org/set.jsonl", "sha256": "0" * 64}],
                },
                {
                    "name": "held_out_here",
                    "format": "gsm8k",
                    "domain": "math",
                    "files": ["resources/samples/prompts.jsonl"],
                },
            ],
        },
    }


def compared(toy: Config) -> Config:
    """Return a configuration that compares its drafter with a published one."""
    published = {"hub": {"repo": "another/drafter", "revision": REVISION}}
    config = elsewhere(toy)
    return {
        **config,
        "run": "compared",
        "train": toy["train"],
        "evaluate": {"backend": "vllm", "published": published},
    }


def nearby(toy: Config) -> Config:
    """Return a configuration whose target and drafter are folders, with recorded answers."""
    return {
        "run": "nearby",
        "target": {"name": "near", "path": "near/target"},
        "sources": [
            {"name": "own", "format": "alpaca", "files": ["resources/samples/alpaca.json"]},
            {"name": "mail", "format": "prompts", "files": ["resources/samples/prompts.jsonl"]},
        ],
        "responses": {"mode": "keep"},
        "tokenize": {"seq_length": 512},
        "train": {**toy["train"], "from": {"path": "near/drafter"}},
    }


def declare_finished(dry_runs: DryRuns, config: Config) -> None:
    """Give every file of a run a stand-in, and have Snakemake record it as made just now."""
    given = dry_runs.given(config)
    for line in dry_runs.output("--summary", "all", *given).splitlines()[1:]:
        output = dry_runs.project.folder / line.split("\t")[0]
        output.parent.mkdir(parents=True, exist_ok=True)
        if not output.exists():
            output.write_text('{"shards": []}')
    record_as_made(dry_runs, *given)


def record_as_made(dry_runs: DryRuns, *arguments: str) -> None:
    """Have Snakemake take all files for made with the settings and the code of now."""
    dry_runs.output("--touch", "--forceall", "--no-hooks", "--cores", "1", "all", *arguments)


Change = Callable[[Config], Any]


def changed(config: Config, key: str, root: Path) -> Config:
    """Return a configuration with another value of a key: of its first source or address.

    Args:
        root: folder of the project.
    """
    new = copy.deepcopy(config)
    if key in CHANGES:
        CHANGES[key](new)
        return new
    place: Any = new
    *outer, last = key.replace("[]", ".0").split(".")
    current: Any = complete(config, SCHEMA, root)
    for part in outer:
        name = int(part) if part.isdecimal() else part
        place = place[name] if isinstance(name, int) else place.setdefault(name, {})
        current = current[name] if isinstance(name, int) else current.get(name, {})
    place[last] = other(current.get(last), leaves()[key])
    return new


def other(value: Any, schema: Config) -> Any:
    """Return another value that the schema allows."""
    if "enum" in schema:
        return next(choice for choice in schema["enum"] if choice != value)
    if isinstance(value, bool):
        return not value
    kinds = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    if "integer" in kinds:
        return schema.get("minimum", 0) + 3 if value is None else value + 1
    if "number" in kinds:
        return 0.75 if value is None else _other_number(value, schema)
    raise AssertionError("give this key a line in CHANGES")


def _other_number(value: float, schema: Config) -> float:
    half = value / 2
    return half if half >= schema.get("minimum", 0) else (value + schema.get("maximum", 2)) / 2


def entry_of(config: Config, key: str) -> Config:
    """Return the entry whose value `changed` changes for a key of a source or of a set."""
    kind, _, name = key.partition("[].")
    place = name.partition(".")[0].removesuffix("[]")
    wanted = place if place in ("hub", "urls", "files") else "name"
    return next(entry for entry in entries(config, kind) if wanted in entry)


def _of_an_entry(key: str, **values: Any) -> Change:
    """Return a change of some values in the entry that has a key, at the place of the key."""

    def change(config: Config) -> None:
        place = entry_of(config, key)
        for part in key.partition("[].")[2].split(".")[:-1]:
            place = place[part.removesuffix("[]")]
            place = place[0] if part.endswith("[]") else place
        place.update(values)

    return change


def _weigh(config: Config) -> None:
    config.setdefault("merge", {})["max_samples"] = 50
    for entry in config["sources"]:
        entry["weight"] = 1


CHANGES: dict[str, Change] = {
    "sources[].format": _of_an_entry("sources[].format", format="hermes"),
    "sources[].license": _of_an_entry("sources[].license", license="MIT"),
    "sources[].quota": _of_an_entry("sources[].quota", quota=3),
    "evaluate.prompt_sets[].format": _of_an_entry(
        "evaluate.prompt_sets[].format", format="humaneval"
    ),
    "evaluate.prompt_sets[].domain": _of_an_entry("evaluate.prompt_sets[].domain", domain="chat"),
    "run": lambda c: c.update(run="another"),
    "target.name": lambda c: c["target"].update(name="renamed"),
    "target.build": lambda c: c.update(target={"name": "toy", "path": "near/target"}),
    "target.path": lambda c: c["target"].update(path="near/other_target"),
    "target.hub.repo": lambda c: c["target"]["hub"].update(repo="other/model"),
    "target.hub.revision": lambda c: c["target"]["hub"].update(revision=OTHER_REVISION),
    "sources[].weight": _weigh,
    "merge.decontaminate": lambda c: c["merge"].update(decontaminate=["near/prompts.jsonl"]),
    "serving.options": lambda c: c.update(serving={"options": ["--enforce-eager"]}),
    "tokenize.seq_length": lambda c: c["tokenize"].update(seq_length=480),
    "hidden_states.mooncake.master": lambda c: _mooncake(c, master="127.0.0.1:50052"),
    "hidden_states.mooncake.metadata_server": lambda c: _mooncake(c, metadata_server="other"),
    "hidden_states.mooncake.device": lambda c: _mooncake(c, device="mlx5_0"),
    "train.from.hub.repo": lambda c: c["train"]["from"]["hub"].update(repo="other/drafter"),
    "train.from.hub.revision": lambda c: c["train"]["from"]["hub"].update(revision=OTHER_REVISION),
    "train.from.path": lambda c: c["train"]["from"].update(path="near/other_drafter"),
    "train.target_layer_ids": lambda c: c["train"].update(target_layer_ids=[1, 3, 4]),
    "train.mask_token": lambda c: c["train"].update(mask_token=7),
    "train.loss": lambda c: c["train"].update(loss={"ce": 0.5, "tv": 0.5}),
    "train.full_attention_layers": lambda c: c["train"].update(full_attention_layers=[0]),
    "train.options": lambda c: c["train"].update(options={"dspark": {"markov_rank": 64}}),
    "trainer.loggers": lambda c: c.update(trainer={"loggers": ["tensorboard"]}),
    "evaluate.prompts": lambda c: c["evaluate"].update(prompts=["resources/evaluation/code.jsonl"]),
    "evaluate.published.hub.repo": lambda c: _published(c, repo="other/drafter"),
    "evaluate.published.hub.revision": lambda c: _published(c, revision=OTHER_REVISION),
    "evaluate.published.path": lambda c: c["evaluate"].update(published={"path": "near/drafter"}),
    "evaluate.concurrency": lambda c: c["evaluate"].update(concurrency=[2]),
    "evaluate.baseline": lambda c: c["evaluate"].update(baseline=[]),
    "evaluate.minimum_acceptance_length": lambda c: c["evaluate"].update(
        minimum_acceptance_length={"all": 1.5}
    ),
}
"""Changes of keys whose other values can't be told from the schema."""

for _kind in ("sources", "evaluate.prompt_sets"):
    _values: dict[str, Config] = {
        "name": {"name": "renamed"},
        "files": {"files": ["resources/samples/hermes.json"]},
        "hub.dataset": {"dataset": "other/data"},
        "hub.revision": {"revision": OTHER_REVISION},
        "hub.files": {"files": ["more.json"]},
        "urls[].url": {"url": "https://example.org/other.jsonl"},
        "urls[].sha256": {"sha256": "1" * 64},
    }
    for _name, _new in _values.items():
        CHANGES[f"{_kind}[].{_name}"] = _of_an_entry(f"{_kind}[].{_name}", **_new)


def _published(config: Config, **values: str) -> None:
    config["evaluate"]["published"]["hub"].update(values)


def _mooncake(config: Config, **values: str) -> None:
    config["hidden_states"]["mooncake"] = values


def base_of(key: str) -> str:
    """Return the base that has a key."""
    if key.startswith("evaluate.published"):
        return "compared"
    marks = (".hub.", ".urls[]", "mooncake", "prompt_sets", "hidden_states.transfer")
    if any(mark in key for mark in marks):
        return "elsewhere"
    return "nearby" if key.endswith(".path") else "toy"


def prepare_bases(project: Project, path: str) -> Bases:
    """Make finished runs of the other configurations beside the toy run of a project.

    Args:
        path: folders of programs that Snakemake finds.
    """
    folder = project.folder
    toy = yaml.safe_load((folder / "config/config.yaml").read_text())
    others = {"elsewhere": elsewhere(toy), "nearby": nearby(toy), "compared": compared(toy)}
    target = Path("resources/toy_target")
    for name in ("target", "other_target", "drafter", "other_drafter"):
        (folder / "near" / name).mkdir(parents=True)
        for file in ("config.json", "chat_template.jinja"):
            (folder / "near" / name / file).write_bytes((folder / target / file).read_bytes())
    (folder / "near/prompts.jsonl").write_bytes(
        (folder / "resources/evaluation/chat.jsonl").read_bytes()
    )
    dry_runs = DryRuns(project, path)
    for config in others.values():
        declare_finished(dry_runs, config)
    return Bases(dry_runs, {"toy": toy, **others})
