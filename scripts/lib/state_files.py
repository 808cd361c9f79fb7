"""The file that holds the hidden states of one token row, as speculators reads it.

It holds `hidden_states` [length, slices, hidden size] and `token_ids` [length]. There is a slice
for each layer that the drafter reads, and a last one with the states before the final norm.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}

WriteStates = Callable[[Sequence[int], Path], None]
"""Writes the states of a row's tokens to a file; raises `StatesError` where there are none."""

_TOKEN_ID_BYTES = 8


class StatesError(ValueError):
    """The states of a row are not there, or not what they must be."""


@dataclass(frozen=True)
class Layout:
    """What a file must hold for each token.

    Attributes:
        slices: number of layers that are read, and one for the states before the final norm.
        hidden_size: numbers of a slice.
        dtype: type of the numbers, a key of `DTYPES`.
    """

    slices: int
    hidden_size: int
    dtype: str

    @property
    def bytes_a_token(self) -> int:
        """Return the bytes that a token takes on disk."""
        return self.slices * self.hidden_size * DTYPES[self.dtype].itemsize + _TOKEN_ID_BYTES

    def check(self, path: Path, ids: NDArray[np.int32]) -> None:
        """Read a whole file and check that it holds the states of these tokens.

        Raises:
            StatesError: says what is wrong.
        """
        try:
            with safe_open(path, framework="pt") as file:
                stored_ids = file.get_tensor("token_ids").numpy()
                states = file.get_tensor("hidden_states")
        except (OSError, SafetensorError) as error:
            raise StatesError(f"its hidden states cannot be read ({error})") from error
        if not np.array_equal(stored_ids, ids):
            raise StatesError(
                f"its hidden states are those of other tokens: {len(stored_ids)} are stored, "
                f"the row has {len(ids)}"
            )
        expected = (len(ids), self.slices, self.hidden_size)
        if tuple(states.shape) != expected or states.dtype != DTYPES[self.dtype]:
            raise StatesError(
                f"its hidden states are {states.dtype} {tuple(states.shape)}, not {self.dtype} "
                f"{expected} (tokens, layers, hidden size)"
            )
        # The extremes tell: both are NaN if one value is.
        if not torch.isfinite(torch.stack(torch.aminmax(states))).all():
            raise StatesError("its hidden states are not finite")


def holds_states_of(path: Path, ids: NDArray[np.int32]) -> bool:
    """Say whether a file holds the states of these tokens, reading no more than its token ids.

    Only files that were checked are given their place, so all that can be wrong with one is that
    it is cut off, which its head shows, or that it is of another row.
    """
    try:
        with safe_open(path, framework="pt") as file:
            return np.array_equal(file.get_tensor("token_ids").numpy(), ids)
    except (OSError, SafetensorError):
        return False


def write_states(path: Path, states: torch.Tensor, ids: Sequence[int], dtype: str) -> None:
    """Write the states of a row, shape [length, slices, hidden size], in a type of `DTYPES`."""
    tensors = {"hidden_states": states.to(DTYPES[dtype]), "token_ids": torch.tensor(ids)}
    save_file(tensors, path)
