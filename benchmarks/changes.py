"""Measure what a change costs: how much of a whole build is made again, in time.

Usage: .venv/bin/python benchmarks/changes.py [--cores 2] [--rows 70] [--folder FOLDER]
           [--only CHANGE ...]

Builds the toy run of one epoch with at most so many rows of each source, and makes each change in a
copy of the finished build. Bringing the target is not counted: it lies in a folder. FOLDER keeps
the build for another call.
"""

import argparse
import json
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import yaml
from toy_project import copy_project, seconds, snakemake

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "scripts"))

from generated import conversations

from lib.conversation import to_record

NEW_ROWS = 20


@dataclass(frozen=True)
class Times:
    """Seconds to the verified data set, and from there to the end of the run."""

    dataset: float
    rest: float

    @property
    def whole(self) -> float:
        """Seconds of the whole run."""
        return self.dataset + self.rest


def add_source(folder: Path) -> None:
    made = islice(conversations(random.Random(13)), NEW_ROWS)
    lines = [json.dumps(to_record(conversation.of_source("ours"))) for conversation in made]
    (folder / "ours.jsonl").write_text("\n".join(lines) + "\n")
    entry = {"name": "ours", "format": "sharegpt", "files": ["ours.jsonl"]}
    configure(folder, lambda config: config["sources"].append(entry))


def change_quota(folder: Path) -> None:
    configure(folder, lambda config: config["sources"][0].update(quota=10))


def change_template(folder: Path) -> None:
    template = folder / "target/chat_template.jinja"
    template.write_text(template.read_text().replace("Tools, one a line:", "Tools:"))


def change_training(folder: Path) -> None:
    configure(folder, lambda config: config["train"].update(learning_rate=0.002))


CHANGES: dict[str, tuple[str, Callable[[Path], None]]] = {
    "nothing": ("nothing", lambda folder: None),
    "source": (f"a thirteenth source of {NEW_ROWS} rows", add_source),
    "quota": ("the quota of one source (to 10 rows)", change_quota),
    "template": ("the chat template, where it lists tools", change_template),
    "training": ("a setting of the training", change_training),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cores", default="2", help="cores for Snakemake")
    parser.add_argument("--rows", type=int, default=70, help="of each source, at most")
    parser.add_argument("--folder", type=Path, help="keeps the whole build")
    parser.add_argument("--only", nargs="*", default=list(CHANGES), choices=CHANGES)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        base = args.folder or Path(name, "base")
        whole = build(base, args.rows, args.cores)
        show("the whole build", whole, whole)
        for change in args.only:
            title, apply = CHANGES[change]
            folder = Path(name, change)
            shutil.copytree(base, folder, symlinks=True)
            apply(folder)
            show(title, measure(folder, args.cores), whole)
            shutil.rmtree(folder)


def build(folder: Path, rows: int, cores: str) -> Times:
    """Make the whole build, unless the folder has it; return its times."""
    kept = folder / "times.json"
    if not kept.exists():
        copy_project(folder)
        configure(folder, lambda config: config["train"].update(epochs=1))
        configure(folder, lambda config: [s.update(max_samples=rows) for s in config["sources"]])
        snakemake(folder, "--cores", cores, "weights")
        built = next((folder / "models").glob("toy@*"))
        built.rename(folder / "target")
        (folder / "target/weights.json").unlink()
        place = {"name": "toy", "path": "target", "thinking": False}
        configure(folder, lambda config: config.update(target=place))
        times = measure(folder, cores)
        kept.write_text(json.dumps([times.dataset, times.rest]))
    return Times(*json.loads(kept.read_text()))


def measure(folder: Path, cores: str) -> Times:
    """Run to the verified data set, then to the end."""
    dataset = seconds(folder, "--cores", cores, "dataset")
    return Times(dataset, seconds(folder, "--cores", cores, "all"))


def configure(folder: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    """Change the configuration of a copy."""
    path = folder / "config/config.yaml"
    config = yaml.safe_load(path.read_text())
    change(config)
    path.write_text(yaml.safe_dump(config, sort_keys=False))


def show(what: str, times: Times, whole: Times) -> None:
    """Print the times of a run, and their shares of the whole build."""
    parts = [("data set", times.dataset, whole.dataset), ("all", times.whole, whole.whole)]
    shares = "   ".join(f"{part} {value:6.1f} s, {value / of:4.2f}" for part, value, of in parts)
    print(f"{time.strftime('%H:%M:%S')}  {what:<42} {shares}", flush=True)


if __name__ == "__main__":
    main()
