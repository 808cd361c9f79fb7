"""The curves of a training: joined over its interruptions, and thinned out."""

import math
from array import array
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from lib.metrics_file import new_lines

LABELS = {
    "loss": "loss",
    "acceptance_length": "acceptance length (tokens)",
    "learning_rate": "learning rate",
    "tokens_per_second": "tokens per second\n(one process)",
}
"""What is known of a step, and how its axis is called."""


@dataclass(frozen=True)
class Validation:
    """What the validation rows said after an epoch.

    Attributes:
        epoch: number of the epoch, from 1.
        step: number of the last step before it, as the trainer counts, from 0.
        loss: mean loss; None if the trainer gave none.
        acceptance_length: mean tokens of a block that the target would take, with its own next
            one; None if the trainer gave none.
        accuracy_by_position: share of right tokens at each position of a block, in its order;
            empty if the trainer gave none.
    """

    epoch: int
    step: int
    loss: float | None
    acceptance_length: float | None
    accuracy_by_position: tuple[float, ...]


@dataclass(frozen=True)
class Curves:
    """A training without the steps that an interruption undid: each step once, in order.

    Attributes:
        steps: numbers of the steps, as the trainer counts, from 0.
        epochs: the epoch of each step, from 1.
        values: what is known of each step, by the names of `LABELS`; NaN where it is not known.
            The loss and the acceptance length (tokens) are those of the step's own rows. Of
            several optimizers it is the learning rate of AdamW, which `train.learning_rate` sets.
            Tokens per second are those of the first of the trainer's processes.
        validations: in the order of their epochs.
    """

    steps: Sequence[int]
    epochs: Sequence[int]
    values: Mapping[str, Sequence[float]]
    validations: Sequence[Validation]

    def points(self, most: int = 1000) -> list[dict[str, float]]:
        """Return at most `most` points, each for a stretch of steps of equal length.

        Returns:
            `step` and `epoch` of the last step of the stretch, and the means of what is known of
            its steps, by the names of `LABELS`; a name is left out where nothing is known.
        """
        total = len(self.steps)
        count = min(most, total)
        bounds = (slice(n * total // count, (n + 1) * total // count) for n in range(count))
        return [self._point(stretch) for stretch in bounds]

    def _point(self, stretch: slice) -> dict[str, float]:
        known = {
            name: [value for value in values[stretch] if math.isfinite(value)]
            for name, values in self.values.items()
        }
        return {
            "step": self.steps[stretch.stop - 1],
            "epoch": self.epochs[stretch.stop - 1],
            **{name: fmean(values) for name, values in known.items() if values},
        }


def read_curves(metrics: Path) -> Curves:
    """Read the trainer's metrics file; a last line that a kill cut short is ignored.

    Where the number of a step is not above the one before, an interrupted training went on from
    a checkpoint: what was known from that step on is forgotten.

    Raises:
        ValueError: a line is not JSON.
    """
    joined = _Joined()
    for line, _ in new_lines(metrics):
        if "train" in line:
            joined.add_step(line)
        if "val" in line:
            joined.add_validation(line["epoch"] + 1, line["val"])
    return joined.curves()


class _Joined:
    """Steps and validations as they come, without those that were undone."""

    def __init__(self) -> None:
        self._steps = array("q")
        self._epochs = array("q")
        self._values = {name: array("d") for name in LABELS}
        self._validations: list[Validation] = []

    def add_step(self, line: Mapping[str, Any]) -> None:
        """Add a line of the trainer; forget what came from that step on."""
        step = line["global_step"]
        undone = slice(bisect_left(self._steps, step), None)
        del self._steps[undone], self._epochs[undone]
        for values in self._values.values():
            del values[undone]
        while self._validations and self._validations[-1].step >= step:
            self._validations.pop()
        self._steps.append(step)
        self._epochs.append(line["epoch"] + 1)
        for name, value in _values_of_step(line).items():
            self._values[name].append(math.nan if value is None else value)

    def add_validation(self, epoch: int, metrics: Mapping[str, float]) -> None:
        """Add the validation of an epoch (from 1); forget an earlier one of it."""
        while self._validations and self._validations[-1].epoch >= epoch:
            self._validations.pop()
        step = self._steps[-1] if self._steps else 0
        self._validations.append(
            Validation(
                epoch,
                step,
                _finite(metrics.get("loss_epoch")),
                _finite(metrics.get("eal_epoch")) or None,
                accuracy_by_position(metrics),
            )
        )

    def curves(self) -> Curves:
        """Return all that was added and not undone."""
        return Curves(self._steps, self._epochs, self._values, tuple(self._validations))


def _values_of_step(line: Mapping[str, Any]) -> dict[str, float | None]:
    """Return what is known of a step, by the names of `LABELS`."""
    metrics, rates = line["train"], line.get("lr")
    return {
        "loss": metrics.get("loss"),
        "acceptance_length": metrics.get("eal") or None,  # 0: the step had no block to count
        "learning_rate": rates.get("AdamW") if isinstance(rates, Mapping) else rates,
        "tokens_per_second": line.get("profile", {}).get("tokens_per_s"),
    }


def accuracy_by_position(metrics: Mapping[str, float]) -> tuple[float, ...]:
    """Return the share of right tokens at each position of a block, from one validation."""
    found = {
        int(name.removeprefix("position_").removesuffix("_acc_epoch")): value
        for name, value in metrics.items()
        if name.startswith("position_") and name.endswith("_acc_epoch")
    }
    return tuple(found[position] for position in sorted(found))


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
