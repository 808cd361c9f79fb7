"""Whether an exported drafter is what was trained, and will run in a server as it was trained."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from speculators import SpeculatorModel, SpeculatorModelConfig

from lib.drafter_config import (
    FULL,
    SLIDING,
    drafted_tokens,
    drafts_in_blocks,
    layer_kinds,
    target_layer_ids,
)
from lib.files import read_json
from lib.target_facts import TargetFacts


@dataclass(frozen=True)
class Trained:
    """What the training knows of its drafter.

    Attributes:
        layer_ids: layers of the target that the drafter was to read.
        stored_layer_ids: layers whose states were stored; None if a server gave them.
        mask_token_id: None if the algorithm has no mask token.
        target: facts of the target.
        settings: the section `train`, as far as it is known.
    """

    layer_ids: Sequence[int]
    stored_layer_ids: Sequence[int] | None
    mask_token_id: int | None
    target: TargetFacts
    settings: Mapping[str, Any]


def check_drafter(folder: Path, trained: Trained) -> None:
    """Check configuration and weights of a drafter's folder; touches no hub.

    Raises:
        ValueError: the drafter is not what was trained; says in what.
    """
    config = read_json(folder / "config.json")
    _check_target_layers(config, trained)
    _check_rotation(config)
    _check_window(config)
    _check_sizes(config, trained)
    if drafts_in_blocks(config):
        _check_layers(config, trained.settings)
        _check_block(config, trained)
    weights = folder / "model.safetensors"
    _check_tensors(weights, _expected_shapes(folder))
    _check_numbers(weights)
    _check_vocabulary_maps(weights, config)


def _check_target_layers(config: dict[str, Any], trained: Trained) -> None:
    named, wanted = target_layer_ids(config), list(trained.layer_ids)
    if named != wanted:
        raise ValueError(
            f"the drafter's configuration names the target layers {named}; "
            f"train.target_layer_ids is {wanted}"
        )
    stored = trained.stored_layer_ids
    if stored is not None and list(stored) != wanted:
        raise ValueError(
            f"hidden states of the target layers {list(stored)} are stored; "
            f"train.target_layer_ids is {wanted}"
        )


def _check_rotation(config: dict[str, Any]) -> None:
    rope = config["transformer_layer_config"].get("rope_parameters") or {}
    if (share := rope.get("partial_rotary_factor", 1.0)) != 1.0:
        raise ValueError(
            f"the drafter's configuration rotates {share} of each head, where it was trained with "
            "all of it; speculators 0.9.0 is needed"
        )
    if "mrope_section" in rope:
        raise ValueError(
            "the drafter's configuration has mrope_section, positions in three dimensions, where "
            "it was trained with plain ones"
        )


def _check_window(config: dict[str, Any]) -> None:
    layers = config["transformer_layer_config"]
    is_off = not layers.get("sliding_window") or layers.get("use_sliding_window") is False
    if is_off and SLIDING in layer_kinds(config):
        raise ValueError(
            "the drafter's configuration has layers with a window, but no sliding_window, or "
            "use_sliding_window is false"
        )


def _check_layers(config: dict[str, Any], settings: Mapping[str, Any]) -> None:
    layers = config["transformer_layer_config"]
    kinds, count = layers.get("layer_types") or [], layers["num_hidden_layers"]
    if len(kinds) != count:
        raise ValueError(
            f"the drafter's configuration has layer_types for {len(kinds)} of its {count} layers"
        )
    if not isinstance(config.get("sliding_window_non_causal"), bool):
        raise ValueError("the drafter's configuration does not say sliding_window_non_causal")
    full = [number for number, kind in enumerate(kinds) if kind == FULL]
    if full != sorted(settings.get("full_attention_layers", full)):
        raise ValueError(
            f"the drafter attends without a window in the layers {full}; "
            f"train.full_attention_layers is {settings['full_attention_layers']}"
        )
    window = layers.get("sliding_window")
    if SLIDING in kinds and window != settings.get("sliding_window", window):
        raise ValueError(
            f"the drafter's configuration has a window of {window} tokens; "
            f"train.sliding_window is {settings['sliding_window']}"
        )


def _check_sizes(config: dict[str, Any], trained: Trained) -> None:
    layers = config["transformer_layer_config"]
    for what, found, wanted in (
        ("vocabulary", layers["vocab_size"], trained.target.vocabulary),
        ("hidden size", layers["hidden_size"], trained.target.hidden_size),
    ):
        if found != wanted:
            raise ValueError(f"the drafter has a {what} of {found}, and its target one of {wanted}")
    size = config["draft_vocab_size"]
    if size != (wanted := trained.settings.get("draft_vocabulary") or size):
        raise ValueError(
            f"the drafter chooses among {size} tokens; train.draft_vocabulary is {wanted}"
        )
    if not 0 < size <= layers["vocab_size"]:
        raise ValueError(
            f"the drafter chooses among {size} tokens; its target has {layers['vocab_size']}"
        )


def _check_block(config: dict[str, Any], trained: Trained) -> None:
    mask, vocabulary = config.get("mask_token_id"), trained.target.vocabulary
    if mask is None or mask != trained.mask_token_id:
        raise ValueError(
            f"the drafter's configuration has the mask token {mask}; it was trained with "
            f"{trained.mask_token_id} (train.mask_token)"
        )
    if not 0 <= mask < vocabulary:
        raise ValueError(f"train.mask_token: {mask} is not below the vocabulary, {vocabulary}")
    size, wanted = config.get("block_size"), trained.settings.get("block_size")
    if size is None or size != (wanted or size):
        raise ValueError(
            f"the drafter's configuration has the block size {size}; train.block_size is {wanted}"
        )
    drafted = size if config.get("sample_from_anchor") else size - 1
    if drafted_tokens(config) != drafted:
        raise ValueError(
            f"the drafter's configuration proposes {drafted_tokens(config)} tokens at a time, "
            f"where a block of {size} gives {drafted}"
        )


def _expected_shapes(folder: Path) -> dict[str, list[int]]:
    """Return the shape of each tensor that speculators saves for such a drafter.

    The model is built without memory for its weights.
    """
    config = SpeculatorModelConfig.from_pretrained(folder)
    config.speculators_config.verifier.name_or_path = None  # nothing is looked up
    with torch.device("meta"):
        model: Any = SpeculatorModel.registered_model_class_from_config(config)(config)
    from_target = model._keys_to_ignore_on_save
    return {
        name: list(tensor.shape)
        for name, tensor in model.state_dict().items()
        if name not in from_target
    }


def _check_tensors(weights: Path, expected: Mapping[str, list[int]]) -> None:
    with safe_open(weights, framework="pt") as file:
        found = {name: file.get_slice(name).get_shape() for name in file.offset_keys()}
    if missing := sorted(expected.keys() - found.keys()):
        raise ValueError(f"the weights lack {', '.join(missing)}")
    if unknown := sorted(found.keys() - expected.keys()):
        raise ValueError(f"the weights have {', '.join(unknown)}, which the drafter does not use")
    for name, shape in expected.items():
        if found[name] != shape:
            raise ValueError(f"{name} has the shape {found[name]} instead of {shape}")


def _check_numbers(weights: Path) -> None:
    with safe_open(weights, framework="pt") as file:
        for name in file.offset_keys():
            tensor = file.get_tensor(name)
            if tensor.is_floating_point() and not tensor.isfinite().all():
                raise ValueError(f"{name} holds numbers that are not finite")


def _check_vocabulary_maps(weights: Path, config: dict[str, Any]) -> None:
    """Check that both maps of a reduced vocabulary choose the same tokens.

    `t2d` flags the chosen tokens of the target; `d2t` holds, for the k-th of them, its id less k.
    """
    count = config["draft_vocab_size"]
    if count == config["transformer_layer_config"]["vocab_size"]:
        return
    with safe_open(weights, framework="pt") as file:
        flags, offsets = file.get_tensor("t2d"), file.get_tensor("d2t")
    chosen = flags.bool().nonzero().flatten()
    if len(chosen) != count:
        raise ValueError(f"t2d chooses {len(chosen)} tokens; draft_vocab_size is {count}")
    if not torch.equal(torch.arange(count) + offsets, chosen):
        raise ValueError("d2t leads to other tokens than t2d chooses")
