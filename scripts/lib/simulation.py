"""Exact greedy block verification in this process: what a server would accept, without a server."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from speculators import SpeculatorModel
from speculators.models.dflash import DFlashSpeculatorConfig

from lib.acceptance import Acceptance
from lib.evaluation import EvaluateSettings, Measurement, Question
from lib.files import read_json
from lib.generation import TransformersTarget
from lib.rendering import Renderer
from lib.sampling import Sampling
from lib.transformers_states import Capture

_BATCH = 16


def simulate(
    asked: Sequence[Sequence[Question]],
    settings: EvaluateSettings,
    drafter: Path,
    renderer: Renderer,
    advance: Callable[[int], None],
) -> list[Measurement]:
    """Answer every prompt greedily and count what the drafter would have contributed.

    Args:
        asked: the questions in each thinking mode that is measured.
        drafter: folder of the exported drafter.
        advance: called with the number of prompts finished since the last call.

    Returns:
        What was measured in each mode.

    Raises:
        ValueError: the drafter is of a kind that does not draft as DFlash does.
    """
    simulated = SimulatedDrafter(drafter, renderer.target)
    target = TransformersTarget(
        renderer.target, renderer.end_of_turn_ids, settings.trust_remote_code
    )
    capture = Capture(target.model, simulated.layer_ids)

    def measure(questions: Sequence[Question]) -> Measurement:
        acceptances, output_tokens = [], []
        for start in range(0, len(questions), _BATCH):
            prompts = [question.prompt for question in questions[start : start + _BATCH]]
            answers = target.answer(prompts, Sampling(settings.max_tokens))
            for prompt, answer in zip(prompts, answers, strict=True):
                end = [] if answer.end_id is None else [answer.end_id]
                ids = [*prompt, *answer.ids, *end]
                acceptances.append(simulated.acceptance(ids, len(prompt), capture.states(ids)))
                output_tokens.append(len(ids) - len(prompt))
            advance(len(prompts))
        return Measurement(acceptances, output_tokens)

    return [measure(questions) for questions in asked]


class SimulatedDrafter:
    """An exported DFlash drafter next to its target."""

    def __init__(self, folder: Path, target: Path):
        """Load a drafter.

        Raises:
            ValueError: it is of a kind that does not draft as DFlash does.
        """
        kind = read_json(folder / "config.json")["speculators_model_type"]
        if kind != "dflash":
            raise ValueError(f"evaluate.backend: simulate knows dflash drafters; this is {kind}")
        config = DFlashSpeculatorConfig.from_pretrained(folder)
        config.transformer_layer_config._attn_implementation = "sdpa"
        # The drafter takes embeddings and output head from its target, wherever that lies now.
        config.speculators_config.verifier.name_or_path = str(target)
        # In float32 from the start: in the drafter's own bfloat16 the target's would be rounded.
        model: Any = SpeculatorModel.from_pretrained(folder, config=config, dtype=torch.float32)
        self._model = model.eval()
        self.block_size: int = config.block_size
        self.layer_ids: list[int] = list(config.aux_hidden_state_layer_ids)

    def acceptance(
        self, ids: Sequence[int], prompt_length: int, states: torch.Tensor
    ) -> Acceptance:
        """Draft along the target's own greedy answer and count what it would have accepted.

        Args:
            ids: prompt and answer, length L.
            prompt_length: number of tokens of the prompt.
            states: the target's hidden states, shape [L, layers + 1, hidden size].

        Returns:
            The counts of a server that drafts after every accepted block.
        """
        anchors = list(range(prompt_length, len(ids) - 1))
        if not anchors:
            return Acceptance(0, (0,) * (self.block_size - 1))
        drafted = self._draft(ids, anchors, states)
        by_position = [0] * (self.block_size - 1)
        drafts = 0
        anchor = anchors[0]
        while anchor < len(ids) - 1:
            accepted = _agreement(drafted[anchor - anchors[0]], ids[anchor + 1 :])
            for position in range(accepted):
                by_position[position] += 1
            drafts += 1
            anchor += accepted + 1
        return Acceptance(drafts, tuple(by_position))

    def _draft(
        self, ids: Sequence[int], anchors: list[int], states: torch.Tensor
    ) -> list[list[int]]:
        """Return the tokens drafted after each anchor, all computed in one pass.

        Uses the model's own training pass (speculators 0.9.0), whose attention mask lets the
        block of an anchor see only what stands before the anchor.
        """
        length = len(ids) + self.block_size
        padding = self.block_size
        tokens = torch.nn.functional.pad(torch.tensor([list(ids)]), (0, padding))
        padded = torch.nn.functional.pad(states.float(), (0, 0, 0, 0, 0, padding))
        wanted = torch.zeros(1, length, dtype=torch.long)
        wanted[0, anchors] = 1
        documents = torch.full((1, length), -1)
        documents[0, : len(ids)] = 0
        with torch.inference_mode():
            _, logits, *_ = self._model._backbone_forward(
                padded[:, :-1].flatten(1).unsqueeze(0),
                tokens,
                wanted,
                padded[:, -1].unsqueeze(0),
                documents,
                max_anchors=len(anchors),
            )
        choices = logits.argmax(-1)
        if self._model.d2t is not None:
            choices = choices + self._model.d2t[choices]
        blocks: list[list[int]] = choices.view(len(anchors), self.block_size)[:, 1:].tolist()
        return blocks


def _agreement(drafted: Sequence[int], actual: Sequence[int]) -> int:
    """Return how many tokens agree before the first that does not."""
    for count, (one, other) in enumerate(zip(drafted, actual, strict=False)):
        if one != other:
            return count
    return min(len(drafted), len(actual))
