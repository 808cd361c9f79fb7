"""How long token rows are, how much of each is supervised, and how many turns each holds."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

_SHARES = 20
"""Parts that the share of supervised tokens is divided into."""

_MOST_LENGTHS = 40


@dataclass
class RowHistograms:
    """Counted rows.

    Attributes:
        lengths: rows by their number of tokens.
        shares: rows by the share of their tokens that is supervised, in parts of equal width.
        turns: rows by the number of their supervised turns.
    """

    lengths: Counter[int] = field(default_factory=Counter)
    shares: Counter[int] = field(default_factory=Counter)
    turns: Counter[int] = field(default_factory=Counter)

    def count(self, length: int, supervised: int, turns: int) -> None:
        """Count a row of some tokens, so many of them supervised, with so many turns."""
        self.lengths[length] += 1
        self.shares[(supervised * _SHARES - 1) // length] += 1
        self.turns[turns] += 1

    def add(self, other: "RowHistograms") -> None:
        """Add other rows."""
        self.lengths.update(other.lengths)
        self.shares.update(other.shares)
        self.turns.update(other.turns)

    def stats(self) -> dict[str, Any]:
        """Return each histogram as it stands in `stats.json`.

        The first of `counts` is the rows above 0 up to `width` and with it, the next one those
        above that up to twice `width`, and so on.
        """
        width = 1
        while max(self.lengths, default=0) > width * _MOST_LENGTHS:
            width *= 2
        wide: Counter[int] = Counter()
        for length, rows in self.lengths.items():
            wide[(length - 1) // width] += rows
        turns = Counter({number - 1: rows for number, rows in self.turns.items()})
        return {
            "tokens": {"width": width, "counts": _listed(wide)},
            "supervised_share": {"width": 1 / _SHARES, "counts": _listed(self.shares)},
            "turns": {"width": 1, "counts": _listed(turns)},
        }


def _listed(counts: Counter[int]) -> list[int]:
    return [counts[place] for place in range(max(counts, default=-1) + 1)]
