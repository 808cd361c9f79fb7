"""The curves of a training: joined over its interruptions, thinned out, and drawn."""

import math
from array import array
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from matplotlib import rc, rc_context, rcdefaults
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, StrMethodFormatter

from lib.files import atomic_path
from lib.metrics_file import new_lines

LABELS = {
    "loss": "loss",
    "acceptance_length": "acceptance length (tokens)",
    "learning_rate": "learning rate",
    "tokens_per_second": "tokens per second\n(one process)",
}
"""What is known of a step, and how its axis is called."""

_LOWEST = {"acceptance_length": 1, "learning_rate": 0, "tokens_per_second": 0}
"""Where an axis begins; a loss is of any size."""

_DRAWN_POINTS = 400
_BLUE, _VERMILION, _GREY = "#0072B2", "#D55E00", "#6B6B6B"
"""Colours that people see apart whatever their colour vision."""


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


def draw_curves(curves: Curves, path: Path, block_size: int | None) -> None:
    """Draw an SVG with one panel for each thing that is known; the same bytes for the same curves.

    Args:
        block_size: tokens of a block, which a line marks above the acceptance length; None if
            the drafter does not draft in blocks.

    Raises:
        ValueError: there is nothing to draw.
    """
    points = curves.points(_DRAWN_POINTS)
    names = [name for name in LABELS if any(name in point for point in points)]
    if not names:
        raise ValueError(f"{path}: the trainer logged no step that could be drawn")
    with rc_context():
        rcdefaults()  # whatever the user's own style is
        rc("svg", fonttype="none", hashsalt="training curves")
        figure = Figure(figsize=(8, 0.6 + 2 * len(names)), layout="constrained")
        panels = figure.subplots(len(names), sharex=True, squeeze=False)[:, 0]
        for name, axes in zip(names, panels, strict=True):
            _draw_epochs(axes, curves)
            _draw_steps(axes, [(point["step"], point.get(name)) for point in points])
            if name == "loss":
                _draw_validations(axes, [(known.step, known.loss) for known in curves.validations])
            if name == "acceptance_length":
                _draw_validations(
                    axes, [(known.step, known.acceptance_length) for known in curves.validations]
                )
                _draw_block_size(axes, block_size)
            _finish_axes(axes, name)
        panels[0].legend(frameon=False)
        panels[-1].set_xlabel("step (a vertical line begins an epoch)")
        with atomic_path(path) as partial:
            figure.savefig(partial, format="svg", metadata={"Date": None})


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
                _accuracy_by_position(metrics),
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


def _accuracy_by_position(metrics: Mapping[str, float]) -> tuple[float, ...]:
    found = {
        int(name.removeprefix("position_").removesuffix("_acc_epoch")): value
        for name, value in metrics.items()
        if name.startswith("position_") and name.endswith("_acc_epoch")
    }
    return tuple(found[position] for position in sorted(found))


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _draw_epochs(axes: Axes, curves: Curves) -> None:
    for epoch in range(curves.epochs[0] + 1, curves.epochs[-1] + 1):
        first = curves.steps[bisect_left(curves.epochs, epoch)]
        axes.axvline(first - 0.5, color=_GREY, linewidth=0.6, alpha=0.4)


def _draw_steps(axes: Axes, points: Sequence[tuple[float, float | None]]) -> None:
    known = [(step, value) for step, value in points if value is not None]
    steps, values = zip(*known, strict=True)
    marker = "." if len(known) == 1 else ""  # a line of one point is not seen
    axes.plot(steps, values, color=_BLUE, linewidth=1.3, marker=marker, label="training")


def _draw_validations(axes: Axes, points: Sequence[tuple[int, float | None]]) -> None:
    known = [(step, value) for step, value in points if value is not None]
    if known:
        steps, values = zip(*known, strict=True)
        axes.plot(
            *(steps, values),
            color=_VERMILION,
            linestyle="",
            marker="o",
            markersize=5,
            markeredgecolor="white",
            label="validation",
        )


def _draw_block_size(axes: Axes, block_size: int | None) -> None:
    if block_size is not None:
        axes.axhline(block_size, color=_GREY, linestyle="--", linewidth=1)
        axes.text(
            *(0.995, block_size, f"block size {block_size}"),
            transform=axes.get_yaxis_transform(),
            horizontalalignment="right",
            verticalalignment="bottom",
        )
        axes.margins(y=0.15)


def _finish_axes(axes: Axes, name: str) -> None:
    axes.set_ylabel(LABELS[name])
    if name in _LOWEST:
        axes.update_datalim([(axes.dataLim.x1, _LOWEST[name])])
        axes.autoscale_view()
        axes.set_ylim(bottom=_LOWEST[name])
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:,g}"))
    axes.spines[["top", "right"]].set_visible(False)
    axes.margins(x=0.01)
