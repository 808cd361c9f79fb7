"""A target with an MTP head of its own, of a family that vLLM serves without a GPU."""

import json
import shutil
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from transformers import Qwen3NextConfig, Qwen3NextForCausalLM

from lib.target import TargetLocation, write_manifest

WIDTH = 64


def with_own_head(folder: Path, toy: Path) -> Path:
    """Write a target of the family of Qwen3-Next with random weights; return the manifest.

    Its embedding outweighs its layers, so the next token follows mostly from the one before, and
    so does the one that its head drafts: many drafts are accepted, though nothing was trained.

    Args:
        toy: target whose tokenizer and template it takes.
    """
    vocabulary = json.loads((toy / "config.json").read_text())["vocab_size"]
    config = Qwen3NextConfig(
        vocab_size=vocabulary,
        hidden_size=WIDTH,
        intermediate_size=96,
        num_hidden_layers=4,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=32,
        max_position_embeddings=2048,
        layer_types=["full_attention"] * 4,
        num_experts=4,
        num_experts_per_tok=2,
        moe_intermediate_size=32,
        shared_expert_intermediate_size=32,
        mlp_only_layers=[1, 2, 3],
        num_nextn_predict_layers=1,
        tie_word_embeddings=False,
    )
    torch.manual_seed(0)
    model = Qwen3NextForCausalLM(config)
    torch.nn.init.normal_(model.model.embed_tokens.weight, std=0.06)
    shutil.copytree(toy, folder, ignore=shutil.ignore_patterns("*.safetensors", "weights.json"))
    model.save_pretrained(folder)
    weights = load_file(folder / "model.safetensors")
    first = "model.layers.0."
    head = {
        f"layers.0.{name.removeprefix(first)}": tensor.clone()
        for name, tensor in weights.items()
        if name.startswith(first)
    }
    # The head looks at the token alone, not at the state that the target had before it.
    head["fc.weight"] = torch.cat([torch.eye(WIDTH), torch.zeros(WIDTH, WIDTH)], dim=1)
    head["norm.weight"] = weights["model.norm.weight"].clone()
    for name in ("pre_fc_norm_embedding.weight", "pre_fc_norm_hidden.weight"):
        head[name] = torch.zeros(WIDTH)  # 0 is no change in this family
    weights |= {f"mtp.{name}": tensor for name, tensor in head.items()}
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    write_manifest(TargetLocation("own_head", build="toy"), folder, folder / "weights.json")
    return folder / "weights.json"
