"""The page of a run, opened in a real browser: complete, quiet, readable at any width."""

import io
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browser import CHROMIUM, DESKTOP, PHONE, WITHOUT_CHROMIUM, Opened, browser, opened
from PIL import Image
from written_run import HOSTILE, write_run

from lib.files import read_json, write_json
from lib.report import write_report

TEMPLATES = Path(__file__).parents[2] / "resources/report"
SECTIONS = {
    *("verdict", "acceptance", "journey", "mix", "rows", "overlap", "samples", "training"),
    "provenance",
}
HOSTILE_DOMAIN = "<b>&amp;$x_{ </svg><script>alert(2)</script>"


def written(folder: Path, **values: Any) -> Path:
    """Return the page of a made-up run."""
    settings, files = write_run(folder, **values)
    write_report(settings, {"serving": {"gpus": 1}}, files, TEMPLATES, folder / "report.html")
    return folder / "report.html"


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A page with all that can be measured and hostile text, and one with as little as possible."""
    full, small = (tmp_path_factory.mktemp("run") for _ in range(2))
    domains = ("chat", "code", HOSTILE_DOMAIN)
    return {
        "full": written(full, rows=1_000_000, details=HOSTILE, domains=domains),
        "small": written(small, rows=500, sources=1, regenerated=False, served=False),
    }


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    if CHROMIUM is None:
        pytest.skip(WITHOUT_CHROMIUM)
    with browser() as running:
        yield running


@pytest.fixture(
    scope="module",
    params=[
        ("full", DESKTOP, "light"),
        ("full", DESKTOP, "dark"),
        ("full", PHONE, "light"),
        ("small", PHONE, "dark"),
    ],
    ids=lambda values: "-".join(map(str, values)),
)
def page(request: Any, chromium: Any, pages: dict[str, Path]) -> Iterator[Opened]:
    name, width, scheme = request.param
    with opened(chromium, pages[name], width, scheme) as found:
        yield found


def test_the_browser_has_nothing_to_complain_about(page: Opened) -> None:
    assert page.complaints == []


def test_every_section_is_there_and_has_something_in_it(page: Opened) -> None:
    sizes = page.number(
        "[...document.querySelectorAll('section')].map(s => [s.id, s.innerText.length])"
    )
    assert {name for name, length in sizes if length > 40} == SECTIONS
    links = page.number("[...document.querySelectorAll('nav a')].map(a => a.hash.slice(1))")
    assert set(links) == SECTIONS - {"verdict"}


def test_nothing_is_wider_than_the_window(page: Opened) -> None:
    assert page.number("document.documentElement.scrollWidth - innerWidth") == 0
    assert page.number("document.body.scrollWidth - innerWidth") == 0


def test_figures_are_drawn_and_each_says_what_it_shows(page: Opened) -> None:
    boxes = page.number(
        "[...document.querySelectorAll('figure svg')].map(s => [s.getAttribute('aria-label'),"
        " s.getBoundingClientRect().width, s.getBoundingClientRect().height])"
    )
    assert len(boxes) >= 10
    assert all(label and width > 200 and height > 60 for label, width, height in boxes)


def test_no_id_is_there_twice(page: Opened) -> None:
    ids = page.number("[...document.querySelectorAll('[id]')].map(one => one.id)")
    assert len(ids) == len(set(ids))


def test_every_colour_of_the_figures_is_one_of_the_page(page: Opened) -> None:
    drawings = page.number("[...document.querySelectorAll('svg')].map(s => s.outerHTML).join('')")
    assert not re.search(
        r"#[0-9a-f]{6}\b", re.sub(r'(?:href|id)="[^"]*"|url\([^)]*\)', "", drawings)
    )


def test_a_screenshot_shows_something(page: Opened) -> None:
    picture = Image.open(io.BytesIO(page.page.screenshot()))
    colours = picture.convert("RGB").getcolors(maxcolors=1 << 24)
    assert colours is not None and len(colours) > 100
    assert max(count for count, _ in colours) < 0.97 * picture.width * picture.height


def test_bright_and_dark_follow_the_reader(chromium: Any, pages: dict[str, Path]) -> None:
    grounds = []
    for scheme in ("light", "dark"):
        with opened(chromium, pages["full"], DESKTOP, scheme) as found:
            grounds.append(found.number("getComputedStyle(document.body).backgroundColor"))
            ink = found.number("getComputedStyle(document.querySelector('figure svg text')).fill")
            assert ink == found.number("getComputedStyle(document.body).color")
    light, dark = (sum(map(int, re.findall(r"\d+", ground)[:3])) for ground in grounds)
    assert light > 600 and dark < 150


def test_it_prints(chromium: Any, pages: dict[str, Path]) -> None:
    with opened(chromium, pages["full"], DESKTOP) as found:
        printed = found.page.pdf(prefer_css_page_size=True)
    assert printed.startswith(b"%PDF")
    assert len(re.findall(rb"/Type\s*/Page\b", printed)) > 3


def test_hostile_text_is_text(chromium: Any, pages: dict[str, Path]) -> None:
    with opened(chromium, pages["full"], DESKTOP) as found:
        assert found.number("document.querySelectorAll('script, math').length") == 0
        rows = found.number("[...document.querySelectorAll('pre.row')].map(p => p.textContent)")
        assert len(rows) == 12 and all(HOSTILE in row for row in rows)
        drawn = found.number("[...document.querySelectorAll('svg text')].map(t => t.textContent)")
        assert HOSTILE_DOMAIN in drawn
        words = found.number("document.querySelector('#acceptance table').innerText")
        assert HOSTILE_DOMAIN in words


def test_it_reaches_for_nothing_outside_and_is_small(pages: dict[str, Path]) -> None:
    for path in pages.values():
        page = path.read_text(encoding="utf-8")
        assert not re.search(
            r"<(?:script|iframe|object|embed|link)\b[^>]*(?:src|href)=\"(?!data:,)", page
        )
        assert not re.search(r"""(?:src|href)=["'](?:https?:)?//""", page)
        assert "@import" not in page and not re.search(r"url\((?!#)", page)
        assert len(page) < 1_000_000


def test_the_same_run_gives_the_same_page(pages: dict[str, Path], tmp_path: Path) -> None:
    again = written(tmp_path, rows=500, sources=1, regenerated=False, served=False)
    assert again.read_bytes() == pages["small"].read_bytes()


def test_what_was_not_measured_is_said(pages: dict[str, Path]) -> None:
    page = pages["small"].read_text()
    assert "That was simulated; how much faster a server answers was not measured." in page
    assert page.count("not known") >= 3
    assert "Against the published drafter" not in page
    assert "Answering" not in page


def test_what_was_measured_is_shown(pages: dict[str, Path]) -> None:
    page = pages["full"].read_text()
    evaluation = read_json(pages["full"].with_name("evaluation.json"))
    assert f"{evaluation['all']['acceptance_length']:.2f} tokens a step" in page
    for entry in evaluation["all"]["speed"]:
        assert f"<b>{entry['ratio']['output_tokens_per_second']:.2f}</b>" in page
    for heading in ("Against the published drafter", "With thinking on", "Answers that differ"):
        assert heading in page
    assert "12,345 characters are not shown" in page
    assert "1 min 02 s" in page or "1 min 01 s" in page


def test_counts_that_do_not_go_together_are_refused(tmp_path: Path) -> None:
    settings, files = write_run(tmp_path, rows=500, served=False)
    merged = read_json(files.merged)
    merged["sources"]["source_00"]["train"] += 1
    write_json(files.merged, merged)
    with pytest.raises(ValueError, match="conversations went on from normalize_source"):
        write_report(settings, {}, files, TEMPLATES, tmp_path / "report.html")
    assert not (tmp_path / "report.html").exists()
