"""Token rows as the tests make them."""

from contextlib import suppress
from functools import cache

from lib.chain_rows import ChainRowMaker
from lib.encoding import FastEncoder, NotFast, TokenizerEncoder
from lib.piece_rows import Job
from lib.token_rows import RowLimits, TokenizeSettings
from lib.tokenizing import tokenize_conversations
from lib.turn_rows import RowMaker


@cache
def encoders(tokenizer):
    return TokenizerEncoder(tokenizer), FastEncoder(tokenizer)


def rows_of(conversation, renderer, seq_length=4096, minimum=1):
    """Return the rows of a conversation, which every way to make them must agree on."""
    limits = RowLimits(seq_length, minimum)
    exact, fast = encoders(renderer.tokenizer)
    rows = RowMaker(renderer, exact, limits).rows(conversation)
    assert RowMaker(renderer, fast, limits).rows(conversation) == rows
    with suppress(NotFast):
        assert ChainRowMaker(renderer, fast, limits).rows(conversation) == rows
    return rows


def tokenize_into(folder, corpus, target, workers=1, cache=None, **settings):
    """Tokenize a corpus and return the counts; earlier work is used only where `cache` is given."""
    keys = {"thinking": False, "preserve_thinking": False, "seq_length": 4096, **settings}
    stats, _ = tokenize_conversations(
        Job(TokenizeSettings(**keys), target, cache or folder.parent / "cache"),
        *(corpus, folder, workers, 60.0, lambda steps: None),
    )
    return stats
