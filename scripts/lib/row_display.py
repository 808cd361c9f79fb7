"""Token rows for people: decoded from their ids, with what is supervised marked."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

Decode = Callable[[Sequence[int]], str]

_A_FEW_WORDS = 120

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


@dataclass(frozen=True)
class Stretch:
    """Text of a row that is supervised throughout, or not at all.

    Attributes:
        beginning, end: the text, or what is shown of it if it is long.
        left_out: characters between them that are not shown.
    """

    is_supervised: bool
    beginning: str
    left_out: int = 0
    end: str = ""


def shown_stretches(
    ids: Sequence[int], mask: Sequence[int], decode: Decode, most: int
) -> list[Stretch]:
    """Return the text of a row in stretches, the long ones without their middle.

    Characters that are not seen but act (control characters, those that turn the direction of
    writing) are shown as escapes.

    Args:
        most: characters to show of the row, about; of each stretch a few words are shown anyway.
    """
    stretches = list(_stretches(ids, mask, decode))
    share = max(_A_FEW_WORDS, most // len(stretches))
    return [_shortened(bool(bit), _harmless(text), share) for bit, text in stretches]


def _shortened(is_supervised: bool, text: str, most: int) -> Stretch:
    left_out = len(text) - most
    if left_out <= most // 10:  # not worth a gap
        return Stretch(is_supervised, text)
    end = most // 3
    return Stretch(is_supervised, text[: most - end], left_out, text[-end:])


def _stretches(
    ids: Sequence[int], mask: Sequence[int], decode: Decode
) -> Iterator[tuple[int, str]]:
    for bit, pairs in groupby(zip(ids, mask, strict=False), key=lambda pair: pair[1]):
        yield bit, decode([token for token, _ in pairs])


def _harmless(text: str) -> str:
    return "".join(c if c.isprintable() or c in "\n\t" else repr(c)[1:-1] for c in text)
