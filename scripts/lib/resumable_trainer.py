"""speculators' trainer, changed so that a killed training goes on exactly as it would have.

* Checkpoints keep every number as it is in memory (speculators rounds to bfloat16), are written
  aside and renamed, so a kill never damages the one before.
* Random numbers follow from the seed and the step, so a training that was resumed anywhere does
  what an uninterrupted one does, and every epoch is validated at the same anchors.
* A request to end (SIGTERM, Ctrl-C) is kept until the step is finished; then the step is saved.
* An epoch that was trained but not validated is validated first.

Written for speculators 0.9.0.
"""

import json
import logging
import shutil
import signal
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from safetensors import SafetensorError
from speculators.train.distributed import get_rank
from speculators.train.trainer import Trainer

from lib.checkpoints import STATE
from lib.metrics_file import METRICS, validations


class MetricsFile(logging.Filter):
    """Writes the trainer's metrics to a file, one JSON object a line, on the first rank only."""

    def __init__(self, path: Path):
        super().__init__()
        self._path = path

    def write(self, value: object) -> None:
        """Append one JSON value."""
        if get_rank() == 0:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(value) + "\n")

    def filter(self, record: logging.LogRecord) -> bool:
        """Write the metrics of a record of the metrics logger, and let it pass."""
        if isinstance(record.msg, Mapping) and ("train" in record.msg or "val" in record.msg):
            self.write(dict(record.msg))
        return True


class Interrupted(Exception):
    """The training was asked to end."""


class CheckpointError(RuntimeError):
    """A checkpoint could not be written."""


class ResumableTrainer(Trainer):
    """Trains as speculators does; see the module's text for what is different."""

    def __init__(self, *args: Any, seed: int, metrics: MetricsFile):
        super().__init__(*args)
        self._seed = seed
        self._metrics = metrics
        self._is_asked_to_end = False
        self._local_step = 0
        self._validated_batches = 0
        self.model.register_forward_pre_hook(lambda *_: self._seed_step())

    def run_training(self) -> None:
        """Train until the last epoch is validated, or until a signal asks to end."""
        self._metrics.write({"steps_per_epoch": len(self.train_loader)})
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._ask_to_end)
        try:
            last = self.current_epoch - 1
            if last >= 0 and last not in validations(Path(self.config.save_path) / METRICS):
                self.val_epoch(last)
            # Without the wrapper that would save whatever state a signal finds.
            Trainer.run_training.__wrapped__(self)
        except Interrupted:
            pass

    def train_epoch(self, epoch: int, **_: Any) -> None:
        """Train an epoch from where the last checkpoint was taken."""
        is_first = epoch == self.current_epoch
        self._local_step = self._resume_local_step if is_first else 0
        sampler: Any = self.train_loader.batch_sampler
        sampler.set_epoch(epoch)  # the number of steps follows from the epoch's order
        steps = len(self.train_loader)

        def after_step() -> None:
            self._local_step += 1
            if self._must_end() and self._local_step < steps:
                self.maybe_save_checkpoint(epoch, self._local_step)
                raise Interrupted

        super().train_epoch(epoch, step_callback=after_step)

    def val_epoch(self, epoch: int) -> dict[str, float] | None:
        """Validate an epoch, unless the training was asked to end: its checkpoint is there."""
        if self._must_end():
            raise Interrupted
        self._validated_batches = 0
        metrics: dict[str, float] | None = super().val_epoch(epoch)
        return metrics

    def maybe_save_checkpoint(self, epoch: int | str, local_step: int = 0) -> None:
        """Save a checkpoint under the name of its epoch.

        Raises:
            CheckpointError: it could not be written; the one before is as it was.
        """
        folder = self.checkpointer.path
        partial = folder / f".{epoch}.partial"
        if self.rank == 0 and partial.exists():
            shutil.rmtree(partial)
        self._wait_for_all()
        try:
            self._write(partial, {"epoch": epoch, "local_step": local_step})
        except (OSError, RuntimeError, SafetensorError) as error:  # each for a full disk
            free = shutil.disk_usage(folder).free / 1e9
            raise CheckpointError(
                f"the checkpoint of step {self.global_step} could not be written, with {free:.1f} "
                f"GB free in {folder}"
            ) from error
        if self.rank == 0:
            place = folder / str(epoch)
            if place.exists():
                shutil.rmtree(place)
            partial.rename(place)
        self._wait_for_all()

    def _write(self, folder: Path, state: dict[str, Any]) -> None:
        """Write all that goes on from here into a folder, and last how far the training is."""
        self.checkpointer.save_checkpoint(
            self.model, self.optimizers, folder.name, float_dtype=torch.float32
        )
        if self.schedulers:
            self.checkpointer.save_scheduler_state_dict(self.schedulers, folder.name)
        if self.rank == 0:
            (folder / STATE).write_text(json.dumps({**state, "global_step": self.global_step}))

    def maybe_update_best(self, epoch: int, val_metrics: dict[str, float] | None) -> None:
        """Do nothing: the best epoch follows from the metrics, and nothing else is kept of it."""

    def _ask_to_end(self, *_: object) -> None:
        self._is_asked_to_end = True
        if not self.model.training:
            raise Interrupted  # while validating there is nothing to save

    def _must_end(self) -> bool:
        """Return whether any rank was asked to end: all have to stop after the same step."""
        if not self.is_distributed:
            return self._is_asked_to_end
        asked = torch.tensor(int(self._is_asked_to_end), device=self.local_rank)
        dist.all_reduce(asked, op=dist.ReduceOp.MAX)
        return bool(asked.item())

    def _seed_step(self) -> None:
        """Make the random numbers of a step follow from the seed, the step and the rank."""
        if self.model.training:
            step = f"step {self.global_step}"
        else:
            step = f"validation {self._validated_batches}"
            self._validated_batches += 1
        text = f"{self._seed}, {step}, rank {self.rank}"
        torch.manual_seed(int.from_bytes(sha256(text.encode()).digest()[:7]))

    def _wait_for_all(self) -> None:
        if self.is_distributed:
            dist.barrier()
