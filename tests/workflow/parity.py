"""How far hidden states are from others of the same tokens."""

from collections.abc import Sequence
from pathlib import Path

import torch

from lib.generation import load_target
from lib.transformers_states import Capture

SAME = 1e-4
"""Greatest relative distance of two float32 computations of the same states."""


def relative_distance(states: torch.Tensor, others: torch.Tensor) -> torch.Tensor:
    """Return the distance of each token's states in each layer, over their size.

    Args:
        states, others: shape [tokens, layers, hidden size].

    Returns:
        Distances of shape [tokens, layers].
    """
    others = others.float()
    return (states.float() - others).norm(dim=-1) / others.norm(dim=-1)


def own_states(
    target: Path, layer_ids: Sequence[int], prompts: Sequence[Sequence[int]]
) -> list[torch.Tensor]:
    """Return the states of prompts as transformers computes them, each alone."""
    capture = Capture(load_target(target, False, "float32"), layer_ids)
    return [capture.states(ids) for ids in prompts]
