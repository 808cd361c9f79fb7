"""The journey of the data as a flow from top to bottom; what is lost leaves to the right."""

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import PathPatch, Rectangle
from matplotlib.path import Path as Outline

from lib.data_journey import FIRST_UNIT, Journey, Part, Step
from lib.figure_style import BLUE, GREEN, GREY, INK, VERMILION, WIDTH

_POINTS = 72
_TRUNK = 106.0
"""Points that the widest part of the flow takes."""

_LABELS = 132.0
_BAR, _LINE, _HEAD, _GAP = 5.0, 13.0, 30.0, 26.0
_MOST_OF_A_KIND = 3

_CURVE = [Outline.CURVE4] * 3
_TWO_CURVES = [Outline.MOVETO, *_CURVE, Outline.LINETO, *_CURVE]


def journey_figure(journey: Journey) -> Figure:
    """Return the flow of a journey; widths are numbers of what is counted at each place."""
    widest = max(step.arrives + step.amount_joined for step in journey)
    tops = [0.0]
    for step in journey:
        tops.append(tops[-1] + _height(len(_shown(step.lost)) + len(step.joined)))
    height = tops[-1] + _BAR + 4
    width = WIDTH * _POINTS
    figure = Figure(figsize=(WIDTH, (height + 26) / _POINTS))
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_axis_off()
    axes.set_xlim(-2, width - 2)
    axes.set_ylim(height, -26)
    amounts = [part.amount for step in journey for part in (*_shown(step.lost), *step.joined)]
    digits = len(f"{max(amounts, default=0):,}")
    flow = _Flow(axes, _TRUNK / max(widest, 1), _LABELS + 13 + 6.2 * digits)
    unit = FIRST_UNIT
    for step, top, bottom in zip(journey, tops[:-1], tops[1:], strict=True):
        flow.node(step.arrives, unit, top)
        unit = step.unit
        flow.step(step, top + _BAR, bottom)
    flow.node(journey[-1].goes_on, unit, tops[-1])
    return figure


def _height(labels: int) -> float:
    return _HEAD + max(2, labels) * _LINE + _GAP


class _Flow:
    """Draws onto axes whose unit is a point; y goes down."""

    def __init__(self, axes: Axes, scale: float, reasons: float) -> None:
        self._axes = axes
        self._scale = scale
        self._reasons = reasons

    def node(self, amount: int, unit: str, top: float) -> None:
        """Draw a bar, with what it holds written above it."""
        width = max(amount * self._scale, 1.0)
        self._axes.add_patch(Rectangle((0, top), width, _BAR, color=BLUE, linewidth=0))
        self._axes.text(0, top - 5, f"{amount:,}", color=INK, fontsize=12, weight="bold")
        self._axes.text(_LABELS, top - 5, unit, color=INK, fontsize=10, weight="bold")

    def step(self, step: Step, top: float, bottom: float) -> None:
        """Draw what leaves a bar and what joins, down to the next bar."""
        stays = max(0, step.arrives - step.amount_lost)
        self._ribbon((0, top), (0, bottom), stays)
        y = top + _HEAD - 8
        # The rightmost part leaves at the topmost label, so that none crosses another.
        places = (
            (_shown(step.lost), step.arrives, top, "−"),
            (step.joined, step.goes_on, bottom, "+"),
        )
        for parts, place, end, sign in places:
            for part in parts:
                colour = GREEN if sign == "+" else GREY if part.is_choice else VERMILION
                place -= part.amount
                self._bend(max(place, 0) * self._scale, end, y, part.amount * self._scale, colour)
                self._label(f"{sign}{part.amount:,}", part.reason, y, colour)
                y += _LINE

    def _ribbon(self, start: tuple[float, float], end: tuple[float, float], amount: int) -> None:
        (x, y), (end_x, end_y) = start, end
        width, middle = amount * self._scale, (y + end_y) / 2
        points = [
            *((x, y), (x, middle), (end_x, middle), (end_x, end_y)),
            *((end_x + width, end_y), (end_x + width, middle), (x + width, middle), (x + width, y)),
        ]
        self._fill(points, BLUE, 0.3)

    def _bend(self, x: float, end: float, y: float, width: float, colour: str) -> None:
        """Draw what is `width` wide at `x` and `end`, and at `y` where its label stands."""
        width = max(width, 0.8)
        right, thick = _LABELS - 7, min(width, _LINE - 3) * (1 if end < y else -1)
        points = [
            *((x, end), (x, y + thick / 2), (x + width, y + thick / 2), (right, y + thick / 2)),
            (right, y - thick / 2),
            *((x + width, y - thick / 2), (x + width, y - thick / 2), (x + width, end)),
        ]
        self._fill(points, colour, 0.55)

    def _fill(self, points: Sequence[tuple[float, float]], colour: str, alpha: float) -> None:
        outline = Outline(points, _TWO_CURVES)
        self._axes.add_patch(PathPatch(outline, facecolor=colour, alpha=alpha, linewidth=0))

    def _label(self, amount: str, reason: str, y: float, colour: str) -> None:
        self._axes.text(_LABELS, y, amount, color=colour, fontsize=9, va="center", weight="bold")
        words = reason.replace("_", " ")
        self._axes.text(self._reasons, y, words, color=INK, fontsize=9, va="center")


def _shown(parts: Sequence[Part]) -> list[Part]:
    """Return the greatest parts of both kinds, and the rest of each as one."""
    shown: list[Part] = []
    for is_choice in (True, False):
        kind = [part for part in parts if part.is_choice == is_choice]
        rest = kind[_MOST_OF_A_KIND:]
        shown += kind if len(rest) < 2 else kind[:_MOST_OF_A_KIND]
        if len(rest) > 1:
            amount = sum(part.amount for part in rest)
            shown.append(Part(f"{len(rest)} other reasons", amount, "", is_choice))
    return shown
