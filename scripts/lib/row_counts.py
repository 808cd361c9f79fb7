"""What is counted while conversations become token rows."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lib.row_histograms import RowHistograms
from lib.token_rows import Tokenized

SPLITS = ("train", "validation")
"""The order in which their rows stand in the data set."""

_EXAMPLES = 3


@dataclass
class SideCounts:
    """Rows and tokens of one source on one side of the split."""

    conversations: int = 0
    rows: int = 0
    tokens: int = 0
    supervised_tokens: int = 0
    longest: int = 0

    def add(self, other: "SideCounts") -> None:
        """Add the numbers of other rows."""
        self.conversations += other.conversations
        self.rows += other.rows
        self.tokens += other.tokens
        self.supervised_tokens += other.supervised_tokens
        self.longest = max(self.longest, other.longest)


@dataclass
class SourceCounts:
    """What became of the turns of one source.

    Attributes:
        conversations: conversations read.
        turns: turns of the target in them.
        lost: those that gave no row, by reason.
        examples: ids of conversations with such turns, by reason.
        sides: by split.
    """

    conversations: int = 0
    turns: int = 0
    lost: Counter[str] = field(default_factory=Counter)
    examples: dict[str, list[str]] = field(default_factory=dict)
    sides: dict[str, SideCounts] = field(default_factory=dict)

    def add(self, other: "SourceCounts") -> None:
        """Add the numbers of conversations that follow."""
        self.conversations += other.conversations
        self.turns += other.turns
        self.lost.update(other.lost)
        for reason, ids in other.examples.items():
            known = self.examples.setdefault(reason, [])
            known += ids[: _EXAMPLES - len(known)]
        for split, counts in other.sides.items():
            self.sides.setdefault(split, SideCounts()).add(counts)


@dataclass
class Totals:
    """What is counted over a corpus, or over one piece of it.

    Attributes:
        reused: conversations whose rows an earlier run left.
        frequencies: how often each id is supervised.
    """

    reused: int = 0
    reasoning_left_out: int = 0
    sources: dict[str, SourceCounts] = field(default_factory=dict)
    histograms: RowHistograms = field(default_factory=RowHistograms)
    frequencies: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))

    def count(self, name: str, source: str, split: str, tokenized: Tokenized) -> None:
        """Count the rows of one conversation, whose id is `name`."""
        self.reasoning_left_out += tokenized.reasoning_left_out
        counts = self.sources.get(source)
        if counts is None:
            counts = self.sources[source] = SourceCounts()
        counts.conversations += 1
        if tokenized.lost:
            counts.turns += tokenized.lost.total()
            counts.lost.update(tokenized.lost)
            for reason in tokenized.lost:
                examples = counts.examples.setdefault(reason, [])
                if len(examples) < _EXAMPLES:
                    examples.append(name)
        side = counts.sides.get(split)
        if side is None:
            side = counts.sides[split] = SideCounts()
        side.conversations += bool(tokenized.rows)
        side.rows += len(tokenized.rows)
        for row in tokenized.rows:
            length = len(row.ids)
            supervised = sum(end - start for start, end in row.spans)
            counts.turns += len(row.turns)
            side.tokens += length
            side.longest = max(side.longest, length)
            side.supervised_tokens += supervised
            self.histograms.count(length, supervised, len(row.turns))

    def add(self, other: "Totals") -> None:
        """Add the numbers of the piece that follows."""
        self.reused += other.reused
        self.reasoning_left_out += other.reasoning_left_out
        for source, counts in other.sources.items():
            self.sources.setdefault(source, SourceCounts()).add(counts)
        self.histograms.add(other.histograms)
        length = max(len(self.frequencies), len(other.frequencies))
        self.frequencies = _longer(self.frequencies, length) + _longer(other.frequencies, length)

    @property
    def conversations(self) -> int:
        """Number of conversations read."""
        return sum(counts.conversations for counts in self.sources.values())

    def stats(self) -> dict[str, Any]:
        """Return the counts as they stand in `stats.json`.

        Raises:
            ValueError: no row is left for training, or none for validation.
        """
        lost = sum((counts.lost for counts in self.sources.values()), Counter[str]())
        turns = sum(counts.turns for counts in self.sources.values())
        sides = {split: SideCounts() for split in SPLITS}
        for counts in self.sources.values():
            for split, side in counts.sides.items():
                sides[split].add(side)
        for split, side in sides.items():
            if not side.rows:
                reasons = ", ".join(f"{reason} {count}" for reason, count in lost.most_common())
                raise ValueError(f"no row is left for {split}; turns lost: {reasons or 'none'}")
        train, validation = (sides[split].rows for split in SPLITS)
        return {
            "conversations_in": self.conversations,
            "turns_in": turns,
            "turns_supervised": turns - lost.total(),
            "turns_lost": lost.total(),
            "turns_lost_by_reason": dict(sorted(lost.items())),
            "reasoning_left_out": self.reasoning_left_out,
            "rows": train + validation,
            "train_rows": train,
            "validation_rows": validation,
            "train_data_ratio": training_ratio(train, train + validation),
            "tokens": sum(side.tokens for side in sides.values()),
            "supervised_tokens": sum(side.supervised_tokens for side in sides.values()),
            "histograms": self.histograms.stats(),
            "sources": {source: _source(counts) for source, counts in self.sources.items()},
        }


def training_ratio(train_rows: int, rows: int) -> float:
    """Return the share that makes speculators' split `int(rows * share)` fall at `train_rows`."""
    return (train_rows + 0.5) / rows


def longest_row(stats: Mapping[str, Any]) -> int:
    """Return the tokens of the longest row, from `stats.json`."""
    sources = stats["sources"].values()
    return max(
        int(counts[side]["longest"]) for counts in sources for side in SPLITS if side in counts
    )


def _source(counts: SourceCounts) -> dict[str, Any]:
    return {
        "conversations_in": counts.conversations,
        "turns": counts.turns,
        "turns_lost_by_reason": dict(sorted(counts.lost.items())),
        "examples": dict(sorted(counts.examples.items())),
        **{split: vars(counts.sides[split]) for split in SPLITS if split in counts.sides},
    }


def _longer(values: NDArray[np.int64], length: int) -> NDArray[np.int64]:
    return np.pad(values, (0, length - len(values)))
