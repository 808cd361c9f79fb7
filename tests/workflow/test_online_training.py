"""A drafter trained on hidden states that a real server gives on the way."""

import json
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from lib.configuration import complete, load_schema, stage_settings
from lib.files import read_json
from lib.metrics_file import new_lines
from workflow.project import ROOT, Project, environment
from workflow.small_dataset import target_of, write_small_dataset


@pytest.fixture(scope="module")
def dataset(finished: Project, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a folder with a small data set and its stored states."""
    folder = tmp_path_factory.mktemp("dataset")
    write_small_dataset(finished, folder, train=12, validation=4)
    arguments = ("--manifest", "hidden_states.json")
    outcome = run(finished, folder, folder, "extract_hidden_states", {}, *arguments)
    assert outcome.returncode == 0, outcome.stderr
    return folder


def run(
    finished: Project,
    dataset: Path,
    folder: Path,
    stage: str,
    hidden_states: dict[str, str],
    *arguments: str,
) -> subprocess.CompletedProcess[str]:
    """Run the script of a stage in a folder, for the toy configuration with a short training."""
    raw = yaml.safe_load((ROOT / "config/config.yaml").read_text())
    raw["train"].update(epochs=1)
    raw["hidden_states"].update(hidden_states)
    config = complete(raw, load_schema(ROOT / "config/schema.yaml"), ROOT)
    return subprocess.run(
        [
            *(sys.executable, str(ROOT / f"scripts/{stage}.py")),
            *("--settings", json.dumps(stage_settings(config, stage))),
            *("--serving", json.dumps({"options": ["--max-num-seqs", "4"]})),
            *("--stamp", str(dataset / "verified.json")),
            *("--tokenized", str(dataset / "tokenized/stats.json")),
            *("--weights", str(target_of(finished) / "weights.json")),
            *("--log", "stage.log", *arguments),
        ],
        cwd=folder,
        env={**environment(), "OMP_WAIT_POLICY": "passive", "VLLM_CPU_KVCACHE_SPACE": "1"},
        stderr=subprocess.PIPE,
        text=True,
        timeout=900,
    )


def train(
    finished: Project, dataset: Path, folder: Path, stored: list[str], **hidden_states: str
) -> dict[str, Any]:
    """Train for one epoch and return the result."""
    folder.mkdir(exist_ok=True)
    arguments = ["--hidden-states", *stored, "--result", "train.json"]
    outcome = run(finished, dataset, folder, "train_drafter", hidden_states, *arguments)
    assert outcome.returncode == 0, outcome.stderr
    result: dict[str, Any] = read_json(folder / "train.json")
    return result


@pytest.fixture(scope="module")
def offline(
    finished: Project, dataset: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Any]:
    """Train on the stored states."""
    folder = tmp_path_factory.mktemp("training") / "offline"
    return train(finished, dataset, folder, [str(dataset / "hidden_states.json")])


@pytest.mark.parametrize(("transfer", "tolerance"), [("file", 1e-4), ("fp8", 0.01)])
def test_states_from_a_server_train_the_same_drafter_and_leave_nothing(
    transfer: str,
    tolerance: float,
    finished: Project,
    dataset: Path,
    offline: dict[str, Any],
    tmp_path: Path,
) -> None:
    folder = tmp_path / "online"
    online = train(finished, dataset, folder, [], mode="online", transfer=transfer)
    (one,), (other,) = online["validation_by_epoch"], offline["validation_by_epoch"]
    assert one["loss_epoch"] == pytest.approx(other["loss_epoch"], rel=tolerance)
    assert online["checkpoints"] != offline["checkpoints"]
    trainer = yaml.safe_load((folder / online["checkpoints"] / "trainer.yaml").read_text())
    assert trainer["train"]["data"]["hidden_states_backend"] == transfer
    assert not list(folder.glob("checkpoints/.states-*"))
    assert Project(folder).processes() == []


def test_a_server_that_dies_ends_the_training_which_then_goes_on(
    finished: Project, dataset: Path, offline: dict[str, Any], tmp_path: Path
) -> None:
    def kill_the_server() -> None:
        while not any("train" in line for line, _ in lines_in(tmp_path)):
            time.sleep(0.01)
        for process in psutil.process_iter(["cmdline", "cwd"]):
            is_ours = process.info["cwd"] == str(tmp_path)
            if is_ours and "vllm_launcher.py" in str((process.info["cmdline"] or [])[1:2]):
                process.kill()

    killer = threading.Thread(target=kill_the_server, daemon=True)
    killer.start()
    arguments = ("--hidden-states", "--result", "train.json")
    states = {"mode": "online", "transfer": "file"}
    outcome = run(finished, dataset, tmp_path, "train_drafter", states, *arguments)
    assert outcome.returncode == 1
    assert "vLLM ended with exit code" in outcome.stderr
    assert Project(tmp_path).processes() == []
    result = train(finished, dataset, tmp_path, [], **states)
    (one,), (other,) = result["validation_by_epoch"], offline["validation_by_epoch"]
    assert one["loss_epoch"] == pytest.approx(other["loss_epoch"], rel=1e-4)


def lines_in(folder: Path) -> list[tuple[dict[str, Any], int]]:
    """Return what the trainer in a folder has logged."""
    return [line for path in folder.glob("checkpoints/*/metrics.jsonl") for line in new_lines(path)]
