"""Trials of interruption: a stage is hit at some point, and the same command must mend it all.

A trial takes what a stage made out of a finished project, has it made again, hits the run at a
random point, runs the same command once more, and compares every final file byte by byte.
"""

import hashlib
import random
import re
import shutil
import signal
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workflow.project import Project

HITS = {
    "Ctrl-C": (signal.SIGINT, True),
    "SIGTERM to all, as clusters do": (signal.SIGTERM, True),
    "SIGKILL": (signal.SIGKILL, False),
    "SIGKILL to all": (signal.SIGKILL, True),
}
"""Signal, and whether the whole process group gets it."""

KEPT_WORK = {
    "regenerate_responses": ["cache/responses"],
    "tokenize_conversations": ["cache/token_rows", "results/*/tokenized"],
    "extract_hidden_states": ["results/*/hidden_states"],
    "train_drafter": ["results/*/checkpoints"],
    "build_toy_target": ["models/toy@*"],
}
"""What stages keep besides the files that their rules declare."""

NOT_FINAL = {
    *("logs", "benchmarks", "checkpoints"),
    *("training.svg", "training.png", "report.html"),
}
"""What holds or draws times below a run's results, or is no result."""

_SPEED = re.compile(rb'"tokens_per_second": [^,}]+')
"""The only number of a result that time decides; figures and report draw it."""


@dataclass(frozen=True)
class Trial:
    """What is hit, how, and when.

    Attributes:
        moment: share of the time that the stage takes, counted from its start.
    """

    stage: str
    hit: str
    moment: float

    def __str__(self) -> str:
        return f"{self.stage} at {self.moment:.0%}, {self.hit}"


def deal(seed: int, stages: Sequence[str], count: int) -> Iterator[Trial]:
    """Yield random trials; every stage, and every way of hitting, is as frequent as the others."""
    chance = random.Random(seed)
    decks: dict[Sequence[str], list[str]] = {tuple(stages): [], tuple(HITS): []}
    for _ in range(count):
        drawn = []
        for cards, deck in decks.items():
            if not deck:
                deck.extend(chance.sample(cards, len(cards)))
            drawn.append(deck.pop())
        yield Trial(*drawn, moment=chance.random())


def make_small(config: dict[str, Any]) -> None:
    """Change a configuration of the toy run so that the whole run takes about a minute."""
    small = ("openorca", "magicoder", "hermes")
    sources = [entry for entry in config["sources"] if entry["name"] in small]
    config["sources"] = [{**entry, "max_samples": 20} for entry in sources]
    config["merge"]["validation_share"] = 0.2
    config["train"]["epochs"] = 2
    config["evaluate"].update(prompts=config["evaluate"]["prompts"][:1], max_tokens=16)


def final_data(project: Project) -> dict[str, str]:
    """Return a hash of every file below `results` and `models`, without what holds times."""
    return {
        str(path.relative_to(project.folder)): hashlib.sha256(
            _SPEED.sub(b"", path.read_bytes())
        ).hexdigest()
        for top in ("results", "models")
        for path in sorted((project.folder / top).rglob("*"))
        if path.is_file() and not NOT_FINAL & set(path.relative_to(project.folder).parts)
    }


@dataclass(frozen=True)
class Finished:
    """A project in which everything is made, which trials destroy in part and mend.

    Attributes:
        outputs: the files that each rule declares.
        data: the hash of each final file.
    """

    project: Project
    outputs: dict[str, list[Path]]
    data: dict[str, str]

    def copy(self, folder: Path) -> "Finished":
        """Return the same in a copy of the project."""
        here = self.project.folder
        shutil.copytree(here, folder, symlinks=True, dirs_exist_ok=True)
        moved = {
            rule: [folder / path.relative_to(here) for path in paths]
            for rule, paths in self.outputs.items()
        }
        return Finished(Project(folder), moved, self.data)

    def check(self, what: object) -> None:
        """Compare every final file.

        Raises:
            AssertionError: names those that are not as they were.
        """
        data = final_data(self.project)
        names = data.keys() | self.data.keys()
        different = sorted(name for name in names if data.get(name) != self.data.get(name))
        assert not different, f"{what}: not as without an interruption: {different}"

    def forget(self, stage: str) -> None:
        """Remove all that a stage made."""
        for path in self.outputs[stage]:
            path.unlink()
        for pattern in KEPT_WORK.get(stage, []):
            for folder in self.project.folder.glob(pattern):
                shutil.rmtree(folder)
        for log in self._files("logs", stage):
            log.unlink()

    def command(self, stage: str) -> list[str]:
        """Return the arguments that make a stage, and nothing that follows it."""
        files = [str(path.relative_to(self.project.folder)) for path in self.outputs[stage]]
        return ["--cores", "all", *files]

    def seconds(self, stage: str) -> float:
        """Return the time that a stage took when it was not hit."""
        files = self._files("benchmarks", stage)
        return sum(float(path.read_text().splitlines()[1].split()[0]) for path in files)

    def has_started(self, stage: str) -> bool:
        """Say whether a job of the stage runs, or has run."""
        return bool(self._files("logs", stage))

    def _files(self, kind: str, stage: str) -> list[Path]:
        folders = self.project.folder.glob(f"results/*/{kind}")
        return [
            path
            for folder in folders
            for path in (*folder.glob(f"{stage}.*"), *folder.glob(f"{stage}/*"))
        ]


def finish(project: Project) -> Finished:
    """Run a project to its end."""
    result = project.snakemake("--cores", "all", "all")
    assert result.returncode == 0, result.stdout
    return Finished(project, project.outputs(), final_data(project))


def attempt(finished: Finished, trial: Trial) -> str:
    """Make a trial; return the output of the run that mends.

    Raises:
        AssertionError: a process was left behind, the same command failed, or a file differs.
    """
    seconds = finished.seconds(trial.stage)
    finished.forget(trial.stage)
    run = finished.project.start(*finished.command(trial.stage))
    run.wait_for(lambda: finished.has_started(trial.stage))
    time.sleep(trial.moment * seconds)
    run.hit(*HITS[trial.hit])
    mended = finished.project.snakemake(*finished.command(trial.stage))
    assert mended.returncode == 0, mended.stdout
    finished.check(trial)
    return mended.stdout
