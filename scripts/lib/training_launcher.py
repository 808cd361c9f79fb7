"""Runs speculators' own trainer on one rank and writes its metrics to a file as they come.

Usage: python training_launcher.py CONFIG METRICS, or under torchrun. CONFIG is a configuration file
of `speculators train`; METRICS gets one JSON object a line: first `{"steps_per_epoch"}`, then what
the trainer logs. Where there is no accelerator, the calls of the trainer that take one for
granted are answered for the CPU.
"""

import json
import logging
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from speculators.train import checkpointer, cli, trainer
from speculators.train.config import TrainConfig
from speculators.train.distributed import get_rank


class MetricsFile(logging.Filter):
    """Looks at the records of the metrics logger and lets all of them pass."""

    def __init__(self, path: Path):
        super().__init__()
        self._path = path

    def write(self, value: object) -> None:
        """Append one JSON value, on the first rank only."""
        if get_rank() == 0:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(value) + "\n")

    def filter(self, record: logging.LogRecord) -> bool:
        """Write the metrics of a record."""
        if isinstance(record.msg, Mapping) and ("train" in record.msg or "val" in record.msg):
            self.write(dict(record.msg))
        return True


def run(config: Path, metrics: Path) -> None:
    """Train as `config` says; see speculators' documentation of `speculators train --config`."""
    if not torch.accelerator.is_available():
        _answer_for_the_cpu()
    file = MetricsFile(metrics)
    logging.getLogger("speculators.metrics").addFilter(file)

    class ObservedTrainer(trainer.Trainer):
        def run_training(self) -> None:
            file.write({"steps_per_epoch": len(self.train_loader)})
            super().run_training()

    _replace(cli, "Trainer", ObservedTrainer)
    cli.main(TrainConfig.resolve(["--config", str(config)]))


def _answer_for_the_cpu() -> None:
    _replace(torch.accelerator, "synchronize", lambda *_: None)
    _replace(trainer, "get_local_rank", lambda: torch.device("cpu"))
    _replace(checkpointer, "get_current_device", lambda: "cpu")


def _replace(module: Any, name: str, value: Any) -> None:
    """Replace what a module uses; an unknown name means another version of speculators."""
    if not hasattr(module, name):
        raise RuntimeError(f"{module.__name__} has no {name}; speculators 0.9.0 is needed")
    setattr(module, name, value)


if __name__ == "__main__":
    run(Path(sys.argv[1]), Path(sys.argv[2]))
