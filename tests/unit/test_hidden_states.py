"""Hidden states on disk: the right layers, resumable, never those of another data set."""

import shutil

import pytest
import torch
from hs_connectors import FileTransfer
from rows import tokenize_into
from safetensors.torch import load_file, save_file
from speculators.train.data import ArrowDataset

from lib import hidden_states
from lib.arrow_rows import read_token_rows
from lib.files import read_json
from lib.generation import load_target
from lib.hidden_states import HiddenStatesSettings, extract_hidden_states
from lib.jsonl import jsonl_writer

LAYERS = [0, 1, 3, 5]


def tokenized_in(folder, target, answer="It is red."):
    folder.mkdir(parents=True, exist_ok=True)
    with jsonl_writer(folder / "corpus.jsonl") as corpus:
        for number in range(3):
            turns = [
                {"from": "human", "value": f"Question {number}?" * (number + 1)},
                {"from": "gpt", "value": answer},
            ]
            split = "train" if number else "validation"
            corpus.write(
                {"id": f"s-{number}", "source": "s", "conversations": turns, "split": split}
            )
    data = folder / "tokenized"
    tokenize_into(data, folder / "corpus.jsonl", target)
    return data


def extract(tokenized, target, layer_ids=LAYERS, dtype="float32", advance=lambda steps: None):
    """Extract beside the data set and return the folder of the states."""
    manifest = tokenized.parent / "hidden_states.json"
    settings = HiddenStatesSettings("offline", "transformers", layer_ids, dtype)
    extract_hidden_states(settings, tokenized, target, manifest, advance)
    return manifest.parent / "hidden_states" / read_json(manifest)["folder"]


@pytest.fixture
def tokenized(tmp_path, target):
    return tokenized_in(tmp_path, target)


def test_each_row_has_its_tokens_and_a_slice_a_layer(tokenized, target):
    advanced = []
    folder = extract(tokenized, target, advance=advanced.append)
    rows = list(read_token_rows(tokenized))
    assert {path.name for path in folder.iterdir()} == {
        f"hs_{row}.safetensors" for row in range(len(rows))
    }
    assert sum(advanced) == len(rows)
    for row, (ids, _, length) in enumerate(rows):
        stored = load_file(folder / f"hs_{row}.safetensors")
        assert stored["token_ids"].tolist() == ids
        assert stored["hidden_states"].shape == (length, len(LAYERS) + 1, 128)
        assert stored["hidden_states"].dtype == torch.float32


def test_layer_ids_count_as_in_transformers_and_the_last_slice_gives_the_logits(tokenized, target):
    folder = extract(tokenized, target)
    model = load_target(target, False)
    for row, (ids, _, _) in enumerate(read_token_rows(tokenized)):
        states = load_file(folder / f"hs_{row}.safetensors")["hidden_states"]
        with torch.inference_mode():
            output = model(torch.tensor([ids]), output_hidden_states=True)
            logits = model.lm_head(model.model.norm(states[:, -1]))
        for place, layer in enumerate(LAYERS):
            torch.testing.assert_close(states[:, place], output.hidden_states[layer][0])
        torch.testing.assert_close(logits, output.logits[0])


def test_speculators_reads_the_states(tokenized, target):
    folder = extract(tokenized, target)
    data = ArrowDataset(
        max_len=512,
        datapath=tokenized,
        transfer=FileTransfer(folder),
        on_missing="raise",
        hidden_states_dtype=torch.float32,
    )
    for row, (ids, mask, length) in enumerate(read_token_rows(tokenized)):
        item = data[row]
        stored = load_file(folder / f"hs_{row}.safetensors")["hidden_states"]
        assert item["input_ids"].tolist() == ids
        assert item["loss_mask"].tolist() == mask
        assert torch.equal(item["hidden_states"], stored[:, :-1].reshape(length, -1))
        assert torch.equal(item["verifier_last_hidden_states"], stored[:, -1])


def test_the_number_type_is_that_of_the_settings(tokenized, target):
    folder = extract(tokenized, target, dtype="bfloat16")
    stored = load_file(folder / "hs_0.safetensors")["hidden_states"]
    assert stored.dtype == torch.bfloat16


def test_a_run_goes_on_with_what_is_missing_or_damaged(tokenized, target):
    folder = extract(tokenized, target)
    paths = sorted(folder.iterdir())
    contents = [path.read_bytes() for path in paths]
    inodes = [path.stat().st_ino for path in paths]
    paths[0].write_bytes(contents[0][:-100])
    paths[1].unlink()
    (folder / ".hs_1.safetensors.1.partial").write_bytes(contents[1][:50])
    assert extract(tokenized, target) == folder
    assert [path.read_bytes() for path in paths] == contents
    assert paths[2].stat().st_ino == inodes[2]


def test_states_of_other_tokens_under_the_same_name_are_made_again(tokenized, target):
    folder = extract(tokenized, target)
    expected = (folder / "hs_0.safetensors").read_bytes()
    shutil.copy(folder / "hs_1.safetensors", folder / "hs_0.safetensors")
    extract(tokenized, target)
    assert (folder / "hs_0.safetensors").read_bytes() == expected


def test_another_data_set_layer_or_number_type_has_a_folder_of_its_own(tokenized, target, render):
    folders = [
        extract(tokenized, target),
        extract(tokenized, target, layer_ids=[1]),
        extract(tokenized, target, dtype="bfloat16"),
        extract(tokenized_in(tokenized.parent, target, "It is blue."), target),
    ]
    assert len(set(folders)) == len(folders)


def test_states_that_are_not_finite_stop_the_run(tokenized, target, tmp_path):
    broken = tmp_path / "broken"
    shutil.copytree(target, broken)
    weights = load_file(broken / "model.safetensors")
    weights["model.layers.2.mlp.down_proj.weight"][0, 0] = float("nan")
    save_file(weights, broken / "model.safetensors", {"format": "pt"})
    with pytest.raises(ValueError, match=r"row 0: .* not finite"):
        extract(tokenized, broken)
    assert not list(tmp_path.rglob("hs_*"))
    assert not (tmp_path / "hidden_states.json").exists()


def test_a_disk_that_is_too_small_is_noticed_before_the_work(tokenized, target, monkeypatch):
    usage = shutil.disk_usage(tokenized)._replace(free=10_000)
    monkeypatch.setattr(hidden_states.shutil, "disk_usage", lambda folder: usage)
    with pytest.raises(ValueError, match="are free"):
        extract(tokenized, target)
    assert not list(tokenized.parent.rglob("hs_*"))


def test_the_announced_size_is_that_of_the_numbers_on_disk(tokenized, target):
    folder = extract(tokenized, target)
    numbers = sum(tensor.nbytes for path in folder.iterdir() for tensor in load_file(path).values())
    assert read_json(tokenized.parent / "hidden_states.json")["bytes"] == numbers
