"""What is exported is what was trained, and its card says what it is made of."""

import json
import shlex
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from speculators import SpeculatorModel, SpeculatorModelConfig
from speculators.train.cli import create_transformer_layer_config
from speculators.train.vocab_mapping import build_vocab_mappings_from_distribution

from lib.configuration import complete, load_schema, stage_settings
from lib.digest import canonical
from lib.drafter import ExportSettings, Records, export_drafter
from lib.drafter_checks import Trained, check_drafter
from lib.drafter_config import layers_masked_otherwise
from lib.files import read_json, write_json
from lib.settings import read_settings
from lib.target_facts import read_facts

ROOT = Path(__file__).parents[2]
LAYER_IDS = [1, 3]
BLOCK_SIZE = 4
MASK_TOKEN_ID = 7
WINDOW = 64
DRAFT_VOCABULARY = 100
DRAFTERS = ("dflash", "dflash of fewer tokens", "dspark", "dflash2", "eagle3")

Change = Callable[[dict[str, Any]], Any]


@pytest.fixture(scope="module")
def trainings(target: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Records]:
    """Give for each kind of drafter the records of a training, its weights as they began."""
    return {
        name: write_training(name, target, tmp_path_factory.mktemp("training")) for name in DRAFTERS
    }


def write_training(name: str, target: Path, folder: Path) -> Records:
    algorithm = name.split()[0]
    vocabulary = read_facts(target).vocabulary
    maps: dict[str, Any] = {"draft_vocab_size": vocabulary}
    if name != algorithm:
        frequencies = {token: token for token in range(200, vocabulary)}
        d2t, t2d = build_vocab_mappings_from_distribution(frequencies, DRAFT_VOCABULARY, vocabulary)
        maps = {"draft_vocab_size": DRAFT_VOCABULARY, "d2t": d2t, "t2d": t2d}
    layers = create_transformer_layer_config(
        verifier_name_or_path=str(target),
        num_layers=2,
        draft_arch="qwen3",
        hidden_act=None,
        sliding_window=WINDOW,
        full_attention_indices=[],
    )
    torch.manual_seed(0)
    model = SpeculatorModel.registry[algorithm].from_training_args(
        verifier_config=layers,
        verifier_name_or_path=str(target),
        target_layer_ids=LAYER_IDS,
        block_size=BLOCK_SIZE,
        mask_token_id=MASK_TOKEN_ID,
        draft_attn_impl="sdpa",
        norm_before_residual=True,
        ttt_steps=3,
        **maps,
    )
    model.float().save_pretrained(folder / "checkpoints/0")
    write_json(
        folder / "train.json",
        {
            "best_epoch": 1,
            "best_checkpoint": "checkpoints/0",
            "validation_acceptance_length": None if algorithm == "eagle3" else 2.5,
            "validation_by_epoch": [{"position_1_acc_epoch": 0.75, "position_2_acc_epoch": 0.5}],
            "mask_token_id": None if algorithm == "eagle3" else MASK_TOKEN_ID,
            "train_rows": 1200,
            "validation_rows": 34,
            "supervised_tokens": 56789,
            "settings": {
                "block_size": None if algorithm == "eagle3" else BLOCK_SIZE,
                "sliding_window": WINDOW,
                "full_attention_layers": [],
                "learning_rate": 0.003,
                "loss": {"ce": 0.1, "tv": 0.9},
                "gpus": 8,
                "hidden_states": "online",
            },
            "versions": {"speculators": "0.9.0"},
        },
    )
    sides = {
        "train": {"conversations": 900, "rows": 1200, "supervised_tokens": 50000},
        "validation": {"conversations": 30, "rows": 34, "supervised_tokens": 6789},
    }
    other = {"train": {"conversations": 1, "rows": 2, "supervised_tokens": 3}}
    write_json(folder / "stats.json", {"sources": {"chats": sides, "calls": other}})
    write_json(folder / "hidden_states.json", {"layer_ids": LAYER_IDS})
    return Records(
        training=folder / "train.json",
        weights=target / "weights.json",
        rows=folder / "stats.json",
        hidden_states=folder / "hidden_states.json",
    )


SETTINGS: dict[str, Any] = {
    "thinking": False,
    "target_layer_ids": LAYER_IDS,
    "sources": [
        {"name": "chats", "license": "MIT", "files": ["/data/own/chats.jsonl"]},
        {
            "name": "calls",
            "license": "Apache-2.0 AND CC-BY-4.0",
            "hub": {"dataset": "some/calls", "revision": "0123456789" * 4, "files": ["a.json"]},
        },
        {"name": "unused", "license": "MIT", "urls": [{"url": "https://host/a?key=b"}]},
    ],
}


def export(records: Records, folder: Path, said: list[str] | None = None, **changes: Any) -> Path:
    settings = read_settings(ExportSettings, json.dumps({**SETTINGS, **changes}))
    export_drafter(settings, records, folder, (said if said is not None else []).append)
    return folder


def trained(records: Records) -> Trained:
    training = read_json(records.training)
    return Trained(
        layer_ids=LAYER_IDS,
        stored_layer_ids=LAYER_IDS,
        mask_token_id=training["mask_token_id"],
        target=read_facts(records.weights.parent),
        settings=training["settings"],
    )


@pytest.fixture(scope="module")
def exported(
    trainings: dict[str, Records], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Path]:
    """Give the exported folder of each kind of drafter; tests damage copies."""
    return {
        name: export(records, tmp_path_factory.mktemp("exported") / "drafter")
        for name, records in trainings.items()
    }


@pytest.mark.parametrize("name", DRAFTERS)
def test_speculators_loads_what_was_trained_rounded_to_bfloat16(
    trainings: dict[str, Records], exported: dict[str, Path], target: Path, name: str
) -> None:
    check_drafter(exported[name], trained(trainings[name]))
    checkpoint = load_file(trainings[name].training.parent / "checkpoints/0/model.safetensors")
    with safe_open(exported[name] / "model.safetensors", framework="pt") as file:
        assert set(file.keys()) == set(checkpoint)
        for key, tensor in checkpoint.items():
            is_number = tensor.is_floating_point()
            assert torch.equal(file.get_tensor(key), tensor.bfloat16() if is_number else tensor), (
                key
            )
    config = SpeculatorModelConfig.from_pretrained(exported[name])
    config.speculators_config.verifier.name_or_path = str(target)
    config.transformer_layer_config._attn_implementation = "sdpa"
    model = SpeculatorModel.from_pretrained(exported[name], config=config)
    assert model.dtype == torch.bfloat16
    loaded = model.state_dict()
    assert all(tensor.isfinite().all() for tensor in loaded.values())
    for key, tensor in checkpoint.items():
        assert torch.equal(loaded[key].float(), tensor.bfloat16().float()), key


def layers(config: dict[str, Any]) -> dict[str, Any]:
    values: dict[str, Any] = config["transformer_layer_config"]
    return values


DAMAGED_CONFIGURATIONS: dict[str, tuple[Change, str]] = {
    "other target layers": (
        lambda c: c.update(aux_hidden_state_layer_ids=[1, 2]),
        r"names the target layers \[1, 2\]; train\.target_layer_ids is \[1, 3\]",
    ),
    "no target layers": (lambda c: c.pop("aux_hidden_state_layer_ids"), "target layers None"),
    "rotation of a part": (
        lambda c: layers(c)["rope_parameters"].update(partial_rotary_factor=0.25),
        r"rotates 0\.25 of each head",
    ),
    "positions in three dimensions": (
        lambda c: layers(c)["rope_parameters"].update(mrope_section=[2, 1, 1]),
        "mrope_section",
    ),
    "another mask token": (lambda c: c.update(mask_token_id=8), "the mask token 8"),
    "no mask token": (lambda c: c.pop("mask_token_id"), "the mask token None"),
    "another block size": (lambda c: c.update(block_size=8), "the block size 8"),
    "another number of tokens": (
        lambda c: c["speculators_config"]["proposal_methods"][0].update(speculative_tokens=4),
        "proposes 4 tokens at a time, where a block of 4 gives 3",
    ),
    "no window": (lambda c: layers(c).pop("sliding_window"), "no sliding_window"),
    "unused window": (lambda c: layers(c).update(use_sliding_window=False), "use_sliding_window"),
    "another window": (
        lambda c: layers(c).update(sliding_window=32),
        r"a window of 32 tokens; train\.sliding_window is 64",
    ),
    "no layer types": (lambda c: layers(c).pop("layer_types"), "layer_types for 0 of its 2"),
    "a layer without a window": (
        lambda c: layers(c).update(layer_types=["sliding_attention", "full_attention"]),
        r"without a window in the layers \[1\]; train\.full_attention_layers is \[\]",
    ),
    "no causal flag": (
        lambda c: c.pop("sliding_window_non_causal"),
        "does not say sliding_window_non_causal",
    ),
    "another vocabulary": (lambda c: layers(c).update(vocab_size=999), "a vocabulary of 999"),
    "a vocabulary beyond the target's": (
        lambda c: c.update(draft_vocab_size=10**6),
        "among 1000000 tokens",
    ),
    "more layers": (
        lambda c: layers(c).update(num_hidden_layers=3, layer_types=["sliding_attention"] * 3),
        r"the weights lack layers\.2\.",
    ),
}


@pytest.mark.parametrize("damage", DAMAGED_CONFIGURATIONS)
def test_a_configuration_that_is_not_what_was_trained_is_refused(
    trainings: dict[str, Records], exported: dict[str, Path], tmp_path: Path, damage: str
) -> None:
    change, message = DAMAGED_CONFIGURATIONS[damage]
    folder = shutil.copytree(exported["dflash"], tmp_path / "drafter")
    config = read_json(folder / "config.json")
    change(config)
    write_json(folder / "config.json", config)
    with pytest.raises(ValueError, match=message):
        check_drafter(folder, trained(trainings["dflash"]))


def put(name: str, value: float) -> Change:
    """Return a change of the first number of a tensor."""

    def change(tensors: dict[str, Any]) -> None:
        tensors[name].flatten()[0] = value

    return change


DAMAGED_WEIGHTS: dict[str, tuple[Change, str]] = {
    "not a number": (put("fc.weight", torch.nan), r"fc\.weight holds numbers that are not finite"),
    "infinite": (put("norm.weight", torch.inf), r"norm\.weight holds numbers"),
    "missing": (lambda t: t.pop("hidden_norm.weight"), r"lack hidden_norm\.weight"),
    "no output head": (lambda t: t.pop("lm_head.weight"), r"lack lm_head\.weight"),
    "unknown": (lambda t: t.update(other=torch.zeros(1)), "have other, which the drafter"),
    "another shape": (
        lambda t: t.update({"fc.weight": t["fc.weight"][:, 1:].contiguous()}),
        r"fc\.weight has the shape",
    ),
    "a token less": (lambda t: t["t2d"].fill_(False), "t2d chooses 0 tokens"),
    "another token": (lambda t: t.update(t2d=t["t2d"].roll(1)), "d2t leads to other tokens"),
    "ids for offsets": (
        lambda t: t.update(d2t=t["d2t"] + torch.arange(DRAFT_VOCABULARY)),
        "d2t leads to other tokens",
    ),
}


@pytest.mark.parametrize("damage", DAMAGED_WEIGHTS)
def test_weights_that_are_not_whole_are_refused(
    trainings: dict[str, Records], exported: dict[str, Path], tmp_path: Path, damage: str
) -> None:
    change, message = DAMAGED_WEIGHTS[damage]
    name = "dflash of fewer tokens"
    folder = shutil.copytree(exported[name], tmp_path / "drafter")
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(ValueError, match=message):
        check_drafter(folder, trained(trainings[name]))


@pytest.mark.parametrize(
    ("algorithm", "kinds", "both_ways", "masked_otherwise"),
    [
        ("dflash", "SS", False, []),
        ("dflash", "SS", True, []),
        ("dflash", "SF", False, [1]),
        ("dflash", "SF", True, []),
        ("dflash2", "FF", False, [0, 1]),
        ("dspark", "SF", False, []),
        ("dspark", "SF", True, [0]),
        ("eagle3", "SF", None, []),
    ],
)
def test_layers_that_vllm_masks_otherwise_are_known(
    exported: dict[str, Path],
    algorithm: str,
    kinds: str,
    both_ways: bool | None,
    masked_otherwise: list[int],
) -> None:
    names = {"S": "sliding_attention", "F": "full_attention"}
    config = read_json(exported[algorithm] / "config.json")
    layers(config)["layer_types"] = [names[kind] for kind in kinds]
    config["sliding_window_non_causal"] = both_ways
    assert layers_masked_otherwise(config) == masked_otherwise


def test_terminal_and_card_warn_of_layers_that_vllm_masks_otherwise(
    trainings: dict[str, Records], tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(trainings["dflash"].training.parent, tmp_path / "training"))
    config = read_json(folder / "checkpoints/0/config.json")
    layers(config)["layer_types"] = ["sliding_attention", "full_attention"]
    write_json(folder / "checkpoints/0/config.json", config)
    training = read_json(folder / "train.json")
    training["settings"]["full_attention_layers"] = [1]
    write_json(folder / "train.json", training)
    said: list[str] = []
    records = replace(trainings["dflash"], training=folder / "train.json")
    export(records, tmp_path / "drafter", said)
    (warning,) = said
    assert "layers 1 in another way" in warning
    assert warning in (tmp_path / "drafter/README.md").read_text()


def test_states_of_other_layers_are_refused(
    trainings: dict[str, Records], exported: dict[str, Path]
) -> None:
    other = replace(trained(trainings["dflash"]), stored_layer_ids=[1, 2])
    with pytest.raises(ValueError, match=r"target layers \[1, 2\] are stored"):
        check_drafter(exported["dflash"], other)


def test_a_drafter_that_is_refused_leaves_the_one_before_as_it_was(
    trainings: dict[str, Records], tmp_path: Path
) -> None:
    folder = export(trainings["dflash"], tmp_path / "drafter")
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    with pytest.raises(ValueError, match=r"checkpoints/0 is not exported: .*target_layer_ids"):
        export(trainings["dflash"], folder, target_layer_ids=[2, 3])
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    assert list(tmp_path.iterdir()) == [folder]


def test_an_export_takes_the_place_of_the_one_before(
    trainings: dict[str, Records], tmp_path: Path
) -> None:
    folder = export(trainings["dflash"], tmp_path / "drafter")
    export(trainings["eagle3"], folder)
    assert read_json(folder / "config.json")["speculators_model_type"] == "eagle3"
    assert {path.name for path in folder.iterdir()} == {
        "config.json",
        "model.safetensors",
        "README.md",
    }
    assert list(tmp_path.iterdir()) == [folder]


def front_matter(card: str) -> dict[str, Any]:
    values: dict[str, Any] = yaml.safe_load(card.split("---\n")[1])
    return values


def test_card_names_data_licences_and_their_sums(
    trainings: dict[str, Records], tmp_path: Path
) -> None:
    card = (export(trainings["dflash"], tmp_path / "drafter") / "README.md").read_text()
    assert front_matter(card)["license"] == ["apache-2.0", "cc-by-4.0", "mit"]
    assert front_matter(card)["datasets"] == ["some/calls"]
    assert "| chats | local: `chats.jsonl` | MIT | 930 | 1,234 | 56,789 |" in card
    assert "| unused | https://host/a | MIT | 0 | 0 | 0 |" in card
    assert "| all |  |  | 931 | 1,236 | 56,792 |" in card
    assert f"some/calls/tree/{'0123456789' * 4}" in card
    assert "/data/own" not in card


def test_card_claims_no_licence_where_one_is_not_stated(
    trainings: dict[str, Records], tmp_path: Path
) -> None:
    sources = [{"name": "chats", "files": ["chats.jsonl"]}, *SETTINGS["sources"][1:]]
    folder = export(trainings["dflash"], tmp_path / "drafter", sources=sources)
    card = (folder / "README.md").read_text()
    assert "license" not in front_matter(card)
    assert "| chats | local: `chats.jsonl` | not stated |" in card


def test_card_names_the_drafter_that_training_started_from(
    trainings: dict[str, Records], tmp_path: Path
) -> None:
    start = {"hub": {"repo": "some/drafter", "revision": "b2" * 20}}
    folder = export(trainings["dflash"], tmp_path / "drafter", start=start)
    card = (folder / "README.md").read_text()
    assert f"https://huggingface.co/some/drafter/tree/{'b2' * 20}" in card
    assert "license" not in front_matter(card)  # that of the other drafter is not known


@pytest.mark.parametrize("name", DRAFTERS)
def test_card_gives_the_line_that_serves_the_drafter_as_it_was_trained(
    trainings: dict[str, Records], tmp_path: Path, name: str
) -> None:
    changes = {"thinking": True, "preserve_thinking": True, "revision": "a1" * 20}
    folder = export(trainings[name], tmp_path / "drafter", **changes)
    card = (folder / "README.md").read_text()
    line = shlex.split(card.split("```sh\n")[1].split("\n```")[0])
    target = read_json(trainings[name].weights)["known_as"]
    assert line[:5] == ["vllm", "serve", target, "--revision", "a1" * 20]
    options = {key: json.loads(value) for key, value in zip(line[5::2], line[6::2], strict=True)}
    config = read_json(folder / "config.json")
    algorithm = config["speculators_config"]["algorithm"]
    assert options["--default-chat-template-kwargs"] == {
        "enable_thinking": True,
        "preserve_thinking": True,
    }
    assert options["--speculative-config"] == {
        "method": "dflash" if algorithm == "dflash2" else algorithm,
        "model": "drafter",
        "num_speculative_tokens": {"dspark": 4}.get(algorithm, 3),
    }
    assert front_matter(card)["base_model"] == target


def test_card_tells_recipe_and_acceptance(trainings: dict[str, Records], tmp_path: Path) -> None:
    card = (export(trainings["dflash"], tmp_path / "drafter") / "README.md").read_text()
    assert "| `train.learning_rate` | 0.003 |" in card
    assert '| `train.loss` | `{"ce": 0.1, "tv": 0.9}` |' in card
    assert "| `hidden_states.mode` | online |" in card
    assert "train.gpus" not in card
    assert "| attention window | 64 tokens |" in card
    assert "**2.50** of 4" in card
    assert "| right tokens | 75% | 50% |" in card
    assert "base_model" not in front_matter(card)  # the toy target is on no hub


def test_a_licence_makes_only_what_shows_it_stale() -> None:
    schema = load_schema(ROOT / "config/schema.yaml")
    raw = yaml.safe_load((ROOT / "config/config.yaml").read_text())
    name = raw["sources"][0]["name"]
    stages = [path.stem for path in (ROOT / "scripts").glob("*.py")]

    def settings() -> dict[str, str]:
        config = complete(raw, schema, ROOT)
        found = {}
        for stage in stages:
            try:
                found[stage] = canonical(stage_settings(config, stage, name))
            except ValueError:
                continue  # a script that is no stage with settings
        return found

    before = settings()
    raw["sources"][0]["license"] = "CC0-1.0"
    assert {stage for stage, value in settings().items() if value != before[stage]} == {
        *("export_drafter", "report")
    }
