"""Parts of a corpus that independent jobs work on."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from lib.conversation import Conversation, from_line
from lib.jsonl import count_lines


@dataclass(frozen=True)
class Shard:
    """One of several parts of a corpus, in its order, as equal as possible."""

    number: int
    shards: int

    @classmethod
    def parse(cls, name: str) -> "Shard":
        """Return the shard of a name such as `2-of-4`.

        Raises:
            ValueError: there is no such shard.
        """
        match = re.fullmatch(r"([0-9]+)-of-([0-9]+)", name)
        if not match or not 1 <= int(match[1]) <= int(match[2]):
            raise ValueError(f"{name!r} is no shard; the second of four is 2-of-4")
        return cls(int(match[1]), int(match[2]))

    def __str__(self) -> str:
        return f"{self.number}-of-{self.shards}"

    def lines(self, corpus: Path) -> range:
        """Return the numbers of the lines of a file that belong to the shard."""
        count = count_lines(corpus)
        bounds = [count * part // self.shards for part in (self.number - 1, self.number)]
        return range(*bounds)


def shard_names(shards: int) -> list[str]:
    """Return the names of all shards in order."""
    return [f"{number}-of-{shards}" for number in range(1, shards + 1)]


def read_lines(corpus: Path, lines: range) -> Iterator[Conversation]:
    """Yield the conversations of some lines of a file of records.

    Raises:
        ValueError: a line is no record; names it.
    """
    with corpus.open("rb") as file:
        for number, line in enumerate(islice(file, lines.start, lines.stop), lines.start):
            try:
                yield from_line(line)
            except ValueError as error:
                raise ValueError(f"{corpus}: line {number + 1}: {error}") from error
