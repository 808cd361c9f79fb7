"""How the target answers, and what it answered; the same for every way to run it."""

from collections.abc import Sequence, Set
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from xxhash import xxh3_64_intdigest, xxh3_128_intdigest

from lib.files import read_json

_LARGEST_SEED = (1 << 63) - 1


@dataclass(frozen=True)
class Sampling:
    """How the target answers: greedily at temperature 0, else by sampling with a seed.

    Attributes:
        top_k: how many of the likeliest tokens to sample from, 0 for all.
    """

    max_tokens: int
    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    seed: int = 0

    def seed_for(self, prompt: Sequence[int]) -> int:
        """Return a seed that depends on the prompt, so that no other prompt changes its answer."""
        return xxh3_64_intdigest(_as_bytes(prompt), self.seed % (1 << 64)) & _LARGEST_SEED


@dataclass(frozen=True)
class Answer:
    """What the target gave after a prompt.

    Attributes:
        ids: token ids, without the end-of-turn token.
        end_id: the end-of-turn token; None if `max_tokens` cut the answer.
    """

    ids: tuple[int, ...]
    end_id: int | None

    @classmethod
    def until_end(cls, ids: Sequence[int], ends: Set[int]) -> "Answer":
        """Return the answer that generated ids hold: up to the first end-of-turn token."""
        for position, token in enumerate(ids):
            if token in ends:
                return cls(tuple(ids[:position]), token)
        return cls(tuple(ids), None)

    @property
    def finish_reason(self) -> str:
        """`stop` if the target ended its turn, `length` if it was cut."""
        return "length" if self.end_id is None else "stop"


def prompt_key(prompt: Sequence[int]) -> int:
    """Return 128 bits that stand for the ids of a prompt."""
    return xxh3_128_intdigest(_as_bytes(prompt))


def recommended_sampling(
    target: Path,
    max_tokens: int,
    temperature: float | None = None,
    top_p: float | None = None,
    top_k: int | None = None,
    seed: int = 0,
) -> Sampling:
    """Return how to sample; for what is None as `generation_config.json` of the target says.

    A target that recommends nothing, or not to sample, answers greedily.
    """
    path = target / "generation_config.json"
    own = read_json(path) if path.is_file() else {}
    if temperature is None:
        temperature = own.get("temperature", 1.0) if own.get("do_sample") else 0.0
    return Sampling(
        max_tokens=max_tokens,
        temperature=temperature,
        top_p=own.get("top_p", 1.0) if top_p is None else top_p,
        top_k=own.get("top_k", 0) if top_k is None else top_k,
        seed=seed,
    )


def _as_bytes(ids: Sequence[int]) -> bytes:
    return np.asarray(ids, "<i4").tobytes()
