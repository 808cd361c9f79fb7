"""What a drafter is worth on prompts that it never saw, domain by domain."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import nsmallest
from pathlib import Path
from typing import Any

from xxhash import xxh3_64_intdigest

from lib.acceptance import Acceptance, summarize
from lib.bootstrap import CONFIDENCE
from lib.conversation import from_record
from lib.files import write_json
from lib.jsonl import read_jsonl
from lib.losslessness import Losslessness
from lib.rendering import Renderer
from lib.speed import Timings, speed_summary

ALL = "all"
"""What all domains together are called."""

_GATE = "evaluate.minimum_acceptance_length"


@dataclass(frozen=True)
class EvaluateSettings:
    """How the drafter is measured; config/README.md says what the keys mean."""

    thinking: bool
    preserve_thinking: bool
    backend: str
    max_prompts: int | None = None
    max_tokens: int = 128
    concurrency: tuple[int, ...] = (1, 8)
    baseline: tuple[str, ...] = ("none",)
    mtp_tokens: int = 2
    other_thinking_mode: bool = False
    maximum_differing_share: float = 0.05
    minimum_acceptance_length: dict[str, float] = field(default_factory=dict)
    trust_remote_code: bool = False


@dataclass(frozen=True)
class Question:
    """A held-out prompt, as the target sees it: its token ids, up to where it answers."""

    id: str
    domain: str
    prompt: tuple[int, ...]


@dataclass(frozen=True)
class HeadMeasurement:
    """The same questions, where the target drafted with its own MTP head.

    Attributes:
        tokens: how many the head proposes at a time.
        acceptances: what the target accepted of each question.
        timings: of the answers.
        losslessness: None if there are no answers to compare with.
    """

    tokens: int
    acceptances: Sequence[Acceptance]
    timings: Timings
    losslessness: Losslessness | None = None

    def summary(self) -> dict[str, Any]:
        """Return what `evaluation.json` says of the head once for all prompts."""
        return {"tokens": self.tokens, "losslessness": _summary(self.losslessness)}


@dataclass(frozen=True)
class Measurement:
    """What was measured of each question, in their order, and of all.

    Attributes:
        acceptances: what the target accepted.
        output_tokens: length of each answer, its end included.
        with_drafter: times; empty where there was no server.
        without_drafter: times of the same prompts without the drafter; None if not measured.
        losslessness: None if there are no answers to compare with.
        mtp: the target's own MTP head on the same questions; None if not measured.
    """

    acceptances: Sequence[Acceptance]
    output_tokens: Sequence[int]
    with_drafter: Timings = field(default_factory=dict)
    without_drafter: Timings | None = None
    losslessness: Losslessness | None = None
    mtp: HeadMeasurement | None = None


Measured = tuple[Sequence[Question], Measurement]
"""The questions of a thinking mode, and what was measured of them."""


def read_questions(
    paths: Sequence[Path], settings: EvaluateSettings, renderer: Renderer
) -> list[Question]:
    """Read and render the held-out prompts, of each file at most `max_prompts`.

    Raises:
        ValueError: there are none, two have one id, or a domain that should be measured has none.
    """
    files = [list(read_jsonl(path)) for path in paths]
    if not any(files):
        raise ValueError("evaluate.prompts: the files hold no prompt")
    for name, count in Counter(row["id"] for file in files for row in file).items():
        if count > 1:
            raise ValueError(f"evaluate.prompts: {count} prompts have the id {name!r}")
    rows = [row for file in files for row in _chosen(file, settings.max_prompts)]
    domains = sorted({row["domain"] for row in rows})
    if ALL in domains:
        raise ValueError(f"evaluate.prompts: a domain is called {ALL!r}, which means all of them")
    for name in settings.minimum_acceptance_length:
        if name not in (ALL, *domains):
            known = ", ".join((ALL, *domains))
            raise ValueError(f"{_GATE}: no prompt has the domain {name!r}; there are {known}")
    return [Question(row["id"], row["domain"], _prompt(row, renderer)) for row in rows]


def evaluation(
    settings: EvaluateSettings,
    drafted_tokens: int,
    questions: Sequence[Question],
    measured: Measurement,
    other_mode: Measured | None = None,
    published: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the content of `evaluation.json`; docs/evaluation.md says what the keys mean.

    Args:
        drafted_tokens: how many the drafter proposes at a time.
        other_mode: the same in the other thinking mode; None if not measured.
        published: what is known of a drafter that others have published; None of the run's own.
    """
    other = {"thinking": not settings.thinking, **_of_mode(*other_mode)} if other_mode else None
    return {
        "backend": settings.backend,
        "block_size": drafted_tokens + 1,
        "max_tokens": settings.max_tokens,
        "thinking": settings.thinking,
        "confidence": CONFIDENCE,
        "published": published,
        **_of_mode(questions, measured),
        "other_mode": other,
    }


def _of_mode(questions: Sequence[Question], measured: Measurement) -> dict[str, Any]:
    """Return what was measured in one thinking mode."""
    domains = sorted({question.domain for question in questions})
    head = measured.mtp

    def accepted(acceptances: Sequence[Acceptance], names: Sequence[str]) -> dict[str, Any]:
        pairs = zip(questions, acceptances, strict=True)
        return summarize(one for question, one in pairs if question.domain in names)

    def part(names: Sequence[str]) -> dict[str, Any]:
        by_head = accepted(head.acceptances, names) if head else None
        times = (measured.with_drafter, measured.without_drafter, head.timings if head else None)
        return {
            **accepted(measured.acceptances, names),
            "speed": speed_summary(*times, names),
            "mtp": by_head and {key: by_head[key] for key in by_head if key != "prompts"},
        }

    return {
        ALL: part(domains),
        "domains": {name: part([name]) for name in domains},
        "losslessness": _summary(measured.losslessness),
        "mtp": head.summary() if head else None,
        "prompts": [
            {
                "id": question.id,
                "domain": question.domain,
                **_counts(measured.acceptances[number]),
                "output_tokens": measured.output_tokens[number],
                "mtp": _counts(head.acceptances[number]) if head else None,
            }
            for number, question in enumerate(questions)
        ],
    }


def _counts(acceptance: Acceptance) -> dict[str, int]:
    return {"drafts": acceptance.drafts, "accepted": acceptance.accepted}


def _summary(losslessness: Losslessness | None) -> dict[str, Any] | None:
    return None if losslessness is None else losslessness.summary()


def write_evaluation(
    settings: EvaluateSettings,
    summary: Mapping[str, Any],
    result: Path,
    refused: Path,
) -> None:
    """Write the result, if the drafter is as good as was asked for.

    Args:
        summary: what `evaluation` returned.
        refused: file that gets the result if it is not, so that it can be read but is not taken
            for one that passed.

    Raises:
        ValueError: it is not; names each domain with what was measured and wanted.
    """
    if found := list(shortfalls(settings, summary)):
        write_json(refused, summary)
        raise ValueError(f"{'; '.join(found)} (all that was measured is in {refused})")
    refused.unlink(missing_ok=True)
    write_json(result, summary)


def shortfalls(settings: EvaluateSettings, summary: Mapping[str, Any]) -> Iterator[str]:
    """Yield in what a drafter is not as good as was asked for."""
    parts = {ALL: summary[ALL], **summary["domains"]}
    for name, wanted in settings.minimum_acceptance_length.items():
        length = parts[name]["acceptance_length"]
        if length < wanted:
            low, high = parts[name]["acceptance_length_interval"]
            yield (
                f"{_GATE}.{name}: the acceptance length is {length:.2f} ({low:.2f} to {high:.2f}), "
                f"{wanted} is wanted"
            )
    if (compared := summary["losslessness"]) is None:
        return
    share, allowed = compared["differing_where_decided_share"], settings.maximum_differing_share
    if share > allowed:
        yield (
            f"evaluate.maximum_differing_share: {compared['differing_where_decided']} of "
            f"{compared['compared']} answers ({share:.1%}) are other ones with the drafter where "
            f"the target clearly preferred its own, {allowed:.1%} may be"
        )


def headline(summary: Mapping[str, Any]) -> str:
    """Return the result in one line."""
    everything = summary[ALL]
    low, high = everything["acceptance_length_interval"]
    parts = [
        f"acceptance length {everything['acceptance_length']:.2f} of {summary['block_size']} "
        f"({low:.2f} to {high:.2f})"
    ]
    if everything["mtp"]:
        parts.append(f"{everything['mtp']['acceptance_length']:.2f} with the target's own head")
    if summary["other_mode"]:
        length = summary["other_mode"][ALL]["acceptance_length"]
        parts.append(f"{length:.2f} with thinking {'off' if summary['thinking'] else 'on'}")
    for entry in everything["speed"]:
        if entry["ratio"]:
            times = entry["ratio"]["output_tokens_per_second"]
            parts.append(f"{times:.2f} times the tokens a second at {entry['concurrency']}")
    if compared := summary["losslessness"]:
        parts.append(f"{compared['differing']} of {compared['compared']} answers differ")
    return ", ".join(parts)


def _chosen(rows: list[dict[str, Any]], most: int | None) -> list[dict[str, Any]]:
    """Return at most so many rows in their order, the same ones each time."""
    if most is None:
        return rows
    first = set(nsmallest(most, (row["id"] for row in rows), key=_rank))
    return [row for row in rows if row["id"] in first]


def _rank(name: str) -> int:
    return xxh3_64_intdigest(name.encode())


def _prompt(row: Mapping[str, Any], renderer: Renderer) -> tuple[int, ...]:
    conversation = from_record({"source": "", **row})
    text = renderer.prompt(conversation.turns, conversation.tools)
    return tuple(renderer.encode(text))
