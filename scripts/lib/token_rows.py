"""Token rows with loss masks: what the target would read, and what it would say.

One row a turn of the target, carrying the history as the target saw it when it answered. The
mask is 1 exactly on the tokens that the target itself generates, through its end-of-turn token.
Rows of a conversation where one is the beginning of the next become one row.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from lib.conversation import Conversation, json_without_escapes
from lib.rendering import Renderer, RenderError

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


@dataclass(frozen=True, slots=True)
class TokenRow:
    """One training row.

    Attributes:
        ids: token ids, shape [length].
        mask: 1 where the target generates the token, else 0; shape [length].
        turns: positions of the supervised turns in the conversation.
    """

    ids: tuple[int, ...]
    mask: tuple[int, ...]
    turns: tuple[int, ...]


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


def tokenize(
    conversation: Conversation, renderer: Renderer, seq_length: int, minimum_supervised: int
) -> Tokenized:
    """Turn a conversation into token rows.

    Every turn of the target gives a supervised stretch of one row, or is counted as lost.

    Args:
        seq_length: longest row, in tokens.
        minimum_supervised: fewest supervised tokens of a turn.
    """
    answers = [n for n, turn in enumerate(conversation.turns) if turn.role == "gpt"]
    if _has_special_token(conversation, renderer.special_tokens):
        return Tokenized((), Counter({"special_token": len(answers)}), 0)
    rows: list[TokenRow] = []
    lost: Counter[str] = Counter()
    left_out = 0
    for position in answers:
        row = _row(conversation, position, renderer, seq_length, minimum_supervised)
        if isinstance(row, str):
            lost[row] += 1
            continue
        left_out += bool(conversation.turns[position].reasoning and not renderer.mode.thinking)
        if rows and row.ids[: len(rows[-1].ids)] == rows[-1].ids:
            rows[-1] = _merged(rows[-1], row)
        else:
            rows.append(row)
    return Tokenized(tuple(rows), lost, left_out)


def _row(
    conversation: Conversation,
    position: int,
    renderer: Renderer,
    seq_length: int,
    minimum_supervised: int,
) -> TokenRow | str:
    """Return the row of one turn, or the reason why there is none."""
    turns, tools = conversation.turns, conversation.tools
    if renderer.mode.thinking and not turns[position].reasoning:
        return "no_reasoning"
    try:
        prompt = renderer.encode(renderer.prompt(turns[:position], tools))
        ids = renderer.encode(renderer.conversation(turns[: position + 1], tools))
    except RenderError:
        return "unrenderable"
    if len(prompt) >= seq_length:
        return "context_too_long"
    if len(ids) > seq_length:
        return "answer_too_long"
    if ids[: len(prompt)] != prompt:
        return "prompt_not_prefix"
    end = _end_of_turn(ids, len(prompt), renderer.end_of_turn_ids)
    if end is None:
        return "no_end_of_turn"
    supervised = end + 1 - len(prompt)
    if supervised < minimum_supervised:
        return "too_few_supervised"
    mask = [0] * len(prompt) + [1] * supervised + [0] * (len(ids) - end - 1)
    return TokenRow(tuple(ids), tuple(mask), (position,))


def _end_of_turn(ids: Sequence[int], start: int, ends: frozenset[int]) -> int | None:
    return next((n for n in range(start, len(ids)) if ids[n] in ends), None)


def _merged(row: TokenRow, longer: TokenRow) -> TokenRow:
    """Join a row and a longer one that begins with it: the longer ids, both masks."""
    mask = tuple(a | b for a, b in zip(row.mask, longer.mask, strict=False))
    return TokenRow(longer.ids, mask + longer.mask[len(mask) :], row.turns + longer.turns)


def _has_special_token(conversation: Conversation, special_tokens: Sequence[str]) -> bool:
    texts = [json_without_escapes(conversation.tools)]
    for turn in conversation.turns:
        texts += [turn.text, turn.reasoning]
        for call in turn.tool_calls:
            texts += [call.name, json_without_escapes(call.arguments)]
    return any(token in text for text in texts for token in special_tokens)
