"""Drafters as others publish them: small ones with random weights, in each of the formats."""

import json
import shutil
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from speculators import (
    DFlash2DraftModel,
    DFlash2SpeculatorConfig,
    DFlashDraftModel,
    DFlashSpeculatorConfig,
    DSparkDraftModel,
    DSparkSpeculatorConfig,
    Eagle3DraftModel,
    Eagle3SpeculatorConfig,
    SpeculatorsConfig,
    VerifierConfig,
)
from speculators.proposals.greedy import GreedyTokenProposalConfig
from transformers import LlamaConfig, Qwen3Config

from lib.files import read_json, write_json
from lib.target_facts import read_facts

KINDS: dict[str, Any] = {
    "dflash": (DFlashDraftModel, DFlashSpeculatorConfig),
    "dflash2": (DFlash2DraftModel, DFlash2SpeculatorConfig),
    "dspark": (DSparkDraftModel, DSparkSpeculatorConfig),
}
HEADS: dict[str, dict[str, Any]] = {
    "dflash": {},
    "dflash2": {"selector_rank": 8, "selector_top_k": 4},
    "dspark": {"markov_rank": 8, "markov_head_type": "gated"},
}
BLOCK_SIZE = 4
LAYER_IDS = [1, 3]
MASK_TOKEN_ID = 5
WINDOW = 48


def make_drafter(folder: Path, target: Path, kind: str = "dflash", **changes: Any) -> Path:
    """Write a drafter as speculators does, for a target; return the folder.

    Args:
        changes: of its configuration.
    """
    facts = read_facts(target)
    model_class, config_class = KINDS[kind]
    layers = Qwen3Config(
        vocab_size=facts.vocabulary,
        hidden_size=facts.hidden_size,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,  # vLLM computes no smaller one without a GPU
        use_sliding_window=True,
        sliding_window=WINDOW,
        layer_types=["sliding_attention", "full_attention"],
        rope_parameters={"rope_type": "default", "rope_theta": 500000.0},
    )
    layers._attn_implementation = "sdpa"
    values = {
        "transformer_layer_config": layers,
        "draft_vocab_size": facts.vocabulary,
        "block_size": BLOCK_SIZE,
        "aux_hidden_state_layer_ids": LAYER_IDS,
        "mask_token_id": MASK_TOKEN_ID,
        "speculators_config": _proposals(kind, target),
        **HEADS[kind],
        **changes,
    }
    torch.manual_seed(7)
    model = model_class(config_class(**values))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.1)
    model.to(torch.bfloat16).save_pretrained(folder)
    return folder


def make_eagle3(folder: Path, target: Path) -> Path:
    """Write a drafter of another kind as speculators does; return the folder."""
    facts = read_facts(target)
    layers = LlamaConfig(
        vocab_size=facts.vocabulary,
        hidden_size=facts.hidden_size,
        intermediate_size=48,
        num_hidden_layers=1,
        num_attention_heads=4,
        num_key_value_heads=2,
    )
    layers._attn_implementation = "sdpa"
    config = Eagle3SpeculatorConfig(
        transformer_layer_config=layers,
        draft_vocab_size=facts.vocabulary,
        eagle_aux_hidden_state_layer_ids=LAYER_IDS,
        speculators_config=_proposals("eagle3", target),
    )
    torch.manual_seed(7)
    model = Eagle3DraftModel(config)
    model.load_verifier_weights()
    model.to(torch.bfloat16).save_pretrained(folder)
    return folder


def _proposals(algorithm: str, target: Path) -> SpeculatorsConfig:
    return SpeculatorsConfig(
        algorithm=algorithm,
        proposal_methods=[GreedyTokenProposalConfig(speculative_tokens=BLOCK_SIZE - 1)],
        default_proposal_method="greedy",
        verifier=VerifierConfig(name_or_path=str(target), architectures=[]),
    )


def as_z_lab(own: Path, folder: Path, target: Path, nested: bool = True) -> Path:
    """Write a drafter of speculators in the format of z-lab; return the folder.

    Args:
        nested: whether the block size stands in `dflash_config`, as in later drafters.
    """
    config, values = _values(own)
    inner = {**values, **{key: config[key] for key in _SELECTOR if key in config}}
    published = {
        **_layers(config),
        "architectures": ["DFlash2DraftModel" if "selector_rank" in config else "DFlashDraftModel"],
        "num_target_layers": read_facts(target).layers,
        "dflash_config": inner,
    }
    if config["sliding_window_non_causal"]:
        published["is_causal"] = False
    if not nested:
        published["block_size"] = inner.pop("block_size")
    return _publish(folder, published, own / "model.safetensors")


_SELECTOR = ("conv_kernel_size", "conv_group_size", "selector_rank", "selector_top_k")


def as_deepspec(own: Path, folder: Path, target: Path) -> Path:
    """Write a DSpark drafter of speculators in the format of DeepSpec; return the folder."""
    config, values = _values(own)
    heads = ("markov_rank", "markov_head_type", "enable_confidence_head")
    published = {
        **_layers(config),
        **values,
        **{key: config[key] for key in (*heads, "confidence_head_with_markov")},
        "architectures": ["Qwen3DSparkModel"],
        "num_target_layers": read_facts(target).layers,
        "num_anchors": 512,
    }
    if not published["markov_rank"]:
        del published["markov_head_type"]
    _publish(folder, published, own / "model.safetensors")
    weights = load_file(target / "model.safetensors")
    # DeepSpec keeps copies of what belongs to the target.
    embedding = weights["model.embed_tokens.weight"].bfloat16()
    head = weights.get("lm_head.weight", embedding).bfloat16().clone()
    own_weights = load_file(own / "model.safetensors")
    save_file(
        {**own_weights, "embed_tokens.weight": embedding, "lm_head.weight": head},
        folder / "model.safetensors",
        metadata={"format": "pt"},
    )
    return folder


def edit_config(folder: Path, **changes: Any) -> None:
    """Change keys of a drafter's configuration; None removes one, a dict changes inner keys."""
    config = read_json(folder / "config.json")
    for key, value in changes.items():
        if value is None:
            del config[key]
        elif isinstance(value, dict):
            config[key] = {**config[key], **value}
        else:
            config[key] = value
    write_json(folder / "config.json", config)


def edit_weights(folder: Path, change: Any) -> None:
    """Have `change` alter the tensors of a drafter, by name."""
    weights = load_file(folder / "model.safetensors")
    change(weights)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def split_weights(folder: Path) -> list[str]:
    """Spread the weights of a drafter over two shards with an index; return their names."""
    weights = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    names = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
    places = {tensor: names[number % 2] for number, tensor in enumerate(sorted(weights))}
    for name in names:
        part = {tensor: weights[tensor] for tensor, place in places.items() if place == name}
        save_file(part, folder / name, metadata={"format": "pt"})
    index = {"metadata": {"total_size": 0}, "weight_map": places}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return names


def _values(own: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a configuration of speculators, and what both other formats call alike."""
    config = read_json(own / "config.json")
    return config, {
        "block_size": config["block_size"],
        "mask_token_id": config["mask_token_id"],
        "target_layer_ids": [layer - 1 for layer in config["aux_hidden_state_layer_ids"]],
    }


def _layers(config: dict[str, Any]) -> dict[str, Any]:
    return {**config["transformer_layer_config"], "dtype": "bfloat16"}


def _publish(folder: Path, config: dict[str, Any], weights: Path) -> Path:
    folder.mkdir()
    write_json(folder / "config.json", config)
    shutil.copyfile(weights, folder / "model.safetensors")
    return folder
