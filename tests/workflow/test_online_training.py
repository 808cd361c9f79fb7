"""A drafter trained on hidden states that a real server gives on the way."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from lib.configuration import complete, load_schema, stage_settings
from lib.files import read_json
from workflow.project import ROOT, Project, environment


def train(finished: Project, folder: Path, mode: str) -> dict[str, Any]:
    """Train for one epoch on the toy data set; return the result."""
    raw = yaml.safe_load((ROOT / "config/config.yaml").read_text())
    raw["train"].update(epochs=1, sequence_length=2048, anchors=512)  # few steps
    raw["hidden_states"]["mode"] = mode
    config = complete(raw, load_schema(ROOT / "config/schema.yaml"), ROOT)
    results = finished.folder / "results/toy"
    (weights,) = (finished.folder / "models").glob("toy@*/weights.json")
    stored = [str(results / "hidden_states.json")] if mode == "offline" else []
    folder.mkdir()
    outcome = subprocess.run(
        [
            *(sys.executable, str(ROOT / "scripts/train_drafter.py")),
            *("--settings", json.dumps(stage_settings(config, "train_drafter"))),
            *("--serving", json.dumps({"options": ["--max-num-seqs", "4"]})),
            *("--stamp", str(results / "verified.json")),
            *("--tokenized", str(results / "tokenized/stats.json")),
            *("--hidden-states", *stored, "--weights", str(weights)),
            *("--result", str(folder / "train.json"), "--log", str(folder / "stage.log")),
        ],
        cwd=folder,
        env={**environment(), "OMP_WAIT_POLICY": "passive", "VLLM_CPU_KVCACHE_SPACE": "1"},
        stderr=subprocess.PIPE,
        text=True,
        timeout=900,
    )
    assert outcome.returncode == 0, outcome.stderr
    result: dict[str, Any] = read_json(folder / "train.json")
    return result


def test_states_from_a_server_train_the_same_drafter_and_leave_nothing(
    finished: Project, tmp_path: Path
) -> None:
    online = train(finished, tmp_path / "online", "online")
    offline = train(finished, tmp_path / "offline", "offline")
    (one,), (other,) = online["validation_by_epoch"], offline["validation_by_epoch"]
    assert one["loss_epoch"] == pytest.approx(other["loss_epoch"], rel=0.02)
    assert one["eal_epoch"] == pytest.approx(other["eal_epoch"], rel=0.05)
    assert online["checkpoints"] != offline["checkpoints"]
    assert not list((tmp_path / "online/checkpoints").glob(".states-*"))
    assert Project(tmp_path / "online").processes() == []
