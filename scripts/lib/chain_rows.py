"""Token rows from one rendering of each chain of turns, instead of two renderings of each turn.

Most templates write the turns of the target alike, whether they are the last or history: what a
turn is rendered as when it is the last one can be cut from the rendering of a longer conversation.
Where a template rewrites history (Qwen drops the think block of earlier answers once the next
question comes), a turn no longer begins as its generation prompt says; there a chain of turns ends,
and the next one is rendered by itself. What a template does is learned from tiny conversations, and
whatever does not fit goes the long way (`RowMaker`). The rows are the same; stages that use this
compare a share of them.
"""

from collections import Counter
from collections.abc import Sequence, Set
from dataclasses import dataclass
from typing import Any

from lib.conversation import Conversation
from lib.encoding import FastEncoder, NotFast
from lib.rendering import Renderer, RenderError, tool_list
from lib.token_rows import RowLimits, Tokenized, TokenRow
from lib.turn_rows import RowMaker, first_of


@dataclass(frozen=True)
class _Marks:
    """How a template writes a turn of the target.

    Attributes:
        header: what each such turn begins with, a special token first.
        prompt: what it begins with when it is to be generated: the header and perhaps more.
        trailer: what follows the end-of-turn token.
    """

    header: str
    prompt: str
    trailer: str


class _OffTheChain(Exception):
    """A conversation does not look as the marks say."""


class ChainRowMaker:
    """Turns conversations into the same rows as `RowMaker`, with fewer renderings.

    Raises:
        NotFast: the template writes turns in a way that is not known.
    """

    def __init__(self, renderer: Renderer, encoder: FastEncoder, limits: RowLimits):
        self._renderer = renderer
        self._encoder = encoder
        self._limits = limits
        self._long_way = RowMaker(renderer, encoder, limits)
        self._marks = _learned(renderer)
        self._prompt = encoder.encode(self._marks.prompt)
        self._trailer = len(encoder.encode(self._marks.trailer))

    def rows(self, conversation: Conversation) -> Tokenized:
        """Return the rows of a conversation; see `RowMaker.rows`."""
        thinking = self._renderer.mode.thinking
        turns = conversation.turns
        answers = [n for n, turn in enumerate(turns) if turn.role == "gpt"]
        learned = frozenset(conversation.answers())
        if self._long_way.holds_special_token(conversation) or (
            thinking and any(not turns[n].reasoning for n in answers)
        ):
            return self._long_way.rows(conversation)
        messages = self._renderer.messages(turns)
        tools = tool_list(conversation.tools)
        rows: list[TokenRow] = []
        lost: Counter[str] = Counter()
        left = len(answers)
        try:
            while left:
                text = self._renderer.render(
                    messages[: answers[left - 1] + 1], tools, add_generation_prompt=False
                )
                starts = self._chain(text, left)
                left -= len(starts)
                if row := self._row(
                    text, starts, answers[left : left + len(starts)], learned, lost
                ):
                    rows.append(row)
        except (RenderError, _OffTheChain):
            return self._long_way.rows(conversation)
        left_out = 0 if thinking else sum(bool(turns[n].reasoning) for r in rows for n in r.turns)
        return Tokenized(tuple(reversed(rows)), lost, left_out)

    def _chain(self, text: str, turns: int) -> list[int]:
        """Return where the last turns begin that look as they did when they were generated."""
        starts = []
        place = text.find(self._marks.header)
        while place >= 0:
            starts.append(place)
            place = text.find(self._marks.header, place + 1)
        if len(starts) != turns:
            raise _OffTheChain
        first = turns
        while first and text.startswith(self._marks.prompt, starts[first - 1]):
            first -= 1
        if first == turns:
            raise _OffTheChain
        return starts[first:]

    def _row(
        self,
        text: str,
        starts: Sequence[int],
        positions: Sequence[int],
        learned: Set[int],
        lost: Counter[str],
    ) -> TokenRow | None:
        """Return the row of a chain; the turns that have no place in it are counted in `lost`.

        Each turn begins with a special token, so the pieces between can be encoded one by one.
        """
        ids = self._encoder.encode(text[: starts[0]])
        spans: list[tuple[int, int]] = []
        turns: list[int] = []
        length = 0
        for position, start, stop in zip(positions, starts, [*starts[1:], len(text)], strict=True):
            piece = self._encoder.encode(text[start:stop])
            if piece[: len(self._prompt)] != self._prompt:
                raise _OffTheChain
            first = len(ids) + len(self._prompt)
            ids += piece
            end = first_of(self._renderer.end_of_turn_ids, ids, first)
            if end is None:
                raise _OffTheChain
            if position not in learned:
                continue
            if first >= self._limits.seq_length:
                lost["context_too_long"] += 1
            elif end + 1 + self._trailer > self._limits.seq_length:
                lost["answer_too_long"] += 1
            elif end + 1 - first < self._limits.minimum_supervised:
                lost["too_few_supervised"] += 1
            else:
                spans.append((first, end + 1))
                turns.append(position)
                length = end + 1 + self._trailer
        return TokenRow(tuple(ids[:length]), tuple(spans), tuple(turns)) if spans else None


def _learned(renderer: Renderer) -> _Marks:
    """Return the marks of a template from what it makes of tiny conversations."""

    def render(*texts: str, prompt: bool = False) -> str:
        messages: list[dict[str, Any]] = [
            {"role": "assistant", "content": text, "reasoning_content": ""}
            if number % 2
            else {"role": "user", "content": text}
            for number, text in enumerate(texts)
        ]
        return renderer.render(messages, None, add_generation_prompt=prompt)

    try:
        question, prompted = render("Q"), render("Q", prompt=True)
        answered, followed = render("Q", "A"), render("Q", "A", "Q")
    except RenderError as error:
        raise NotFast(f"template: {error}") from error
    if not (prompted.startswith(question) and followed.startswith(question)):
        raise NotFast("template: what follows a question changes it")
    prompt = prompted[len(question) :]
    header = _common_start(prompt, followed[len(question) :])
    special = renderer.special_tokens
    ends = [renderer.decode([number]) for number in renderer.end_of_turn_ids]
    trailer = min(
        (answered.rpartition(end)[2] for end in ends if end in answered), key=len, default=None
    )
    if trailer is None:
        raise NotFast("template: no end-of-turn token ends an answer")
    behind = followed[len(question) :].partition("A")[2]
    after = next((behind.partition(end)[2] for end in ends if behind.startswith(end)), "")
    if not header.startswith(special):
        raise NotFast("template: a turn does not begin with a special token")
    if not (after.startswith(trailer) and after[len(trailer) :].startswith(special)):
        raise NotFast("template: what follows an answer does not begin with a special token")
    return _Marks(header, prompt, trailer)


def _common_start(one: str, other: str) -> str:
    length = next(
        (n for n, pair in enumerate(zip(one, other, strict=False)) if pair[0] != pair[1]),
        min(len(one), len(other)),
    )
    return one[:length]
