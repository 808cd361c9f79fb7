"""Figures as parts of a page: they take its font and its colours, bright or dark."""

import re
from html import escape

from lib.figure_style import BLUE, GREEN, GREY, INK, LINE, PAPER, SKY, VERMILION

_VARIABLES = {
    INK: "ink",
    GREY: "muted",
    LINE: "line",
    PAPER: "paper",
    BLUE: "blue",
    SKY: "sky",
    GREEN: "green",
    VERMILION: "vermilion",
}
"""Names of the page's colours, for those that figures are drawn in."""

_FONT = re.compile(r"""(?<=px |y: )'[^;"]*""")
_NUMBERED = re.compile(r' id="[A-Za-z0-9.]+_\d+"')


def inline_svg(svg: str, label: str) -> str:
    """Return the SVG of a figure as it stands inside a page.

    Args:
        svg: what `figure_svg` returned, or `write_figure` wrote.
        label: what it shows, for those who cannot see it.
    """
    drawing = svg[svg.index("<svg") :].strip()
    head, rest = drawing.split(">", 1)
    head = re.sub(r' (?:width|height|version|xmlns:xlink)="[^"]*"', "", head)
    head += f' role="img" aria-label="{escape(label)}"'
    rest = re.sub(r"<metadata>.*?</metadata>", "", rest, flags=re.DOTALL)
    rest = _NUMBERED.sub("", rest).replace("xlink:href", "href")
    rest = _FONT.sub("inherit", rest)
    for colour, name in _VARIABLES.items():
        rest = rest.replace(colour, f"var(--{name})")
    return f"{head}>{rest}"
