"""A vocabulary of the drafter's own: the tokens that are supervised most often."""

from pathlib import Path

import numpy as np
import torch
from speculators.train.vocab_mapping import build_vocab_mappings_from_distribution

from lib.files import atomic_path


def write_draft_vocabulary(size: int, vocabulary: int, tokenized: Path, folder: Path) -> Path:
    """Write `d2t.npy` and `t2d.npy` as speculators' trainer reads them; return the folder.

    Its trainer would write them among the token rows, which belong to all trainings.

    Args:
        size: tokens of the drafter's vocabulary.
        vocabulary: tokens of the target's.

    Raises:
        ValueError: the target has fewer tokens than the drafter is to have.
    """
    if size > vocabulary:
        raise ValueError(f"train.draft_vocabulary: {size} is more than the target's {vocabulary}")
    frequencies = torch.load(tokenized / "token_freq.pt", weights_only=True)
    maps = build_vocab_mappings_from_distribution(frequencies, size, vocabulary)
    folder.mkdir(parents=True, exist_ok=True)
    for name, values in zip(("d2t.npy", "t2d.npy"), maps, strict=True):
        with atomic_path(folder / name) as partial, partial.open("wb") as file:
            np.save(file, values.numpy())
    return folder
