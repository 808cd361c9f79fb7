"""A drafter trained by speculators on verified rows, resumable after any interruption.

Checkpoints lie in a folder named by everything that shaped them: a changed configuration, data
set or target starts a folder of its own and never continues a foreign run.
"""

import fcntl
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import IO, Any, Protocol

import yaml

from lib.checkpoints import Reached, best_epoch, drop_surplus, recover
from lib.console import Stage
from lib.digest import digest
from lib.files import emptied, read_json, write_json, write_text
from lib.metrics_file import METRICS, new_lines, validations
from lib.processes import guarded_process
from lib.row_counts import longest_row
from lib.serving import Heartbeat, KeptServer
from lib.target_facts import read_facts
from lib.train_settings import (
    TrainerSettings,
    TrainSettings,
    check_loggers,
    check_target_layers,
    resolve_mask_token,
)
from lib.trainer_command import meeting_address, trainer_command, trainer_environment
from lib.trainer_config import Groups, Places, trainer_config
from lib.training_curves import Curves, read_curves
from lib.training_watch import TrainingError, TrainingWatch
from lib.vllm_server import ServerError

GRACE = 120.0
"""Seconds that the trainer has to save a checkpoint when it is asked to end."""

KEPT_FOLDERS = ("vocabulary", "tracking")
"""Folders beside the checkpoints: the drafter's vocabulary, and what the loggers write."""


@dataclass(frozen=True)
class Inputs:
    """What a drafter is trained on, each finished by the stage before.

    Attributes:
        hidden_states: manifest of the stored states; None if a server gives them on the way.
        start: manifest of the drafter that training starts from, if any.
    """

    tokenized: Path
    target: Path
    hidden_states: Path | None
    start: Path | None = None


class StatesServer(Protocol):
    """A served target that gives hidden states while the trainer asks for them."""

    @property
    def gpus(self) -> int:
        """Number of GPUs that it takes."""
        ...

    def trainer_options(self, folder: Path) -> Groups:
        """Return the trainer's options for the way of the states through `folder`."""
        ...

    def served(self, folder: Path, longest: int) -> AbstractContextManager[KeptServer]:
        """Serve it while the block runs.

        Args:
            folder: where states lie until the trainer has read them.
            longest: tokens of the longest row.
        """
        ...


@dataclass(frozen=True)
class _States:
    """Where the trainer gets hidden states from.

    Attributes:
        folder: files of stored states, or of those on their way.
        endpoint: address of the server that is asked for states; "" if all are stored.
        transfer: the trainer's options for their way.
        gpus: how many of the job's GPUs that server has; the trainer takes the next ones.
        check: raises an error if that server has ended or answers nothing.
    """

    folder: Path
    endpoint: str = ""
    transfer: Groups = field(default_factory=dict)
    gpus: int = 0
    check: Callable[[], None] = lambda: None


def train_drafter(
    settings: TrainSettings,
    running: TrainerSettings,
    inputs: Inputs,
    result: Path,
    log: Path,
    current: Stage,
    server: StatesServer | None = None,
) -> dict[str, Any]:
    """Train, or go on with, the drafter of these settings and inputs; write `result` last.

    Args:
        result: `train.json`; `checkpoints/` lies beside it.
        log: file for all that the trainer prints.
        server: gives hidden states where they are not stored.

    Returns:
        The content of `result`.

    Raises:
        ValueError: the settings do not fit the target or its data.
        TrainingError: the trainer failed, was interrupted, or was ended by the watch.
    """
    stats = read_json(inputs.tokenized / "stats.json")
    check_target_layers(settings, inputs.target)
    check_loggers(running)
    mask_token_id = resolve_mask_token(settings, inputs.target, inputs.tokenized)
    folder = result.parent / "checkpoints" / digest(_identity(settings, inputs, stats))[:8]
    folder.mkdir(parents=True, exist_ok=True)
    with _only_trainer_in(folder, current) as lock:
        reached = recover(folder, KEPT_FOLDERS)
        if reached.steps:
            current.say(f"going on after step {reached.steps}")
        if not _is_finished(reached, settings):
            patience = running.watch.unhealthy_seconds
            with _states(inputs, stats, folder, server, patience) as states:
                places = _places(settings, inputs, folder, states)
                config = trainer_config(
                    *(settings, running, places, mask_token_id, stats["train_data_ratio"])
                )
                write_text(folder / "trainer.yaml", yaml.safe_dump(config, sort_keys=False))
                rows = stats["train_rows"]
                _run_trainer(settings, running, rows, folder, log, current, states, lock)
            _require_all_epochs(settings, folder, log)
    curves = read_curves(folder / METRICS)
    outcome = _outcome(settings, folder, stats, mask_token_id, curves)
    write_json(result, outcome)
    return outcome


def _identity(settings: TrainSettings, inputs: Inputs, stats: dict[str, Any]) -> dict[str, Any]:
    """Return all that shapes a checkpoint.

    Raises:
        ValueError: the stored states are of other rows.
    """
    shaped: dict[str, Any] = {
        "settings": vars(settings),
        "rows": stats["content"],
        "trainer": version("speculators"),
    }
    if inputs.start is not None:
        shaped["start"] = digest(read_json(inputs.start))
    if inputs.hidden_states is None:
        return {**shaped, "target": digest(read_json(inputs.target / "weights.json"))}
    states = read_json(inputs.hidden_states)
    if states["rows"] != stats["content"]:
        raise ValueError(f"{inputs.hidden_states} belongs to another data set")
    return {**shaped, "target": states["target"], "hidden_states": states["folder"]}


@contextmanager
def _only_trainer_in(folder: Path, current: Stage) -> Iterator[IO[str]]:
    """Wait until no trainer of an earlier run is left in the folder.

    Gives the file whose lock says so; processes that inherit it hold the lock as long as they
    live.
    """
    with (folder / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            current.say("waiting for another trainer of the same drafter to end")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield lock


@contextmanager
def _states(
    inputs: Inputs,
    stats: dict[str, Any],
    checkpoints: Path,
    server: StatesServer | None,
    patience: float,
) -> Iterator[_States]:
    """Have hidden states at hand: the stored ones, or a server that gives them."""
    if inputs.hidden_states is not None:
        folder = read_json(inputs.hidden_states)["folder"]
        yield _States(inputs.hidden_states.parent / "hidden_states" / folder)
        return
    assert server is not None
    on_their_way = checkpoints.with_name(f".states-{checkpoints.name}")
    with (
        emptied(on_their_way),
        server.served(on_their_way, longest_row(stats)) as running,
    ):
        transfer = server.trainer_options(on_their_way)
        check = Heartbeat(running, patience).check
        yield _States(on_their_way, f"{running.url}/v1", transfer, server.gpus, check)


def _places(settings: TrainSettings, inputs: Inputs, folder: Path, states: _States) -> Places:
    vocabulary = None
    if settings.draft_vocabulary is not None and inputs.start is None:
        from lib.draft_vocabulary import write_draft_vocabulary  # brings PyTorch, and is rare

        size = read_facts(inputs.target).vocabulary
        vocabulary = write_draft_vocabulary(
            *(settings.draft_vocabulary, size, inputs.tokenized, folder / "vocabulary")
        )
    return Places(
        *(inputs.target, inputs.tokenized, folder, states.folder),
        endpoint=states.endpoint,
        transfer=states.transfer,
        vocabulary=vocabulary,
        start=inputs.start.parent if inputs.start is not None else None,
    )


def _is_finished(reached: Reached, settings: TrainSettings) -> bool:
    return reached.epochs >= settings.epochs and reached.is_validated


def _run_trainer(
    settings: TrainSettings,
    running: TrainerSettings,
    rows: int,
    folder: Path,
    log: Path,
    current: Stage,
    states: _States,
    lock: IO[str],
) -> None:
    """Run the trainer to its end, and watch it.

    Raises:
        TrainingError: it failed, or the watch ended it.
    """
    metrics = folder / METRICS
    address = meeting_address() if settings.nodes > 1 else ""
    command = trainer_command(
        *(settings.gpus, settings.nodes, folder / "trainer.yaml", metrics, address)
    )
    environment = trainer_environment(settings.gpus, states.gpus)
    seen = metrics.stat().st_size if metrics.exists() else 0
    steps_per_epoch = 0
    watch = TrainingWatch(running.watch, rows)
    with (
        current.progress("steps") as progress,
        guarded_process(command, log, environment, GRACE, [lock.fileno()]) as process,
    ):
        is_running = True
        while is_running:
            time.sleep(0.5)
            is_running = process.poll() is None  # before the last look at what it wrote
            try:
                states.check()
            except ServerError:
                process.send_signal(signal.SIGQUIT)  # the step waits for states that never come
                raise
            for line, end in new_lines(metrics, seen):
                seen = end
                watch.look(line)
                steps_per_epoch = line.get("steps_per_epoch", steps_per_epoch)
                if "train" in line:
                    done, total = line["global_step"] + 1, steps_per_epoch * settings.epochs
                    progress.reach(done, total, _in_words(line["train"], "loss", "eal"))
                if "val" in line:
                    figures = _in_words(line["val"], "loss_epoch", "eal_epoch")
                    current.say(f"epoch {line['epoch'] + 1} of {settings.epochs}: {figures}")
                    drop_surplus(folder, running.keep_checkpoints)
    if process.returncode:
        raise TrainingError(
            f"the trainer ended with exit code {process.returncode} ({_last_line(log)}); see {log}"
        )


def _last_line(log: Path) -> str:
    """Return what a process that failed said last: most often its error."""
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - 10_000))
        lines = file.read().decode(errors="replace").split("\n")
    return next((line.strip()[:300] for line in reversed(lines) if line.strip()), "no output")


def _in_words(metrics: dict[str, float], loss: str, acceptance_length: str) -> str:
    words = [f"loss {metrics[loss]:.3f}"]
    if acceptance_length in metrics:
        words.append(f"acceptance length {metrics[acceptance_length]:.2f}")
    return ", ".join(words)


def _require_all_epochs(settings: TrainSettings, folder: Path, log: Path) -> None:
    """Look at the checkpoints, for the trainer ends without an error when it is interrupted."""
    reached = recover(folder, KEPT_FOLDERS)
    if not _is_finished(reached, settings):
        raise TrainingError(
            f"interrupted after step {reached.steps}, epoch {reached.epochs} of "
            f"{settings.epochs}; the same command goes on from there (log: {log})"
        )


def _outcome(
    settings: TrainSettings,
    folder: Path,
    stats: dict[str, Any],
    mask_token_id: int | None,
    curves: Curves,
) -> dict[str, Any]:
    """Return the content of `train.json`."""
    by_epoch = validations(folder / METRICS)
    best = best_epoch(folder)
    place = folder.parent.parent
    return {
        "checkpoints": str(folder.relative_to(place)),
        "best_epoch": best + 1,
        "best_checkpoint": str((folder / str(best)).relative_to(place)),
        "validation_acceptance_length": by_epoch[best].get("eal_epoch"),
        "validation_by_epoch": [by_epoch[epoch] for epoch in sorted(by_epoch)],
        "mask_token_id": mask_token_id,
        "train_rows": stats["train_rows"],
        "validation_rows": stats["validation_rows"],
        "supervised_tokens": stats["supervised_tokens"],
        "settings": vars(settings),
        "versions": {name: version(name) for name in ("speculators", "transformers", "torch")},
        "steps": curves.points(),
    }
