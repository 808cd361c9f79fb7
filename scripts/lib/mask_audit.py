"""Whether a mask says what the target said, found out from the conversation and the ids alone.

Nothing of how masks are made is used here: no template and no rendering. The supervised tokens
are decoded and compared with the turns as they are recorded, to the character but for the white
space around each part. Between the parts only the marks of templates may stand.
"""

import json
import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from lib.conversation import Conversation, ToolCall, Turn

_MARKUP_WORDS = frozenset(
    (
        *("function", "functions", "tool", "tools", "call", "calls", "name", "id", "type"),
        *("parameter", "parameters", "arguments", "think", "begin", "start", "sep", "end"),
    )
)
"""The only words that templates write around calls and reasoning."""

_LONGEST_MARKUP = 200
"""Characters that a template writes between two parts, at most."""

_WORD = re.compile(r"[^\W_]+")


@dataclass(frozen=True)
class AuditedRow:
    """A token row and the conversation that it was made from.

    Attributes:
        ids: token ids, shape [length].
        mask: 1 where supervised, shape [length].
        turns: positions of the supervised turns in the conversation.
    """

    ids: Sequence[int]
    mask: Sequence[int]
    turns: Sequence[int]
    conversation: Conversation


def audit(
    row: AuditedRow, decode: Callable[[Sequence[int]], str], ends: frozenset[int], thinking: bool
) -> list[str]:
    """Return what is wrong with the mask of a row.

    Args:
        decode: gives the text of ids, special tokens included.
        ends: ids that end a turn of the target.
        thinking: whether the reasoning of a turn is supervised.
    """
    spans = list(supervised_spans(row.mask))
    if len(spans) != len(row.turns):
        return [f"{len(spans)} supervised stretches for {len(row.turns)} turns"]
    problems = []
    for (start, end), position in zip(spans, row.turns, strict=True):
        where = f"turn {position}"
        if position >= len(row.conversation.turns):
            problems.append(f"{where} is not in the conversation")
            continue
        turn = row.conversation.turns[position]
        if turn.role != "gpt":
            problems.append(f"{where} is one of {turn.role}, and supervised")
        elif row.ids[end - 1] not in ends:
            problems.append(f"{where} does not end in an end-of-turn token")
        elif any(token in ends for token in row.ids[start : end - 1]):
            problems.append(f"{where} goes on after its end-of-turn token")
        elif not _says(decode(row.ids[start : end - 1]), turn, thinking):
            problems.append(f"{where} is supervised as {decode(row.ids[start:end])!r}")
        elif not _follows(decode(row.ids[:start]), row.conversation.turns[:position]):
            problems.append(f"{where} does not follow the turn before it")
    return problems


def supervised_spans(mask: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield the first and one past the last position of each supervised stretch."""
    start = None
    for position, bit in enumerate(mask):
        if bit and start is None:
            start = position
        elif not bit and start is not None:
            yield start, position
            start = None
    if start is not None:
        yield start, len(mask)


def _says(text: str, turn: Turn, thinking: bool) -> bool:
    """Say whether a text holds the parts of a turn, in order, and else only markup."""
    parts: list[tuple[str, ...]] = []
    if thinking and turn.reasoning.strip():
        parts.append((turn.reasoning,))
    if turn.text.strip():
        parts.append((turn.text,))
    for call in turn.tool_calls:
        parts += _call_parts(call)
    if not turn.tool_calls and len(parts) == 1:
        return _normal(text) == _normal(parts[0][0])
    return _holds(_normal(text), [tuple(map(_normal, choices)) for choices in parts])


def _holds(text: str, parts: Sequence[tuple[str, ...]]) -> bool:
    """Say whether the text is the parts in order, any choice of each, with markup between."""
    ends = {0}
    for choices in parts:
        ends = {
            place + len(choice)
            for end in ends
            for choice in choices
            for place in _places(text, choice, end)
            if _is_markup(text[end:place])
        }
    return any(_is_markup(text[end:]) for end in ends)


def _places(text: str, part: str, start: int) -> Iterator[int]:
    """Yield where a part may begin, not too far behind the part before it."""
    place = text.find(part, start, start + _LONGEST_MARKUP + len(part))
    while place >= 0:
        yield place
        place = text.find(part, place + 1, start + _LONGEST_MARKUP + len(part))


def _call_parts(call: ToolCall) -> Iterator[tuple[str, ...]]:
    yield (call.name,)
    arguments: dict[str, Any] = json.loads(call.arguments)
    for name, value in arguments.items():
        yield tuple(dict.fromkeys(_spellings(name)))
        yield tuple(dict.fromkeys(_spellings(value)))


def _spellings(value: Any) -> Iterator[str]:
    """Yield the ways in which templates print a value."""
    if isinstance(value, str):
        yield value
        yield json.dumps(value, ensure_ascii=False)[1:-1]
        yield json.dumps(value)[1:-1]
    for keys in ({}, {"separators": (",", ":")}, {"indent": 4}, {"indent": 2}):
        yield json.dumps(value, ensure_ascii=False, **keys)  # type: ignore[arg-type]
        yield json.dumps(value, **keys)  # type: ignore[arg-type]
    yield str(value)


def _is_markup(text: str) -> bool:
    return all(word in _MARKUP_WORDS for word in _WORD.findall(text))


def _follows(history: str, turns: Sequence[Turn]) -> bool:
    """Say whether a prompt holds the text of all turns before, in order, and ends after the last.

    Reasoning and calls of earlier turns may be rewritten; text may not.
    """
    history = _normal(history)
    position = 0
    for turn in turns:
        text = _normal(turn.text)
        place = history.find(text, position)
        if place < 0:
            return False
        position = place + len(text)
    return not turns or _normal(turns[-1].text) in history[-len(text) - _LONGEST_MARKUP :]


def _normal(text: str) -> str:
    return unicodedata.normalize("NFC", text).strip()
