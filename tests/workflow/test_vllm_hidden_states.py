"""Hidden states that a real vLLM server writes, beside those of the target in this process."""

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from lib.arrow_rows import read_token_rows
from lib.files import read_json
from lib.generation import load_target
from workflow.parity import SAME, relative_distance
from workflow.project import ROOT, Project
from workflow.small_dataset import target_of, write_small_dataset

LAYER_IDS = [0, 3, 5]


@dataclass(frozen=True)
class Extraction:
    """A small data set, and the runs of the stage on it."""

    folder: Path
    target: Path

    def command(self, backend: str) -> list[str]:
        """Return the command line of the stage."""
        settings = {"mode": "offline", "backend": backend, "layer_ids": LAYER_IDS}
        return [
            *(sys.executable, str(ROOT / "scripts/extract_hidden_states.py")),
            *("--settings", json.dumps({**settings, "dtype": "float32"})),
            *("--serving", json.dumps({"concurrency": 2})),
            *("--stamp", "verified.json", "--tokenized", "tokenized/stats.json"),
            *("--weights", str(self.target / "weights.json")),
            *("--manifest", f"{backend}/hidden_states.json", "--log", f"{backend}/stage.log"),
        ]

    def start(self, backend: str) -> "subprocess.Popen[str]":
        """Start the stage."""
        return subprocess.Popen(
            self.command(backend),
            cwd=self.folder,
            env={**os.environ, "VLLM_CPU_KVCACHE_SPACE": "1", "CUDA_VISIBLE_DEVICES": ""},
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, backend: str) -> str:
        """Run the stage to its end and return what it showed."""
        process = self.start(backend)
        _, shown = process.communicate(timeout=600)
        assert process.returncode == 0, shown
        return shown

    def files(self, backend: str) -> dict[str, Path]:
        """Return the files that are in their place, by name."""
        paths = (self.folder / backend).glob("hidden_states/*/hs_*.safetensors")
        return {path.name: path for path in paths if not path.parent.name.startswith(".")}

    def states(self, backend: str, row: int) -> dict[str, torch.Tensor]:
        """Return what the file of a row holds."""
        folder = read_json(self.folder / backend / "hidden_states.json")["folder"]
        path = self.folder / backend / "hidden_states" / folder / f"hs_{row}.safetensors"
        tensors: dict[str, torch.Tensor] = load_file(path)
        return tensors

    def rows(self) -> list[list[int]]:
        """Return the token ids of each row."""
        return [ids for ids, _, _ in read_token_rows(self.folder / "tokenized")]

    def await_no_process(self) -> None:
        """Wait until no process of the stage is left."""
        end = time.monotonic() + 30
        while (left := Project(self.folder).processes()) and time.monotonic() < end:
            time.sleep(0.1)
        assert left == []


@pytest.fixture(scope="module")
def extraction(finished: Project, tmp_path_factory: pytest.TempPathFactory) -> Extraction:
    """Give a small data set, and nothing extracted."""
    folder = tmp_path_factory.mktemp("extraction")
    write_small_dataset(finished, folder, train=99, validation=1)
    return Extraction(folder, target_of(finished))


@pytest.fixture(scope="module")
def interrupted(extraction: Extraction) -> dict[str, int]:
    """Kill a run, damage two of its files, and finish it; return the inodes of the others."""
    process = extraction.start("vllm")
    while len(extraction.files("vllm")) < 6:
        assert process.poll() is None, process.communicate()[1]
        time.sleep(0.01)
    process.kill()
    process.communicate()
    extraction.await_no_process()
    assert not (extraction.folder / "vllm/hidden_states.json").exists()
    deleted, cut_off, *kept = extraction.files("vllm").values()
    rows = len(extraction.rows())
    assert len(kept) < rows - 2, "the run was not killed in the middle"
    deleted.unlink()
    cut_off.write_bytes(cut_off.read_bytes()[:-1])
    inodes = {path.name: path.stat().st_ino for path in kept}
    shown = extraction.run("vllm")
    assert f"{rows} rows" in shown
    assert "starting it again" not in shown
    extraction.await_no_process()
    return inodes


@pytest.fixture(scope="module")
def both(extraction: Extraction, interrupted: dict[str, int]) -> Extraction:
    """Give the data set with the states of both backends."""
    extraction.run("transformers")
    return extraction


def test_a_killed_run_goes_on_and_makes_again_what_is_damaged(
    extraction: Extraction, interrupted: dict[str, int]
) -> None:
    files = extraction.files("vllm")
    assert set(files) == {f"hs_{row}.safetensors" for row in range(len(extraction.rows()))}
    assert {name: files[name].stat().st_ino for name in interrupted} == interrupted
    assert [path.name for path in (extraction.folder / "vllm/hidden_states").iterdir()] == [
        read_json(extraction.folder / "vllm/hidden_states.json")["folder"]
    ]


def test_a_server_writes_the_same_states_as_transformers(both: Extraction) -> None:
    for row, ids in enumerate(both.rows()):
        served, own = both.states("vllm", row), both.states("transformers", row)
        assert served["token_ids"].tolist() == own["token_ids"].tolist() == ids
        assert served["hidden_states"].shape == (len(ids), len(LAYER_IDS) + 1, 128)
        assert relative_distance(served["hidden_states"], own["hidden_states"]).max() < SAME


def test_the_last_slice_is_what_the_final_norm_reads(both: Extraction) -> None:
    model = load_target(both.target, False)
    for row, ids in islice(enumerate(both.rows()), 10):
        last = both.states("vllm", row)["hidden_states"][:, -1]
        with torch.inference_mode():
            logits = model.lm_head(model.model.norm(last))
            expected = model(torch.tensor([ids])).logits[0]
        torch.testing.assert_close(logits, expected, rtol=1e-4, atol=1e-4)


def test_a_finished_run_starts_no_server(
    extraction: Extraction, interrupted: dict[str, int]
) -> None:
    log = extraction.folder / "vllm/stage.vllm.log"
    log.unlink()
    before = {name: path.stat().st_ino for name, path in extraction.files("vllm").items()}
    assert "starting vLLM" not in extraction.run("vllm")
    assert not log.exists()
    after = {name: path.stat().st_ino for name, path in extraction.files("vllm").items()}
    assert after == before
