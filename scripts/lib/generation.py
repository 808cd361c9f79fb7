"""Answers of the target, computed in this process with transformers."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, GenerationConfig


@dataclass(frozen=True)
class Sampling:
    """How the target answers: greedily at temperature 0, else by sampling with a seed."""

    max_tokens: int
    temperature: float = 0.0
    top_p: float = 1.0
    seed: int = 0


@dataclass(frozen=True)
class Answer:
    """What the target gave after a prompt.

    Attributes:
        ids: token ids, without the end-of-turn token.
        end_id: the end-of-turn token; None if `max_tokens` cut the answer.
    """

    ids: tuple[int, ...]
    end_id: int | None


class TransformersTarget:
    """A target loaded in this process; answers prompts in batches.

    Attributes:
        model: the loaded model, for whoever else needs it.
        context_length: most tokens of a prompt and its answer together.
    """

    def __init__(self, folder: Path, end_of_turn_ids: frozenset[int], trust_remote_code: bool):
        self.model = load_target(folder, trust_remote_code)
        # Only `Sampling` says how to sample: no penalty or top_k of the target's own settings.
        self.model.generation_config = GenerationConfig()
        self._ends = end_of_turn_ids
        self.context_length: int = self.model.config.get_text_config().max_position_embeddings

    def answer(self, prompts: Sequence[Sequence[int]], sampling: Sampling) -> list[Answer]:
        """Answer each prompt (token ids), all at once.

        Prompts are padded on the left, so each row ends where its answer begins.
        """
        width = max(len(prompt) for prompt in prompts)
        pad = min(self._ends)
        device = self.model.device
        ids = torch.tensor([[pad] * (width - len(p)) + list(p) for p in prompts], device=device)
        mask = torch.tensor([[0] * (width - len(p)) + [1] * len(p) for p in prompts], device=device)
        with torch.inference_mode(), torch.random.fork_rng(devices=[]):
            torch.manual_seed(sampling.seed)
            output = self.model.generate(
                input_ids=ids,
                attention_mask=mask,
                max_new_tokens=sampling.max_tokens,
                eos_token_id=sorted(self._ends),
                pad_token_id=pad,
                **_sampling_options(sampling),
            )
        return [self._cut(row[width:].tolist()) for row in output]

    def _cut(self, ids: list[int]) -> Answer:
        for position, token in enumerate(ids):
            if token in self._ends:
                return Answer(tuple(ids[:position]), end_id=token)
        return Answer(tuple(ids), end_id=None)


def load_target(folder: Path, trust_remote_code: bool, dtype: str = "auto") -> Any:
    """Load a target for inference on the best device that is there; safetensors only."""
    model: Any = AutoModelForCausalLM.from_pretrained(
        folder, trust_remote_code=trust_remote_code, use_safetensors=True, dtype=dtype
    )
    device = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    return model.to(device or torch.device("cpu")).eval()


def _sampling_options(sampling: Sampling) -> dict[str, Any]:
    if sampling.temperature == 0:
        return {"do_sample": False}
    return {
        "do_sample": True,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": 0,
    }
