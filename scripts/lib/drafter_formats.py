"""The formats that drafters are published in, read as configurations of speculators.

Tensors have the same names in all of them, so the weights are used as they are. Configurations
differ: in where a value stands, in how layers of the target are counted (z-lab and DeepSpec count
the layer whose output is read, speculators and vLLM the hidden state, which is one more), and in
what the first position of a block does (DeepSpec predicts from the anchor itself).
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

from speculators import SpeculatorModelConfig, SpeculatorsConfig, VerifierConfig
from speculators.models.dflash import DFlashSpeculatorConfig
from speculators.models.dflash2 import DFlash2SpeculatorConfig
from speculators.models.dspark import DSparkSpeculatorConfig
from speculators.proposals.greedy import GreedyTokenProposalConfig

Config = dict[str, Any]

_OF_THE_DRAFTER = (
    *("architectures", "auto_map", "dtype", "torch_dtype", "transformers_version", "is_causal"),
    *("dflash_config", "block_size", "mask_token_id", "target_layer_ids", "num_target_layers"),
    *("num_anchors", "markov_rank", "markov_head_type"),
    *("enable_confidence_head", "confidence_head_with_markov"),
)
"""Keys beside those of the decoder layers."""

_SELECTOR_KEYS = ("conv_kernel_size", "conv_group_size", "selector_rank", "selector_top_k")
_PLACED_KEYS = ("block_size", "mask_token_id", "target_layer_ids", *_SELECTOR_KEYS)
"""Keys that z-lab writes in `dflash_config` or, in earlier drafters, beside it."""

_CHANGES_NOTHING = {
    "output_multiplier": (None, 1),
    "final_logit_softcapping": (None, 0),
    "input_embedding_scale": (None, 1),
}
"""Values of keys of z-lab for which speculators has no others."""


class FormatError(ValueError):
    """A drafter cannot be read without changing what it computes."""


@dataclass(frozen=True)
class Verifier:
    """The target that a drafter is completed with.

    Attributes:
        path: its folder, where embedding and output head are taken from.
        architectures: as its configuration names them.
    """

    path: str
    architectures: list[str]


@dataclass(frozen=True)
class _Format:
    """A format: its name, how it is recognised, and what it says in speculators' words."""

    name: str
    recognises: Callable[[Config], bool]
    read: Callable[[Config, Verifier], Config]


def read_published(published: Config, verifier: Verifier) -> tuple[str, Config]:
    """Return the name of a drafter's format and its configuration as speculators writes it.

    The weights are to be loaded as float32, as a drafter that is trained from nothing has them:
    steps of training are often too small for the number type that is published.

    Args:
        published: content of its `config.json`.

    Raises:
        FormatError: the format is none of those, or says what speculators cannot do.
    """
    found = next((known for known in _FORMATS if known.recognises(published)), None)
    if found is None:
        raise FormatError(
            f"its config.json (architectures {published.get('architectures')}) is in no format "
            f"that is read here: {', '.join(known.name for known in _FORMATS)}"
        )
    config = found.read(published, verifier)
    for key in ("auto_map", "torch_dtype"):
        config.pop(key, None)
    return found.name, {**config, "dtype": "float32"}


def load_config(config: Config) -> SpeculatorModelConfig:
    """Return a configuration as speculators' own object.

    Raises:
        FormatError: speculators does not know it.
    """
    try:
        return SpeculatorModelConfig.from_dict(config)
    except (ValueError, TypeError, KeyError) as error:
        name = f"{config.get('speculators_model_type')!r} configuration"
        reason = str(error).replace("\n", " ")[:200]
        raise FormatError(
            f"speculators {version('speculators')} does not read its {name}: {reason}"
        ) from error


def _read_own(published: Config, verifier: Verifier) -> Config:
    """Take a drafter of speculators as it is, but with this target."""
    named = {"name_or_path": verifier.path, "architectures": verifier.architectures}
    return {
        **published,
        "speculators_config": {**_needed(published, "speculators_config"), "verifier": named},
    }


def _read_z_lab(published: Config, verifier: Verifier) -> Config:
    inner = published["dflash_config"]
    known = {*_PLACED_KEYS, *_CHANGES_NOTHING, "num_target_layers"}
    if unknown := sorted(set(inner) - known):
        raise FormatError(f"its dflash_config.{unknown[0]} is not known here")
    values = {**{key: published[key] for key in known if key in published}, **inner}
    for key, harmless in _CHANGES_NOTHING.items():
        if values.get(key) not in harmless:
            raise FormatError(f"its {key}, {values[key]}, is nothing that speculators can do")
    if _architecture(published) == "DFlash2DraftModel":
        kind: type[DFlashSpeculatorConfig] = DFlash2SpeculatorConfig
        heads = {key: _needed(values, key) for key in _SELECTOR_KEYS}
    else:
        kind, heads = DFlashSpeculatorConfig, {}
    return _configuration(kind, published, values, verifier, False, heads)


def _read_deepspec(published: Config, verifier: Verifier) -> Config:
    heads: Config = {"markov_rank": _needed(published, "markov_rank")}
    if heads["markov_rank"]:
        heads["markov_head_type"] = _needed(published, "markov_head_type")
    heads["enable_confidence_head"] = _needed(published, "enable_confidence_head")
    heads["confidence_head_with_markov"] = bool(
        heads["enable_confidence_head"] and _needed(published, "confidence_head_with_markov")
    )
    return _configuration(DSparkSpeculatorConfig, published, published, verifier, True, heads)


def _configuration(
    kind: type[DFlashSpeculatorConfig],
    published: Config,
    values: Mapping[str, Any],
    verifier: Verifier,
    sample_from_anchor: bool,
    heads: Config,
) -> Config:
    """Return the configuration of a drafter that drafts in blocks.

    Args:
        values: block size, mask token and layers of the target, wherever they stand.
        sample_from_anchor: whether the first position of a block predicts, too.
        heads: what the kind has besides.
    """
    if published.get("model_type") != "qwen3":
        raise FormatError(f"its layers are of {published.get('model_type')!r}, not of 'qwen3'")
    block_size = _needed(values, "block_size")
    layers = {key: value for key, value in published.items() if key not in _OF_THE_DRAFTER}
    algorithm = kind.model_fields["speculators_model_type"].default
    config = kind(
        transformer_layer_config=layers,  # type: ignore[arg-type]
        draft_vocab_size=_needed(published, "vocab_size"),
        block_size=block_size,
        aux_hidden_state_layer_ids=[layer + 1 for layer in _needed(values, "target_layer_ids")],
        mask_token_id=_needed(values, "mask_token_id"),
        sample_from_anchor=sample_from_anchor,
        speculators_config=SpeculatorsConfig(
            algorithm=algorithm,
            proposal_methods=[
                GreedyTokenProposalConfig(
                    speculative_tokens=block_size if sample_from_anchor else block_size - 1
                )
            ],
            default_proposal_method="greedy",
            verifier=VerifierConfig(
                name_or_path=verifier.path, architectures=verifier.architectures
            ),
        ),
        **heads,
    )
    config.sliding_window_non_causal = _sees_ahead_in_windows(config, published.get("is_causal"))
    rotated = (config.transformer_layer_config.rope_parameters or {}).get("partial_rotary_factor")
    if rotated not in (None, 1):
        raise FormatError(f"it rotates {rotated} of each head, where speculators rotates all of it")
    content: Config = json.loads(config.to_json_string())
    return content


def _sees_ahead_in_windows(config: DFlashSpeculatorConfig, is_causal: bool | None) -> bool:
    """Return whether layers with a window see the whole block; those without always do.

    Args:
        is_causal: what was published; None means that layers with a window see only what is
            before, as z-lab's own code has it.
    """
    layers = config.transformer_layer_config
    windowed = [kind == "sliding_attention" for kind in layers.layer_types]
    if any(windowed) and layers.sliding_window is None:
        raise FormatError("its layer_types have a window, but use_sliding_window is off")
    if is_causal and not all(windowed):
        raise FormatError("is_causal is set for layers without a window, as speculators has none")
    return any(windowed) and is_causal is False


def _architecture(published: Config) -> str:
    return str((published.get("architectures") or [""])[0])


def _needed(values: Mapping[str, Any], key: str) -> Any:
    if values.get(key) is None:
        raise FormatError(f"its config.json has no {key}")
    return values[key]


_FORMATS = (
    _Format("speculators", lambda config: "speculators_model_type" in config, _read_own),
    _Format("z-lab", lambda config: "dflash_config" in config, _read_z_lab),
    _Format("DeepSpec", lambda config: _architecture(config) == "Qwen3DSparkModel", _read_deepspec),
)
