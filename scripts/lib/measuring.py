"""Measure a drafter on held-out prompts: in this process or in a server, in one mode or in both."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from lib.console import Stage
from lib.drafter_config import drafted_tokens
from lib.evaluation import EvaluateSettings, Measurement, Question, evaluation, read_questions
from lib.files import read_json
from lib.gpus import own_gpus
from lib.rendering import Renderer, ThinkingMode
from lib.served_acceptance import Evaluated, answers_to_make, measure_served
from lib.serving import Serving
from lib.simulation import simulate


@dataclass(frozen=True)
class Drafter:
    """A drafter that is measured.

    Attributes:
        folder: of the drafter, in speculators' format.
        target: folder of its target.
        published: what is known of one that others have published; None of the run's own.
    """

    folder: Path
    target: Path
    published: Mapping[str, Any] | None = None


def measure_drafter(
    settings: EvaluateSettings,
    serving: Serving,
    drafter: Drafter,
    prompts: Sequence[Path],
    log: Path,
    stage: Stage,
) -> dict[str, Any]:
    """Measure a drafter; return the content of `evaluation.json`.

    Args:
        prompts: files of held-out prompts.
        log: the stage's log; those of servers lie beside it.

    Raises:
        ValueError: the prompts cannot be measured, the back end does not know this kind of
            drafter, or a server did not draft as it should.
        ServerError: a server did not start, or ended.
    """
    mode = ThinkingMode(settings.thinking, settings.preserve_thinking)
    renderer = Renderer(drafter.target, mode, settings.trust_remote_code)
    asked = [read_questions(prompts, settings, renderer)]
    if settings.other_thinking_mode:
        other = replace(renderer, mode=replace(mode, thinking=not mode.thinking))
        asked.append(read_questions(prompts, settings, other))
        if asked[0] == asked[1]:
            raise ValueError(
                "evaluate.other_thinking_mode: the target's template renders every prompt alike "
                "with thinking on and off, so there is no other mode; take it out"
            )
    measured = _measure(settings, serving, asked, drafter.folder, renderer, log, stage)
    others = list(zip(asked, measured, strict=True))[1:]
    return evaluation(
        settings,
        drafted_tokens(read_json(drafter.folder / "config.json")),
        asked[0],
        measured[0],
        others[0] if others else None,
        drafter.published,
    )


def _measure(
    settings: EvaluateSettings,
    serving: Serving,
    asked: Sequence[Sequence[Question]],
    drafter: Path,
    renderer: Renderer,
    log: Path,
    stage: Stage,
) -> list[Measurement]:
    """Measure the drafter in each mode."""
    prompts = sum(len(questions) for questions in asked)
    if settings.backend == "simulate":
        with stage.progress("prompts", prompts) as progress:
            return simulate(asked, settings, drafter, renderer, progress.advance)
    total = answers_to_make(settings, prompts)
    with own_gpus(serving.gpus, stage.say), stage.progress("answers", total) as progress:
        served = Evaluated(settings, asked, renderer, serving, log, stage.say, progress.advance)
        return measure_served(served, drafter)
