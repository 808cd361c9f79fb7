"""Token rows with loss masks: what the target would read, and what it would say.

One row a turn of the target, carrying the history as the target saw it when it answered. The
mask is 1 exactly on the tokens that the target itself generates, through its end-of-turn token.
Rows of a conversation where one is the beginning of the next become one row.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

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


class RowsDiffer(Exception):
    """Two ways that must give the same rows do not."""


@dataclass(frozen=True)
class TokenizeSettings:
    """What decides the token rows; config/README.md says what the keys mean."""

    thinking: bool
    preserve_thinking: bool
    trust_remote_code: bool = False
    seq_length: int = 4096
    minimum_supervised_tokens: int = 1


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
