"""What the training stage decides around speculators' trainer: inputs, resuming, the best epoch."""

import json
import shutil
from collections.abc import Callable
from io import StringIO
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from rows import tokenize_into

from lib.console import Stage
from lib.files import write_json
from lib.hidden_states import HiddenStatesSettings, extract_hidden_states
from lib.jsonl import jsonl_writer, read_jsonl
from lib.rendering import Renderer
from lib.training import Inputs, TrainSettings, train_drafter
from lib.training_watch import TrainingError
from lib.transformers_states import TransformersStates

CONVERSATIONS = Path(__file__).parents[2] / "resources/toy_target/conversations.jsonl"
LAYER_IDS = [1, 3]
EPOCHS = 2
SETTINGS: dict[str, Any] = {
    "algorithm": "dflash",
    "layers": 1,
    "block_size": 4,
    "target_layer_ids": LAYER_IDS,
    "mask_token": "<|mask|>",
    "epochs": EPOCHS,
    "learning_rate": 0.001,
    "optimizer": "adamw",
    "sequence_length": 512,
    "anchors": 16,
    "sliding_window": 64,
}


@pytest.fixture(scope="module")
def inputs(
    target: Path, render: Callable[..., Renderer], tmp_path_factory: pytest.TempPathFactory
) -> Inputs:
    """Give a small data set with its hidden states."""
    folder = tmp_path_factory.mktemp("inputs")
    with jsonl_writer(folder / "corpus.jsonl") as corpus:
        for number, record in enumerate(islice(read_jsonl(CONVERSATIONS), 8)):
            corpus.write({**record, "split": "train" if number < 6 else "validation"})
    tokenized = folder / "tokenized"
    tokenize_into(tokenized, folder / "corpus.jsonl", target, seq_length=512)
    extract_hidden_states(
        HiddenStatesSettings("offline", "transformers", LAYER_IDS, "float32"),
        tokenized,
        target,
        folder / "hidden_states.json",
        TransformersStates(target, LAYER_IDS, "float32"),
        Stage("extract_hidden_states", StringIO()),
    )
    return Inputs(tokenized, target, folder / "hidden_states.json")


def train(inputs: Inputs, folder: Path, **changes: Any) -> tuple[dict[str, Any], list[str]]:
    """Train in a folder; return the outcome and what was said."""
    said: list[str] = []
    outcome = train_drafter(
        TrainSettings(**{**SETTINGS, **changes}),
        inputs,
        folder / "train.json",
        folder / "trainer.log",
        said.append,
        lambda done, total: None,
    )
    return outcome, said


@pytest.fixture(scope="module")
def finished(inputs: Inputs, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give the folder of a training that has ended; tests work on copies."""
    folder = tmp_path_factory.mktemp("finished")
    train(inputs, folder)
    return folder


@pytest.fixture
def copy(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "copy", symlinks=True))


def outcome_of(folder: Path) -> dict[str, Any]:
    outcome: dict[str, Any] = json.loads((folder / "train.json").read_text())
    return outcome


def metrics_of(folder: Path) -> Path:
    return folder / outcome_of(folder)["checkpoints"] / "metrics.jsonl"


def test_the_epoch_of_the_lowest_validation_loss_is_taken(finished: Path) -> None:
    outcome = outcome_of(finished)
    losses = [epoch["loss_epoch"] for epoch in outcome["validation_by_epoch"]]
    assert len(losses) == EPOCHS
    best = losses.index(min(losses))
    assert outcome["best_epoch"] == best + 1
    saved = json.loads((finished / outcome["best_checkpoint"] / "val_metrics.json").read_text())
    assert saved["loss_epoch"] == min(losses)
    assert saved["eal_epoch"] == outcome["validation_acceptance_length"]


def test_a_finished_training_is_not_run_again(inputs: Inputs, copy: Path) -> None:
    lines = metrics_of(copy).read_text()
    assert train(inputs, copy)[0] == outcome_of(copy)
    assert metrics_of(copy).read_text() == lines


def cut_while_saving(folder: Path) -> None:
    checkpoints = metrics_of(folder).parent
    (checkpoints / str(EPOCHS - 1) / "training_state.json").unlink()
    drop_lines(metrics_of(folder), 1)


def cut_before_validation(folder: Path) -> None:
    drop_lines(metrics_of(folder), 1)


def cut_inside_a_line(folder: Path) -> None:
    path = metrics_of(folder)
    path.write_bytes(path.read_bytes()[:-20])


def drop_lines(path: Path, number: int) -> None:
    lines = path.read_text().splitlines(keepends=True)
    assert "val" in json.loads(lines[-1])
    path.write_text("".join(lines[:-number]))


@pytest.mark.parametrize("cut", [cut_while_saving, cut_before_validation, cut_inside_a_line])
def test_an_epoch_that_a_kill_cut_is_done_again(
    inputs: Inputs, copy: Path, cut: Callable[[Path], None]
) -> None:
    before = outcome_of(copy)
    cut(copy)
    outcome, said = train(inputs, copy)
    assert said == [f"going on after epoch {EPOCHS - 1} of {EPOCHS}"]
    assert outcome["checkpoints"] == before["checkpoints"]
    assert len(outcome["validation_by_epoch"]) == EPOCHS
    assert outcome["validation_by_epoch"][:-1] == before["validation_by_epoch"][:-1]
    for line in metrics_of(copy).read_text().splitlines():
        json.loads(line)


def test_other_settings_start_a_folder_of_their_own(inputs: Inputs, copy: Path) -> None:
    before = outcome_of(copy)
    outcome, said = train(inputs, copy, learning_rate=0.01, epochs=1)
    assert said == []
    assert outcome["checkpoints"] != before["checkpoints"]
    assert (copy / before["best_checkpoint"] / "model.safetensors").is_file()


def test_a_trainer_that_fails_is_reported_with_its_log(inputs: Inputs, tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match=r"exit code 1; see .*trainer\.log"):
        train(inputs, tmp_path, full_attention_layers=[7])
    assert "Full attention indices" in (tmp_path / "trainer.log").read_text()
    assert not (tmp_path / "train.json").exists()


def test_a_training_whose_loss_is_no_number_is_ended(inputs: Inputs, tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match=r"the loss of step \d+ is not finite"):
        train(inputs, tmp_path, learning_rate=1e25)
    assert not (tmp_path / "train.json").exists()


@pytest.mark.parametrize(
    ("token", "message"),
    [
        ("<|nothing|>", "no token of the target"),
        (1_000_000, "not below the vocabulary"),
        ("<|im_end|>", "ends a turn or is padding"),
        ("<|endoftext|>", "ends a turn or is padding"),
        ("<tool_call>", "occurs in the data"),
    ],
)
def test_a_mask_token_that_does_not_do_is_refused(
    inputs: Inputs, tmp_path: Path, token: str | int, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        train(inputs, tmp_path, mask_token=token)


def test_layers_that_the_target_lacks_are_refused(inputs: Inputs, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="target_layer_ids"):
        train(inputs, tmp_path, target_layer_ids=[1, 6])


def test_hidden_states_of_other_rows_are_refused(inputs: Inputs, tmp_path: Path) -> None:
    states = json.loads(inputs.hidden_states.read_text())
    write_json(tmp_path / "hidden_states.json", {**states, "rows": "fedcba9876543210"})
    other = Inputs(inputs.tokenized, inputs.target, tmp_path / "hidden_states.json")
    with pytest.raises(ValueError, match="another data set"):
        train(other, tmp_path)
