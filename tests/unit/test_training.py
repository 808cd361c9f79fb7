"""What the training stage decides around speculators' trainer: inputs, resuming, the best epoch."""

import json
import math
import os
import re
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from io import StringIO
from itertools import islice
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
import yaml
from rows import tokenize_into
from safetensors import safe_open
from speculators.train.config import TrainConfig

from lib.algorithms import ALGORITHMS
from lib.console import Stage
from lib.files import write_json
from lib.hidden_states import HiddenStatesSettings, extract_hidden_states
from lib.jsonl import jsonl_writer, read_jsonl
from lib.metrics_file import new_lines, validations
from lib.rendering import Renderer
from lib.train_settings import TrainerSettings, TrainSettings
from lib.trainer_command import meeting_address, trainer_command, trainer_environment
from lib.training import Inputs, train_drafter
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


RUNNING = TrainerSettings(keep_checkpoints=9)


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


def train(
    inputs: Inputs, folder: Path, running: TrainerSettings = RUNNING, **changes: Any
) -> tuple[dict[str, Any], str]:
    """Train in a folder; return the outcome and what people saw."""
    terminal = StringIO()
    outcome = train_drafter(
        TrainSettings(**{**SETTINGS, **changes}),
        *(running, inputs, folder / "train.json", folder / "trainer.log"),
        Stage("train_drafter", terminal),
    )
    return outcome, terminal.getvalue()


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


def checkpoints_of(folder: Path) -> Path:
    return folder / outcome_of(folder)["checkpoints"]


def metrics_of(folder: Path) -> Path:
    return checkpoints_of(folder) / "metrics.jsonl"


def steps_in(metrics: Path) -> list[int]:
    return [line["global_step"] for line, _ in new_lines(metrics) if "train" in line]


def weights(checkpoint: Path) -> bytes:
    return (checkpoint / "model.safetensors").read_bytes()


def test_the_epoch_of_the_lowest_validation_loss_is_taken(finished: Path) -> None:
    outcome = outcome_of(finished)
    losses = [epoch["loss_epoch"] for epoch in outcome["validation_by_epoch"]]
    assert len(losses) == EPOCHS
    best = losses.index(min(losses))
    assert outcome["best_epoch"] == best + 1
    assert (finished / outcome["best_checkpoint"]).name == str(best)
    length = outcome["validation_by_epoch"][best]["eal_epoch"]
    assert outcome["validation_acceptance_length"] == length
    assert outcome["steps"][-1]["step"] >= outcome["steps"][0]["step"]


def test_a_finished_training_is_not_run_again(inputs: Inputs, copy: Path) -> None:
    lines = metrics_of(copy).read_text()
    assert train(inputs, copy)[0] == outcome_of(copy)
    assert metrics_of(copy).read_text() == lines


@contextmanager
def hit(folder: Path, harm: Callable[[psutil.Process], None], step: int) -> Iterator[None]:
    """Harm the trainer in `folder` once it has logged a step."""

    def wait_and_hit() -> None:
        while True:
            for metrics in folder.glob("checkpoints/*/metrics.jsonl"):
                if step in steps_in(metrics):
                    for process in psutil.process_iter(["cmdline"]):
                        line = process.info["cmdline"] or []
                        if str(metrics) in line and "guardian.py" not in " ".join(line):
                            harm(process)
                    return
            time.sleep(0.002)

    thread = threading.Thread(target=wait_and_hit, daemon=True)
    thread.start()
    yield
    thread.join(60)


@pytest.mark.parametrize(
    ("number", "step", "checkpoints_per_epoch"),
    [
        (signal.SIGKILL, 3, 4),
        (signal.SIGTERM, 3, 1),
        (signal.SIGINT, 0, 1),
    ],
)
def test_a_training_that_was_hit_goes_on_to_the_same_drafter(
    inputs: Inputs,
    finished: Path,
    tmp_path: Path,
    number: signal.Signals,
    step: int,
    checkpoints_per_epoch: int,
) -> None:
    running = replace(RUNNING, checkpoints_per_epoch=checkpoints_per_epoch)
    with (
        hit(tmp_path, lambda trainer: trainer.send_signal(number), step),
        pytest.raises(TrainingError),
    ):
        train(inputs, tmp_path, running)
    (metrics,) = tmp_path.glob("checkpoints/*/metrics.jsonl")
    before = steps_in(metrics)
    outcome, seen = train(inputs, tmp_path, running)
    after = steps_in(metrics)[len(before) :]
    resumed_at = int(re.search(r"going on after step (\d+)", seen)[1])  # type: ignore[index]
    assert after[0] == resumed_at
    interval = len(set(steps_in(metrics_of(finished)))) / EPOCHS / checkpoints_per_epoch
    assert before[-1] + 1 - resumed_at <= (0 if number != signal.SIGKILL else interval + 1)
    expected = outcome_of(finished)
    assert outcome["best_epoch"] == expected["best_epoch"]
    assert weights(tmp_path / outcome["best_checkpoint"]) == weights(
        finished / expected["best_checkpoint"]
    )
    timeless = [
        [{**point, "tokens_per_second": 0} for point in one["steps"]] for one in (outcome, expected)
    ]
    assert timeless[0] == timeless[1]
    assert outcome["validation_by_epoch"] == expected["validation_by_epoch"]


def test_a_full_disk_ends_a_training_that_goes_on_when_there_is_room(
    inputs: Inputs, finished: Path, tmp_path: Path
) -> None:
    last = len(set(steps_in(metrics_of(finished)))) - 1
    size = len(weights(checkpoints_of(finished) / "0")) // 2

    def fill_disk(trainer: psutil.Process) -> None:
        trainer.rlimit(psutil.RLIMIT_FSIZE, (size, size))

    with (
        hit(tmp_path, fill_disk, last - 1),
        pytest.raises(TrainingError, match=r"could not be written, with .* GB free.*trainer\.log"),
    ):
        train(inputs, tmp_path)
    assert not (tmp_path / "train.json").exists()
    outcome, seen = train(inputs, tmp_path)
    assert "going on after step" in seen
    assert weights(tmp_path / outcome["best_checkpoint"]) == weights(
        finished / outcome_of(finished)["best_checkpoint"]
    )


def test_an_epoch_that_was_saved_and_not_validated_is_only_validated(
    inputs: Inputs, copy: Path
) -> None:
    before, steps = outcome_of(copy), steps_in(metrics_of(copy))
    lines = metrics_of(copy).read_text().splitlines(keepends=True)
    assert "val" in json.loads(lines[-1])
    metrics_of(copy).write_text("".join(lines[:-1]) + lines[-1][:20])  # cut inside the line
    assert train(inputs, copy)[0] == before
    assert steps_in(metrics_of(copy)) == steps


def test_a_checkpoint_that_a_kill_left_without_its_name_gets_it(inputs: Inputs, copy: Path) -> None:
    before, checkpoints = outcome_of(copy), checkpoints_of(copy)
    (checkpoints / "1").rename(checkpoints / ".1.partial")
    assert train(inputs, copy)[0] == before


def test_a_checkpoint_that_is_half_written_is_made_again(inputs: Inputs, copy: Path) -> None:
    before, checkpoints = outcome_of(copy), checkpoints_of(copy)
    (checkpoints / "1").rename(checkpoints / ".1.partial")
    (checkpoints / ".1.partial/training_state.json").unlink()
    outcome, seen = train(inputs, copy)
    assert "going on after step" in seen
    assert not (checkpoints / ".1.partial").exists()
    assert weights(checkpoints / "1") == weights(copy / outcome["checkpoints"] / "1")
    assert outcome["validation_by_epoch"] == before["validation_by_epoch"]


def test_only_the_last_checkpoints_and_the_best_are_kept(inputs: Inputs, tmp_path: Path) -> None:
    outcome, _ = train(inputs, tmp_path, TrainerSettings(keep_checkpoints=1), epochs=4)
    kept = {path.name for path in (tmp_path / outcome["checkpoints"]).iterdir() if path.is_dir()}
    assert kept == {"3", str(outcome["best_epoch"] - 1)}


@pytest.mark.parametrize("algorithm", ["dflash2", "dspark", "eagle3"])
def test_other_kinds_of_drafters_are_trained(
    inputs: Inputs, tmp_path: Path, algorithm: str
) -> None:
    own = ALGORITHMS[algorithm]
    changes = {"block_size": 4, "position_weights": own.position_weights}
    if not own.has_mask_token:
        changes = {"block_size": None, "position_weights": None, "mask_token": None}
    outcome, _ = train(inputs, tmp_path, algorithm=algorithm, loss=own.loss, epochs=1, **changes)
    config = json.loads((tmp_path / outcome["best_checkpoint"] / "config.json").read_text())
    assert config["speculators_model_type"] == algorithm
    assert math.isfinite(outcome["validation_by_epoch"][0]["loss_epoch"])


def test_a_vocabulary_of_its_own_holds_what_is_supervised_most(
    inputs: Inputs, tmp_path: Path
) -> None:
    before = {path.name for path in inputs.tokenized.iterdir()}
    outcome, _ = train(inputs, tmp_path, draft_vocabulary=100, epochs=1)
    checkpoint = tmp_path / outcome["best_checkpoint"]
    assert json.loads((checkpoint / "config.json").read_text())["draft_vocab_size"] == 100
    with safe_open(checkpoint / "model.safetensors", framework="pt") as stored:
        chosen = set(stored.get_tensor("t2d").nonzero().flatten().tolist())
    frequencies = torch.load(inputs.tokenized / "token_freq.pt", weights_only=True)
    rarest_chosen = min(frequencies.get(token, 0) for token in chosen)
    left_out = [count for token, count in frequencies.items() if token not in chosen]
    assert len(chosen) == 100 and rarest_chosen >= max(left_out, default=0)
    assert {path.name for path in inputs.tokenized.iterdir()} == before


def test_the_trainer_reads_its_file_as_it_is_written(finished: Path) -> None:
    path = checkpoints_of(finished) / "trainer.yaml"
    resolved = TrainConfig.resolve(["--config", str(path)])
    written, read = (
        yaml.safe_load(text)["train"] for text in (path.read_text(), resolved.dump_yaml())
    )
    assert read == written


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dspark": {"markov": 3}}, "no such option; dspark has .*markov_rank"),
        ({"draft": {"num_layers": 3}}, "train.options.draft.num_layers: is set from another key"),
        ({"drafts": {"num_layers": 3}}, "train.options.drafts: no group"),
    ],
)
def test_options_that_the_trainer_does_not_have_are_refused(
    inputs: Inputs, tmp_path: Path, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        train(inputs, tmp_path, options=options)


def test_an_option_reaches_the_trainer(inputs: Inputs, tmp_path: Path) -> None:
    outcome, _ = train(inputs, tmp_path, epochs=1, options={"dflash": {"dpace_alpha": 0.25}})
    run = yaml.safe_load((tmp_path / outcome["checkpoints"] / "run.yaml").read_text())
    assert run["train"]["dflash"]["dpace_alpha"] == 0.25


def test_several_ranks_train_together_and_stop_together(
    inputs: Inputs, finished: Path, tmp_path: Path
) -> None:
    config = yaml.safe_load((checkpoints_of(finished) / "trainer.yaml").read_text())
    config["train"]["trainer"]["save_path"] = str(tmp_path)
    (tmp_path / "trainer.yaml").write_text(yaml.safe_dump(config))
    command = trainer_command(2, 1, tmp_path / "trainer.yaml", tmp_path / "metrics.jsonl")
    environment = {**os.environ, **trainer_environment(0, 0)}
    ranks = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
    while not steps_in(tmp_path / "metrics.jsonl"):
        assert ranks.poll() is None, ranks.communicate()[1]
        time.sleep(0.01)
    for rank in psutil.Process(ranks.pid).children():
        rank.send_signal(signal.SIGTERM)
    assert ranks.wait(120) == 0
    before = steps_in(tmp_path / "metrics.jsonl")
    state = json.loads((tmp_path / "0/training_state.json").read_text())
    assert state["global_step"] == before[-1] + 1
    subprocess.run(command, env=environment, check=True, timeout=300, stderr=subprocess.PIPE)
    steps = steps_in(tmp_path / "metrics.jsonl")
    assert steps == list(range(len(steps)))
    assert sorted(validations(tmp_path / "metrics.jsonl")) == list(range(EPOCHS))


def test_other_settings_start_a_folder_of_their_own(inputs: Inputs, copy: Path) -> None:
    before = outcome_of(copy)
    outcome, seen = train(inputs, copy, learning_rate=0.01, epochs=1)
    assert "going on" not in seen
    assert outcome["checkpoints"] != before["checkpoints"]
    assert (copy / before["best_checkpoint"] / "model.safetensors").is_file()


def test_a_trainer_that_fails_is_reported_with_its_log(inputs: Inputs, tmp_path: Path) -> None:
    with pytest.raises(
        TrainingError, match=r"exit code 1 \(ValueError: Full attention indices .*trainer\.log"
    ):
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


def test_a_logger_that_is_not_installed_is_named(inputs: Inputs, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"trainer\.loggers: the package mlflow is not installed"):
        train(inputs, tmp_path, TrainerSettings(loggers=("mlflow",)))


def test_layers_that_the_target_lacks_are_refused(inputs: Inputs, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="target_layer_ids"):
        train(inputs, tmp_path, target_layer_ids=[1, 6])


def test_hidden_states_of_other_rows_are_refused(inputs: Inputs, tmp_path: Path) -> None:
    states = json.loads(inputs.hidden_states.read_text())
    write_json(tmp_path / "hidden_states.json", {**states, "rows": "fedcba9876543210"})
    other = Inputs(inputs.tokenized, inputs.target, tmp_path / "hidden_states.json")
    with pytest.raises(ValueError, match="another data set"):
        train(other, tmp_path)


def test_several_nodes_outside_of_slurm_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    with pytest.raises(ValueError, match=r"train\.nodes.*--workflow-profile profiles/slurm"):
        meeting_address()
