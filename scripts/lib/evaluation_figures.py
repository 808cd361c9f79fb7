"""Figures of an evaluation: acceptance by domain and by position, and speed."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from lib.figure_style import BLUE, GREEN, GREY, LINE, PAPER, VERMILION, new_figure

FIGURES = ("acceptance_by_domain", "acceptance_by_position", "speed_by_concurrency")
"""The names of all figures; the last one is drawn only of what was measured in a server."""

Evaluation = Mapping[str, Any]
"""The content of `evaluation.json`."""


@dataclass(frozen=True)
class _Series:
    """One of the ways of answering that are compared.

    Attributes:
        parts: what was measured of all prompts (`all`) and of each domain, by name.
    """

    name: str
    colour: str
    marker: str
    parts: Mapping[str, Mapping[str, Any]]


def draw_evaluation(name: str, evaluation: Evaluation, published: Evaluation | None) -> Figure:
    """Return a figure.

    Args:
        name: one of `FIGURES`.
        published: the evaluation of a published drafter on the same prompts, if there is one.

    Raises:
        ValueError: there is no figure of that name.
    """
    match name:
        case "acceptance_by_domain":
            return _by_domain(evaluation, published)
        case "acceptance_by_position":
            return _by_position(evaluation, published)
        case "speed_by_concurrency":
            return _speed(evaluation)
    raise ValueError(f"no figure is called {name}")


def _by_domain(evaluation: Evaluation, published: Evaluation | None) -> Figure:
    names = [*evaluation["domains"], "all"]
    series = list(_series(evaluation, published))
    figure, (axes,) = new_figure(0.75 + len(names) * (0.16 + 0.14 * len(series)))
    for number, one in enumerate(series):
        aside = (number - (len(series) - 1) / 2) * 0.62 / len(series)
        known = [(place, one.parts[part]) for place, part in enumerate(names) if part in one.parts]
        _draw_lengths(axes, one, [(place + aside, part) for place, part in known])
    axes.axhline(len(names) - 1.5, color=LINE, linewidth=1)
    axes.axvline(1, color=GREY, linestyle="--", linewidth=1)
    axes.text(1.04, -0.72, "without a drafter", fontsize=8, color=GREY, va="center")
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -1)
    axes.margins(x=0.15)
    axes.set_xlim(left=0.9)
    axes.tick_params(left=False)
    axes.spines["left"].set_visible(False)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel(f"tokens a step (at most {evaluation['block_size']})")
    if len(series) > 1:
        figure.legend(*axes.get_legend_handles_labels(), loc="outside upper left", ncols=2)
    return figure


def _draw_lengths(
    axes: Axes, series: _Series, parts: Sequence[tuple[float, Mapping[str, Any]]]
) -> None:
    for place, part in parts:
        axes.plot(
            part["acceptance_length_interval"],
            [place, place],
            color=series.colour,
            alpha=0.45,
            linewidth=3,
            solid_capstyle="round",
        )
        axes.annotate(
            f"{part['acceptance_length']:.2f}",
            (part["acceptance_length_interval"][1], place),
            xytext=(6, 0),
            textcoords="offset points",
            va="center",
            fontsize=8,
        )
    axes.plot(
        [part["acceptance_length"] for _, part in parts],
        [place for place, _ in parts],
        **_marked(series),
        linestyle="",
    )


def _by_position(evaluation: Evaluation, published: Evaluation | None) -> Figure:
    figure, (axes,) = new_figure(2.7)
    label: str | None = "each domain"
    for part in evaluation["domains"].values():
        shares = part["acceptance_by_position"]
        axes.plot(range(1, len(shares) + 1), shares, color=BLUE, alpha=0.3, lw=1, label=label)
        label = None
    for series in _series(evaluation, published):
        shares = series.parts["all"]["acceptance_by_position"]
        axes.plot(range(1, len(shares) + 1), shares, **_marked(series), linewidth=2)
    axes.set_xlabel("position in the drafted block")
    axes.set_ylabel("accepted up to there")
    axes.yaxis.set_major_formatter(PercentFormatter(1, symbol=" %"))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    axes.set_ylim(0, 1.02)
    axes.grid(axis="y", color=LINE, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.legend()
    return figure


def _speed(evaluation: Evaluation) -> Figure:
    entries = evaluation["all"]["speed"]
    figure, (axes,) = new_figure(2.7)
    lines = (
        ("with_drafter", "with the drafter", BLUE, "o"),
        ("mtp", "with the target's own MTP head", GREEN, "s"),
        ("without_drafter", "without a drafter", GREY, "D"),
    )
    for key, name, colour, marker in lines:
        points = [
            (place, entry[key]["output_tokens_per_second"])
            for place, entry in enumerate(entries)
            if entry.get(key)
        ]
        if points:
            places, rates = zip(*points, strict=True)
            axes.plot(places, rates, **_marked(_Series(name, colour, marker, {})), linewidth=2)
    for place, entry in enumerate(entries):
        if entry["ratio"]:
            axes.annotate(
                f"×{entry['ratio']['output_tokens_per_second']:.2f}",
                (place, entry["with_drafter"]["output_tokens_per_second"]),
                xytext=(0, 7),
                textcoords="offset points",
                ha="center",
                fontsize=8,
            )
    axes.set_xticks(range(len(entries)), [str(entry["concurrency"]) for entry in entries])
    axes.set_xlim(-0.4, len(entries) - 0.6)
    axes.set_ylim(bottom=0)
    axes.margins(y=0.18)
    axes.yaxis.set_major_formatter("{x:,.0f}")
    axes.set_xlabel("requests at a time")
    axes.set_ylabel("output tokens a second")
    axes.grid(axis="y", color=LINE, linewidth=0.6)
    axes.set_axisbelow(True)
    figure.legend(*axes.get_legend_handles_labels(), loc="outside upper left", ncols=2)
    return figure


def _series(evaluation: Evaluation, published: Evaluation | None) -> Iterator[_Series]:
    parts = {"all": evaluation["all"], **evaluation["domains"]}
    yield _Series("this drafter", BLUE, "o", parts)
    if published is not None:
        others = {"all": published["all"], **published["domains"]}
        yield _Series("published drafter", VERMILION, "^", others)
    heads = {name: part["mtp"] for name, part in parts.items() if part.get("mtp")}
    if "all" in heads:
        yield _Series("target's own MTP head", GREEN, "s", heads)


def _marked(series: _Series) -> dict[str, Any]:
    return {
        "color": series.colour,
        "marker": series.marker,
        "markersize": 6,
        "markeredgecolor": PAPER,
        "label": series.name,
    }
