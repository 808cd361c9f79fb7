"""Watches a training by its metrics, and ends one that cannot become a drafter."""

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

_STEPS = 100
"""Steps that shares and rates are taken over."""


class TrainingError(ValueError):
    """The trainer stopped, or was stopped, before the last epoch was done."""


@dataclass(frozen=True)
class WatchLimits:
    """When a training is ended.

    Attributes:
        maximum_missing_share: share of samples without hidden states; the trainer leaves such
            samples out without a word.
        minimum_acceptance_length: on the validation rows, after `epochs_to_learn` epochs; a
            drafter that guesses has 1.
        minimum_speed_share: tokens a second, as a share of the best that this training had.
        unhealthy_seconds: how long the server of hidden states may give no sign of life.
    """

    maximum_missing_share: float = 0.01
    minimum_acceptance_length: float = 1.05
    epochs_to_learn: int = 2
    minimum_speed_share: float = 0.05
    unhealthy_seconds: float = 300.0


class TrainingWatch:
    """Looks at the metrics of a training as they come."""

    def __init__(self, limits: WatchLimits, rows: int):
        """Watch a training on `rows` training rows."""
        self._limits = limits
        self._rows = rows
        self._rows_a_step = 1.0
        self._missing: deque[float] = deque(maxlen=_STEPS)
        self._speeds: deque[float] = deque(maxlen=_STEPS)
        self._best_speed = 0.0
        self._validated: dict[int, float] = {}

    def look(self, line: Mapping[str, Any]) -> None:
        """Look at one line of the trainer's metrics.

        Raises:
            TrainingError: going on makes no sense; says why and what to do.
        """
        if "steps_per_epoch" in line:
            self._rows_a_step = max(1.0, self._rows / line["steps_per_epoch"])
        if "train" in line:
            self._look_at_step(line)
        if "val" in line:
            self._look_at_validation(line["epoch"], line["val"])

    def _look_at_step(self, line: Mapping[str, Any]) -> None:
        step, metrics = line["global_step"], line["train"]
        if not math.isfinite(metrics["loss"]):
            raise TrainingError(
                f"the loss of step {step} is not finite; lower train.learning_rate, "
                "or look for hidden states that are not"
            )
        self._missing.append(metrics.get("error_records", 0.0))
        share = sum(self._missing) / len(self._missing) / self._rows_a_step
        if len(self._missing) == _STEPS and share > self._limits.maximum_missing_share:
            raise TrainingError(
                f"{share:.1%} of the samples of {_STEPS} steps have no hidden states; "
                "delete hidden_states.json and run again"
            )
        self._speeds.append(line.get("profile", {}).get("tokens_per_s", math.inf))
        if len(self._speeds) == _STEPS:
            speed = median(self._speeds)
            self._best_speed = max(self._best_speed, speed)
            if speed < self._limits.minimum_speed_share * self._best_speed:
                raise TrainingError(
                    f"{speed:.0f} tokens a second, where it was {self._best_speed:.0f}: "
                    "look for what else runs on this machine, and run the same command again"
                )

    def _look_at_validation(self, epoch: int, metrics: Mapping[str, float]) -> None:
        if not math.isfinite(metrics["loss_epoch"]):
            raise TrainingError(f"the validation loss of epoch {epoch + 1} is not finite")
        self._validated[epoch] = metrics.get("eal_epoch", math.inf)
        best = max(self._validated.values())
        if (
            len(self._validated) >= self._limits.epochs_to_learn
            and best < self._limits.minimum_acceptance_length
        ):
            raise TrainingError(
                f"after epoch {epoch + 1} the validation acceptance length is {best:.2f}, and "
                "guessing gives 1: look at layers, mask token and learning rate"
            )
