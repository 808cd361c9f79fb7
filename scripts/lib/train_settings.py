"""What decides the drafter, and what only decides how the trainer runs."""

from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from lib.arrow_rows import read_columns
from lib.special_ids import read_special_ids
from lib.states_transfer import Mooncake
from lib.target_facts import read_facts
from lib.training_watch import WatchLimits


@dataclass(frozen=True)
class TrainSettings:
    """What decides the drafter; config/README.md says what the keys mean.

    Attributes:
        block_size: None if the algorithm does not draft in blocks; so are `mask_token` and
            `position_weights`.
        hidden_states: where hidden states come from, `offline` or `online`.
        transfer: how they come from a server.
        options: further options of speculators' trainer, by its groups.
    """

    algorithm: str
    layers: int
    block_size: int | None
    target_layer_ids: list[int]
    epochs: int
    learning_rate: float
    optimizer: str
    sequence_length: int
    anchors: int
    sliding_window: int
    mask_token: str | int | None = None
    full_attention_layers: list[int] = field(default_factory=list)
    draft_vocabulary: int | None = None
    loss: str | dict[str, float] = "ce"
    position_weights: str | None = "dpace"
    schedule: str = "linear"
    warmup_share: float = 0.01
    weight_decay: float = 0.01
    options: dict[str, dict[str, Any]] = field(default_factory=dict)
    seed: int = 0
    gpus: int = 0
    nodes: int = 1
    hidden_states: str = "offline"
    transfer: str = "file"
    trust_remote_code: bool = False


@dataclass(frozen=True)
class TrainerSettings:
    """How the trainer runs, which decides nothing; config/README.md says what the keys mean."""

    checkpoints_per_epoch: int = 1
    keep_checkpoints: int = 2
    data_workers: int = 8
    shard_parameters: bool = False
    gradient_checkpointing: bool = False
    log_every: int = 1
    loggers: tuple[str, ...] = ()
    watch: WatchLimits = field(default_factory=WatchLimits)
    mooncake: Mooncake = field(default_factory=Mooncake)


def check_target_layers(settings: TrainSettings, target: Path) -> None:
    """Raise `ValueError` if the target has no such layers."""
    layers = read_facts(target).layers
    if max(settings.target_layer_ids) >= layers:
        raise ValueError(
            f"train.target_layer_ids: {settings.target_layer_ids} must be below {layers}, the "
            "number of layers of the target"
        )


def check_loggers(running: TrainerSettings) -> None:
    """Raise `ValueError` if the package of a logger is not installed."""
    for name in running.loggers:
        if find_spec(name) is None:
            raise ValueError(
                f"trainer.loggers: the package {name} is not installed; add it to "
                "envs/training.yaml, or install it where Draftmill runs"
            )


def resolve_mask_token(settings: TrainSettings, target: Path, tokenized: Path) -> int | None:
    """Return the id of the mask token; None if the algorithm has none.

    Raises:
        ValueError: it does not exist, ends a turn or pads, or occurs in the data.
    """
    token = settings.mask_token
    if token is None:
        return None
    ids = read_special_ids(target, settings.trust_remote_code)
    vocabulary = read_facts(target).vocabulary
    number = ids.id_of(token) if isinstance(token, str) else token
    if number is None:
        raise ValueError(f"train.mask_token: {token!r} is no token of the target")
    if not 0 <= number < vocabulary:
        raise ValueError(f"train.mask_token: {number} is not below the vocabulary, {vocabulary}")
    if number in ids.ends:
        raise ValueError(f"train.mask_token: {token!r} ends a turn or is padding")
    if any((columns.ids == number).any() for columns in read_columns(tokenized)):
        raise ValueError(f"train.mask_token: {token!r} occurs in the data")
    return number
