"""What a drafter is worth on prompts that it never saw, domain by domain."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from lib.conversation import from_record
from lib.files import write_json, write_text
from lib.generation import TransformersTarget
from lib.jsonl import read_jsonl
from lib.rendering import Renderer
from lib.sampling import Sampling
from lib.simulation import Acceptance, SimulatedDrafter
from lib.transformers_states import Capture

BATCH = 16


@dataclass(frozen=True)
class EvaluateSettings:
    """How the drafter is measured; config/README.md says what the keys mean."""

    thinking: bool
    preserve_thinking: bool
    backend: str
    max_tokens: int = 128
    trust_remote_code: bool = False


def evaluate_drafter(
    settings: EvaluateSettings,
    prompts: list[Path],
    drafter: Path,
    renderer: Renderer,
    result: Path,
    figure: Path,
    advance: Callable[[int], None],
) -> dict[str, Any]:
    """Answer every prompt greedily and count what the drafter would have contributed.

    Args:
        advance: called with the number of prompts finished since the last call.

    Returns:
        The content of `result`: acceptance length and acceptance by position, overall, by
        domain and by prompt.
    """
    questions = [question for path in prompts for question in read_jsonl(path)]
    target = TransformersTarget(
        renderer.target, renderer.end_of_turn_ids, settings.trust_remote_code
    )
    simulated = SimulatedDrafter(drafter, renderer.target)
    capture = Capture(target.model, simulated.layer_ids)
    measured: list[tuple[dict[str, Any], Acceptance]] = []
    for start in range(0, len(questions), BATCH):
        batch = questions[start : start + BATCH]
        conversations = [from_record({"source": "", **question}) for question in batch]
        encoded = [renderer.encode(renderer.prompt(c.turns, c.tools)) for c in conversations]
        answers = target.answer(encoded, Sampling(settings.max_tokens))
        for question, prompt, answer in zip(batch, encoded, answers, strict=True):
            end = [] if answer.end_id is None else [answer.end_id]
            ids = [*prompt, *answer.ids, *end]
            acceptance = simulated.acceptance(ids, len(prompt), capture.states(ids))
            measured.append((question, acceptance))
        advance(len(batch))
    names = sorted({question["domain"] for question, _ in measured})
    domains = {
        name: summarize(a for question, a in measured if question["domain"] == name)
        for name in names
    }
    summary = {
        "backend": settings.backend,
        "block_size": simulated.block_size,
        "all": summarize(acceptance for _, acceptance in measured),
        "domains": domains,
        "prompts": [
            {"id": question["id"], "drafts": a.drafts, "accepted": a.accepted}
            for question, a in measured
        ],
    }
    write_text(figure, _bar_chart(domains, simulated.block_size))
    write_json(result, summary)
    return summary


def summarize(acceptances: Iterable[Acceptance]) -> dict[str, Any]:
    """Return counts and rates over several answers.

    The acceptance length is 1 + accepted / drafts, as vLLM reports it: each step also gives the
    target's own next token.
    """
    acceptances = list(acceptances)
    drafts = sum(acceptance.drafts for acceptance in acceptances)
    accepted = sum(acceptance.accepted for acceptance in acceptances)
    columns = zip(*(acceptance.by_position for acceptance in acceptances), strict=True)
    return {
        "prompts": len(acceptances),
        "drafts": drafts,
        "accepted": accepted,
        "acceptance_length": 1 + accepted / drafts if drafts else 1.0,
        "acceptance_by_position": [sum(column) / drafts if drafts else 0.0 for column in columns],
    }


def _bar_chart(domains: dict[str, Any], block_size: int) -> str:
    """Return an SVG with one bar a domain; the full width is the block size."""
    width, bar, left = 420, 22, 90
    rows = []
    for number, (domain, summary) in enumerate(domains.items()):
        y = 34 + number * (bar + 10)
        length = summary["acceptance_length"] / block_size * width
        rows.append(
            f'<text x="{left - 8}" y="{y + 16}" text-anchor="end">{escape(domain)}</text>'
            f'<rect x="{left}" y="{y}" width="{width}" height="{bar}" fill="#e8ecef"/>'
            f'<rect x="{left}" y="{y}" width="{length:.1f}" height="{bar}" fill="#2f7d6d"/>'
            f'<text x="{left + length + 6:.1f}" y="{y + 16}">'
            f"{summary['acceptance_length']:.2f}</text>"
        )
    height = 34 + len(domains) * (bar + 10) + 6
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + width + 60}" height="{height}" '
        f'font-family="sans-serif" font-size="14">'
        f'<text x="{left}" y="20">acceptance length (block of {block_size})</text>'
        f"{''.join(rows)}</svg>\n"
    )
