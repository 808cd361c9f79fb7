"""Measure what Draftmill's training costs beside speculators' own, and whether it is as good.

Usage: .venv/bin/python benchmarks/training.py [--results results/toy] [--seeds 3] [--epochs 4]

On the token rows and hidden states of a finished toy run, on the processor. For each seed the
stage and the bare trainer of speculators train the same drafter with the same settings, in turns.
Printed are

* the wall time of the stage as a share of that of the bare trainer, start-up of both included;
* the validation acceptance length of the best epoch of both, for each seed.

Bare means speculators' `train` command itself, with its own checkpoints, where only the calls are
answered that need an accelerator.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "scripts")]

from lib.configuration import complete, load_schema, stage_settings, target_folder  # noqa: E402
from lib.files import read_json  # noqa: E402
from lib.trainer_command import trainer_environment  # noqa: E402

TIME_BOUND = 1.03
BARE = """
import sys
from speculators.train import cli
from speculators.train.config import TrainConfig
from lib.training_launcher import answer_for_the_cpu
answer_for_the_cpu()
cli.main(TrainConfig.resolve(["--config", sys.argv[1]]))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--results", type=Path, default=ROOT / "results/toy")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=4)
    args = parser.parse_args()
    raw = yaml.safe_load((ROOT / "config/config.yaml").read_text())
    raw["train"]["epochs"] = args.epochs
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    times: list[tuple[float, float]] = []
    lengths: list[tuple[float, float]] = []
    with tempfile.TemporaryDirectory() as name:
        for seed in range(args.seeds):
            raw["train"]["seed"] = seed
            config = complete(raw, load_schema(ROOT / "config/schema.yaml"), ROOT)
            folder = Path(name) / str(seed)
            stage_time, result = train_with_draftmill(config, args.results.resolve(), folder)
            bare_time, length = train_bare(folder, result)
            times.append((stage_time, bare_time))
            lengths.append((result["validation_acceptance_length"], length))
            print(
                f"seed {seed}: {stage_time:.1f} s and acceptance length {lengths[-1][0]:.2f}, "
                f"bare {bare_time:.1f} s and {length:.2f}",
                flush=True,
            )
    stage, bare = (sum(column) for column in zip(*times, strict=True))
    ours, theirs = (sum(column) / len(lengths) for column in zip(*lengths, strict=True))
    print(f"wall time of the bare trainer's: {stage / bare:.3f} (bound {TIME_BOUND})")
    print(f"mean acceptance length of the bare trainer's: {ours / theirs:.3f} (bound 1)")


def train_with_draftmill(
    config: dict[str, Any], results: Path, folder: Path
) -> tuple[float, dict[str, Any]]:
    """Return the seconds that the stage took, and its result."""
    folder.mkdir()
    weights = results.parent.parent / target_folder(config) / "weights.json"
    start = time.perf_counter()
    run(
        folder,
        str(ROOT / "scripts/train_drafter.py"),
        *("--settings", json.dumps(stage_settings(config, "train_drafter"))),
        *("--stamp", str(results / "verified.json")),
        *("--tokenized", str(results / "tokenized/stats.json")),
        *("--hidden-states", str(results / "hidden_states.json"), "--weights", str(weights)),
        *("--result", str(folder / "train.json"), "--log", str(folder / "stage.log")),
    )
    return time.perf_counter() - start, read_json(folder / "train.json")


def train_bare(folder: Path, result: dict[str, Any]) -> tuple[float, float]:
    """Return the seconds that the bare trainer took, and the best epoch's acceptance length."""
    written = yaml.safe_load((folder / result["checkpoints"] / "trainer.yaml").read_text())
    written["train"]["trainer"]["save_path"] = str(folder / "bare")
    (folder / "bare.yaml").write_text(yaml.safe_dump(written))
    start = time.perf_counter()
    run(folder, "-c", BARE, str(folder / "bare.yaml"))
    seconds = time.perf_counter() - start
    best = read_json(folder / "bare/checkpoint_best/val_metrics.json")
    return seconds, best["eal_epoch"]


def run(folder: Path, *arguments: str) -> None:
    """Run Python, with its output in a log file."""
    with (folder / "run.log").open("ab") as log:
        subprocess.run(
            [sys.executable, *arguments],
            env={**os.environ, **trainer_environment(0, 0)},
            stdout=log,
            stderr=log,
            check=True,
        )


if __name__ == "__main__":
    main()
