"""Measure the toy run in a copy of the project, with the interpreter that runs this file.

Usage: .venv/bin/python benchmarks/toy_run.py [--cores 2]

Prints wall time, peak memory, the time of a dry run with everything up to date, and the acceptance
length, each as a ratio to its bound (1 or less is within it; for the acceptance length 1 or more).
"""

import argparse
import csv
import json
import resource
import tempfile
from pathlib import Path

from toy_project import copy_project, seconds, show

WALL_BOUND = 360.0
MEMORY_BOUND = 3.0
DRY_RUN_BOUND = 4.0
ACCEPTANCE_BOUND = 3.0
DRY_RUNS = 5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cores", default="2", help="cores for Snakemake")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = copy_project(Path(name))
        wall = seconds(folder, "--cores", args.cores, "train")
        memory = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 2**20
        dry_runs = sorted(seconds(folder, "-n", "train") for _ in range(DRY_RUNS))
        training = json.loads((folder / "results/toy/train.json").read_text())
        length = training["validation_acceptance_length"]
        show("wall time of the toy run", wall, WALL_BOUND, "s")
        show("peak memory of any process", memory, MEMORY_BOUND, "GiB")
        show(f"dry run, nothing to do (median of {DRY_RUNS})", dry_runs[2], DRY_RUN_BOUND, "s")
        show("validation acceptance length", length, ACCEPTANCE_BOUND, f"of {block_size(folder)}")
        print()
        print(f"{'stage':<32}{'wall (s)':>10}{'peak (MB)':>11}")
        for path in sorted((folder / "results/toy/benchmarks").rglob("*.tsv")):
            row = next(csv.DictReader(path.open(), delimiter="\t"))
            stage = path.relative_to(folder / "results/toy/benchmarks").with_suffix("")
            print(f"{stage!s:<32}{float(row['s']):>10.1f}{row['max_rss']:>11}")


def block_size(folder: Path) -> int:
    """Return the block size of the drafter that was made."""
    config = json.loads((folder / "results/toy/drafter/config.json").read_text())
    return int(config["block_size"])


if __name__ == "__main__":
    main()
