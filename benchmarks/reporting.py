"""Measure how fast the report of a large run is built from what its stages wrote down.

Usage: .venv/bin/python benchmarks/reporting.py [--rows 1000000]

Counts of a run with twelve sources are made up, with everything measured that can be; then the
figures are drawn and the page is written, each by the stage's own script. Printed are both times
together, start of the interpreter included, and the size of the page, with their bounds.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "scripts"), str(ROOT / "tests/unit")]

from written_run import write_run  # noqa: E402

from lib.report import ReportSettings, RunFiles  # noqa: E402

SECONDS_BOUND = 60.0
MEGABYTES_BOUND = 1.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        settings, files = write_run(folder, args.rows, details="a line of text\n" * 60)
        start = time.perf_counter()
        for script, *arguments in commands(folder, settings, files):
            command = [sys.executable, str(ROOT / "scripts" / script), *map(str, arguments)]
            subprocess.run(command, check=True)
        seconds = time.perf_counter() - start
        megabytes = (folder / "report.html").stat().st_size / 1e6
    show(f"figures and page of {args.rows:,} rows", seconds, SECONDS_BOUND, "s")
    show("size of the page", megabytes, MEGABYTES_BOUND, "MB")


def commands(folder: Path, settings: ReportSettings, files: RunFiles) -> list[list[object]]:
    """Return the command lines that a run has for its figures and its page."""
    log = ["--log", folder / "log"]
    evaluations = ["--evaluations", files.evaluation, files.published]
    figures = [path.with_suffix(form) for path in files.figures for form in (".svg", ".png")]
    training = ["--training", files.training]
    page = [
        *("--settings", json.dumps(vars(settings)), "--sources", *files.sources),
        *("--merged", files.merged, "--responses", files.responses, "--rows", files.rows),
        *("--samples", files.samples, "--stamp", files.stamp, *training),
        *("--drafter", files.drafter, *evaluations, "--figures", *figures),
        *("--benchmarks", files.benchmarks),
        *("--templates", *sorted((ROOT / "resources/report").iterdir())),
        *("--report", folder / "report.html", *log),
    ]
    return [
        ["plot_training.py", *training, "--figures", folder / "training.svg", *log],
        ["plot_evaluation.py", *evaluations, "--figures", *figures, *log],
        ["report.py", *page],
    ]


def show(what: str, value: float, bound: float, unit: str) -> None:
    """Print one figure with its bound and their ratio."""
    print(f"{what:<40}{value:>8.2f} {unit:<3} bound {bound:>5.1f}  ratio {value / bound:.2f}")


if __name__ == "__main__":
    main()
