"""The file that the trainer's metrics are written to as they come, one JSON object a line."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

METRICS = "metrics.jsonl"
"""Its name, beside the checkpoints."""


def new_lines(path: Path, start: int = 0) -> Iterator[tuple[dict[str, Any], int]]:
    """Yield the whole lines written since byte `start`, each with the byte after it."""
    if not path.exists():
        return
    with path.open("rb") as file:
        file.seek(start)
        for line in file:
            if not line.endswith(b"\n"):
                return
            start += len(line)
            yield json.loads(line), start


def drop_cut_line(path: Path) -> None:
    """Take off a last line that a kill cut short, so that what follows starts a line."""
    if path.exists():
        whole = path.read_bytes().rpartition(b"\n")
        with path.open("r+b") as file:
            file.truncate(len(whole[0]) + len(whole[1]))


def validations(path: Path) -> dict[int, dict[str, float]]:
    """Return the validation metrics of each epoch; of one that was validated again, the last."""
    lines = (line for line, _ in new_lines(path))
    return {line["epoch"]: line["val"] for line in lines if "val" in line}
