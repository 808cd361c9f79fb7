"""Hit a small run at random points, many times, and check that nothing is ever lost or changed.

Usage: make soak, or .venv/bin/python tests/soak.py [--trials 50] [--seed SEED]

Every stage is hit by Ctrl-C, SIGTERM and SIGKILL; after each hit the same command is given once
more, and every final file is compared with that of a run which was not hit. The seed that is
printed deals the same trials again.
"""

import argparse
import random
import sys
import tempfile
import time
from pathlib import Path

TESTS = Path(__file__).resolve().parent
sys.path[:0] = [str(TESTS), str(TESTS.parent / "scripts")]

from workflow.interruptions import attempt, deal, finish, make_small  # noqa: E402
from workflow.project import copy_project  # noqa: E402


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=50, help="number of trials")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6), help="what is dealt")
    args = parser.parse_args()
    print(f"seed {args.seed}; making the run that is hit, from the target on", flush=True)
    folder = Path(tempfile.mkdtemp(prefix="draftmill-soak-"))
    start = time.monotonic()
    project = copy_project(folder / "draftmill")
    project.configure(make_small)
    finished = finish(project)
    print(f"made in {time.monotonic() - start:.0f} s in {project.folder}", flush=True)
    trials = list(deal(args.seed, sorted(finished.outputs), args.trials))
    for number, trial in enumerate(trials, 1):
        begin = time.monotonic()
        print(f"{number:>3} of {len(trials)}: {trial} ...", end="", flush=True)
        attempt(finished, trial)
        print(f" same data ({time.monotonic() - begin:.0f} s)", flush=True)
    print(f"{len(trials)} trials, seed {args.seed}: every final file as without interruptions")


if __name__ == "__main__":
    main()
