"""What the `config.json` of a drafter says."""

from collections.abc import Mapping
from typing import Any

SLIDING, FULL = "sliding_attention", "full_attention"
"""What transformers calls attention with and without a window."""


def drafts_in_blocks(config: Mapping[str, Any]) -> bool:
    """Say whether the algorithm of a drafter fills blocks of masked tokens in one step."""
    return config["speculators_config"]["algorithm"] in ("dflash", "dflash2", "dspark")


def target_layer_ids(config: Mapping[str, Any]) -> list[int] | None:
    """Return the layers of the target that a drafter's configuration names; None if it does not."""
    key = "aux_hidden_state_layer_ids"
    ids: list[int] | None = config.get(key, config.get(f"eagle_{key}"))
    return ids


def drafted_tokens(config: Mapping[str, Any]) -> int:
    """Return how many tokens a drafter proposes at a time."""
    count: int = config["speculators_config"]["proposal_methods"][0]["speculative_tokens"]
    return count


def layer_kinds(config: Mapping[str, Any]) -> list[str]:
    """Return the kind of attention of each layer of a drafter."""
    layers = config["transformer_layer_config"]
    kinds: list[str] = layers.get("layer_types") or [FULL] * layers["num_hidden_layers"]
    return kinds


def layers_masked_otherwise(config: Mapping[str, Any]) -> list[int]:
    """Return the layers whose blocks vLLM masks in another way than the training did.

    Speculators 0.9.0 lets the tokens of a block see each other both ways in layers without a
    window, and in the others if `sliding_window_non_causal` says so. vLLM 0.32 does in every layer
    of DFlash what that flag says, and does not read it for DSpark.
    """
    if not drafts_in_blocks(config):
        return []
    kinds, both_ways = layer_kinds(config), config["sliding_window_non_causal"]
    trained = [both_ways or kind == FULL for kind in kinds]
    if config["speculators_config"]["algorithm"] == "dspark":
        served = [kind == FULL for kind in kinds]
    else:
        served = [both_ways] * len(kinds)
    return [number for number in range(len(kinds)) if served[number] != trained[number]]
