"""Runs speculators' own trainer on one rank.

Usage: python training_launcher.py CONFIG METRICS, or under torchrun, with `scripts/` on
PYTHONPATH. CONFIG is a configuration file of `speculators train`; METRICS gets one JSON object a
line: first `{"steps_per_epoch"}`, then what the trainer logs. Where there is no accelerator, the
calls of the trainer that take one for granted are answered for the CPU.
"""

import logging
import os
import sys
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from speculators.train import checkpointer, cli, distributed, trainer
from speculators.train.config import TrainConfig

from lib.resumable_trainer import MetricsFile, ResumableTrainer


def run(config: Path, metrics: Path) -> None:
    """Train as `config` says; see speculators' documentation of `speculators train --config`."""
    if not torch.accelerator.is_available():
        answer_for_the_cpu()
    file = MetricsFile(metrics)
    logging.getLogger("speculators.metrics").addFilter(file)
    resolved = TrainConfig.resolve(["--config", str(config)])
    _replace(cli, "Trainer", partial(ResumableTrainer, seed=resolved.seed, metrics=file))
    cli.main(resolved)


def answer_for_the_cpu() -> None:
    """Answer what the trainer asks of an accelerator, for the processor."""
    _replace(torch.accelerator, "synchronize", lambda *_: None)
    _replace(trainer, "get_local_rank", lambda: torch.device("cpu"))
    _replace(checkpointer, "get_current_device", lambda: "cpu")
    _replace(cli, "maybe_setup_distributed", _set_up_ranks)


def _set_up_ranks() -> None:
    """Do what speculators does under torchrun, with the processor's way to exchange gradients."""
    if "LOCAL_RANK" not in os.environ:
        return
    dist.init_process_group("gloo")
    _replace(distributed, "_is_distributed", True)
    _replace(distributed, "_rank", dist.get_rank())
    _replace(distributed, "_world_size", dist.get_world_size())
    distributed._init_sp_process_groups(dist.get_rank(), dist.get_world_size(), 1)


def _replace(module: Any, name: str, value: Any) -> None:
    """Replace what a module uses; an unknown name means another version of speculators."""
    if not hasattr(module, name):
        raise RuntimeError(f"{module.__name__} has no {name}; speculators 0.9.0 is needed")
    setattr(module, name, value)


if __name__ == "__main__":
    run(Path(sys.argv[1]), Path(sys.argv[2]))
