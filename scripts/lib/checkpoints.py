"""The folder of a training's checkpoints: what is whole, what was validated, what may go.

A checkpoint is a folder named by its epoch, counted from 0. One from inside an epoch gives way to
the next of that epoch. The trainer writes a checkpoint aside, as `.{epoch}.partial`, and renames
it when it is whole.
"""

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lib.files import read_json, remove
from lib.metrics_file import METRICS, drop_cut_line, validations

STATE = "training_state.json"
"""Written last into a checkpoint: `epoch`, `local_step` (0 at its end) and `global_step`."""


@dataclass(frozen=True)
class Reached:
    """How far a training is.

    Attributes:
        epochs: epochs that are done.
        steps: steps of the last checkpoint; 0 without one.
        is_validated: whether the last of these epochs was validated.
    """

    epochs: int = 0
    steps: int = 0
    is_validated: bool = True


def recover(folder: Path, others: Collection[str] = ()) -> Reached:
    """Put in order what a killed trainer left half-done; return how far the training is.

    Args:
        others: names of folders that are no checkpoints and stay.
    """
    drop_cut_line(folder / METRICS)
    for partial in sorted(folder.glob(".*.partial")):
        # Killed after the old checkpoint of the epoch was taken away, before this got its name.
        place = folder / partial.name.removeprefix(".").removesuffix(".partial")
        if not place.exists() and _state(partial):
            partial.rename(place)
    whole = _checkpoints(folder)
    for path in folder.iterdir():
        if path.is_symlink() or (path.is_dir() and path not in whole and path.name not in others):
            remove(path)
    if not whole:
        return Reached()
    last = max(int(path.name) for path in whole)
    state = _state(folder / str(last))
    epochs = last if state["local_step"] else last + 1
    is_validated = epochs == 0 or epochs - 1 in validations(folder / METRICS)
    return Reached(epochs, state["global_step"], is_validated)


def best_epoch(folder: Path) -> int:
    """Return the epoch of the lowest validation loss that has a checkpoint, counted from 0.

    Raises:
        ValueError: no epoch with a checkpoint was validated.
    """
    known = validations(folder / METRICS)
    ends = [path for path in _checkpoints(folder) if not _state(path)["local_step"]]
    epochs = [epoch for path in ends if (epoch := int(path.name)) in known]
    if not epochs:
        raise ValueError(f"{folder}: no checkpoint was validated")
    return min(epochs, key=lambda epoch: known[epoch]["loss_epoch"])


def drop_surplus(folder: Path, keep: int) -> None:
    """Remove all checkpoints but the last `keep` and the one of the lowest validation loss."""
    epochs = sorted(int(path.name) for path in _checkpoints(folder))
    kept = {*epochs[-keep:], best_epoch(folder)}
    for epoch in epochs:
        if epoch not in kept:
            remove(folder / str(epoch))


def _checkpoints(folder: Path) -> list[Path]:
    """Return the whole checkpoints."""
    return [path for path in folder.iterdir() if path.name.isdecimal() and _state(path)]


def _state(checkpoint: Path) -> dict[str, Any]:
    """Return the state of a whole checkpoint, nothing for another folder."""
    try:
        state: dict[str, Any] = read_json(checkpoint / STATE)
        return state if state["global_step"] else {}
    except (OSError, ValueError, KeyError):
        return {}
