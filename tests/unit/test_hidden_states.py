"""Hidden states on disk: the right layers, checked, resumable, never those of another data set."""

import fcntl
import json
import shutil
import threading
import time
from contextlib import contextmanager
from itertools import pairwise

import pytest
import torch
from hs_connectors import FileTransfer
from rows import tokenize_into
from safetensors.torch import load_file, save_file
from speculators.train.data import ArrowDataset
from transformers import (
    Qwen3_5Config,
    Qwen3_5ForCausalLM,
    Qwen3_5ForConditionalGeneration,
    Qwen3_5TextConfig,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from lib import hidden_states, vllm_states
from lib.arrow_rows import read_token_rows
from lib.files import read_json
from lib.generation import load_target
from lib.hidden_states import HiddenStatesSettings, extract_hidden_states
from lib.jsonl import jsonl_writer
from lib.serving import Serving
from lib.state_files import StatesError, write_states
from lib.transformers_states import Capture, TransformersStates
from lib.vllm_server import RequestRefused
from lib.vllm_states import VllmStates

LAYERS = [0, 1, 3, 5]
HIDDEN_SIZE = 128


class Shown:
    """Remembers what a stage would show."""

    def __init__(self):
        self.lines = []
        self.total = None
        self.steps = 0

    def say(self, text):
        self.lines.append(text)

    @contextmanager
    def progress(self, what, total):
        self.total = total
        yield self

    def advance(self, steps=1):
        self.steps += steps


class Writer:
    """Writes states without a target; the first files of some rows are spoiled as told."""

    width = 4

    def __init__(self, spoil=None):
        self.spoil = {row: list(ways) for row, ways in (spoil or {}).items()}
        self.starts = 0
        self.longest = None
        self.rows = []
        self.at_once = 0
        self.most_at_once = 0
        self.meet = threading.Barrier(1)
        self.lock = threading.Lock()

    @contextmanager
    def started(self, folder, longest):
        assert not list(folder.iterdir())
        self.starts += 1
        self.longest = longest
        yield self.write

    def write(self, ids, path):
        row = int(path.stem[3:])
        with self.lock:
            self.rows.append(row)
            self.at_once += 1
            self.most_at_once = max(self.most_at_once, self.at_once)
        self.meet.wait(10)
        states = torch.tensor(ids).float()[:, None, None].expand(-1, len(LAYERS) + 1, HIDDEN_SIZE)
        ways = self.spoil.get(row)
        (ways.pop(0) if ways else write_states)(path, states.contiguous(), ids, "float32")
        with self.lock:
            self.at_once -= 1


def other_ids(path, states, ids, dtype):
    write_states(path, states, [*ids[:-1], ids[-1] + 1], dtype)


def one_token_less(path, states, ids, dtype):
    write_states(path, states[1:], ids[1:], dtype)


def fewer_states_than_ids(path, states, ids, dtype):
    write_states(path, states[1:], ids, dtype)


def one_layer_less(path, states, ids, dtype):
    write_states(path, states[:, 1:].contiguous(), ids, dtype)


def narrow(path, states, ids, dtype):
    write_states(path, states[..., 1:].contiguous(), ids, dtype)


def other_type(path, states, ids, dtype):
    write_states(path, states, ids, "bfloat16")


def not_a_number(path, states, ids, dtype):
    states[-1, -1, -1] = float("nan")
    write_states(path, states, ids, dtype)


def infinite(path, states, ids, dtype):
    states[0, 0, 0] = float("-inf")
    write_states(path, states, ids, dtype)


def nothing(path, states, ids, dtype):
    pass


def cut_off(path, states, ids, dtype):
    write_states(path, states, ids, dtype)
    path.write_bytes(path.read_bytes()[:-1])


def tokenized_in(folder, target, answer="It is red.", rows=3):
    folder.mkdir(parents=True, exist_ok=True)
    with jsonl_writer(folder / "corpus.jsonl") as corpus:
        for number in range(rows):
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


def extract(tokenized, target, layer_ids=LAYERS, dtype="float32", writer=None, shown=None):
    """Extract beside the data set and return the folder of the states."""
    manifest = tokenized.parent / "hidden_states.json"
    settings = HiddenStatesSettings("offline", "transformers", layer_ids, dtype)
    backend = writer or TransformersStates(target, layer_ids, dtype)
    extract_hidden_states(settings, tokenized, target, manifest, backend, shown or Shown())
    return manifest.parent / "hidden_states" / read_json(manifest)["folder"]


@pytest.fixture
def tokenized(tmp_path, target):
    return tokenized_in(tmp_path, target)


def test_each_row_has_its_tokens_and_a_slice_a_layer(tokenized, target):
    shown = Shown()
    folder = extract(tokenized, target, shown=shown)
    rows = list(read_token_rows(tokenized))
    assert {path.name for path in folder.iterdir()} == {
        f"hs_{row}.safetensors" for row in range(len(rows))
    }
    assert shown.total == shown.steps == len(rows)
    for row, (ids, _, length) in enumerate(rows):
        stored = load_file(folder / f"hs_{row}.safetensors")
        assert stored["token_ids"].tolist() == ids
        assert stored["hidden_states"].shape == (length, len(LAYERS) + 1, HIDDEN_SIZE)
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


SMALL = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 4,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 16,
}
HYBRID = {
    **SMALL,
    "layer_types": ["linear_attention", "full_attention"] * 2,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 2,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
}


def qwen3():
    return Qwen3ForCausalLM(Qwen3Config(**SMALL))


def qwen3_5_that_sees_images():
    vision = {"depth": 1, "hidden_size": 16, "num_heads": 2, "intermediate_size": 16}
    config = Qwen3_5Config(text_config=HYBRID, vision_config={**vision, "out_hidden_size": 32})
    return Qwen3_5ForConditionalGeneration(config)


def qwen3_5():
    return Qwen3_5ForCausalLM(Qwen3_5TextConfig(**HYBRID))


@pytest.mark.parametrize("build", [qwen3, qwen3_5, qwen3_5_that_sees_images])
def test_the_layers_of_a_text_model_are_found_wherever_it_is(build):
    torch.manual_seed(0)
    model = build().eval()
    ids = [3, 5, 7, 11, 13]
    states = Capture(model, [0, 1, 3]).states(ids)
    assert states.shape == (len(ids), 4, 32)
    decoder = model.get_decoder()
    with torch.inference_mode():
        output = model(torch.tensor([ids]), output_hidden_states=True)
        logits = model.lm_head(decoder.norm(states[:, -1]))
    for place, layer in enumerate([0, 1, 3]):
        torch.testing.assert_close(states[:, place], output.hidden_states[layer][0])
    torch.testing.assert_close(logits, output.logits[0])


def test_the_stage_loads_the_text_model_of_one_that_sees_images(tmp_path):
    model = qwen3_5_that_sees_images().eval()
    model.save_pretrained(tmp_path)
    expected = Capture(model, [2]).states([3, 5, 7])
    loaded = load_target(tmp_path, False, "float32")
    torch.testing.assert_close(Capture(loaded, [2]).states([3, 5, 7]), expected)


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
    left = folder.with_name(".unchecked")
    left.mkdir()
    (left / "hs_1.safetensors").write_bytes(contents[1][:50])
    shown = Shown()
    assert extract(tokenized, target, shown=shown) == folder
    assert shown.total == shown.steps == 2
    assert [path.read_bytes() for path in paths] == contents
    assert paths[2].stat().st_ino == inodes[2]
    assert not left.exists()


def test_a_target_that_is_not_needed_is_not_started(tokenized, target):
    extract(tokenized, target)
    writer = Writer()
    extract(tokenized, target, writer=writer)
    assert writer.starts == 0


def test_states_of_other_tokens_under_the_same_name_are_made_again(tokenized, target):
    folder = extract(tokenized, target)
    expected = (folder / "hs_0.safetensors").read_bytes()
    shutil.copy(folder / "hs_1.safetensors", folder / "hs_0.safetensors")
    extract(tokenized, target)
    assert (folder / "hs_0.safetensors").read_bytes() == expected


def test_another_data_set_layer_backend_or_number_type_has_a_folder_of_its_own(tokenized, target):
    folders = [
        extract(tokenized, target),
        extract(tokenized, target, layer_ids=[1]),
        extract(tokenized, target, dtype="bfloat16"),
        extract(tokenized_in(tokenized.parent, target, "It is blue."), target),
    ]
    manifest = tokenized.parent / "hidden_states.json"
    settings = HiddenStatesSettings("offline", "vllm", LAYERS, "float32")
    served = extract_hidden_states(settings, tokenized, target, manifest, Writer(), Shown())
    folders.append(folders[0].with_name(served["folder"]))
    assert len(set(folders)) == len(folders)


def test_what_other_folders_take_is_said_and_they_stay(tokenized, target):
    other = extract(tokenized, target, layer_ids=[1])
    shown = Shown()
    extract(tokenized, target, shown=shown)
    (line,) = [line for line in shown.lines if "other data sets" in line]
    size = sum(path.stat().st_size for path in other.iterdir())
    assert f"{size / 1000:.1f} kB" in line
    assert other.name in line
    assert len(list(other.iterdir())) == 3


def test_many_rows_are_under_way_at_once(tmp_path, target):
    tokenized = tokenized_in(tmp_path, target, rows=24)
    writer, shown = Writer(), Shown()
    writer.meet = threading.Barrier(4)
    folder = extract(tokenized, target, writer=writer, shown=shown)
    assert writer.most_at_once == 4
    assert sorted(writer.rows) == list(range(24))
    assert shown.total == shown.steps == 24
    rows = list(read_token_rows(tokenized))
    assert writer.longest == max(length for _, _, length in rows)
    for row, (ids, _, _) in enumerate(rows):
        assert load_file(folder / f"hs_{row}.safetensors")["token_ids"].tolist() == ids


WAYS = {
    other_ids: "other tokens",
    one_token_less: "other tokens",
    fewer_states_than_ids: r"torch.float32 \(\d+, 5, 128\), not float32 \(\d+, 5, 128\)",
    one_layer_less: r"\(\d+, 4, 128\), not",
    narrow: r"\(\d+, 5, 127\), not",
    other_type: "bfloat16 .* not float32",
    not_a_number: "not finite",
    infinite: "not finite",
    nothing: "cannot be read",
    cut_off: "cannot be read",
}


@pytest.mark.parametrize("spoil", WAYS, ids=lambda way: way.__name__)
def test_states_that_are_wrong_twice_stop_the_run_and_name_the_row(spoil, tokenized, target):
    with pytest.raises(StatesError, match=rf"^row 1: .*{WAYS[spoil]}"):
        extract(tokenized, target, writer=Writer({1: [spoil, spoil]}))
    folders = tokenized.parent / "hidden_states"
    assert not list(folders.rglob("hs_1.*"))
    assert not (folders / ".unchecked").exists()
    assert not (tokenized.parent / "hidden_states.json").exists()


def test_states_that_are_wrong_once_are_asked_for_again(tokenized, target):
    writer, shown = Writer({1: [not_a_number], 2: [nothing]}), Shown()
    folder = extract(tokenized, target, writer=writer, shown=shown)
    assert sorted(writer.rows) == [0, 1, 1, 2, 2]
    assert len([line for line in shown.lines if "trying once more" in line]) == 2
    assert {path.name for path in folder.iterdir()} == {f"hs_{k}.safetensors" for k in range(3)}


def test_a_broken_target_stops_the_run(tokenized, target, tmp_path):
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
    writer, shown = Writer(), Shown()
    with pytest.raises(ValueError, match="are free"):
        extract(tokenized, target, writer=writer, shown=shown)
    assert writer.starts == 0
    assert "10.0 kB are free" in shown.lines[0]


def test_the_announced_size_is_that_of_the_numbers_on_disk(tokenized, target):
    shown = Shown()
    folder = extract(tokenized, target, shown=shown)
    numbers = sum(tensor.nbytes for path in folder.iterdir() for tensor in load_file(path).values())
    assert read_json(tokenized.parent / "hidden_states.json")["bytes"] == numbers
    assert f"{numbers / 1000:.1f} kB in {folder};" in shown.lines[0]


class Server:
    """Answers as a vLLM server does that writes hidden states, after a moment."""

    def __init__(self, folder):
        self.folder = folder
        self.requests = []
        self.dtype = "float32"
        self.writes = True

    def post(self, path, body):
        assert path == "/v1/completions"
        self.requests.append(body)
        if body["prompt"] == [0]:
            raise RequestRefused("/v1/completions: 400 no")
        written = self.folder / f"request-{len(self.requests)}.safetensors"
        lock = written.with_name(written.name + ".lock").open("w")
        fcntl.flock(lock, fcntl.LOCK_EX)
        threading.Thread(target=self.write, args=(written, body["prompt"], lock)).start()
        return {"kv_transfer_params": {"hidden_states_path": str(written)}}

    def write(self, written, ids, lock):
        time.sleep(0.2)
        with lock:
            if self.writes:
                write_states(written, torch.ones(len(ids), 2, HIDDEN_SIZE), ids, self.dtype)


@pytest.fixture
def served(tmp_path, target, monkeypatch):
    """Give a backend with a server that is none, the server, and the options it was given."""
    folder = tmp_path / "on the way"
    folder.mkdir()
    server, given = Server(folder), []

    @contextmanager
    def kept_server(folder, serving, options, log, say):
        given.extend(options)
        yield server

    monkeypatch.setattr(vllm_states, "kept_server", kept_server)
    backend = VllmStates(target, [1], "float32", False, Serving(), tmp_path / "log", print)
    return backend, server, given


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_states_of_a_server_are_taken_when_they_are_written(served, tmp_path, dtype):
    backend, server, _ = served
    server.dtype = dtype
    with backend.started(server.folder, 3) as write:
        write([4, 5, 6], tmp_path / "hs_0.safetensors")
    stored = load_file(tmp_path / "hs_0.safetensors")
    assert stored["token_ids"].tolist() == [4, 5, 6]
    assert stored["hidden_states"].dtype == torch.float32
    assert not list(server.folder.iterdir())
    (request,) = server.requests
    assert request["prompt"] == [4, 5, 6]
    assert request["max_tokens"] == 1


def test_a_server_that_refuses_a_row_or_writes_nothing_is_no_silence(served, tmp_path):
    backend, server, _ = served
    server.writes = False
    with backend.started(server.folder, 3) as write:
        with pytest.raises(StatesError, match=r"refuses it .*400"):
            write([0], tmp_path / "hs_0.safetensors")
        with pytest.raises(StatesError, match="has not written"):
            write([4], tmp_path / "hs_0.safetensors")
    assert not list(server.folder.iterdir())


def test_a_server_writes_all_layers_and_lets_no_cache_hide_a_token(served):
    backend, server, given = served
    with backend.started(server.folder, 77):
        pass
    options = dict(pairwise(given))
    speculative = json.loads(options["--speculative_config"])
    assert speculative["draft_model_config"]["hf_config"] == {
        "eagle_aux_hidden_state_layer_ids": [1, 6]
    }
    transfer = json.loads(options["--kv_transfer_config"])
    assert transfer["kv_connector"] == "CpuHiddenStatesConnector"
    assert transfer["kv_connector_extra_config"] == {"shared_storage_path": str(server.folder)}
    assert options["--max-model-len"] == "78"
    assert "--no-enable-prefix-caching" in given
    given.clear()
    on_gpu = VllmStates(backend.target, [1], "bfloat16", True, Serving(gpus=1), backend.log, print)
    with on_gpu.started(server.folder, 77):
        pass
    options = dict(pairwise(given))
    transfer = json.loads(options["--kv_transfer_config"])
    assert transfer["kv_connector"] == "ExampleHiddenStatesConnector"
    assert "kv_connector_module_path" not in transfer
    assert options["--dtype"] == "bfloat16"
    assert "--trust-remote-code" in given
