"""Training starts from a drafter that others have published: fetched, read, checked, the same."""

import json
import os
import shutil
import subprocess
import sys
from io import StringIO
from itertools import islice
from pathlib import Path

import pytest
import torch
import yaml
from fetching_doubles import REVISION, Hub, Recorder, Script, sha256, use_hub
from published_drafters import (
    BLOCK_SIZE,
    LAYER_IDS,
    MASK_TOKEN_ID,
    WINDOW,
    as_deepspec,
    as_z_lab,
    edit_config,
    edit_weights,
    make_drafter,
    make_eagle3,
    split_weights,
)
from rows import tokenize_into
from safetensors.torch import load_file
from speculators import SpeculatorModel, SpeculatorModelConfig
from speculators.convert.dflash import DFlashConverter
from transformers import Qwen3_5Config, Qwen3_5ForConditionalGeneration

from lib.configuration import (
    ConfigurationError,
    complete,
    load_schema,
    local_drafter_files,
    published_drafter,
    published_drafters,
    stage_settings,
)
from lib.console import Stage
from lib.digest import canonical
from lib.drafter_fit import fitting
from lib.files import read_json
from lib.hidden_states import HiddenStatesSettings, extract_hidden_states
from lib.jsonl import jsonl_writer, read_jsonl
from lib.published_drafter import PublishedDrafterSettings, fetch_drafter
from lib.settings import read_settings
from lib.target_facts import read_facts
from lib.transformers_states import TransformersStates

ROOT = Path(__file__).parents[2]
REPOSITORY = "some/drafter"
SHAPE = {
    **{"algorithm": "dflash", "layers": 2, "block_size": BLOCK_SIZE, "mask_token": MASK_TOKEN_ID},
    **{"target_layer_ids": LAYER_IDS, "sliding_window": WINDOW, "full_attention_layers": [1]},
}


@pytest.fixture
def own(target, tmp_path):
    """Give a drafter as speculators writes it."""
    return make_drafter(tmp_path / "own", target)


@pytest.fixture
def z_lab(own, target, tmp_path):
    """Give the same as z-lab publishes it."""
    return as_z_lab(own, tmp_path / "z-lab", target)


class Fetch:
    """Fetches drafters for a target.

    Attributes:
        manifest: what it writes.
        folder: its folder.
        said: what the last call said.
    """

    def __init__(self, target, folder):
        self.target, self.folder = target, folder
        self.manifest = folder / "drafter.json"

    def __call__(self, path="", hub=None, **shape):
        stage = Recorder()
        settings = PublishedDrafterSettings(hub, str(path), **{**SHAPE, **shape})
        outcome = fetch_drafter(settings, self.target, self.manifest, stage)
        self.said = stage.said
        assert outcome == read_json(self.manifest)
        return outcome

    def refused(self, path="", hub=None, **shape):
        """Check that the call fails with one line, without a manifest; return the line."""
        with pytest.raises(ValueError) as caught:
            self(path, hub, **shape)
        assert not self.manifest.exists()
        assert "\n" not in str(caught.value)
        return str(caught.value)


@pytest.fixture
def fetch(target, tmp_path):
    return Fetch(target, tmp_path / "models/drafter-mine@00000000")


def load(folder, **options):
    """Load a drafter as the trainer does."""
    config = SpeculatorModelConfig.from_pretrained(folder)
    config.transformer_layer_config._attn_implementation = "sdpa"
    return SpeculatorModel.from_pretrained(folder, config=config, **options)


def load_exactly(folder):
    """Load a drafter whose configuration may say that it is to be rounded."""
    return load(folder, dtype=torch.float32)


def losses(model, length=40):
    """Return the losses of a drafter over three random sequences."""
    numbers = torch.Generator().manual_seed(3)
    width = model.config.transformer_layer_config.hidden_size
    options, _ = model.get_trainer_kwargs(
        loss_fn="kl_div", loss_implementation="eager", max_anchors=8
    )
    states = torch.randn(3, 1, length, (len(LAYER_IDS) + 1) * width, generator=numbers)
    ids = torch.randint(10, 200, (3, 1, length), generator=numbers)
    found = []
    for sequence, tokens in zip(states, ids, strict=True):
        torch.manual_seed(1)
        with torch.inference_mode():
            _, loss, _ = model(
                sequence[..., :-width],
                tokens,
                torch.ones_like(tokens),
                sequence[..., -width:],
                torch.zeros_like(tokens),
                **options,
            )
        found.append(loss.item())
    return found


def content_of(folder):
    """Return the content of each file of a folder, by path."""
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


# What a drafter becomes


@pytest.mark.parametrize("nested", [True, False])
def test_z_labs_format_becomes_the_drafter_that_it_was_written_from(
    own, fetch, target, tmp_path, nested
):
    published = as_z_lab(own, tmp_path / "published", target, nested)
    outcome = fetch(published)
    assert (outcome["format"], outcome["algorithm"]) == ("z-lab", "dflash")
    original, fetched = load_exactly(own), load(fetch.folder)
    assert fetched.config.speculators_config.proposal_methods[0].speculative_tokens == 3
    for name in ("block_size", "mask_token_id", "aux_hidden_state_layer_ids"):
        assert getattr(fetched.config, name) == getattr(original.config, name)
    for name, tensor in load_file(own / "model.safetensors").items():
        assert torch.equal(fetched.state_dict()[name], tensor.float()), name
    assert losses(fetched) == losses(original)


def test_it_is_what_speculators_own_converter_makes_of_it(z_lab, fetch, target, tmp_path):
    fetch(z_lab)
    DFlashConverter().convert(z_lab, tmp_path / "converted", str(target), validate=False)
    converted, fetched = load_exactly(tmp_path / "converted"), load(fetch.folder)
    layers = converted.config.transformer_layer_config
    for name in ("rope_parameters", "layer_types", "sliding_window", "num_key_value_heads"):
        assert getattr(fetched.config.transformer_layer_config, name) == getattr(layers, name)
    assert fetched.state_dict().keys() == converted.state_dict().keys()
    for name, tensor in converted.state_dict().items():
        if "verifier" not in name:
            assert torch.equal(fetched.state_dict()[name].bfloat16(), tensor.bfloat16()), name
    assert losses(fetched) == losses(converted)


@pytest.mark.parametrize("sees_ahead", [True, False])
def test_dflash_2_in_z_labs_format(target, fetch, tmp_path, sees_ahead):
    own = make_drafter(tmp_path / "own", target, "dflash2", sliding_window_non_causal=sees_ahead)
    published = as_z_lab(own, tmp_path / "published", target)
    assert fetch(published, algorithm="dflash2")["algorithm"] == "dflash2"
    original, fetched = load_exactly(own), load(fetch.folder)
    assert fetched.config.sliding_window_non_causal == sees_ahead
    assert torch.equal(
        fetched.candidate_selector.successor_codebook,
        original.candidate_selector.successor_codebook,
    )
    assert losses(fetched) == losses(original)


@pytest.mark.parametrize(
    "heads",
    [
        {},
        {"markov_head_type": "rnn"},
        {"confidence_head_with_markov": False},
        {
            **{"markov_rank": 0, "markov_head_type": "vanilla"},
            **{"enable_confidence_head": False, "confidence_head_with_markov": False},
        },
    ],
)
def test_deepspecs_format_with_and_without_its_heads(target, fetch, tmp_path, heads):
    own = make_drafter(tmp_path / "own", target, "dspark", **heads)
    published = as_deepspec(own, tmp_path / "published", target)
    outcome = fetch(published, algorithm="dspark")
    assert (outcome["format"], outcome["algorithm"]) == ("DeepSpec", "dspark")
    original, fetched = load_exactly(own), load(fetch.folder)
    assert fetched.config.sample_from_anchor
    assert fetched.config.speculators_config.proposal_methods[0].speculative_tokens == BLOCK_SIZE
    for name, tensor in original.state_dict().items():
        if "verifier" not in name:
            assert torch.equal(fetched.state_dict()[name], tensor), name
    assert losses(fetched) == losses(original)


def test_a_drafter_of_speculators_is_taken_as_it_is_with_this_target(own, fetch, target):
    before = read_json(own / "config.json")
    edit_config(own, speculators_config={"verifier": {"name_or_path": "a/b", "architectures": []}})
    outcome = fetch(own)
    assert outcome["format"] == "speculators"
    config = read_json(fetch.folder / "config.json")
    verifier = config["speculators_config"].pop("verifier")
    assert verifier["name_or_path"] == str(target)
    assert verifier["architectures"] == read_json(target / "config.json")["architectures"]
    del before["speculators_config"]["verifier"], before["auto_map"]
    assert {**config, "dtype": before["dtype"]} == before


def test_a_drafter_with_a_vocabulary_of_its_own(target, fetch, tmp_path):
    vocabulary = read_facts(target).vocabulary
    own = make_drafter(tmp_path / "own", target, draft_vocab_size=64)
    kept = torch.arange(vocabulary) < 64

    def map_to_the_first(weights):
        weights["t2d"], weights["d2t"] = kept, torch.zeros(64, dtype=torch.long)

    edit_weights(own, map_to_the_first)
    fetch(own)
    assert load(fetch.folder).lm_head.weight.shape[0] == 64
    assert "train.draft_vocabulary" in _refusal(fetch.folder, draft_vocabulary=32)
    edit_weights(own, lambda weights: weights.pop("t2d"))
    fetch.manifest.unlink()
    assert "has no tensor t2d" in fetch.refused(own)


def test_a_drafter_that_drafts_without_blocks(target, fetch, tmp_path):
    own = make_eagle3(tmp_path / "own", target)
    shape = {"algorithm": "eagle3", "layers": 1, "block_size": None, "mask_token": None}
    assert fetch(own, **shape)["algorithm"] == "eagle3"
    for name, tensor in load_exactly(own).state_dict().items():
        if "verifier" not in name:
            assert torch.equal(load(fetch.folder).state_dict()[name], tensor), name
    fetch.manifest.unlink()
    assert "train.target_layer_ids" in fetch.refused(own, **shape, target_layer_ids=[0, 2])


def test_the_trainer_gets_numbers_that_small_steps_can_change(z_lab, fetch):
    fetch(z_lab)
    assert load_file(z_lab / "model.safetensors")["fc.weight"].dtype == torch.bfloat16
    assert {tensor.dtype for tensor in load(fetch.folder).parameters()} == {torch.float32}


def test_a_target_that_nests_its_language_model(target, fetch, tmp_path):
    hybrid = tmp_path / "hybrid"
    shutil.copytree(target, hybrid)
    facts = read_facts(target)
    text = {"num_hidden_layers": 4, "num_attention_heads": 2, "num_key_value_heads": 1}
    text |= {"layer_types": ["linear_attention", "full_attention"] * 2, "head_dim": 16}
    vision = {"depth": 1, "hidden_size": 16, "num_heads": 2, "intermediate_size": 16}
    Qwen3_5ForConditionalGeneration(
        Qwen3_5Config(
            text_config={**text, "vocab_size": facts.vocabulary, "hidden_size": 64},
            vision_config={**vision, "out_hidden_size": 64},
        )
    ).save_pretrained(hybrid)
    own = make_drafter(tmp_path / "own", hybrid)
    published = as_z_lab(own, tmp_path / "published", hybrid)
    Fetch(hybrid, fetch.folder)(published)
    fetched = load(fetch.folder)
    embedding = load_file(hybrid / "model.safetensors")["model.language_model.embed_tokens.weight"]
    assert torch.equal(fetched.embed_tokens.weight, embedding)
    assert losses(fetched) == losses(load_exactly(own))


# What is refused


def not_a_drafter(folder):
    edit_config(folder, dflash_config=None, architectures=["LlamaForCausalLMEagle3"])


def another_projector(folder):
    edit_config(folder, dflash_config={"projector_type": "dspark"})


def capped_logits(folder):
    edit_config(folder, final_logit_softcapping=30.0)


def scaled_embeddings(folder):
    edit_config(folder, dflash_config={"input_embedding_scale": 2.0})


def causal_without_a_window(folder):
    edit_config(folder, is_causal=True)


def partial_rotation(folder):
    edit_config(folder, rope_parameters={"partial_rotary_factor": 0.25})


def window_that_is_off(folder):
    edit_config(folder, use_sliding_window=False)


def other_layers(folder):
    edit_config(folder, model_type="gemma3_text")


def no_block_size(folder):
    config = read_json(folder / "config.json")
    del config["dflash_config"]["block_size"]
    (folder / "config.json").write_text(json.dumps(config))


def a_target_of_another_depth(folder):
    edit_config(folder, num_target_layers=36)


def a_target_of_another_width(folder):
    edit_config(folder, hidden_size=256)


def another_vocabulary(folder):
    edit_config(folder, vocab_size=151936)


def a_tensor_too_few(folder):
    edit_weights(folder, lambda weights: weights.pop("layers.0.mlp.up_proj.weight"))


def a_tensor_too_many(folder):
    edit_weights(folder, lambda weights: weights.update({"layers.0.sinks": torch.ones(4)}))


def a_tensor_too_wide(folder):
    edit_weights(folder, lambda weights: weights.update({"fc.weight": torch.ones(4, 4)}))


def no_weights(folder):
    (folder / "model.safetensors").unlink()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (not_a_drafter, ["LlamaForCausalLMEagle3", "speculators, z-lab, DeepSpec"]),
        (another_projector, ["dflash_config.projector_type"]),
        (capped_logits, ["final_logit_softcapping", "30.0"]),
        (scaled_embeddings, ["input_embedding_scale", "2.0"]),
        (causal_without_a_window, ["is_causal"]),
        (partial_rotation, ["rotates 0.25"]),
        (window_that_is_off, ["use_sliding_window"]),
        (other_layers, ["gemma3_text"]),
        (no_block_size, ["no block_size"]),
        (a_target_of_another_depth, ["number of layers", "36"]),
        (a_target_of_another_width, ["hidden size", "256"]),
        (another_vocabulary, ["vocabulary", "151936"]),
        (a_tensor_too_few, ["has no tensor layers.0.mlp.up_proj.weight"]),
        (a_tensor_too_many, ["layers.0.sinks"]),
        (a_tensor_too_wide, ["another shape", "fc.weight"]),
        (no_weights, ["model.safetensors is not there"]),
    ],
)
def test_what_cannot_be_taken_is_one_line_that_says_why(z_lab, fetch, change, words):
    change(z_lab)
    error = fetch.refused(z_lab)
    for word in words:
        assert word in error
    assert str(z_lab) in error


def test_the_last_layer_of_the_target_cannot_be_read(z_lab, fetch, target):
    last = read_facts(target).layers
    edit_config(z_lab, dflash_config={"target_layer_ids": [0, last - 1]})
    error = fetch.refused(z_lab, target_layer_ids=[1, last])
    assert f"[1, {last}]" in error


OTHERWISE = {
    "algorithm": "dspark",
    "layers": 5,
    "block_size": 16,
    "target_layer_ids": [1, 2],
    "sliding_window": 2048,
    "full_attention_layers": [],
}


@pytest.mark.parametrize("key", OTHERWISE)
def test_a_configuration_that_says_otherwise_is_told_what_to_set(z_lab, fetch, key):
    error = fetch.refused(z_lab, **{key: OTHERWISE[key]})
    assert error.startswith(f"train.{key}: ")
    assert f"{SHAPE[key]!r}: set that" in error


def test_all_that_is_otherwise_is_named_at_once(z_lab, fetch):
    error = fetch.refused(z_lab, **OTHERWISE)
    assert [part.partition(":")[0] for part in error.split("; ")] == [
        f"train.{key}" for key in ("algorithm", "layers", "target_layer_ids", "block_size")
    ] + ["train.full_attention_layers", "train.sliding_window"]


def test_the_mask_token_is_compared_by_its_id(z_lab, fetch, render):
    text = render().tokenizer.convert_ids_to_tokens(MASK_TOKEN_ID)
    fetch(z_lab, mask_token=text)
    fetch.manifest.unlink()
    assert "train.mask_token" in fetch.refused(z_lab, mask_token="<|mask|>")
    assert "no token of the target" in fetch.refused(z_lab, mask_token="<|nothing|>")


def _refusal(folder, **changes):
    values = {**SHAPE, "mask_token_id": MASK_TOKEN_ID, **changes}
    with pytest.raises(ValueError) as caught:
        fitting(values, folder)
    return str(caught.value)


def test_a_fetched_drafter_can_be_compared_again(z_lab, fetch):
    fetch(z_lab)
    fitting({**SHAPE, "mask_token_id": MASK_TOKEN_ID}, fetch.folder)
    assert "train.mask_token" in _refusal(fetch.folder, mask_token_id=6)
    assert "train.block_size" in _refusal(fetch.folder, block_size=8)


# Where it comes from


def test_a_local_drafter_is_linked_and_not_changed(z_lab, fetch):
    before = content_of(z_lab)
    outcome = fetch(z_lab)
    assert content_of(z_lab) == before
    weights = fetch.folder / "model.safetensors"
    assert weights.resolve() == (z_lab / "model.safetensors").resolve()
    assert outcome["known_as"] == str(z_lab)
    assert {entry["name"]: entry["sha256"] for entry in outcome["files"]} == {
        name: sha256((fetch.folder / name).read_bytes())
        for name in ("config.json", "model.safetensors")
    }


def test_the_same_drafter_gives_the_same_manifest(z_lab, fetch):
    fetch(z_lab)
    first = fetch.manifest.read_bytes()
    fetch.manifest.unlink()
    fetch(z_lab)
    assert fetch.manifest.read_bytes() == first


@pytest.fixture
def hub(z_lab):
    """Give a hub that has the drafter, and what nobody needs."""
    with Hub("model", REPOSITORY) as hub:
        hub.publish_small("config.json", (z_lab / "config.json").read_bytes())
        hub.publish("model.safetensors", (z_lab / "model.safetensors").read_bytes())
        hub.publish_small("dflash.py", b"raise SystemExit")
        hub.publish_small("tokenizer.json", b"{}")
        yield hub


HUB = {"repo": REPOSITORY, "revision": REVISION}


def asked(hub):
    """Return the names of the files that were asked for."""
    return [path.rpartition("/")[2] for path in hub.asked() if "/resolve/" in path]


def test_from_the_hub_come_configuration_and_weights_only(hub, fetch, z_lab, tmp_path, monkeypatch):
    use_hub(monkeypatch, hub, tmp_path / "cache")
    outcome = fetch(hub=HUB)
    assert asked(hub) == ["config.json", "model.safetensors"]
    assert (outcome["known_as"], outcome["revision"]) == (REPOSITORY, REVISION)
    assert load_file(fetch.folder / "model.safetensors").keys() == (
        load_file(z_lab / "model.safetensors").keys()
    )
    before = len(hub.requests)
    fetch.manifest.unlink()
    fetch(hub=HUB)
    assert len(hub.requests) == before


def test_weights_in_shards(z_lab, fetch, tmp_path, monkeypatch):
    fetch(z_lab)
    whole = losses(load(fetch.folder))
    names = split_weights(z_lab)
    with Hub("model", REPOSITORY) as hub:
        for name in ("config.json", "model.safetensors.index.json"):
            hub.publish_small(name, (z_lab / name).read_bytes())
        for name in names:
            hub.publish(name, (z_lab / name).read_bytes())
        use_hub(monkeypatch, hub, tmp_path / "cache")
        sharded = Fetch(fetch.target, tmp_path / "models/drafter-sharded@00000000")
        sharded(hub=HUB)
    assert losses(load(sharded.folder)) == whole


def test_what_does_not_fit_is_noticed_before_the_weights_come(hub, fetch, tmp_path, monkeypatch):
    use_hub(monkeypatch, hub, tmp_path / "cache")
    assert "train.layers" in fetch.refused(hub=HUB, layers=5)
    assert asked(hub) == ["config.json"]
    fetch(hub=HUB)
    assert asked(hub) == ["config.json", "model.safetensors"]


def test_weights_that_are_not_what_the_hub_states_are_refused(hub, fetch, tmp_path, monkeypatch):
    use_hub(monkeypatch, hub, tmp_path / "cache")
    content = hub.files[hub.resolved("model.safetensors")]
    hub.publish("model.safetensors", content, stated=sha256(b"other"))
    assert sha256(b"other") in fetch.refused(hub=HUB)
    assert not (fetch.folder / "model.safetensors").exists()


def test_the_script_says_what_it_brought(hub, target, tmp_path):
    script = Script("fetch_drafter.py", hub, tmp_path)
    manifest = tmp_path / "models/drafter-mine@00000000/drafter.json"
    settings = json.dumps({"hub": HUB, **SHAPE})
    paths = ("--weights", str(target / "weights.json"), "--manifest", str(manifest))
    outcome = script.finish(script.launch("--settings", settings, *paths), manifest)
    assert outcome.code == 0
    assert json.loads(outcome.content)["format"] == "z-lab"
    assert f"{REPOSITORY}, dflash in the format of z-lab" in outcome.terminal


# The configuration


def configuration(**train):
    """Return the toy configuration, complete, with other keys in section `train`."""
    config = yaml.safe_load((ROOT / "config/config.yaml").read_text())
    config["train"] |= train
    return complete(config, load_schema(ROOT / "config/schema.yaml"), ROOT)


def test_settings_are_what_the_script_reads_and_name_no_other_keys(own):
    config = configuration(**{"from": {"path": str(own)}})
    settings = read_settings(
        PublishedDrafterSettings,
        canonical(stage_settings(config, "fetch_drafter", *published_drafters(config))),
    )
    assert settings.path == str(own)
    assert settings.target_layer_ids == config["train"]["target_layer_ids"]
    assert "from" not in stage_settings(config, "train_drafter")
    assert local_drafter_files(config, *published_drafters(config)) == [
        str(own / name) for name in ("config.json", "model.safetensors")
    ]


def test_each_drafter_and_target_has_a_folder_of_its_own():
    one = configuration(**{"from": {"hub": {**HUB}}})
    other = configuration(**{"from": {"hub": {**HUB, "revision": "b" * 40}}})
    moved = {**one, "target": {**one["target"], "name": "another"}}
    reshaped = {**one, "train": {**one["train"], "mask_token": "<|other|>"}}
    names = {published_drafter(config, "train", "from") for config in (one, other, moved, reshaped)}
    assert len(names) == 4
    measured = {**configuration(), "evaluate": {"published": {"hub": {**HUB}}}}
    assert published_drafter(measured, "evaluate", "published") not in {"", *names}
    assert published_drafter(configuration(), "train", "from") == ""


@pytest.mark.parametrize(
    ("published", "key"),
    [
        ({}, "train.from"),
        ({"hub": HUB, "path": "models"}, "train.from"),
        ({"path": "nowhere"}, "train.from.path"),
        ({"hub": {**HUB, "revision": "main"}}, "train.from.hub.revision"),
        ({"hub": HUB, "branch": "main"}, "train.from.branch"),
    ],
)
def test_a_mistake_in_the_configuration_names_its_key(published, key):
    with pytest.raises(ConfigurationError) as caught:
        configuration(**{"from": published})
    assert str(caught.value).splitlines()[0].startswith(f"{key}:")


# Training from it


@pytest.fixture(scope="module")
def data(target, tmp_path_factory):
    """Give token rows and hidden states for a short training."""
    folder = tmp_path_factory.mktemp("data")
    records = islice(read_jsonl(ROOT / "resources/toy_target/conversations.jsonl"), 8)
    with jsonl_writer(folder / "corpus.jsonl") as corpus:
        for number, record in enumerate(records):
            corpus.write({**record, "split": "train" if number < 6 else "validation"})
    stats = tokenize_into(folder / "tokenized", folder / "corpus.jsonl", target, seq_length=512)
    states = extract_hidden_states(
        HiddenStatesSettings("offline", "transformers", LAYER_IDS, "float32"),
        folder / "tokenized",
        target,
        folder / "hidden_states.json",
        TransformersStates(target, LAYER_IDS, "float32"),
        Stage("extract_hidden_states", StringIO()),
    )
    places = {
        "data_path": str(folder / "tokenized"),
        "train_data_ratio": stats["train_data_ratio"],
        "hidden_states_path": str(folder / "hidden_states" / states["folder"]),
    }
    return target, places


def train(data, folder, draft, **trainer):
    """Run speculators' trainer; return its losses step by step."""
    target, places = data
    places = dict(places)
    backend = {"hidden_states_path": places.pop("hidden_states_path")}
    config = {
        "speculator_type": "dflash",
        "verifier": {"verifier_name_or_path": str(target)},
        "draft": {"draft_attn_impl": "sdpa", **draft},
        "data": {
            **places,
            **{"total_seq_len": 512, "hidden_states_dtype": "float32"},
            **{"num_workers": 0, "max_anchors": 32},
        },
        "generation": {"on_missing": "raise"},
        "loss": {"loss_implementation": "eager"},
        "optimizer": {"optimizer": "adamw", "lr": 0.003},
        "trainer": {"epochs": 2, "save_path": str(folder), **trainer},
        "dflash": {"block_size": BLOCK_SIZE},
        "backend": backend,
    }
    folder.mkdir()
    (folder / "trainer.yaml").write_text(yaml.safe_dump({"train": config}))
    metrics = folder / "metrics.jsonl"
    launcher = ROOT / "scripts/lib/training_launcher.py"
    run = subprocess.run(
        [sys.executable, str(launcher), str(folder / "trainer.yaml"), str(metrics)],
        env={**os.environ, "PYTHONPATH": str(ROOT / "scripts"), "OMP_WAIT_POLICY": "passive"},
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr[-3000:]
    lines = [json.loads(line) for line in metrics.read_text().splitlines()]
    return [line["train"]["loss"] for line in lines if "train" in line]


def test_training_goes_on_from_it_as_from_the_original(data, tmp_path):
    target, _ = data
    shape = {"num_layers": 1, "sliding_window": WINDOW, "target_layer_ids": LAYER_IDS}
    from_nothing = train(data, tmp_path / "first", {**shape, "mask_token_id": MASK_TOKEN_ID})
    original = tmp_path / "first" / "1"
    published = as_z_lab(original, tmp_path / "published", target)
    fetch = Fetch(target, tmp_path / "drafter-mine@00000000")
    fetch(published, layers=1, full_attention_layers=[])
    from_published = train(
        data, tmp_path / "second", {"from_pretrained": str(fetch.folder)}, max_steps=2
    )
    edit_config(original, dtype="float32")
    from_original = train(data, tmp_path / "third", {"from_pretrained": str(original)}, max_steps=2)
    assert from_published == from_original
    assert from_published[0] < from_nothing[0]
