"""The drafter's folder: what a server loads, and what a reader wants to know about it."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lib.drafter_card import Provenance, Source, mask_warning, model_card
from lib.drafter_checks import Trained, check_drafter
from lib.drafter_weights import write_served_weights
from lib.files import atomic_path, read_json, write_json, write_text
from lib.target_facts import read_facts


@dataclass(frozen=True)
class ExportSettings:
    """What the drafter must agree with, and what its model card says of target and data.

    Attributes:
        target_layer_ids: layers of the target that the drafter was to read.
        start: where the drafter comes from that training started from; empty if there is none.
        responses: `regenerate` if the target wrote the answers.
        revision: commit of the target on the hub; "" if it is not from there.
        sources: in the order of the configuration.
    """

    thinking: bool
    target_layer_ids: list[int]
    preserve_thinking: bool = False
    start: dict[str, Any] = field(default_factory=dict)
    responses: str = "regenerate"
    revision: str = ""
    sources: list[Source] = field(default_factory=list)


@dataclass(frozen=True)
class Records:
    """Files that say what a drafter is made of.

    Attributes:
        training: `train.json`.
        weights: `weights.json` of the target.
        rows: `stats.json` of the token rows.
        hidden_states: manifest of the stored states; None if a server gave them.
    """

    training: Path
    weights: Path
    rows: Path
    hidden_states: Path | None


def export_drafter(
    settings: ExportSettings, records: Records, folder: Path, say: Callable[[str], None]
) -> None:
    """Write the best checkpoint as a model folder: `config.json`, weights, and a model card.

    The folder is checked before it takes the place of an earlier one, so it is always whole.

    Args:
        folder: where the drafter goes.

    Raises:
        ValueError: the checkpoint is not what was trained; says in what.
    """
    training = read_json(records.training)
    checkpoint = records.training.parent / training["best_checkpoint"]
    target = read_json(records.weights)["known_as"]
    config = _served_config(read_json(checkpoint / "config.json"), target)
    with atomic_path(folder) as partial:
        partial.mkdir()
        write_served_weights(checkpoint / "model.safetensors", partial / "model.safetensors")
        write_json(partial / "config.json", config)
        try:
            check_drafter(partial, _trained(settings, records, training))
        except ValueError as error:
            raise ValueError(f"{checkpoint} is not exported: {error}") from error
        card = model_card(_provenance(settings, records, target), config, training)
        write_text(partial / "README.md", card)
    if warning := mask_warning(config):
        say(warning)


def _served_config(config: dict[str, Any], target: str) -> dict[str, Any]:
    """Return a checkpoint's configuration as a server needs it."""
    # Points at a code file of the checkpoint; servers know the architecture by its name.
    config.pop("auto_map", None)
    config["speculators_config"]["verifier"]["name_or_path"] = target
    # What a target that sees images says of positions in three dimensions. Speculators copies it,
    # but trains with plain positions over the whole head. For text both are the same, and a server
    # that follows the copy may rotate in another way.
    rope = config["transformer_layer_config"].get("rope_parameters") or {}
    for name in ("mrope_section", "mrope_interleaved"):
        rope.pop(name, None)
    config.pop("torch_dtype", None)
    return {**config, "dtype": "bfloat16"}


def _trained(settings: ExportSettings, records: Records, training: dict[str, Any]) -> Trained:
    stored = records.hidden_states
    return Trained(
        layer_ids=settings.target_layer_ids,
        stored_layer_ids=None if stored is None else read_json(stored)["layer_ids"],
        mask_token_id=training.get("mask_token_id"),
        target=read_facts(records.weights.parent),
        settings=training.get("settings", {}),
    )


def _provenance(settings: ExportSettings, records: Records, target: str) -> Provenance:
    template = {"enable_thinking": settings.thinking}
    if settings.preserve_thinking:
        template["preserve_thinking"] = True
    return Provenance(
        target=target,
        revision=settings.revision,
        template=template,
        start=settings.start,
        answers=settings.responses == "regenerate",
        sources=settings.sources,
        rows=read_json(records.rows),
    )
