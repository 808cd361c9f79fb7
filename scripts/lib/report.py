"""The whole run on one page, and in three numbers."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from lib.files import read_json, write_text


@dataclass(frozen=True)
class ReportSettings:
    """What the page is called."""

    run: str


def write_report(
    settings: ReportSettings,
    sources: list[Path],
    files: Mapping[str, Path],
    figure: Path,
    template: Path,
    report: Path,
) -> None:
    """Write a self-contained HTML page.

    Args:
        sources: `.stats.json` of each source.
        files: JSON files by the name that the template uses; a missing name is `None` there.
        figure: SVG of the acceptance by domain.
    """
    environment = Environment(autoescape=True, undefined=StrictUndefined)
    page = environment.from_string(template.read_text(encoding="utf-8")).render(
        run=settings.run,
        sources=[read_json(path) for path in sources],
        figure=Markup(figure.read_text(encoding="utf-8")),
        **{"responses": None, **{name: read_json(path) for name, path in files.items()}},
    )
    write_text(report, page + "\n")


def headline(results: Path) -> str:
    """Return what a finished run made, as far as it is there, with the numbers that matter."""
    lines: list[str] = []
    made = [
        ("data set", results / "verified.json"),
        ("drafter", results / "drafter" / "config.json"),
        ("evaluation", results / "evaluation.json"),
        ("report", results / "report.html"),
    ]
    for what, path in made:
        if path.is_file():
            shown = path.parent if what == "drafter" else path
            lines.append(f"{what:<30}{shown}{'/' if what == 'drafter' else ''}")
    if (results / "verified.json").is_file():
        stamp: dict[str, Any] = read_json(results / "verified.json")
        lines.append(f"{'token rows':<30}{stamp['rows']:,}")
        lines.append(f"{'supervised tokens':<30}{stamp['supervised_tokens']:,}")
    if (results / "train.json").is_file():
        length = read_json(results / "train.json")["validation_acceptance_length"]
        lines.append(f"{'validation acceptance length':<30}{length:.2f}")
    return "\n".join(lines)
