"""How all figures look: one size, one palette, and the same bytes for the same numbers."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path

from matplotlib import rc, rc_context, rcdefaults
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lib.files import atomic_path

INK, GREY, LINE, PAPER = "#1d2b33", "#6b6b6b", "#d9dfe2", "#ffffff"
BLUE, VERMILION, GREEN, SKY = "#0072b2", "#d55e00", "#009e73", "#56b4e9"
"""Colours that people see apart whatever their colour vision."""

WIDTH = 4.2
"""Inches of a figure: its text can still be read when a phone shows it as wide as its screen."""

_DOTS_PER_INCH = 200


def new_figure(height: float, panels: int = 1) -> tuple[Figure, list[Axes]]:
    """Return a figure with panels one below the other, which share what stands below.

    Args:
        height: of the whole figure, in inches.
    """
    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    axes = list(figure.subplots(panels, sharex=True, squeeze=False)[:, 0])
    for one in axes:
        one.spines[["top", "right"]].set_visible(False)
    return figure, axes


def write_figure(draw: Callable[[], Figure], path: Path) -> None:
    """Draw a figure into a file, SVG or PNG by its ending; the same bytes for the same figure."""
    with atomic_path(path) as partial:
        partial.write_bytes(_drawn(draw, path.suffix[1:], path.stem))


def figure_svg(draw: Callable[[], Figure], name: str) -> str:
    """Return a figure as SVG.

    Args:
        name: makes the ids in it others than those of figures with other names.
    """
    return _drawn(draw, "svg", name).decode()


def _drawn(draw: Callable[[], Figure], form: str, name: str) -> bytes:
    buffer = BytesIO()
    metadata = {"Date": None, "Creator": None} if form == "svg" else {"Software": None}
    with _style(name):
        draw().savefig(buffer, format=form, dpi=_DOTS_PER_INCH, metadata=metadata)
    return buffer.getvalue()


@contextmanager
def _style(name: str) -> Iterator[None]:
    with rc_context():
        rcdefaults()  # whatever the user's own style is
        rc("svg", fonttype="none", hashsalt=name)
        rc("font", size=9)
        rc("text", color=INK, parse_math=False)  # names are text, whatever is in them
        rc("axes", edgecolor=GREY, labelcolor=INK, titlesize=9, titlelocation="left")
        rc("xtick", color=GREY, labelcolor=INK)
        rc("ytick", color=GREY, labelcolor=INK)
        rc("legend", frameon=False, fontsize=8)
        yield
