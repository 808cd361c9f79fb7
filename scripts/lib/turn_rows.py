"""Token rows made turn by turn: the prompt and the answer are each rendered and encoded."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any

from lib.conversation import Conversation, json_without_escapes
from lib.encoding import Encoder
from lib.rendering import Renderer, RenderError, tool_list
from lib.token_rows import RowLimits, Tokenized, TokenRow


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
        answers = conversation.answers()
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
        end = first_of(self._renderer.end_of_turn_ids, ids, start)
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


def first_of(wanted: Iterable[int], ids: list[int], start: int) -> int | None:
    """Return where the first of several ids stands, from `start` on; None if none does."""
    places = []
    for token in wanted:
        with suppress(ValueError):
            places.append(ids.index(token, start))
    return min(places, default=None)


def _texts(conversation: Conversation) -> Iterator[str]:
    """Yield all text that comes from the conversation itself, as it will be printed."""
    yield json_without_escapes(conversation.tools)
    for turn in conversation.turns:
        yield turn.text
        yield turn.reasoning
        for call in turn.tool_calls:
            yield call.name
            yield json_without_escapes(call.arguments)
