"""A drafter trained by speculators on verified rows, resumable after any interruption.

Checkpoints lie in a folder named by everything that shaped them: a changed configuration, data
set or target starts a folder of its own and never continues a foreign run.
"""

import fcntl
import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any, Protocol

import torch
import yaml

from lib.digest import digest
from lib.files import emptied, read_json, remove, write_json, write_text
from lib.processes import guarded_process
from lib.rendering import Renderer, ThinkingMode
from lib.row_counts import longest_row
from lib.serving import KeptServer, job_gpus
from lib.target_facts import read_facts
from lib.training_watch import TrainingError, TrainingWatch, WatchLimits

LAUNCHER = Path(__file__).with_name("training_launcher.py")
METRICS = "metrics.jsonl"
"""What the trainer logged, step by step and epoch by epoch, beside its checkpoints."""


@dataclass(frozen=True)
class TrainSettings:
    """What decides the drafter; config/README.md says what the keys mean."""

    algorithm: str
    layers: int
    block_size: int
    target_layer_ids: list[int]
    mask_token: str | int
    epochs: int
    learning_rate: float
    optimizer: str
    sequence_length: int
    anchors: int
    sliding_window: int
    full_attention_layers: list[int] = field(default_factory=list)
    seed: int = 0
    gpus: int = 0
    hidden_states: str = "offline"
    trust_remote_code: bool = False


@dataclass(frozen=True)
class Inputs:
    """What a drafter is trained on, each finished by the stage before.

    Attributes:
        hidden_states: manifest of the stored states; None if a server gives them on the way.
    """

    tokenized: Path
    target: Path
    hidden_states: Path | None


class StatesServer(Protocol):
    """A served target that gives hidden states while the trainer asks for them."""

    @property
    def gpus(self) -> int:
        """Number of GPUs that it takes."""
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
        gpus: how many of the job's GPUs that server has; the trainer takes the next ones.
        check: raises an error if that server has ended.
    """

    folder: Path
    endpoint: str = ""
    gpus: int = 0
    check: Callable[[], None] = lambda: None


def train_drafter(
    settings: TrainSettings,
    inputs: Inputs,
    result: Path,
    log: Path,
    say: Callable[[str], None],
    advance: Callable[[int, int], None],
    server: StatesServer | None = None,
) -> dict[str, Any]:
    """Train, or go on with, the drafter of these settings and inputs; write `result` last.

    Args:
        result: `train.json`; the checkpoints lie beside it in `checkpoints/`.
        log: file for all that the trainer prints.
        advance: called with (steps done, steps in all) while the trainer works.
        server: gives hidden states where they are not stored.

    Returns:
        The content of `result`.

    Raises:
        ValueError: the settings do not fit the target or its data.
        TrainingError: the trainer failed, was interrupted, or was ended by the watch.
    """
    stats = read_json(inputs.tokenized / "stats.json")
    mask_token_id = resolve_mask_token(settings, inputs)
    layers = read_facts(inputs.target).layers
    if max(settings.target_layer_ids) >= layers:
        raise ValueError(
            f"train.target_layer_ids: {settings.target_layer_ids} must be below {layers}, the "
            "number of layers of the target"
        )
    identity = {
        "settings": vars(settings),
        "rows": stats["content"],
        **_identity_of_states(inputs, stats),
    }
    folder = result.parent / "checkpoints" / digest(identity)[:8]
    folder.mkdir(parents=True, exist_ok=True)
    with _only_trainer_in(folder, say):
        done = _drop_incomplete_checkpoints(folder, settings.epochs)
        if done:
            say(f"going on after epoch {done} of {settings.epochs}")
        if done < settings.epochs:
            with _states(inputs, stats, folder, server) as states:
                config = _trainer_config(settings, inputs, folder, mask_token_id, stats, states)
                write_text(folder / "trainer.yaml", yaml.safe_dump(config, sort_keys=False))
                _run_trainer(settings, folder, log, advance, states)
            _require_all_epochs(settings.epochs, folder, log)
    validations = _validations(folder)
    best = min(validations, key=lambda epoch: validations[epoch]["loss_epoch"])
    outcome = {
        "checkpoints": str(folder.relative_to(result.parent)),
        "best_epoch": best + 1,
        "best_checkpoint": str((folder / str(best)).relative_to(result.parent)),
        "validation_acceptance_length": validations[best]["eal_epoch"],
        "validation_by_epoch": [validations[epoch] for epoch in sorted(validations)],
        "mask_token_id": mask_token_id,
        "train_rows": stats["train_rows"],
        "validation_rows": stats["validation_rows"],
        "supervised_tokens": stats["supervised_tokens"],
        "versions": {name: version(name) for name in ("speculators", "transformers", "torch")},
    }
    write_json(result, outcome)
    return outcome


def resolve_mask_token(settings: TrainSettings, inputs: Inputs) -> int:
    """Return the id of the mask token.

    Raises:
        ValueError: it does not exist, ends a turn or pads, or occurs in the data.
    """
    token = settings.mask_token
    renderer = Renderer(inputs.target, ThinkingMode(), settings.trust_remote_code)
    vocabulary = read_facts(inputs.target).vocabulary
    if isinstance(token, str):
        number = renderer.tokenizer.get_vocab().get(token)
        if number is None:
            raise ValueError(f"train.mask_token: {token!r} is no token of the target")
    else:
        number = token
    if not 0 <= number < vocabulary:
        raise ValueError(f"train.mask_token: {number} is not below the vocabulary, {vocabulary}")
    if number in renderer.end_of_turn_ids | {renderer.tokenizer.pad_token_id}:
        raise ValueError(f"train.mask_token: {token!r} ends a turn or is padding")
    frequencies = torch.load(inputs.tokenized / "token_freq.pt", weights_only=True)
    if number in frequencies:
        raise ValueError(f"train.mask_token: {token!r} occurs in the data")
    return int(number)


def _trainer_config(
    settings: TrainSettings,
    inputs: Inputs,
    folder: Path,
    mask_token_id: int,
    stats: dict[str, Any],
    states: _States,
) -> dict[str, Any]:
    """Return the configuration of `speculators train` (version 0.9.0)."""
    on_cpu = settings.gpus == 0
    return {
        "train": {
            "speculator_type": settings.algorithm,
            "seed": settings.seed,
            "verifier": {
                "verifier_name_or_path": str(inputs.target),
                "trust_remote_code": settings.trust_remote_code,
            },
            "draft": {
                "num_layers": settings.layers,
                "target_layer_ids": settings.target_layer_ids,
                "mask_token_id": mask_token_id,
                "sliding_window": settings.sliding_window,
                "full_attention_indices": settings.full_attention_layers,
                "draft_attn_impl": "sdpa" if on_cpu else "simple_flex_attention",
            },
            "data": {
                "data_path": str(inputs.tokenized),
                "total_seq_len": settings.sequence_length,
                "train_data_ratio": stats["train_data_ratio"],
                "hidden_states_dtype": "float32" if on_cpu else "bfloat16",
                "num_workers": 0 if on_cpu else 8,
                "max_anchors": settings.anchors,
            },
            "generation": {"on_missing": "generate", "vllm_endpoint": states.endpoint}
            if states.endpoint
            else {"on_missing": "raise"},
            "loss": {"loss_implementation": "eager" if on_cpu else "fused"},
            "optimizer": {"optimizer": settings.optimizer, "lr": settings.learning_rate},
            "trainer": {"epochs": settings.epochs, "save_path": str(folder)},
            "dflash": {"block_size": settings.block_size},
            "backend": {"hidden_states_path": str(states.folder)},
        }
    }


def _identity_of_states(inputs: Inputs, stats: dict[str, Any]) -> dict[str, Any]:
    """Return what target and hidden states have to do with the drafter.

    Raises:
        ValueError: the stored states are of other rows.
    """
    if inputs.hidden_states is None:
        return {"target": digest(read_json(inputs.target / "weights.json"))}
    states = read_json(inputs.hidden_states)
    if states["rows"] != stats["content"]:
        raise ValueError(f"{inputs.hidden_states} belongs to another data set")
    return {"target": states["target"], "hidden_states": states["folder"]}


@contextmanager
def _states(
    inputs: Inputs, stats: dict[str, Any], checkpoints: Path, server: StatesServer | None
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
        yield _States(on_their_way, f"{running.url}/v1", server.gpus, running.check)


@contextmanager
def _only_trainer_in(folder: Path, say: Callable[[str], None]) -> Iterator[None]:
    """Wait until no trainer of an earlier run is left in the folder."""
    with (folder / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("waiting for another trainer of the same drafter to end")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _drop_incomplete_checkpoints(folder: Path, epochs: int) -> int:
    """Remove what a killed trainer left half-done; return the number of complete epochs.

    The trainer writes `training_state.json` last, so a checkpoint without it is incomplete. It
    validates after that and never comes back to it; so the last epoch is done again when its
    validation is missing, while training goes on from an earlier one.
    """
    _drop_cut_line(folder / METRICS)
    validated = {str(epoch) for epoch in _validations(folder)}
    for path in folder.glob("*"):
        is_checkpoint = path.is_dir() and not path.is_symlink()
        is_done = path.name in validated or path.name != str(epochs - 1)
        if is_checkpoint and not (path.name.isdecimal() and is_done and _is_whole(path)):
            remove(path)
    for link in folder.glob("*"):
        if link.is_symlink() and not link.exists():
            remove(link)
    return max(
        (int(path.name) + 1 for path in folder.iterdir() if path.name.isdecimal()), default=0
    )


def _validations(folder: Path) -> dict[int, dict[str, float]]:
    """Return the validation metrics of each epoch; of an epoch that was repeated, the last."""
    lines = (line for line, _ in _new_lines(folder / METRICS, 0))
    return {line["epoch"]: line["val"] for line in lines if "val" in line}


def _drop_cut_line(metrics: Path) -> None:
    """Take off a last line that a kill cut short, so that what follows starts a line."""
    if metrics.exists():
        whole = metrics.read_bytes().rpartition(b"\n")
        with metrics.open("r+b") as file:
            file.truncate(len(whole[0]) + len(whole[1]))


def _is_whole(checkpoint: Path) -> bool:
    try:
        return bool(read_json(checkpoint / "training_state.json")["global_step"])
    except (OSError, ValueError, KeyError):
        return False


def _run_trainer(
    settings: TrainSettings,
    folder: Path,
    log: Path,
    advance: Callable[[int, int], None],
    states: _States,
) -> None:
    command = [sys.executable]
    if settings.gpus > 1:
        command += ["-m", "torch.distributed.run", "--standalone"]
        command += ["--nproc_per_node", str(settings.gpus)]
    metrics = folder / METRICS
    command += [str(LAUNCHER), str(folder / "trainer.yaml"), str(metrics)]
    seen = metrics.stat().st_size if metrics.exists() else 0
    steps_per_epoch = 0
    watch = TrainingWatch(WatchLimits())
    environment = {}
    if settings.gpus:
        gpus = job_gpus(states.gpus + settings.gpus)[states.gpus :]
        environment["CUDA_VISIBLE_DEVICES"] = ",".join(gpus)
    with guarded_process(command, log, environment) as process:
        is_running = True
        while is_running:
            time.sleep(0.5)
            is_running = process.poll() is None  # before the last look at what it wrote
            states.check()
            for line, end in _new_lines(metrics, seen):
                seen = end
                watch.look(line)
                steps_per_epoch = line.get("steps_per_epoch", steps_per_epoch)
                if "train" in line:
                    advance(line["global_step"] + 1, steps_per_epoch * settings.epochs)
    if process.returncode:
        raise TrainingError(f"the trainer ended with exit code {process.returncode}; see {log}")


def _new_lines(path: Path, start: int) -> Iterator[tuple[dict[str, Any], int]]:
    """Yield the lines written since byte `start`, each with the byte after it."""
    if not path.exists():
        return
    with path.open("rb") as file:
        file.seek(start)
        for line in file:
            if not line.endswith(b"\n"):
                return
            start += len(line)
            yield json.loads(line), start


def _require_all_epochs(epochs: int, folder: Path, log: Path) -> None:
    """Count the epochs, for the trainer ends without an error when it is interrupted."""
    done = _drop_incomplete_checkpoints(folder, epochs)
    if done < epochs:
        raise TrainingError(
            f"interrupted after epoch {done} of {epochs}; the same command goes on from there "
            f"(log: {log})"
        )
