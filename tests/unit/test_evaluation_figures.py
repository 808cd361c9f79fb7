"""Figures of an evaluation: the same bytes for the same numbers, and words that are right."""

import random
from functools import partial
from xml.etree import ElementTree

import matplotlib
import pytest
from written_run import measured

from lib.evaluation_figures import FIGURES, draw_evaluation
from lib.figure_style import write_figure
from lib.inline_svg import inline_svg

DOMAINS = ("chat", "<code> & $x_{\\frac", "math")


def drawn(folder, name, form="svg", published=None, served=True):
    evaluation = measured(random.Random(0), DOMAINS, served)
    path = folder / f"{name}.{form}"
    write_figure(partial(draw_evaluation, name, evaluation, published), path)
    return path


def words(path):
    root = ElementTree.fromstring(path.read_text())
    return ["".join(node.itertext()) for node in root.iter("{http://www.w3.org/2000/svg}text")]


@pytest.mark.parametrize("form", ["svg", "png"])
@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_has_the_same_bytes_whenever_it_is_drawn(tmp_path, name, form):
    first = drawn(tmp_path, name, form).read_bytes()
    with matplotlib.rc_context({"font.size": 30, "svg.hashsalt": "other", "axes.grid": True}):
        assert drawn(tmp_path, name, form).read_bytes() == first
        assert matplotlib.rcParams["font.size"] == 30
    assert 1000 < len(first) < 200_000
    assert b"date" not in first.lower()


def test_domains_are_compared_with_all_that_was_measured(tmp_path):
    published = measured(random.Random(1), DOMAINS[:2], served=False)
    found = words(drawn(tmp_path, "acceptance_by_domain", published=published))
    assert {*DOMAINS, "all", "without a drafter"} <= set(found)
    assert {"this drafter", "published drafter", "target's own MTP head"} <= set(found)
    evaluation = measured(random.Random(0), DOMAINS, served=True)
    for part in evaluation["domains"].values():
        assert f"{part['acceptance_length']:.2f}" in found


def test_what_was_not_measured_is_not_drawn(tmp_path):
    found = words(drawn(tmp_path, "acceptance_by_domain", served=False))
    assert {"this drafter", "published drafter", "target's own MTP head"}.isdisjoint(found)
    found = words(drawn(tmp_path, "acceptance_by_position", served=False))
    assert "this drafter" in found and "target's own MTP head" not in found


def test_speed_says_how_many_times_faster(tmp_path):
    found = words(drawn(tmp_path, "speed_by_concurrency"))
    assert {"1", "8", "32", "with the drafter", "without a drafter"} <= set(found)
    assert found.count("×1.90") == 3


def test_there_is_no_figure_of_another_name(tmp_path):
    with pytest.raises(ValueError, match="no figure is called other"):
        drawn(tmp_path, "other")
    assert list(tmp_path.iterdir()) == []


def test_inside_a_page_a_figure_takes_its_colours_and_says_what_it_shows(tmp_path):
    svg = drawn(tmp_path, "acceptance_by_domain").read_text()
    inside = inline_svg(svg, 'Tokens a step, "all" & <each>')
    root = ElementTree.fromstring(inside)
    assert root.attrib["aria-label"] == 'Tokens a step, "all" & <each>'
    assert "width" not in root.attrib and "viewBox" in root.attrib
    assert "var(--blue)" in inside and "#0072b2" not in inside
    assert "DejaVu" not in inside and "metadata" not in inside
