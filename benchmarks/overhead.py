"""Measure what the workflow itself costs: of a dry run, of a run with nothing to do, of a toy run.

Usage: .venv/bin/python benchmarks/overhead.py [--project FOLDER] [--cores 2]

FOLDER is a copy of the project in which `snakemake --cores all all` has ended; without it one is
made and run. Where the time of that run went is read from what Snakemake recorded of its jobs.
"""

import argparse
import json
import re
import statistics
import sys
import tempfile
import time
from pathlib import Path

from toy_project import copy_project, seconds, show, snakemake

REPEATS = 5
BOUND = 4.0
SHARE_BOUND = 0.05


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--project", type=Path, help="where the toy run has ended")
    parser.add_argument("--cores", default="2", help="cores for Snakemake")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = args.project or copy_project(Path(name, "draftmill"))
        if not args.project:
            snakemake(folder, "--cores", args.cores, "all")
        busy, elapsed = times_of_the_run(folder)
        empty = Path(name, "empty")
        empty.mkdir()
        (empty / "Snakefile").write_text("rule all:\n")
        show_times(folder, empty, args.cores)
        show("toy run: share of the time without any job", 1 - busy / elapsed, SHARE_BOUND, "")
        print(f"  jobs {busy:.1f} s of {elapsed:.1f} s; {elapsed - busy:.1f} s are Snakemake's")


def show_times(folder: Path, empty: Path, cores: str) -> None:
    """Print the times of runs with nothing to do, and what they consist of."""
    dry = median(folder, "-n", "all")
    nothing = median(folder, "--cores", cores, "all")
    start = median(empty, "-n")
    show("snakemake -n, everything up to date", dry, BOUND, "s")
    show("snakemake --cores all, everything up to date", nothing, BOUND, "s")
    print(f"  Snakemake itself, in an empty folder {start:.2f} s")
    print(f"  digests of the code of all stages    {digests():.2f} s")


def median(folder: Path, *arguments: str) -> float:
    """Return the median wall time of a few runs, after one that warms up."""
    times = [seconds(folder, *arguments) for _ in range(REPEATS + 1)]
    return statistics.median(times[1:])


def digests() -> float:
    """Return the time that the digests take which decide what is stale."""
    root = Path(__file__).resolve().parent.parent
    sys.path.insert(0, str(root / "scripts"))
    from lib.digest import code_digest

    used = re.findall(
        r'code_digest\(\s*"(\w+\.py)",[^)]*?environment="(\w+\.yaml)"',
        "".join(path.read_text() for path in sorted((root / "rules").glob("*.smk"))),
    )
    start = time.perf_counter()
    for script, environment in used:
        code_digest(script, environment=environment)
    return time.perf_counter() - start


def times_of_the_run(folder: Path) -> tuple[float, float]:
    """Return the seconds in which a job ran, and all seconds of the last run that had jobs."""
    records = [
        json.loads(path.read_text())
        for path in (folder / ".snakemake/metadata").rglob("*")
        if path.is_file()
    ]
    spans = sorted({(record["starttime"], record["endtime"]) for record in records})
    busy, reached = 0.0, 0.0
    for begin, end in spans:
        busy += max(0.0, end - max(begin, reached))
        reached = max(reached, end)
    return busy, max(map(elapsed, (folder / ".snakemake/log").glob("*.log")))


def elapsed(log: Path) -> float:
    """Return the seconds that Snakemake says a run took; 0 where it does not say so."""
    found = re.search(r"Elapsed time: (\d+):(\d+):([\d.]+)", log.read_text())
    return 3600 * int(found[1]) + 60 * int(found[2]) + float(found[3]) if found else 0.0


if __name__ == "__main__":
    main()
