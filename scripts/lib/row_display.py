"""Token rows for people: decoded from their ids, with what is supervised marked."""

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby

Decode = Callable[[Sequence[int]], str]

_GREEN, _GREY, _PLAIN = "\x1b[1;32m", "\x1b[2m", "\x1b[0m"


def marked(ids: Sequence[int], mask: Sequence[int], decode: Decode) -> str:
    """Return the text of a row with each supervised stretch between ⟦ and ⟧."""
    return "".join(f"⟦{text}⟧" if bit else text for bit, text in _stretches(ids, mask, decode))


def coloured(ids: Sequence[int], mask: Sequence[int], decode: Decode) -> str:
    """Return the text of a row for a terminal: supervised green, the rest grey.

    Control characters of the text itself are shown, not sent to the terminal.
    """
    return "".join(
        f"{_GREEN if bit else _GREY}{_harmless(text)}{_PLAIN}"
        for bit, text in _stretches(ids, mask, decode)
    )


def _stretches(
    ids: Sequence[int], mask: Sequence[int], decode: Decode
) -> Iterator[tuple[int, str]]:
    for bit, pairs in groupby(zip(ids, mask, strict=False), key=lambda pair: pair[1]):
        yield bit, decode([token for token, _ in pairs])


def _harmless(text: str) -> str:
    return "".join(c if c.isprintable() or c in "\n\t" else repr(c)[1:-1] for c in text)
