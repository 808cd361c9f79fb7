"""What a finished run shows to people: its page in a browser, and Snakemake's own report."""

import re
import shutil
from pathlib import Path

import pytest
import yaml
from browser import CHROMIUM, DESKTOP, PHONE, WITHOUT_CHROMIUM, browser, opened

from workflow.project import ROOT, Project


def page_of(project: Project) -> Path:
    return project.folder / "results/toy/report.html"


@pytest.mark.skipif(CHROMIUM is None, reason=WITHOUT_CHROMIUM)
def test_the_page_opens_without_a_complaint_and_shows_every_source(finished: Project) -> None:
    config = yaml.safe_load((ROOT / "config/config.yaml").read_text())
    names = [source["name"] for source in config["sources"]]
    with browser() as running:
        for width in (DESKTOP, PHONE):
            with opened(running, page_of(finished), width) as found:
                assert found.complaints == []
                assert found.number("document.documentElement.scrollWidth") == width
                for section in ("journey", "mix", "overlap", "samples", "provenance"):
                    text = found.number(f"document.querySelector('#{section}').textContent")
                    assert [name for name in names if name not in text] == [], section
                heads = found.number("document.querySelector('#acceptance table').innerText")
                assert all(domain in heads for domain in ("chat", "code", "math", "tools"))
                marked = found.number("document.querySelectorAll('pre.row mark').length")
                assert marked >= len(names)


def test_figures_are_there_as_svg_and_png(finished: Project) -> None:
    results = finished.folder / "results/toy"
    names = {path.name for path in [*results.glob("evaluation/*.*"), *results.glob("training.*")]}
    assert names == {
        f"{name}.{form}"
        for name in ("acceptance_by_domain", "acceptance_by_position", "training")
        for form in ("svg", "png")
    }


def test_the_snakemake_report_holds_page_figures_and_captions(
    finished: Project, tmp_path: Path
) -> None:
    report = tmp_path / "snakemake.html"
    result = finished.snakemake("--report", str(report), "all")
    assert result.returncode == 0, result.stdout
    added = set(re.findall(r"^Adding (\S+) \(", result.stdout, re.M))
    figures = {"acceptance_by_domain.svg", "acceptance_by_position.svg", "training.svg"}
    assert {*figures, "verification.md", "report.html"} <= added
    page = report.read_text()
    for category in ("Evaluation", "Training", "Data set", "The whole run"):
        assert category in page
    assert "the drafted tokens that the target accepts" in page


def test_another_look_measures_and_trains_nothing(finished: Project, tmp_path: Path) -> None:
    project = Project(Path(shutil.copytree(finished.folder, tmp_path / "copy", symlinks=True)))
    template = project.folder / "resources/report/style.css"
    template.write_text(template.read_text() + "\n/* other */\n")
    assert project.stale() == {"report"}
    style = project.folder / "scripts/lib/figure_style.py"
    style.write_text(style.read_text() + "\n# other\n")
    assert project.stale() == {"plot_training", "plot_evaluation", "report"}
