"""The folder of a target: facts, completeness, links and the manifest."""

import json
import struct

import pytest
import torch
from fetching_doubles import Recorder
from safetensors.torch import save_file

from lib.files import read_json, sha256_of_file
from lib.target import TargetLocation, check_shards, write_manifest
from lib.target_facts import read_facts
from lib.target_fetching import fetch_target

CONFIG = {"num_hidden_layers": 6, "hidden_size": 128, "vocab_size": 1024}


def small_model(folder, shards=("model.safetensors",)):
    """Write a model folder with one small tensor a shard, and an index for several shards."""
    folder.mkdir()
    for number, name in enumerate(shards):
        save_file({f"w{number}": torch.arange(6.0)}, folder / name)
    if len(shards) > 1:
        index = {"weight_map": {f"w{number}": name for number, name in enumerate(shards)}}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    (folder / "config.json").write_text(json.dumps(CONFIG))
    (folder / "tokenizer_config.json").write_text('{"eos_token": "<end>", "pad_token": null}')
    (folder / "chat_template.jinja").write_text("{{ messages }}")
    return folder


TWO = ("model-1-of-2.safetensors", "model-2-of-2.safetensors")


def test_facts_of_a_plain_configuration(tmp_path):
    facts = read_facts(small_model(tmp_path / "model"))
    assert (facts.layers, facts.hidden_size, facts.vocabulary) == (6, 128, 1024)
    assert (facts.end_token, facts.pad_token) == ("<end>", None)


def test_facts_of_a_nested_configuration_and_of_tokens_written_as_objects(tmp_path):
    folder = small_model(tmp_path / "model")
    (folder / "config.json").write_text(json.dumps({"text_config": CONFIG, "hidden_size": 7}))
    (folder / "tokenizer_config.json").write_text('{"pad_token": {"content": "<pad>"}}')
    facts = read_facts(folder)
    assert (facts.layers, facts.hidden_size, facts.vocabulary) == (6, 128, 1024)
    assert (facts.end_token, facts.pad_token) == (None, "<pad>")


def test_facts_without_a_tokenizer(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    assert read_facts(tmp_path).end_token is None


def test_facts_agree_with_the_loaded_tokenizer(target, render):
    tokenizer = render().tokenizer
    facts = read_facts(target)
    assert (facts.end_token, facts.pad_token) == (tokenizer.eos_token, tokenizer.pad_token)
    assert len(tokenizer) <= facts.vocabulary


@pytest.mark.parametrize("shards", [("model.safetensors",), TWO])
def test_complete_weights_pass(tmp_path, shards):
    check_shards(small_model(tmp_path / "model", shards))


def test_a_shard_that_the_index_names_must_be_there(tmp_path):
    folder = small_model(tmp_path / "model", TWO)
    (folder / TWO[1]).unlink()
    with pytest.raises(ValueError, match=f"{TWO[1]} is missing"):
        check_shards(folder)


def test_a_folder_without_weights_is_refused(tmp_path):
    folder = small_model(tmp_path / "model")
    (folder / "model.safetensors").unlink()
    with pytest.raises(ValueError, match="no safetensors weights"):
        check_shards(folder)


@pytest.mark.parametrize("shards", [("model.safetensors",), TWO])
@pytest.mark.parametrize("length", [0, 4, 8, 20, -1])
def test_a_shard_that_was_cut_is_noticed(tmp_path, shards, length):
    folder = small_model(tmp_path / "model", shards)
    content = (folder / shards[-1]).read_bytes()
    (folder / shards[-1]).write_bytes(content[:length])
    with pytest.raises(ValueError, match=shards[-1]):
        check_shards(folder)


def test_a_shard_that_is_too_long_is_noticed(tmp_path):
    folder = small_model(tmp_path / "model")
    with (folder / "model.safetensors").open("ab") as file:
        file.write(b"\0")
    with pytest.raises(ValueError, match="bytes instead of"):
        check_shards(folder)


@pytest.mark.parametrize(
    "content",
    [b"version https://git-lfs.github.com/spec/v1\n", struct.pack("<Q", 4) + b"{no}" + bytes(9)],
    ids=["pointer", "no header"],
)
def test_a_file_that_is_no_safetensors_is_named(tmp_path, content):
    folder = small_model(tmp_path / "model")
    (folder / "model.safetensors").write_bytes(content)
    with pytest.raises(ValueError, match=r"model\.safetensors"):
        check_shards(folder)


@pytest.mark.parametrize(
    ("index", "problem"),
    [
        ("<html>", "does not say which shard"),
        ("[]", "does not say which shard"),
        ('{"weight_map": ["a.safetensors"]}', "does not say which shard"),
        ('{"weight_map": {"w": "../a.safetensors"}}', "cannot be the name of a shard"),
        ('{"weight_map": {"w": "config.json"}}', "cannot be the name of a shard"),
        ('{"weight_map": {"w": 1}}', "cannot be the name of a shard"),
        ('{"weight_map": {}}', "no safetensors weights"),
    ],
)
def test_an_index_that_is_none_is_named(tmp_path, index, problem):
    folder = small_model(tmp_path / "model")
    (folder / "model.safetensors.index.json").write_text(index)
    with pytest.raises(ValueError, match=problem):
        check_shards(folder)


def link(source, folder):
    """Make a local model the target in `folder`; return its manifest."""
    manifest = folder / "weights.json"
    fetch_target(TargetLocation("mine", path=str(source)), manifest, Recorder())
    return manifest


def test_a_local_target_is_linked_and_its_other_files_are_left_alone(tmp_path):
    source = small_model(tmp_path / "model", TWO)
    needed = {path.name for path in source.iterdir()}
    (source / "pytorch_model.bin").write_bytes(b"pickle")
    (source / "notes.md").write_text("notes")
    manifest = link(source, tmp_path / "models/mine@12345678")
    entries = read_json(manifest)["files"]
    assert {entry["name"] for entry in entries} == needed
    assert {path.name for path in manifest.parent.iterdir()} == {*needed, manifest.name}
    for entry in entries:
        path = manifest.parent / entry["name"]
        assert path.is_symlink()
        assert path.resolve() == source / path.name
        assert entry["sha256"] == sha256_of_file(path)


def test_links_hold_when_both_folders_move_together(tmp_path):
    (tmp_path / "before").mkdir()
    link(small_model(tmp_path / "before/model"), tmp_path / "before/models/m")
    (tmp_path / "before").rename(tmp_path / "after")
    check_shards(tmp_path / "after/models/m")


def test_linking_again_follows_a_model_that_moved(tmp_path):
    for name in ("one", "other"):
        manifest = link(small_model(tmp_path / name), tmp_path / "models/m")
    assert (manifest.parent / "config.json").resolve() == tmp_path / "other/config.json"


def test_a_path_that_is_no_folder_is_refused(tmp_path):
    with pytest.raises(ValueError, match="is no folder"):
        link(tmp_path / "x", tmp_path / "m")


@pytest.mark.parametrize("name", ["config.json", TWO[1]])
def test_an_incomplete_local_model_is_no_target_even_with_a_manifest_of_its_own(tmp_path, name):
    source = small_model(tmp_path / "model", TWO)
    write_manifest(TargetLocation("m", path="model"), source, source / "weights.json")
    (source / name).unlink()
    with pytest.raises(ValueError, match=f"{name} is missing"):
        link(source, tmp_path / "linked")
    assert not (tmp_path / "linked/weights.json").exists()


def test_the_manifest_lists_every_needed_file_with_its_hash(tmp_path):
    folder = small_model(tmp_path / "model", TWO)
    (folder / "notes.md").write_text("notes")
    location = TargetLocation("m", hub={"repo": "someone/model", "revision": "0" * 40})
    names = write_manifest(location, folder, folder / "weights.json")
    manifest = read_json(folder / "weights.json")
    assert manifest["known_as"] == "someone/model"
    assert [entry["name"] for entry in manifest["files"]] == names
    assert set(names) == {p.name for p in folder.iterdir()} - {"notes.md", "weights.json"}
    for entry in manifest["files"]:
        path = folder / entry["name"]
        assert entry["sha256"] == sha256_of_file(path)
        assert entry["size"] == path.stat().st_size


def test_the_manifest_does_not_change_when_it_is_written_again(tmp_path):
    folder = small_model(tmp_path / "model")
    location = TargetLocation("m", path="model")
    contents = []
    for _ in range(2):
        write_manifest(location, folder, folder / "weights.json")
        contents.append((folder / "weights.json").read_bytes())
    assert contents[0] == contents[1]


@pytest.mark.parametrize("name", ["config.json", "tokenizer_config.json", "model.safetensors"])
def test_an_incomplete_target_gets_no_manifest(tmp_path, name):
    folder = small_model(tmp_path / "model")
    (folder / name).unlink()
    with pytest.raises(ValueError, match=name.partition(".")[0].replace("model", "weights")):
        write_manifest(TargetLocation("m", path="model"), folder, folder / "weights.json")
    assert not (folder / "weights.json").exists()


def test_a_manifest_beside_a_linked_model_is_not_written_through_the_link(tmp_path):
    source = small_model(tmp_path / "model")
    write_manifest(TargetLocation("m", path="model"), source, source / "weights.json")
    before = (source / "weights.json").read_bytes()
    manifest = link(source, tmp_path / "linked")
    assert (source / "weights.json").read_bytes() == before
    assert not manifest.is_symlink()
