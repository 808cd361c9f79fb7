"""Whether a published drafter is one for this target and this configuration."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from speculators import SpeculatorModel, SpeculatorModelConfig

from lib.drafter_formats import FormatError, load_config
from lib.files import read_json
from lib.target_facts import TargetFacts

_NAMES = {"mask_token_id": "mask_token"}
"""Keys of section `train` where they are called otherwise."""


def fitting(train: Mapping[str, Any], drafter: Path) -> None:
    """Check that section `train` describes the drafter that training starts from.

    Its shape is its own: the trainer takes none beside it. A configuration that says otherwise
    would name, evaluate and serve another drafter than the one that is trained.

    Args:
        train: values of the section, with the id of the mask token as `mask_token_id`. What is
            None or left out is not compared.
        drafter: folder of a drafter in speculators' format.

    Raises:
        ValueError: names every key that says otherwise, and what to set.
    """
    facts = _shape(load_config(read_json(drafter / "config.json")))
    wrong = [
        f"train.{_NAMES.get(key, key)}: is {train[key]!r}, but the drafter of train.from has "
        f"{fact!r}: set that"
        for key, fact in facts.items()
        if fact is not None and train.get(key) not in (None, fact)
    ]
    if wrong:
        raise ValueError("; ".join(wrong))


def check_target(
    config: SpeculatorModelConfig, published: Mapping[str, Any], target: TargetFacts
) -> None:
    """Check that a drafter was made for a target like this one.

    Args:
        published: its `config.json` as it was published.

    Raises:
        FormatError: names all that differs.
    """
    layers: Any = config.transformer_layer_config
    width = getattr(config, "target_hidden_size", None) or layers.hidden_size
    depth = published.get("num_target_layers", target.layers)
    pairs = (
        ("hidden size", width, target.hidden_size),
        ("vocabulary", layers.vocab_size, target.vocabulary),
        ("number of layers", depth, target.layers),
    )
    wrong = [
        f"a {name} of {its} (this target has {ours})" for name, its, ours in pairs if its != ours
    ]
    if wrong:
        raise FormatError(f"it is made for a target with {', '.join(wrong)}")
    if max(_layer_ids(config) or [0]) >= target.layers:
        raise FormatError(
            f"it reads the hidden states {_layer_ids(config)} of its target; the last, "
            f"{target.layers}, is what the trainer compares with and cannot be read"
        )


def check_tensors(config: SpeculatorModelConfig, shards: Iterable[Path]) -> None:
    """Check that a drafter's weights are all that its configuration has place for, and no more.

    Only the headers of the files are read.

    Raises:
        FormatError: a tensor is missing, has another shape, or has no place.
    """
    with torch.device("meta"):
        model: Any = SpeculatorModel.registered_model_class_from_config(config)(config)
    places = {name: list(tensor.shape) for name, tensor in model.state_dict().items()}
    # What comes from the target; a smaller vocabulary of its own does not.
    filled = set(model._keys_to_ignore_on_load_missing) - {"t2d", "d2t"}
    shapes: dict[str, list[int]] = {}
    for path in shards:
        with safe_open(path, framework="pt") as file:
            shapes |= {name: file.get_slice(name).get_shape() for name in file.keys()}  # noqa: SIM118
    problems = (
        ("has no tensor", sorted(set(places) - set(shapes) - filled)),
        (
            "has a tensor without a place in speculators' drafter:",
            sorted(set(shapes) - set(places)),
        ),
        (
            "has a tensor of another shape than its config.json says:",
            sorted(name for name in set(shapes) & set(places) if shapes[name] != places[name]),
        ),
    )
    for problem, names in problems:
        if names:
            raise FormatError(f"it {problem} {names[0]} ({len(names)} in all)")


def _shape(config: SpeculatorModelConfig) -> dict[str, Any]:
    """Return what a drafter fixes of section `train`, by key; None where it does not say."""
    layers: Any = config.transformer_layer_config
    block_size = getattr(config, "block_size", None)
    facts = {
        "algorithm": config.speculators_model_type,
        "layers": layers.num_hidden_layers,
        "target_layer_ids": _layer_ids(config),
        "block_size": block_size,
        "mask_token_id": getattr(config, "mask_token_id", None),
        "draft_vocabulary": getattr(config, "draft_vocab_size", None),
    }
    if block_size is None:
        return facts
    full = [n for n, kind in enumerate(layers.layer_types) if kind != "sliding_attention"]
    window = layers.sliding_window if len(full) < len(layers.layer_types) else None
    return {**facts, "full_attention_layers": full, "sliding_window": window}


def _layer_ids(config: SpeculatorModelConfig) -> list[int] | None:
    for name in ("aux_hidden_state_layer_ids", "eagle_aux_hidden_state_layer_ids"):
        ids: list[int] | None = getattr(config, name, None)
        if ids is not None:
            return ids
    return None
