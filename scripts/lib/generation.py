"""Answers of the target, computed in this process with transformers."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import (
    AutoModelForCausalLM,
    GenerationConfig,
    LogitsProcessor,
    LogitsProcessorList,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from lib.sampling import Answer, Sampling


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
        with torch.inference_mode():
            output = self.model.generate(
                input_ids=ids,
                attention_mask=mask,
                max_new_tokens=sampling.max_tokens,
                eos_token_id=sorted(self._ends),
                pad_token_id=pad,
                do_sample=False,
                logits_processor=_processors(sampling, prompts),
            )
        return [Answer.until_end(row[width:].tolist(), self._ends) for row in output]


class TransformersAnswers:
    """A target in this process that answers all the prompts it was given at once.

    Attributes:
        context_length: most tokens of a prompt and its answer together.
        width: prompts to have under way.
    """

    def __init__(
        self,
        target: TransformersTarget,
        sampling: Sampling,
        context_length: int | None = None,
        width: int = 48,
    ):
        self._target = target
        self._sampling = sampling
        self._prompts: list[tuple[int, ...]] = []
        self.context_length = context_length or target.context_length
        self.width = width

    def start(self, prompt: tuple[int, ...]) -> None:
        """Take a prompt that is to be answered."""
        self._prompts.append(prompt)

    def finished(self) -> list[tuple[tuple[int, ...], Answer]]:
        """Answer the prompts; return each with its answer, in the order in which they came."""
        prompts, self._prompts = self._prompts, []
        return list(zip(prompts, self._target.answer(prompts, self._sampling), strict=True))


class _Noise(LogitsProcessor):  # type: ignore[misc]
    """Makes the largest logit a sample (the Gumbel trick), each row from its own generator."""

    def __init__(self, seeds: Sequence[int]):
        self._generators = [torch.Generator().manual_seed(seed) for seed in seeds]

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        noise = torch.stack(
            [torch.rand(scores.shape[1], generator=one) for one in self._generators]
        )
        return scores - torch.log(-torch.log(noise)).to(scores.device)


def load_target(folder: Path, trust_remote_code: bool, dtype: str = "auto") -> Any:
    """Load a target for inference on the best device that is there; safetensors only."""
    model: Any = AutoModelForCausalLM.from_pretrained(
        folder, trust_remote_code=trust_remote_code, use_safetensors=True, dtype=dtype
    )
    device = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    return model.to(device or torch.device("cpu")).eval()


def _processors(sampling: Sampling, prompts: Sequence[Sequence[int]]) -> LogitsProcessorList:
    if sampling.temperature == 0:
        return LogitsProcessorList()
    warpers: list[LogitsProcessor] = [TemperatureLogitsWarper(sampling.temperature)]
    if sampling.top_k:
        warpers.append(TopKLogitsWarper(sampling.top_k))
    if sampling.top_p < 1:
        warpers.append(TopPLogitsWarper(sampling.top_p))
    seeds = [sampling.seed_for(prompt) for prompt in prompts]
    return LogitsProcessorList([*warpers, _Noise(seeds)])
