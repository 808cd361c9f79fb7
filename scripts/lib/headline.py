"""A finished run in a few lines."""

from pathlib import Path
from typing import Any

from lib.files import read_json


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
