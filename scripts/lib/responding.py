"""Every answer of the corpus, given anew by the target (on-policy data).

A conversation is answered turn by turn: the target sees its own earlier answers. Recorded tool
results follow only where the target made the recorded calls; where it did not, its turn is kept
and the conversation ends there. An answer that `max_tokens` cut is no turn of the target, so the
conversation ends before it.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

from msgspec.structs import replace

from lib.answers import UnreadableAnswer, read_answer
from lib.cache import Cache
from lib.conversation import Conversation, ToolCall, Turn, from_record, to_record
from lib.digest import canonical
from lib.files import write_json
from lib.generation import Answer, Sampling
from lib.jsonl import jsonl_writer, read_jsonl
from lib.rendering import Renderer, RenderError

BATCH = 48
"""Conversations that are answered side by side."""

FAILURES = {
    "unrenderable": "the chat template refuses the conversation",
    "prompt_too_long": "the first prompt leaves no room for an answer",
    "cut_by_length": "the first answer was cut by max_tokens",
    "unreadable_answer": "the first answer is no turn that could be rendered again",
    "empty_answer": "the first answer is empty",
}
"""Every reason why a conversation has no answer."""


@dataclass(frozen=True)
class ResponseSettings:
    """What decides the answers; config/README.md says what the keys mean."""

    thinking: bool
    preserve_thinking: bool
    backend: str
    trust_remote_code: bool = False
    max_tokens: int = 2048
    temperature: float = 0.0
    top_p: float = 1.0
    seed: int = 0

    def sampling(self) -> Sampling:
        """Return how the target samples."""
        return Sampling(self.max_tokens, self.temperature, self.top_p, self.seed)


class AnsweringTarget(Protocol):
    """Whatever answers prompts: a model in this process or a server.

    Attributes:
        context_length: most tokens of a prompt and its answer together.
    """

    context_length: int

    def answer(self, prompts: Sequence[Sequence[int]], sampling: Sampling) -> list[Answer]:
        """Answer each prompt, in order."""
        ...


@dataclass
class _Work:
    """A conversation on its way: what is recorded, what the target has answered so far."""

    recorded: Conversation
    turns: list[Turn]
    next: int = 0
    answered: int = 0
    failure: str = ""
    detail: str = ""
    open: bool = True
    calls: int = 0
    ended_early: str = ""


def regenerate_responses(
    corpus: Path,
    renderer: Renderer,
    target: AnsweringTarget,
    sampling: Sampling,
    cache: Cache,
    responses: Path,
    failures: Path,
    stats: Path,
    advance: Callable[[int], None],
) -> dict[str, Any]:
    """Answer every conversation of `corpus`.

    Writes `responses` (records in the order of the corpus), `failures` (`{"id", "source",
    "reason", "detail"}`) and `stats`; conversations in = answered + failed. Answers are kept in
    `cache` by prompt, so an interrupted run asks for nothing twice.

    Args:
        advance: called with the number of conversations finished since the last call.

    Returns:
        The content of `stats`.
    """
    reasons: Counter[str] = Counter()
    early: Counter[str] = Counter()
    with jsonl_writer(responses) as answered, jsonl_writer(failures) as failed:
        for batch in _batches(corpus):
            while open_work := [work for work in batch if _advance_to_answer(work)]:
                _answer_all(open_work, renderer, target, sampling, cache)
            for work in batch:
                if work.answered:
                    early.update([work.ended_early] if work.ended_early else [])
                    answered.write(to_record(replace(work.recorded, turns=tuple(work.turns))))
                else:
                    reasons[work.failure] += 1
                    failed.write(
                        {
                            "id": work.recorded.id,
                            "source": work.recorded.source,
                            "reason": work.failure,
                            "detail": work.detail,
                        }
                    )
            advance(len(batch))
        result = {
            "conversations_in": answered.count + failed.count,
            "answered": answered.count,
            "failed": failed.count,
            "failed_by_reason": dict(sorted(reasons.items())),
            "ended_early_by_reason": dict(sorted(early.items())),
        }
        write_json(stats, result)
    return result


def _batches(corpus: Path) -> Iterator[list[_Work]]:
    records = read_jsonl(corpus)
    while batch := [_Work(from_record(record), []) for record in islice(records, BATCH)]:
        yield batch


def _advance_to_answer(work: _Work) -> bool:
    """Copy recorded turns up to the next one that the target has to answer.

    Returns:
        Whether there is one; a conversation that ends with a question is answered too.
    """
    turns = work.recorded.turns
    while work.open and work.next < len(turns) and turns[work.next].role != "gpt":
        work.turns.append(turns[work.next])
        work.next += 1
    ends_with_question = bool(work.turns) and work.turns[-1].role != "gpt"
    if work.open and work.next >= len(turns) and not ends_with_question:
        work.open = False
    return work.open


def _answer_all(
    work: list[_Work],
    renderer: Renderer,
    target: AnsweringTarget,
    sampling: Sampling,
    cache: Cache,
) -> None:
    """Answer the next turn of each conversation, all in one batch."""
    waiting: dict[tuple[int, ...], list[_Work]] = {}
    for item in work:
        try:
            prompt = renderer.encode(renderer.prompt(item.turns, item.recorded.tools))
        except RenderError as error:
            _end(item, "unrenderable", str(error))
            continue
        if len(prompt) + sampling.max_tokens > target.context_length:
            _end(item, "prompt_too_long")
            continue
        known = cache.get(prompt)
        if known is None:
            waiting.setdefault(tuple(prompt), []).append(item)
        else:
            _take(item, Answer(tuple(known["ids"]), known["end_id"]), renderer)
    if waiting:
        answers = target.answer(list(waiting), sampling)
        for (asked, items), answer in zip(waiting.items(), answers, strict=True):
            cache.put(asked, {"ids": answer.ids, "end_id": answer.end_id})
            for item in items:
                _take(item, answer, renderer)


def _take(work: _Work, answer: Answer, renderer: Renderer) -> None:
    """Add the target's turn to its conversation and decide how it goes on."""
    if answer.end_id is None:
        return _end(work, "cut_by_length")
    text = renderer.tokenizer.decode(list(answer.ids), skip_special_tokens=False)
    if any(token in text for token in renderer.special_tokens):
        return _end(work, "unreadable_answer", "a special token in the answer")
    try:
        turn = read_answer(
            text,
            thinking=renderer.mode.thinking,
            tools=work.recorded.tools,
            calls_before=work.calls,
        )
    except UnreadableAnswer as error:
        return _end(work, "unreadable_answer", str(error))
    if not turn.text.strip() and not turn.tool_calls:
        return _end(work, "empty_answer")
    work.turns.append(turn)
    work.answered += 1
    work.calls += len(turn.tool_calls)
    recorded = work.recorded.turns[work.next] if work.next < len(work.recorded.turns) else None
    work.next += 1
    if recorded is None:
        work.open = False
    elif not _same_calls(turn.tool_calls, recorded.tool_calls):
        work.open, work.ended_early = False, "other_calls_than_recorded"
    else:
        ids = [call.id for call in recorded.tool_calls]
        work.turns[-1] = replace(
            turn,
            tool_calls=tuple(
                replace(call, id=name) for call, name in zip(turn.tool_calls, ids, strict=True)
            ),
        )


def _end(work: _Work, reason: str, detail: str = "") -> None:
    """Close a conversation; the turns after its last answer go."""
    work.open = False
    if work.answered:
        work.ended_early = reason
        while work.turns[-1].role != "gpt":
            work.turns.pop()
    else:
        work.failure, work.detail = reason, detail


def _same_calls(made: tuple[ToolCall, ...], recorded: tuple[ToolCall, ...]) -> bool:
    """Say whether two turns call the same functions with the same arguments, in order."""
    return [(call.name, canonical(json.loads(call.arguments))) for call in made] == [
        (call.name, canonical(json.loads(call.arguments))) for call in recorded
    ]
