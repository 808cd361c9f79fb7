"""The curves of a training, drawn."""

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, StrMethodFormatter

from lib.figure_style import BLUE, GREY, PAPER, VERMILION, new_figure, write_figure
from lib.training_curves import LABELS, Curves, Validation, accuracy_by_position

_LOWEST = {"acceptance_length": 1, "learning_rate": 0, "tokens_per_second": 0}
"""Where an axis begins; a loss is of any size."""

_VALIDATED = ("loss", "acceptance_length")
"""What validations say too."""

_DRAWN_POINTS = 400


def curves_of(training: Mapping[str, Any]) -> Curves:
    """Return the curves that `train.json` holds."""
    points = training["steps"]
    epochs = [point["epoch"] for point in points]
    values = {name: [point.get(name, math.nan) for point in points] for name in LABELS}
    steps = [point["step"] for point in points]
    last = dict(zip(epochs, steps, strict=True))
    validations = tuple(
        Validation(
            *(epoch, last[epoch], found.get("loss_epoch"), found.get("eal_epoch") or None),
            accuracy_by_position(found),
        )
        for epoch, found in enumerate(training["validation_by_epoch"], start=1)
        if epoch in last
    )
    return Curves(steps, epochs, values, validations)


def draw_curves(curves: Curves, path: Path, block_size: int | None) -> None:
    """Draw an SVG with one panel for each thing that is known; the same bytes for the same curves.

    Args:
        block_size: tokens of a block, which a line marks above the acceptance length; None if
            the drafter does not draft in blocks.

    Raises:
        ValueError: there is nothing to draw.
    """
    names = known_names(curves)
    if not names:
        raise ValueError(f"{path}: the trainer logged no step that could be drawn")
    write_figure(lambda: curves_figure(curves, names, block_size), path)


def known_names(curves: Curves) -> list[str]:
    """Return the names of `LABELS` that something is known of, in their order."""
    points = curves.points(_DRAWN_POINTS)
    return [name for name in LABELS if any(name in point for point in points)]


def curves_figure(curves: Curves, names: Sequence[str], block_size: int | None) -> Figure:
    """Return a figure with a panel for each name; the arguments are as above."""
    points = curves.points(_DRAWN_POINTS)
    figure, panels = new_figure(0.4 + 1.7 * len(names), len(names))
    for name, axes in zip(names, panels, strict=True):
        _draw_epochs(axes, curves)
        _draw_steps(axes, [(point["step"], point.get(name)) for point in points])
        if name in _VALIDATED:
            _draw_validations(
                axes, [(known.step, getattr(known, name)) for known in curves.validations]
            )
        if name == "acceptance_length":
            _draw_block_size(axes, block_size)
        _finish_axes(axes, name)
    if names[0] in _VALIDATED:
        panels[0].legend()
    panels[-1].set_xlabel("step (a vertical line begins an epoch)")
    return figure


def _draw_epochs(axes: Axes, curves: Curves) -> None:
    for epoch in range(curves.epochs[0] + 1, curves.epochs[-1] + 1):
        first = curves.steps[bisect_left(curves.epochs, epoch)]
        axes.axvline(first - 0.5, color=GREY, linewidth=0.6, alpha=0.4)


def _draw_steps(axes: Axes, points: Sequence[tuple[float, float | None]]) -> None:
    known = [(step, value) for step, value in points if value is not None]
    steps, values = zip(*known, strict=True)
    marker = "." if len(known) == 1 else ""  # a line of one point is not seen
    axes.plot(steps, values, color=BLUE, linewidth=1.3, marker=marker, label="training")


def _draw_validations(axes: Axes, points: Sequence[tuple[int, float | None]]) -> None:
    known = [(step, value) for step, value in points if value is not None]
    if known:
        steps, values = zip(*known, strict=True)
        axes.plot(
            *(steps, values),
            color=VERMILION,
            linestyle="",
            marker="o",
            markersize=5,
            markeredgecolor=PAPER,
            label="validation",
        )


def _draw_block_size(axes: Axes, block_size: int | None) -> None:
    if block_size is not None:
        axes.axhline(block_size, color=GREY, linestyle="--", linewidth=1)
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
    axes.margins(x=0.01)
