"""Token rows with loss masks: what the target would read, and what it would say.

One row a turn of the target, carrying the history as the target saw it when it answered. The
mask is 1 exactly on the tokens that the target itself generates, through its end-of-turn token.
Rows of a conversation where one is the beginning of the next become one row.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from lib.conversation import Conversation, json_without_escapes
from lib.encoding import Encoder
from lib.rendering import Renderer, RenderError, tool_list

ROW_REASONS = {
    "special_token": "text of the conversation holds a special token of the target's tokenizer",
    "unrenderable": "the chat template refuses the conversation",
    "no_reasoning": "thinking is on and the turn has no recorded reasoning",
    "context_too_long": "the prompt alone fills the window",
    "answer_too_long": "the answer does not fit into the window",
    "prompt_not_prefix": "the rendered answer does not go on from its prompt, token for token",
    "no_end_of_turn": "no end-of-turn token follows the answer",
    "too_few_supervised": "fewer supervised tokens than tokenize.minimum_supervised_tokens",
}
"""Every reason why a turn of the target gives no row."""

TOO_LONG = ("context_too_long", "answer_too_long")
"""Those that a longer window would change."""


@dataclass(frozen=True, slots=True)
class TokenRow:
    """One training row.

    Attributes:
        ids: token ids, shape [length].
        spans: where the target generates the tokens: first and one past the last of each stretch.
        turns: positions of the supervised turns in the conversation, one a stretch.
    """

    ids: Sequence[int]
    spans: tuple[tuple[int, int], ...]
    turns: tuple[int, ...]

    @property
    def mask(self) -> tuple[int, ...]:
        """1 where the target generates the token, else 0; shape [length]."""
        mask = bytearray(len(self.ids))
        for start, end in self.spans:
            mask[start:end] = b"\x01" * (end - start)
        return tuple(mask)


@dataclass(frozen=True, slots=True)
class Tokenized:
    """The rows of one conversation and the turns that gave none, by reason.

    Attributes:
        reasoning_left_out: supervised turns whose recorded reasoning is not in the row, because
            thinking is off.
    """

    rows: tuple[TokenRow, ...]
    lost: Counter[str]
    reasoning_left_out: int


@dataclass(frozen=True, slots=True)
class RowLimits:
    """Longest row and fewest supervised tokens of a turn."""

    seq_length: int
    minimum_supervised: int = 1


class RowMaker:
    """Turns conversations into token rows for one target, with one encoder."""

    def __init__(self, renderer: Renderer, encoder: Encoder, limits: RowLimits):
        self._renderer = renderer
        self._encoder = encoder
        self._limits = limits
        self._special_token = re.compile(
            "|".join(map(re.escape, renderer.special_tokens)) or r"(?!)"
        )

    def rows(self, conversation: Conversation) -> Tokenized:
        """Return the rows of a conversation.

        Every turn of the target gives a supervised stretch of one row, or is counted as lost.
        """
        turns = conversation.turns
        answers = [n for n, turn in enumerate(turns) if turn.role == "gpt"]
        if self.holds_special_token(conversation):
            return Tokenized((), Counter({"special_token": len(answers)}), 0)
        messages = self._renderer.messages(turns)
        tools = tool_list(conversation.tools)
        thinking = self._renderer.mode.thinking
        rows: list[TokenRow] = []
        lost: Counter[str] = Counter()
        left_out = 0
        for position in answers:
            if thinking and not turns[position].reasoning:
                lost["no_reasoning"] += 1
                continue
            row = self._row(messages, tools, position)
            if isinstance(row, str):
                lost[row] += 1
                continue
            left_out += bool(turns[position].reasoning and not thinking)
            if rows and row.ids[: len(rows[-1].ids)] == rows[-1].ids:
                spans, merged = rows[-1].spans + row.spans, rows[-1].turns + row.turns
                rows[-1] = TokenRow(row.ids, spans, merged)
            else:
                rows.append(row)
        return Tokenized(tuple(rows), lost, left_out)

    def holds_special_token(self, conversation: Conversation) -> bool:
        """Say whether any text of a conversation holds a special token of the tokenizer."""
        return any(self._special_token.search(text) for text in _texts(conversation))

    def _row(
        self, messages: list[dict[str, Any]], tools: list[dict[str, Any]] | None, position: int
    ) -> TokenRow | str:
        """Return the row of one turn, or the reason why there is none."""
        try:
            prompt_text, text = self._rendered(messages, tools, position)
        except RenderError:
            return "unrenderable"
        prompt = self._encoder.encode(prompt_text)
        if len(prompt) >= self._limits.seq_length:
            return "context_too_long"
        ids = self._encoder.encode(text)
        if len(ids) > self._limits.seq_length:
            return "answer_too_long"
        start = len(prompt)
        if ids[:start] != prompt:
            return "prompt_not_prefix"
        end = _end_of_turn(ids, start, self._renderer.end_of_turn_ids)
        if end is None:
            return "no_end_of_turn"
        if end + 1 - start < self._limits.minimum_supervised:
            return "too_few_supervised"
        return TokenRow(tuple(ids), ((start, end + 1),), (position,))

    def _rendered(
        self, messages: list[dict[str, Any]], tools: list[dict[str, Any]] | None, position: int
    ) -> tuple[str, str]:
        """Return the prompt of a turn, and the conversation through the turn."""
        render = self._renderer.render
        return (
            render(messages[:position], tools, add_generation_prompt=True),
            render(messages[: position + 1], tools, add_generation_prompt=False),
        )


def _end_of_turn(ids: Sequence[int], start: int, ends: frozenset[int]) -> int | None:
    return next((n for n in range(start, len(ids)) if ids[n] in ends), None)


def _texts(conversation: Conversation) -> Iterator[str]:
    """Yield all text that comes from the conversation itself, as it will be printed."""
    yield json_without_escapes(conversation.tools)
    for turn in conversation.turns:
        yield turn.text
        yield turn.reasoning
        for call in turn.tool_calls:
            yield call.name
            yield json_without_escapes(call.arguments)
