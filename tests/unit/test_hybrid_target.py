"""A target of the architecture of Qwen3.6 (hybrid attention, a text model inside another one)."""

import shutil
from io import StringIO
from itertools import islice
from pathlib import Path

import pytest
import torch
from rows import tokenize_into
from safetensors import safe_open
from transformers import Qwen3_5Config, Qwen3_5ForConditionalGeneration

from lib.arrow_rows import read_token_rows
from lib.console import Stage
from lib.drafter import ExportSettings, Records, export_drafter
from lib.files import read_json
from lib.hidden_states import HiddenStatesSettings, extract_hidden_states
from lib.jsonl import jsonl_writer, read_jsonl
from lib.target import TargetLocation, write_manifest
from lib.target_facts import read_facts
from lib.train_settings import TrainerSettings, TrainSettings
from lib.training import Inputs, train_drafter
from lib.transformers_states import TransformersStates

CONVERSATIONS = Path(__file__).parents[2] / "resources/toy_target/conversations.jsonl"
LAYER_IDS = [1, 3]
TEXT = {
    **{"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 4, "head_dim": 32},
    **{"num_attention_heads": 4, "num_key_value_heads": 2, "linear_num_key_heads": 2},
    **{"linear_num_value_heads": 4, "linear_key_head_dim": 16, "linear_value_head_dim": 16},
    "max_position_embeddings": 2048,
    "layer_types": ["linear_attention", "full_attention"] * 2,
    "rope_parameters": {
        **{"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.25},
        **{"mrope_section": [2, 1, 1], "mrope_interleaved": True},
    },
}


@pytest.fixture(scope="module")
def hybrid(target, tmp_path_factory):
    """Give the tiny target's tokenizer and template with random weights of the other family."""
    folder = tmp_path_factory.mktemp("models") / "hybrid"
    shutil.copytree(target, folder)
    vision = {"depth": 1, "hidden_size": 16, "num_heads": 2, "intermediate_size": 16}
    config = Qwen3_5Config(
        text_config={**TEXT, "vocab_size": read_facts(target).vocabulary},
        vision_config={**vision, "out_hidden_size": 64},
    )
    torch.manual_seed(0)
    Qwen3_5ForConditionalGeneration(config).save_pretrained(folder)
    write_manifest(TargetLocation("hybrid", build="toy"), folder, folder / "weights.json")
    return folder


def test_it_goes_through_rows_states_training_and_export(hybrid, tmp_path):
    facts = read_facts(hybrid)
    assert (facts.layers, facts.hidden_size) == (4, 64)
    with jsonl_writer(tmp_path / "corpus.jsonl") as corpus:
        for number, record in enumerate(islice(read_jsonl(CONVERSATIONS), 8)):
            corpus.write({**record, "split": "train" if number < 6 else "validation"})
    tokenized = tmp_path / "tokenized"
    tokenize_into(tokenized, tmp_path / "corpus.jsonl", hybrid, seq_length=512)
    manifest = tmp_path / "hidden_states.json"
    states = extract_hidden_states(
        HiddenStatesSettings("offline", "transformers", LAYER_IDS, "float32"),
        *(tokenized, hybrid, manifest),
        TransformersStates(hybrid, LAYER_IDS, "float32"),
        Stage("extract_hidden_states", StringIO()),
    )
    folder = tmp_path / "hidden_states" / states["folder"]
    for row, (ids, _, _) in enumerate(read_token_rows(tokenized)):
        with safe_open(folder / f"hs_{row}.safetensors", framework="pt") as file:
            assert file.get_tensor("token_ids").tolist() == ids
            assert file.get_slice("hidden_states").get_shape() == [len(ids), 3, 64]
    settings = TrainSettings(
        **{"algorithm": "dflash", "layers": 1, "block_size": 4, "mask_token": "<|mask|>"},
        **{"target_layer_ids": LAYER_IDS, "epochs": 1, "learning_rate": 0.001},
        **{"optimizer": "adamw", "sequence_length": 512, "anchors": 16, "sliding_window": 64},
    )
    train_drafter(
        *(settings, TrainerSettings(), Inputs(tokenized, hybrid, manifest)),
        *(tmp_path / "train.json", tmp_path / "trainer.log"),
        Stage("train_drafter", StringIO()),
    )
    stats = tokenized / "stats.json"
    export_drafter(
        ExportSettings(thinking=False, target_layer_ids=LAYER_IDS),
        Records(tmp_path / "train.json", hybrid / "weights.json", stats, manifest),
        tmp_path / "drafter",
        Stage("export_drafter", StringIO()).say,
    )
    config = read_json(tmp_path / "drafter/config.json")
    assert config["aux_hidden_state_layer_ids"][: len(LAYER_IDS)] == LAYER_IDS
    rope = config["transformer_layer_config"]["rope_parameters"]
    assert rope.get("partial_rotary_factor", 1.0) == 1.0
    assert "mrope_section" not in rope
