"""Figures that are drawn only for the report."""

from collections.abc import Mapping
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter, StrMethodFormatter

from lib.figure_style import BLUE, LINE, new_figure

HISTOGRAMS = {
    "tokens": "tokens of a row",
    "supervised_share": "share of its tokens that is supervised",
    "turns": "supervised turns of a row",
}
"""The histograms of `tokenized/stats.json`, and what each is of."""


def histogram_figure(histograms: Mapping[str, Any], name: str) -> Figure:
    """Return the figure of one of `HISTOGRAMS`."""
    width, counts = histograms[name]["width"], histograms[name]["counts"]
    is_number = name == "turns"  # a bar stands at its number, not between two limits
    figure, (axes,) = new_figure(2.1)
    axes.bar(
        [(place + (1 if is_number else 0.5)) * width for place in range(len(counts))],
        counts,
        width=width * (0.8 if is_number else 0.94),
        color=BLUE,
        linewidth=0,
    )
    axes.set_xlabel(HISTOGRAMS[name])
    axes.set_ylabel("rows")
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    axes.yaxis.set_major_locator(MaxNLocator(5, integer=True))
    axes.grid(axis="y", color=LINE, linewidth=0.6)
    axes.set_axisbelow(True)
    if name == "supervised_share":
        axes.set_xlim(0, 1)
        axes.xaxis.set_major_formatter(PercentFormatter(1, symbol=" %"))
    else:
        axes.set_xlim(left=0)
        axes.xaxis.set_major_locator(MaxNLocator(6, integer=True, min_n_ticks=1))
        axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    if is_number:
        axes.set_xlim(0.4, max(len(counts), 5) + 0.6)
    return figure
