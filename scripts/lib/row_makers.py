"""The fastest way to make the rows of a target that is right, and the check that it is."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lib.chain_rows import ChainRowMaker
from lib.conversation import Conversation
from lib.encoding import FastEncoder, NotFast, TokenizerEncoder
from lib.rendering import Renderer, ThinkingMode
from lib.token_rows import RowLimits, RowsDiffer, Tokenized, TokenizeSettings
from lib.turn_rows import RowMaker


@dataclass(frozen=True)
class RowMakers:
    """Two ways to the same rows.

    Attributes:
        maker: the fastest way that tokenizer and template allow.
        exact: the tokenizer itself, two renderings a turn.
        encoder: what `maker` is, and why it is not a faster one.
    """

    maker: RowMaker | ChainRowMaker
    exact: RowMaker
    encoder: dict[str, Any]

    @property
    def is_exact(self) -> bool:
        """Whether the tokenizer itself is the fastest way."""
        return self.maker is self.exact

    def check(self, conversation: Conversation, found: Tokenized) -> None:
        """Compare rows that `maker` gave for a conversation with those of `exact`.

        Raises:
            RowsDiffer: they are not the same.
        """
        expected = self.exact.rows(conversation)
        if found != expected:
            pairs = enumerate(zip(found.rows, expected.rows, strict=False))
            fewer = min(len(found.rows), len(expected.rows))
            place = next((number for number, (one, other) in pairs if one != other), fewer)
            raise RowsDiffer(f"in row {place} of {conversation.id}")


def row_makers(target: Path, settings: TokenizeSettings, fast: bool) -> RowMakers:
    """Load the tokenizer of a target, and return the makers of its rows.

    Args:
        fast: whether another way than the tokenizer itself may be taken.
    """
    mode = ThinkingMode(settings.thinking, settings.preserve_thinking)
    renderer = Renderer(target, mode, settings.trust_remote_code)
    limits = RowLimits(settings.seq_length, settings.minimum_supervised_tokens)
    exact = RowMaker(renderer, TokenizerEncoder(renderer.tokenizer), limits)
    if not fast:
        return RowMakers(exact, exact, {"name": "tokenizer"})
    try:
        encoder = FastEncoder(renderer.tokenizer)
    except NotFast as reason:
        return RowMakers(exact, exact, {"name": "tokenizer", "why": str(reason)})
    used = {"name": "tiktoken"}
    try:
        chains = ChainRowMaker(renderer, encoder, limits)
    except NotFast as reason:
        twice = {**used, "rendered": "twice a turn", "why": str(reason)}
        return RowMakers(RowMaker(renderer, encoder, limits), exact, twice)
    return RowMakers(chains, exact, {**used, "rendered": "once a chain"})
