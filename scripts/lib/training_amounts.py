"""How much a training reads, computes and writes: tokens, steps, bytes and hours."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lib.model_sizes import DrafterSize, TargetSize
from lib.row_counts import SPLITS, longest_row
from lib.train_settings import TrainerSettings, TrainSettings
from lib.training_memory import Step, optimizer_numbers

_FULL, _HALF = 4, 2
"""Bytes of a number in a checkpoint, and in a batch on its way to a GPU."""

_BATCHES_AHEAD = 4
"""Batches that each loader of speculators' trainer makes in advance."""


@dataclass(frozen=True)
class Rows:
    """The token rows of a run, counted or expected.

    Attributes:
        tokens: those of the rows to train on.
        validation_tokens: those of the rows to validate on.
        supervised_share: share of supervised tokens.
        longest: tokens of the longest row.
        origin: where the numbers come from, for people.
    """

    tokens: int
    validation_tokens: int
    supervised_share: float
    longest: int
    origin: str


@dataclass(frozen=True)
class Amounts:
    """What a training amounts to.

    Attributes:
        step_tokens: tokens of a step, at most, in all processes.
        epoch_steps: steps of an epoch, at least.
        sequence_supervised: supervised tokens of a full sequence.
        anchored_share: share of them that a block starts from, in one epoch; 1 without blocks.
        reached_share: the same after all epochs, for anchors are chosen anew in each.
        state_size: bytes of a token's hidden states.
        states_size: bytes of those of all rows.
        batches_size: bytes of the batches that the loaders of a node hold in advance.
        checkpoint_size: bytes of a checkpoint.
        checkpoints: how many there are at most, one being written.
    """

    step_tokens: int
    epoch_steps: int
    sequence_supervised: float
    anchored_share: float
    reached_share: float
    state_size: int
    states_size: int
    batches_size: int
    checkpoint_size: int
    checkpoints: int


@dataclass(frozen=True)
class Rates:
    """How fast server and trainer are, in tokens a second, all GPUs together; None if unknown."""

    server: float | None
    trainer: float | None


def counted_rows(stats: Mapping[str, Any]) -> Rows:
    """Return the rows that `tokenized/stats.json` counts."""
    train, validation = (
        sum(source[side]["tokens"] for source in stats["sources"].values() if side in source)
        for side in SPLITS
    )
    share = stats["supervised_tokens"] / stats["tokens"]
    return Rows(train, validation, share, longest_row(stats), "counted in tokenized/stats.json")


def expected_rows(
    conversations: int, tokens: float, supervised: float, validation: float, longest: int
) -> Rows:
    """Return the rows to expect.

    Args:
        tokens: expected of a conversation.
        supervised: expected share of supervised tokens.
        validation: share of the conversations to validate on.
        longest: tokens of a row at most.
    """
    every = conversations * tokens
    origin = f"expected: {conversations:,} conversations x {tokens:,.0f}"
    return Rows(
        round(every * (1 - validation)), round(every * validation), supervised, longest, origin
    )


def amounts(
    settings: TrainSettings,
    running: TrainerSettings,
    rows: Rows,
    drafter: DrafterSize,
    hidden_size: int,
    number_size: int,
) -> Amounts:
    """Return what a training of these rows amounts to.

    Args:
        hidden_size: width of the target's hidden states.
        number_size: bytes of a number of them, as they are stored or sent.
    """
    processes = max(1, settings.gpus) * settings.nodes
    step_tokens = settings.sequence_length * processes
    supervised = settings.sequence_length * rows.supervised_share
    anchored = min(1.0, settings.anchors / supervised) if settings.block_size else 1.0
    numbers = (len(settings.target_layer_ids) + 1) * hidden_size
    ahead = running.data_workers * _BATCHES_AHEAD * settings.gpus
    return Amounts(
        step_tokens=step_tokens,
        epoch_steps=math.ceil(rows.tokens / step_tokens),
        sequence_supervised=supervised,
        anchored_share=anchored,
        reached_share=1 - (1 - anchored) ** settings.epochs,
        state_size=numbers * number_size,
        states_size=(rows.tokens + rows.validation_tokens) * numbers * number_size,
        batches_size=ahead * settings.sequence_length * numbers * _HALF,
        checkpoint_size=checkpoint_size(settings, drafter),
        checkpoints=running.keep_checkpoints + 2,
    )


def checkpoint_size(settings: TrainSettings, drafter: DrafterSize) -> int:
    """Return the bytes of a checkpoint: drafter and optimizer, every number in float32."""
    return (drafter.saved + optimizer_numbers(settings, drafter)) * _FULL


def server_rate(target: TargetSize, flops: float, gpus: int) -> float:
    """Return the tokens a second that a server reads.

    Args:
        flops: floating-point operations a second that a GPU does.
    """
    return gpus * flops / (2 * (target.parameters - target.head_parameters))


def trainer_rate(
    settings: TrainSettings,
    running: TrainerSettings,
    drafter: DrafterSize,
    step: Step,
    flops: float,
) -> float:
    """Return the tokens a second that all processes of a trainer read.

    A parameter takes two operations for a number forward and four backward; a frozen head needs
    no gradient of its own, and the target's head goes forward only.

    Args:
        flops: floating-point operations a second that a GPU does.
    """
    forward = 2 if running.gradient_checkpointing else 1
    layers = step.queries * drafter.layers * (2 * forward + 4)
    head = drafter.vocabulary * drafter.hidden_size
    heads = step.queries * head * 4 + min(step.queries, step.tokens) * head * 2
    keys = 2 * drafter.hidden_size * drafter.key_width * settings.layers
    context = step.tokens * (drafter.trained - drafter.layers + keys) * 6
    seconds = (layers + heads + context) / flops
    return settings.gpus * settings.nodes * step.tokens / seconds


def states_hours(settings: TrainSettings, rows: Rows, rates: Rates) -> float | None:
    """Return the hours that a server takes for hidden states that are stored.

    Returns:
        None if none are stored, or if its rate is not known.
    """
    if settings.hidden_states == "online" or rates.server is None:
        return None
    return (rows.tokens + rows.validation_tokens) / rates.server / 3600


def training_hours(settings: TrainSettings, rows: Rows, rates: Rates) -> float | None:
    """Return the hours that a training takes, validation included.

    Where a server gives hidden states on the way, the slower of both decides.

    Returns:
        None if a rate is not known.
    """
    needed = [rates.trainer] + ([rates.server] if settings.hidden_states == "online" else [])
    known = [rate for rate in needed if rate is not None]
    if len(known) < len(needed):
        return None
    return (rows.tokens + rows.validation_tokens) * settings.epochs / min(known) / 3600
