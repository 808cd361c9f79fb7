"""The model card of a drafter: what it is for, what it is made of, what it is worth."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from shlex import quote
from typing import Any

from lib.drafter_config import (
    FULL,
    drafted_tokens,
    drafts_in_blocks,
    layer_kinds,
    layers_masked_otherwise,
    target_layer_ids,
)
from lib.row_counts import SPLITS
from lib.speculation import Speculation

_NOT_STATED = "not stated"
_SHOWN_ELSEWHERE = {
    *("algorithm", "layers", "block_size", "target_layer_ids", "mask_token", "draft_vocabulary"),
    *("sliding_window", "full_attention_layers"),
}
_NO_RECIPE = {"gpus", "nodes", "trust_remote_code"}
"""Settings of a training that do not shape its drafter."""

_KEYS = {"hidden_states": "hidden_states.mode", "transfer": "hidden_states.transfer"}
"""Keys of the configuration, for settings of a training that are not of its section."""


@dataclass(frozen=True)
class Source:
    """A source of conversations; exactly one of `files`, `hub` and `urls` says where it lies.

    Attributes:
        license: an SPDX expression; "" if it is not stated.
    """

    name: str
    license: str = ""
    files: list[str] = field(default_factory=list)
    hub: dict[str, Any] | None = None
    urls: list[dict[str, str]] = field(default_factory=list)


@dataclass(frozen=True)
class Provenance:
    """Where a drafter comes from.

    Attributes:
        target: how the target is called outside of the project.
        revision: commit of the target on the hub; "" if it is not from there.
        template: what the chat template is told of the thinking mode.
        start: where the drafter comes from that training started from; empty if there is none.
        answers: whether the target wrote the answers itself.
        sources: in the order of the configuration.
        rows: `stats.json` of the token rows.
    """

    target: str
    revision: str
    template: Mapping[str, bool]
    start: Mapping[str, Any]
    answers: bool
    sources: Sequence[Source]
    rows: Mapping[str, Any]


def model_card(
    provenance: Provenance, config: Mapping[str, Any], training: Mapping[str, Any]
) -> str:
    """Return the card as Markdown, with the front matter that the Hugging Face hub reads.

    Args:
        config: `config.json` of the drafter.
        training: `train.json`.
    """
    algorithm = config["speculators_config"]["algorithm"]
    is_thinking = "on" if provenance.template["enable_thinking"] else "off"
    return "\n".join(
        [
            *_front_matter(provenance, algorithm),
            f"# {algorithm} drafter for {provenance.target}",
            "",
            f"For speculative decoding: it proposes {drafted_tokens(config)} tokens at a time, "
            "which the target checks in one step. What is answered stays the target's.",
            "",
            *_table(_facts(provenance, config)),
            "",
            "## Serve it",
            "",
            f"With thinking {is_thinking}, as it was trained: in the other mode it is worth far "
            "less. `drafter` is this folder.",
            "",
            "```sh",
            _serve_line(provenance, config),
            "```",
            "",
            *_warnings(config),
            "## What it was trained on",
            "",
            *_data(provenance, training),
            "",
            "## How it was trained",
            "",
            *_table(_recipe(config, training)),
            "",
            "## What it is worth",
            "",
            *_worth(config, training),
            "",
        ]
    )


def mask_warning(config: Mapping[str, Any]) -> str:
    """Return what is to be known of a drafter that vLLM masks in another way; "" if it does not."""
    if not (layers := layers_masked_otherwise(config)):
        return ""
    both_ways = str(config["sliding_window_non_causal"]).lower()
    return (
        f"vLLM 0.32 masks the blocks of the drafter's layers {', '.join(map(str, layers))} in "
        f"another way than they were trained with (sliding_window_non_causal is {both_ways}), so "
        "less may be accepted than was validated"
    )


def _warnings(config: Mapping[str, Any]) -> Iterator[str]:
    if warning := mask_warning(config):
        yield f"{warning}."
        yield ""


def _front_matter(provenance: Provenance, algorithm: str) -> Iterator[str]:
    sources = provenance.sources
    stated = [source.license for source in sources if source.license]
    licenses = {part.lower() for text in stated for part in re.split(r" (?:AND|OR) ", text)}
    yield "---"
    if provenance.revision:
        yield f"base_model: {json.dumps(provenance.target)}"
    yield "library_name: speculators"
    yield from _list("tags", ["speculative-decoding", "speculators", "vllm", algorithm])
    yield from _list("datasets", [source.hub["dataset"] for source in sources if source.hub])
    is_known = len(stated) == len(sources) and not provenance.start
    yield from _list("license", sorted(licenses) if is_known else [])
    yield "---"
    yield ""


def _list(key: str, values: Sequence[str]) -> Iterator[str]:
    if values:
        yield f"{key}:"
        yield from (f"  - {json.dumps(value)}" for value in values)


def _facts(provenance: Provenance, config: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    yield "target", f"`{provenance.target}`"
    if provenance.revision:
        yield "revision of the target", f"`{provenance.revision}`"
    yield "algorithm", config["speculators_config"]["algorithm"]
    yield "tokens proposed at a time", drafted_tokens(config)
    for key, value in provenance.template.items():
        yield f"`{key}`", str(value).lower()
    if provenance.start:
        yield "training started from", _start(provenance.start)


def _start(start: Mapping[str, Any]) -> str:
    if "hub" in start:
        return _on_the_hub(start["hub"]["repo"], start["hub"]["revision"])
    return f"local: `{PurePath(start['path']).name}`"


def _on_the_hub(repository: str, revision: str, kind: str = "") -> str:
    place = f"https://huggingface.co/{kind}{repository}/tree/{revision}"
    return f"[{repository}]({place}) at `{revision[:8]}`"


def _serve_line(provenance: Provenance, config: Mapping[str, Any]) -> str:
    revision = f" --revision {provenance.revision}" if provenance.revision else ""
    return (
        f"vllm serve {quote(provenance.target)}{revision}"
        f" --speculative-config '{Speculation.of_drafter(config, 'drafter').option()}'"
        f" --default-chat-template-kwargs '{json.dumps(provenance.template)}'"
    )


def _data(provenance: Provenance, training: Mapping[str, Any]) -> Iterator[str]:
    rows = provenance.rows
    counted = [(source, _counts(rows, source.name)) for source in provenance.sources]
    total = [sum(column) for column in zip(*(counts for _, counts in counted), strict=True)]
    yield (
        "The questions come from these sources; the answers are the target's own."
        if provenance.answers
        else "Questions and answers are those of these sources."
    )
    yield ""
    yield "| source | from | licence | conversations | token rows | supervised tokens |"
    yield "|---|---|---|--:|--:|--:|"
    for source, counts in counted:
        yield _row(source.name, _origin(source), source.license or _NOT_STATED, *counts)
    yield _row("all", "", "", *total)
    yield ""
    yield (
        f"{training['train_rows']:,} rows were trained on, and {training['validation_rows']:,} "
        "rows of other conversations validate. A licence is what the configuration of the run "
        "says of the source; whether it allows your use is for you to judge."
    )


def _counts(rows: Mapping[str, Any], source: str) -> list[int]:
    """Return conversations with rows, token rows and supervised tokens of a source."""
    counts = rows["sources"].get(source, {})
    sides = [counts[split] for split in SPLITS if split in counts]
    keys = ("conversations", "rows", "supervised_tokens")
    return [sum(side[key] for side in sides) for key in keys]


def _origin(source: Source) -> str:
    if source.hub:
        return _on_the_hub(source.hub["dataset"], source.hub["revision"], "datasets/")
    if source.urls:
        return ", ".join(file["url"].partition("?")[0] for file in source.urls)
    return "local: " + ", ".join(f"`{PurePath(path).name}`" for path in source.files)


def _recipe(config: Mapping[str, Any], training: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    layers = config["transformer_layer_config"]
    kinds = layer_kinds(config)
    full = [number for number, kind in enumerate(kinds) if kind == FULL]
    yield "decoder layers", layers["num_hidden_layers"]
    yield "target layers read (0: embeddings)", target_layer_ids(config)
    if drafts_in_blocks(config):
        yield "block size", config["block_size"]
        yield "mask token id", config["mask_token_id"]
    yield "vocabulary", f"{config['draft_vocab_size']:,} of {layers['vocab_size']:,} tokens"
    if len(full) < len(kinds):
        yield "attention window", f"{layers['sliding_window']:,} tokens"
    if full:
        yield "layers without a window", full
    for key, value in training.get("settings", {}).items():
        if key not in _SHOWN_ELSEWHERE | _NO_RECIPE and value not in (None, [], {}):
            yield f"`{_KEYS.get(key, f'train.{key}')}`", value
    yield "best epoch", training["best_epoch"]
    yield "made with", [f"{name} {number}" for name, number in training["versions"].items()]


def _worth(config: Mapping[str, Any], training: Mapping[str, Any]) -> Iterator[str]:
    length = training.get("validation_acceptance_length")
    if length is not None:
        yield (
            f"Acceptance length on the validation rows: **{length:.2f}** of "
            f"{drafted_tokens(config) + 1}."
        )
        yield ""
    if by_position := _right_by_position(training):
        yield f"| position in a block | {' | '.join(map(str, by_position))} |"
        yield f"|---|{'--:|' * len(by_position)}"
        yield f"| right tokens | {' | '.join(f'{share:.0%}' for share in by_position.values())} |"
        yield ""
    yield (
        "This is measured while the target's text is given: each block begins in text that is "
        "right. What counts is the acceptance length in the server on prompts like yours, which "
        "vLLM reports in its log and at `/metrics`."
    )


def _right_by_position(training: Mapping[str, Any]) -> dict[int, float]:
    """Return the share of right tokens at each position of a block, as validated at best."""
    epochs = training.get("validation_by_epoch") or [{}]
    best = epochs[min(training["best_epoch"], len(epochs)) - 1]
    found = ((re.fullmatch(r"position_(\d+)_acc_epoch", key), best[key]) for key in best)
    return dict(sorted((int(match[1]), share) for match, share in found if match))


def _table(rows: Iterable[tuple[str, Any]]) -> Iterator[str]:
    yield "| | |"
    yield "|---|---|"
    yield from (_row(name, _shown(value)) for name, value in rows)


def _shown(value: Any) -> str:
    if isinstance(value, Mapping):
        return f"`{json.dumps(value)}`"
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _row(*cells: str | int) -> str:
    shown = (f"{cell:,}" if isinstance(cell, int) else cell.replace("|", r"\|") for cell in cells)
    return f"| {' | '.join(shown)} |"
