"""The configuration: completed with defaults, checked, and cut into the settings of each stage."""

from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

import yaml
from jsonschema import Draft202012Validator, ValidationError

from lib.algorithms import ALGORITHMS
from lib.digest import digest
from lib.formats import format_names
from lib.prompt_formats import PROMPT_FORMATS
from lib.target_facts import TargetFacts, head_problem, model_files, read_facts

Config = dict[str, Any]

TOY_PLAN = Path("resources/toy_target")
"""What the toy target is built from; it holds configuration files like any model folder."""

KNOWN_TARGETS = Path("resources/targets")
"""Configurations of targets on the hub, in folders that are called like those of the targets."""

HELD_OUT = Path("resources/evaluation")
"""Prompts that the project holds out of every corpus."""


PUBLISHED = (("train", "from"), ("evaluate", "published"))
"""Sections and keys that name a published drafter."""


class ConfigurationError(ValueError):
    """The configuration is wrong; one line for each mistake, each naming its key."""


def load_schema(path: Path) -> Config:
    """Read the schema of the configuration."""
    # The loader in C takes a tenth of the time, and every start of Snakemake waits for it.
    schema: Config = yaml.load(path.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)
    return schema


def complete(config: Mapping[str, Any], schema: Config, root: Path) -> Config:
    """Check a configuration and return it with every default filled in.

    Args:
        root: the project's folder, which relative paths start from.

    Raises:
        ConfigurationError: names every mistake.
    """
    filled: Config = _fill(config, schema, schema)
    errors = sorted(Draft202012Validator(schema).iter_errors(filled), key=lambda e: list(e.path))
    if errors:
        raise ConfigurationError("\n".join(_explain(error) for error in errors))
    completed = {**filled, "train": _with_values_of_the_algorithm(filled["train"])}
    if problems := list(_cross_check(completed, root)):
        raise ConfigurationError("\n".join(problems))
    return completed


def stage_settings(config: Config, stage: str, name: str = "") -> dict[str, Any]:
    """Return the settings that a stage gets, which is what makes it stale besides its input.

    Files that a stage reads are its inputs, so their paths are not among its settings.

    Args:
        config: a complete configuration.
        stage: name of the rule.
        name: of the source, set of prompts or published drafter, for the rules that work on one.
    """
    target, train = config["target"], config["train"]
    mode = {key: target[key] for key in ("thinking", "preserve_thinking", "trust_remote_code")}
    trust = {"trust_remote_code": target["trust_remote_code"]}
    match stage:
        case "fetch_source":
            return _pick(source_entry(config, name), "files", "hub", "urls")
        case "normalize_source":
            keys = ("name", "format", "max_samples", "max_reject_rate")
            return _pick(source_entry(config, name), *keys)
        case "prepare_prompts":
            entry = source_entry(config, name)
            return _pick(entry, "name", "format", "domain", "max_prompts", "max_reject_rate")
        case "merge_sources":
            rules = _without(config["merge"], "decontaminate")
            shares = [_pick(entry, "name", "quota", "weight") for entry in config["sources"]]
            return {**rules, "sources": shares}
        case "build_toy_target":
            return _pick(target, "name", "build")
        case "fetch_target":
            return {**_pick(target, "name", "hub", "path"), **trust}
        case "regenerate_responses":
            return {**mode, **_without(config["responses"], "mode", "shards")}
        case "tokenize_conversations":
            return {**mode, **config["tokenize"]}
        case "verify_dataset":
            runs = _pick(config["merge"], "shared_words", "shared_code_tokens")
            limits = {e["name"]: e["limits"] for e in config["sources"] if "limits" in e}
            return {**config["verify"], "limits": limits, **runs, **mode, **config["tokenize"]}
        case "extract_hidden_states":
            stored = _without(config["hidden_states"], "transfer", "mooncake")
            return {**stored, "layer_ids": train["target_layer_ids"], **trust}
        case "fetch_drafter":
            return _drafter_to_fetch(config, published_drafters(config).get(name, {}))
        case "train_drafter":
            states = config["hidden_states"]
            origin = {"hidden_states": states["mode"], "transfer": states["transfer"]}
            return {**_without(train, "from"), **trust, **origin}
        case "export_drafter":
            place = ("name", "license", "files", "hub", "urls")
            return {
                **_pick(target, "thinking", "preserve_thinking"),
                **_pick(train, "target_layer_ids"),
                "start": train.get("from", {}),
                "responses": config["responses"]["mode"],
                "revision": target.get("hub", {}).get("revision", ""),
                "sources": [_pick(entry, *place) for entry in config["sources"]],
            }
        case "evaluate_drafter":
            return {**mode, **_without(config["evaluate"], "prompts", "prompt_sets", "published")}
        case "evaluate_published_drafter":
            gates = ("minimum_acceptance_length", "maximum_differing_share")
            measured = _without(config["evaluate"], "prompts", "prompt_sets", "published", *gates)
            # What the target's own head is worth does not depend on the drafter.
            baseline = [each for each in measured["baseline"] if each != "mtp"]
            return {**mode, **measured, "baseline": baseline}
        case "report":
            shown = _without(config, "serving", "trainer")
            states = _without(config["hidden_states"], "mooncake")
            return {"run": config["run"], "configuration": {**shown, "hidden_states": states}}
    raise ValueError(f"no stage {stage!r}")


def trainer_settings(config: Config) -> dict[str, Any]:
    """Return how the trainer runs, which makes nothing stale."""
    return {**config["trainer"], "mooncake": config["hidden_states"]["mooncake"]}


def source_names(config: Config) -> list[str]:
    """Return the names of the sources in their order."""
    return [entry["name"] for entry in config["sources"]]


def prompt_set_names(config: Config) -> list[str]:
    """Return the names of the sets of evaluation prompts in their order."""
    return [entry["name"] for entry in config["evaluate"]["prompt_sets"]]


def source_entry(config: Config, name: str) -> dict[str, Any]:
    """Return the configuration of a source, or of a set of evaluation prompts."""
    entries = (*config["sources"], *config["evaluate"]["prompt_sets"])
    entry: dict[str, Any] = next(e for e in entries if e["name"] == name)
    return entry


def evaluation_files(config: Config, root: Path) -> list[str]:
    """Return the files of evaluation prompts that no training data may hold, sorted.

    The prompts of the project are always among them, and those that the drafter is measured on;
    not those of `evaluate.prompt_sets`, which a rule makes.
    """
    own = [str(HELD_OUT / path.name) for path in (root / HELD_OUT).glob("*.jsonl")]
    return sorted({*own, *config["merge"]["decontaminate"], *config["evaluate"]["prompts"]})


def target_folder(config: Config) -> str:
    """Return the target's folder, `models/{name}@{rev8}`.

    The eight digits are the hub's revision, or a digest of where else the target comes from.
    """
    target = config["target"]
    if "hub" in target:
        revision = target["hub"]["revision"]
    else:
        revision = digest(_pick(target, "build", "path"))
    return f"models/{target['name']}@{revision[:8]}"


def known_target(config: Config, root: Path) -> Path | None:
    """Return a folder with the target's `config.json`, if one is at hand without its weights.

    That is the target's own folder once it is there, else what the target is made from, or the
    file that the project has of a target on the hub.
    """
    target = config["target"]
    folders = [root / target_folder(config)]
    folders += [root / TOY_PLAN] if "build" in target else []
    folders += [root / target["path"]] if "path" in target else []
    folders += [root / KNOWN_TARGETS / Path(target_folder(config)).name] if "hub" in target else []
    return next((folder for folder in folders if (folder / "config.json").is_file()), None)


def published_drafter(config: Config, section: str, key: str) -> str:
    """Return the name of the published drafter that a key names; "" if it names none.

    Its eight digits are a digest of where it comes from, of what it must fit, and of the target
    that completes it: one that is named twice for the same use is brought once, and runs with
    other uses of it have folders of their own.
    """
    published = config[section].get(key)
    if published is None:
        return ""
    settings = _drafter_to_fetch(config, published)
    return f"{config['target']['name']}@{digest([settings, target_folder(config)])[:8]}"


def _drafter_to_fetch(config: Config, origin: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that bring a published drafter: to train on from it, or to measure it."""
    train = config["train"]
    trust = {"trust_remote_code": config["target"]["trust_remote_code"]}
    if origin != train.get("from", {}):
        return {**origin, "key": "evaluate.published", **trust}
    shape = _pick(train, "algorithm", "layers", "block_size", "target_layer_ids", "mask_token")
    shape |= _pick(train, "sliding_window", "full_attention_layers", "draft_vocabulary")
    return {**origin, **shape, **trust}


def drafter_folder(config: Config, section: str, key: str) -> str:
    """Return the folder of the published drafter that a key names; "" if it names none."""
    name = published_drafter(config, section, key)
    return f"models/drafter-{name}" if name else ""


def published_drafters(config: Config) -> dict[str, dict[str, Any]]:
    """Return where each published drafter comes from, by name."""
    return {
        name: config[section][key]
        for section, key in PUBLISHED
        if (name := published_drafter(config, section, key))
    }


def local_drafter_files(config: Config, name: str) -> list[str]:
    """Return the files of a published drafter that is a local folder; none for other drafters."""
    path = published_drafters(config)[name].get("path")
    return [] if path is None else [str(file) for file in model_files(Path(path))]


def local_target_files(config: Config) -> list[str]:
    """Return the files of a target that is a local folder; none for other targets."""
    target = config["target"]
    if "path" not in target:
        return []
    return [str(file) for file in model_files(Path(target["path"]), target["trust_remote_code"])]


def _pick(values: Mapping[str, Any], *keys: str) -> dict[str, Any]:
    return {key: values[key] for key in keys if key in values}


def _without(values: Mapping[str, Any], *keys: str) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name not in keys}


def _fill(value: Any, schema: Config, root: Config) -> Any:
    """Return `value` with the defaults of its schema, at every depth."""
    if reference := schema.get("$ref"):
        schema = root["$defs"][reference.rpartition("/")[2]]
    if isinstance(value, Mapping):
        properties = schema.get("properties", {})
        defaults = {name: sub["default"] for name, sub in properties.items() if "default" in sub}
        return {
            name: _fill(item, properties.get(name, {}), root)
            for name, item in {**defaults, **value}.items()
        }
    if isinstance(value, list):
        return [_fill(item, schema.get("items", {}), root) for item in value]
    return value


def _with_values_of_the_algorithm(train: Mapping[str, Any]) -> Config:
    """Put what the algorithm takes by itself where nothing is said."""
    own = vars(ALGORITHMS[train["algorithm"]])
    return {**train, **{key: own[key] for key in own if train[key] is None}}


def _explain(error: ValidationError) -> str:
    """Return one line: the key, what was wrong and what is allowed."""
    key = _key(error.absolute_path)
    value = repr(error.instance)[:60]
    expected, rule, found = _untyped(error)
    match error.validator:
        case "additionalProperties":
            known = sorted(rule["properties"])
            extra = sorted(set(found) - set(known))
            where = f"{key}.{extra[0]}" if key else extra[0]
            return f"{where}: unknown key; allowed here: {', '.join(known)}"
        case "required":
            missing = sorted(set(expected) - set(found))
            where = f"{key}.{missing[0]}" if key else missing[0]
            return f"{where}: is missing"
        case "type":
            wanted = expected if isinstance(expected, str) else " or ".join(expected)
            return f"{key}: must be {wanted}, is {value} ({type(found).__name__})"
        case "enum":
            return f"{key}: is {value}, must be one of {', '.join(map(str, expected))}"
        case "pattern":
            return f"{key}: {value} is not allowed; must match {expected}"
    return f"{key}: {error.message}"


def _untyped(error: ValidationError) -> tuple[Any, Any, Any]:
    """Return what was expected, the schema at that place, and what was found."""
    return error.validator_value, error.schema, error.instance


def _key(path: Any) -> str:
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return text


def _cross_check(config: Config, root: Path) -> Iterator[str]:
    """Yield what a schema cannot say."""
    yield from _check_sources(config, root)
    yield from _check_prompt_sets(config, root)
    yield from _exactly_one("target", config["target"], ("build", "hub", "path"))
    for section, key in (("merge", "decontaminate"), ("evaluate", "prompts")):
        for number, path in enumerate(config[section][key]):
            if not (root / path).is_file():
                yield f"{section}.{key}[{number}]: {path} is not there"
    serving = config["serving"]
    if serving["gpus"] % serving["tensor_parallel"]:
        yield (
            f"serving.gpus: {serving['gpus']} must be a multiple of serving.tensor_parallel, "
            f"{serving['tensor_parallel']}"
        )
    states = config["hidden_states"]
    if states["transfer"] != "file" and states["mode"] != "online":
        yield (
            f"hidden_states.transfer: {states['transfer']} needs hidden_states.mode online; states "
            "that are stored are files"
        )
    path = config["target"].get("path")
    if path is not None and not (root / path / "config.json").is_file():
        yield f"target.path: {path} is no model folder (no config.json)"
    for section, name in PUBLISHED:
        if name in config[section]:
            yield from _check_published_drafter(f"{section}.{name}", config[section][name], root)
    facts = _known_facts(config, root)
    yield from _check_baseline(config["evaluate"], facts)
    yield from _check_drafter(config, facts)


def _check_sources(config: Config, root: Path) -> Iterator[str]:
    names = source_names(config)
    for number, entry in enumerate(config["sources"]):
        key = f"sources[{number}]"
        if entry["name"] in names[:number]:
            yield f"{key}.name: {entry['name']} is the name of another source too"
        if entry["format"] not in format_names():
            yield f"{key}.format: {entry['format']!r} is none of {', '.join(format_names())}"
        yield from _check_location(key, entry, root)
    weighted = [entry["name"] for entry in config["sources"] if "weight" in entry]
    for number, entry in enumerate(config["sources"]):
        if weighted and "weight" not in entry:
            yield f"sources[{number}].weight: is missing; {weighted[0]} has one, so all need one"
    if weighted and config["merge"]["max_samples"] is None:
        yield "merge.max_samples: is missing; the weights of sources share it out"


def _check_prompt_sets(config: Config, root: Path) -> Iterator[str]:
    names = [*source_names(config), *prompt_set_names(config)]
    for number, entry in enumerate(config["evaluate"]["prompt_sets"]):
        key = f"evaluate.prompt_sets[{number}]"
        if entry["name"] in names[: len(config["sources"]) + number]:
            yield f"{key}.name: {entry['name']} is the name of a source or of another set too"
        if entry["format"] not in PROMPT_FORMATS:
            yield f"{key}.format: {entry['format']!r} is none of {', '.join(PROMPT_FORMATS)}"
        yield from _check_location(key, entry, root)
    if not config["evaluate"]["prompts"] and not config["evaluate"]["prompt_sets"]:
        yield "evaluate.prompts: is empty; name a file, or a set in evaluate.prompt_sets"


def _check_location(key: str, entry: Mapping[str, Any], root: Path) -> Iterator[str]:
    """Yield what is wrong with where raw files come from."""
    yield from _exactly_one(key, entry, ("files", "hub", "urls"))
    for place, path in enumerate(entry.get("files", ())):
        if not (root / path).is_file():
            yield f"{key}.files[{place}]: {path} is not there"
    file_names = [PurePosixPath(path).name for path in entry.get("files", ())]
    if len(set(file_names)) < len(file_names):
        yield f"{key}.files: two files have the same name"


def _check_published_drafter(key: str, published: Config, root: Path) -> Iterator[str]:
    yield from _exactly_one(key, published, ("hub", "path"))
    path = published.get("path")
    if path is not None and not (root / path / "config.json").is_file():
        yield f"{key}.path: {path} is no folder of a drafter (no config.json)"


def _check_baseline(evaluate: Config, facts: TargetFacts | None) -> Iterator[str]:
    if "mtp" not in evaluate["baseline"]:
        return
    if evaluate["backend"] != "vllm":
        yield (
            "evaluate.baseline: mtp needs evaluate.backend vllm, for only a server drafts with "
            "the target's own MTP head"
        )
    elif facts is not None and (problem := head_problem(facts, evaluate["mtp_tokens"])):
        yield problem


def _exactly_one(key: str, values: Mapping[str, Any], choices: tuple[str, ...]) -> Iterator[str]:
    given = [choice for choice in choices if choice in values]
    if len(given) != 1:
        found = " and ".join(given) or "none"
        yield f"{key}: needs exactly one of {', '.join(choices)}; has {found}"


def _known_facts(config: Config, root: Path) -> TargetFacts | None:
    """Return the facts of the target if its configuration files are at hand already."""
    folder = known_target(config, root)
    return read_facts(folder) if folder is not None else None


def _check_drafter(config: Config, facts: TargetFacts | None) -> Iterator[str]:
    train = config["train"]
    yield from _check_algorithm(train)
    if train["nodes"] > 1 and config["hidden_states"]["mode"] == "online":
        yield (
            "train.nodes: is more than 1, where hidden_states.mode is online; the server can be "
            "reached from its own node only, so several nodes need offline"
        )
    layer_ids = train["target_layer_ids"]
    if layer_ids != sorted(set(layer_ids)):
        yield f"train.target_layer_ids: {layer_ids} must rise without repetition"
    for number, layer in enumerate(train["full_attention_layers"]):
        if layer >= train["layers"]:
            yield (
                f"train.full_attention_layers[{number}]: {layer} must be below "
                f"train.layers, {train['layers']}"
            )
    if train["sequence_length"] < config["tokenize"]["seq_length"]:
        yield (
            f"train.sequence_length: {train['sequence_length']} must not be below "
            f"tokenize.seq_length, {config['tokenize']['seq_length']}"
        )
    if facts is None:
        return
    if max(layer_ids) >= facts.layers:
        yield (
            f"train.target_layer_ids: {layer_ids} must be between 0 and {facts.layers - 1}, "
            f"for the target has {facts.layers} layers"
        )
    for what, token in (("end", facts.end_token), ("padding", facts.pad_token)):
        if token is not None and train.get("mask_token") == token:
            yield f"train.mask_token: {token!r} is the {what} token of the target"


def _check_algorithm(train: Config) -> Iterator[str]:
    """Yield what does not fit a drafter of blocks, or one without."""
    name = train["algorithm"]
    if ALGORITHMS[name].has_mask_token:
        if "mask_token" not in train:
            yield f"train.mask_token: is missing; {name} needs one"
        return
    for key in ("mask_token", "block_size", "position_weights"):
        if train.get(key) is not None:
            yield f"train.{key}: {name} has none; leave it out"
