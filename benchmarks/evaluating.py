"""Measure how much sooner `simulate` knows the acceptance of a drafter than a vLLM server.

Usage: .venv/bin/python benchmarks/evaluating.py [--results results/toy]

On the drafter of a finished toy run and its 48 prompts, on the processor. `evaluate_drafter` runs
with each back end, from starting its script to its result. A server is measured as the
configuration has it by itself (with and without the drafter, at two numbers of requests), and for
the acceptance alone, which is all that `simulate` tells. Of both the time that servers took to
answer is shown too, without their start.
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

BOUND = 5.0
ACCEPTANCE_ALONE = {"backend": "vllm", "baseline": [], "concurrency": [1]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--results", type=Path, default=ROOT / "results/toy")
    results = parser.parse_args().results.resolve()
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    with tempfile.TemporaryDirectory() as name:
        simulated, content = evaluate(results, Path(name), backend="simulate")
        prompts, length = content["all"]["prompts"], content["all"]["acceptance_length"]
        print(f"simulate: {simulated:.1f} s for {prompts} prompts, acceptance length {length:.2f}")
        for what, changes in (
            ("vllm", {"backend": "vllm"}),
            ("vllm, acceptance alone", ACCEPTANCE_ALONE),
        ):
            seconds, content = evaluate(results, Path(name), **changes)
            length, answering = content["all"]["acceptance_length"], answering_seconds(content)
            print(f"{what}: {seconds:.1f} s, acceptance length {length:.2f}")
            print(f"  times the time of simulate: {seconds / simulated:.1f} (bound {BOUND})")
            print(f"  of it answering, without the start: {answering:.1f} s", flush=True)


def evaluate(results: Path, folder: Path, **changes: Any) -> tuple[float, dict[str, Any]]:
    """Run the stage; return the seconds that it took, and its result."""
    raw = yaml.safe_load((ROOT / "config/config.yaml").read_text())
    raw["evaluate"] |= changes
    config = complete(raw, load_schema(ROOT / "config/schema.yaml"), ROOT)
    weights = results.parent.parent / target_folder(config) / "weights.json"
    prompts = [str(ROOT / path) for path in config["evaluate"]["prompts"]]
    start = time.perf_counter()
    subprocess.run(
        [
            *(sys.executable, str(ROOT / "scripts/evaluate_drafter.py")),
            *("--settings", json.dumps(stage_settings(config, "evaluate_drafter"))),
            *("--drafter", str(results / "drafter/config.json"), "--weights", str(weights)),
            *("--prompts", *prompts, "--result", str(folder / "evaluation.json")),
            *("--figure", str(folder / "figure.svg"), "--log", str(folder / "stage.log")),
        ],
        cwd=folder,
        stderr=subprocess.DEVNULL,
        check=True,
    )
    return time.perf_counter() - start, read_json(folder / "evaluation.json")


def answering_seconds(content: dict[str, Any]) -> float:
    """Return the seconds in which servers answered, at all numbers of requests together."""
    timings = [
        entry[key]
        for entry in content["all"]["speed"]
        for key in ("with_drafter", "without_drafter")
    ]
    return sum(timing["seconds"] for timing in timings if timing is not None)


if __name__ == "__main__":
    main()
