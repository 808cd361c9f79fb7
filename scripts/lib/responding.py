"""Every answer of the corpus, given anew by the target (on-policy data).

A conversation is answered turn by turn: the target sees its own earlier answers. Recorded tool
results follow only where the target made the recorded calls. Where it did not, its turn is kept as
a conversation that ends there, a branch, and the conversation goes on from the recorded turn
(`on_mismatch: recorded`) or ends (`stop`). An answer that `max_tokens` cut, that is empty or that
cannot be read is no turn of the target and is left out in the same way. Recorded turns that stand
in for an answer are marked, so that nothing is learned from them.
"""

import json
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

import msgspec
import numpy as np
from msgspec.structs import replace

from lib.answers import UnreadableAnswer, read_answer
from lib.conversation import Conversation, ToolCall, Turn, to_record
from lib.digest import canonical
from lib.files import write_json
from lib.journal import Journal
from lib.jsonl import JsonlWriter, jsonl_writer
from lib.rendering import Renderer, RenderError
from lib.response_totals import Outputs, ResponseTotals, SourceResponses
from lib.sampling import Answer, Sampling, prompt_key, recommended_sampling

OTHER_CALLS = "other_calls_than_recorded"

_LAG = 8
"""Open conversations for each that is being answered, so that a slow one holds up none."""

OnMismatch = Literal["recorded", "stop"]


@dataclass(frozen=True)
class ResponseSettings:
    """What decides the answers; config/README.md says what the keys mean."""

    thinking: bool
    preserve_thinking: bool
    backend: str
    trust_remote_code: bool = False
    max_tokens: int = 2048
    context_length: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    seed: int = 0
    on_mismatch: OnMismatch = "recorded"

    def sampling(self, target: Path) -> Sampling:
        """Return how the target in a folder samples."""
        own = (self.temperature, self.top_p, self.top_k, self.seed)
        return recommended_sampling(target, self.max_tokens, *own)


class AnsweringTarget(Protocol):
    """Whatever answers prompts: a model in this process or a server.

    Attributes:
        context_length: most tokens of a prompt and its answer together.
        width: prompts to have under way.
    """

    context_length: int
    width: int

    def start(self, prompt: tuple[int, ...]) -> None:
        """Take a prompt that is to be answered."""
        ...

    def finished(self) -> list[tuple[tuple[int, ...], Answer]]:
        """Return at least one of the prompts that were started, each with its answer."""
        ...


@dataclass(frozen=True)
class Asking:
    """How conversations are answered.

    Attributes:
        max_tokens: longest answer.
        journal: answers of earlier runs by prompt, and of this one for later runs.
    """

    renderer: Renderer
    target: AnsweringTarget
    max_tokens: int
    on_mismatch: OnMismatch
    journal: Journal


@dataclass
class _Work:
    """A conversation on its way.

    Attributes:
        turns: what stands so far: recorded turns, and answers of the target.
        prompt: what the target was asked last, as text.
        next: position of the next recorded turn.
        calls: calls that the target made so far.
        branches: conversations that end with a turn whose calls are not the recorded ones.
        outcomes: what became of each answer.
        problems: reason and detail of each turn that has no answer.
        rewritten: answers that the template does not write as the target did.
    """

    recorded: Conversation
    turns: list[Turn] = field(default_factory=list)
    prompt: str = ""
    next: int = 0
    open: bool = True
    calls: int = 0
    branches: list[Conversation] = field(default_factory=list)
    outcomes: Counter[str] = field(default_factory=Counter)
    finish_reasons: Counter[str] = field(default_factory=Counter)
    problems: list[tuple[str, str]] = field(default_factory=list)
    rewritten: int = 0

    def conversations(self) -> list[Conversation]:
        """Return what was made: the conversation up to its last answer, and its branches."""
        turns = self.turns
        while turns and not _is_answer(turns[-1]):
            turns = turns[:-1]
        own = [replace(self.recorded, turns=tuple(turns))] if turns else []
        return own + self.branches


def regenerate_responses(
    corpus: Iterable[Conversation],
    asking: Asking,
    outputs: Outputs,
    advance: Callable[[int], None],
) -> dict[str, Any]:
    """Answer every conversation.

    Writes `responses` (records in the order of the corpus, each followed by its branches),
    `failures` (`{"id", "source", "reason", "detail"}`) and `stats`; conversations in = answered +
    failed. Answers are kept by prompt, so an interrupted run asks for nothing twice.

    Args:
        advance: called with the number of conversations finished since the last call.

    Returns:
        The content of `stats`.
    """
    totals = ResponseTotals()
    with jsonl_writer(outputs.responses) as answered, jsonl_writer(outputs.failures) as failed:
        for work in _worked(corpus, asking):
            made = work.conversations()
            totals.add(_counted(work, made))
            for conversation in made:
                answered.write(to_record(conversation))
            if not made:
                _write_failure(failed, work)
            advance(1)
        stats = totals.stats()
        write_json(outputs.stats, stats)
    return stats


def _counted(work: _Work, made: Sequence[Conversation]) -> ResponseTotals:
    """Return the counts of one finished conversation."""
    own = SourceResponses(1, int(bool(made)), int(not made), len(made))
    return ResponseTotals(
        conversations_in=1,
        answered=own.answered,
        failed=own.failed,
        records=own.records,
        branches=len(work.branches),
        rewritten=work.rewritten,
        answers=dict(work.outcomes),
        finish_reasons=dict(work.finish_reasons),
        failed_by_reason={} if made else {work.problems[0][0]: 1},
        sources={work.recorded.source: own},
    )


def _write_failure(failed: JsonlWriter, work: _Work) -> None:
    reason, detail = work.problems[0]
    failed.write(
        {
            "id": work.recorded.id,
            "source": work.recorded.source,
            "reason": reason,
            "detail": detail,
        }
    )


def _worked(corpus: Iterable[Conversation], asking: Asking) -> Iterator[_Work]:
    """Yield each conversation when all its answers are there, in the order of the corpus."""
    target = asking.target
    conversations = iter(corpus)
    line: deque[_Work] = deque()
    waiting: dict[tuple[int, ...], list[_Work]] = {}
    is_more = True
    while is_more or line:
        while is_more and len(waiting) < target.width and len(line) < _LAG * target.width:
            conversation = next(conversations, None)
            if conversation is None:
                is_more = False
                break
            line.append(_Work(conversation))
            _go_on(line[-1], asking, waiting)
        while line and not line[0].open:
            yield line.popleft()
        if waiting:
            for prompt, answer in target.finished():
                asking.journal.add(prompt_key(prompt), _packed(answer))
                for work in waiting.pop(prompt):
                    _take(work, answer, asking)
                    _go_on(work, asking, waiting)


def _go_on(work: _Work, asking: Asking, waiting: dict[tuple[int, ...], list[_Work]]) -> None:
    """Lead a conversation to its next prompt whose answer is not known, or to its end."""
    while _advance_to_answer(work):
        renderer = asking.renderer
        try:
            work.prompt = renderer.prompt(work.turns, work.recorded.tools)
            prompt = tuple(renderer.encode(work.prompt))
        except RenderError as error:
            _end(work, "unrenderable", str(error))
            return
        if len(prompt) + asking.max_tokens > asking.target.context_length:
            _end(work, "prompt_too_long")  # later ones are longer
            return
        known = asking.journal.find(prompt_key(prompt))
        if known is None:
            if prompt not in waiting:
                asking.target.start(prompt)
            waiting.setdefault(prompt, []).append(work)
            return
        _take(work, _unpacked(known), asking)


def _advance_to_answer(work: _Work) -> bool:
    """Copy recorded turns up to the next one that the target has to answer.

    Returns:
        Whether there is one; a conversation that ends with a question is answered too.
    """
    turns = work.recorded.turns
    while work.open and work.next < len(turns) and turns[work.next].role != "gpt":
        work.turns.append(turns[work.next])
        work.next += 1
    if work.next >= len(turns) and not (work.turns and work.turns[-1].role != "gpt"):
        work.open = False
    return work.open


def _take(work: _Work, answer: Answer, asking: Asking) -> None:
    """Add the target's turn to its conversation and decide how it goes on."""
    work.finish_reasons[answer.finish_reason] += 1
    turn = _read(work, answer, asking.renderer)
    if isinstance(turn, _NoTurn):
        work.outcomes[turn.reason] += 1
        work.problems.append((turn.reason, turn.detail))
        _go_on_as_recorded(work, asking.on_mismatch)
        return
    recorded = work.recorded.turns[work.next] if work.next < len(work.recorded.turns) else None
    if recorded is not None and not _same_calls(turn.tool_calls, recorded.tool_calls):
        work.outcomes[OTHER_CALLS] += 1
        branch = replace(work.recorded, turns=(*work.turns, turn))
        identity = branch.of_source(branch.source).id
        work.branches.append(replace(branch, id=identity))
        _go_on_as_recorded(work, asking.on_mismatch)
        return
    work.outcomes["kept"] += 1
    work.calls += len(turn.tool_calls)
    work.next += 1
    if recorded is None:
        work.open = False
    else:
        pairs = zip(turn.tool_calls, recorded.tool_calls, strict=True)
        calls = tuple(replace(call, id=known.id) for call, known in pairs)
        turn = replace(turn, tool_calls=calls)
    work.turns.append(turn)


def _go_on_as_recorded(work: _Work, on_mismatch: OnMismatch) -> None:
    """Let the recorded turn stand for an answer that cannot, or end the conversation."""
    if on_mismatch == "stop" or work.next >= len(work.recorded.turns):
        work.open = False
        return
    turn = work.recorded.turns[work.next]
    work.turns.append(replace(turn, recorded=True))
    work.calls += len(turn.tool_calls)
    work.next += 1


@dataclass(frozen=True)
class _NoTurn:
    """Why an answer is no turn of the target."""

    reason: str
    detail: str = ""


def _read(work: _Work, answer: Answer, renderer: Renderer) -> Turn | _NoTurn:
    """Return the turn that an answer is, and count it if the template writes it otherwise."""
    if answer.end_id is None:
        return _NoTurn("cut_by_length")
    text = renderer.decode(answer.ids)
    if any(token in text for token in renderer.special_tokens):
        return _NoTurn("unreadable_answer", "a special token in the answer")
    try:
        turn = read_answer(
            text,
            thinking=renderer.mode.thinking,
            tools=work.recorded.tools,
            calls_before=work.calls,
        )
    except UnreadableAnswer as error:
        return _NoTurn("unreadable_answer", str(error))
    if not turn.text.strip() and not turn.tool_calls:
        return _NoTurn("empty_answer")
    tools = work.recorded.tools
    try:
        rendered = renderer.conversation([*work.turns, turn], tools)
    except RenderError as error:
        return _NoTurn("unreadable_answer", f"the template refuses it: {error}")
    said = work.prompt + renderer.decode([*answer.ids, answer.end_id])
    work.rewritten += not rendered.startswith(said)
    return turn


def _end(work: _Work, reason: str, detail: str = "") -> None:
    """Close a conversation before an answer that cannot be asked for."""
    work.open = False
    work.outcomes[reason] += 1
    work.problems.append((reason, detail))


def _is_answer(turn: Turn) -> bool:
    return turn.role == "gpt" and not turn.recorded


class _PackedAnswer(msgspec.Struct, array_like=True):
    ids: bytes
    end_id: int | None


_PACK = msgspec.msgpack.Encoder().encode
_UNPACK = msgspec.msgpack.Decoder(_PackedAnswer).decode


def _packed(answer: Answer) -> bytes:
    return _PACK(_PackedAnswer(np.array(answer.ids, "<i4").tobytes(), answer.end_id))


def _unpacked(value: bytes) -> Answer:
    packed = _UNPACK(value)
    return Answer(tuple(np.frombuffer(packed.ids, "<i4").tolist()), packed.end_id)


def _same_calls(made: tuple[ToolCall, ...], recorded: tuple[ToolCall, ...]) -> bool:
    """Say whether two turns call the same functions with the same arguments, in order."""
    return [(call.name, canonical(json.loads(call.arguments))) for call in made] == [
        (call.name, canonical(json.loads(call.arguments))) for call in recorded
    ]
