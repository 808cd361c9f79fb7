"""A sample of a source, chosen by hash while the conversations go by."""

import heapq
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile
from typing import BinaryIO, Generic, TypeVar

Entry = TypeVar("Entry")


class Quota(Generic[Entry]):
    """Keeps the lines with the smallest ranks, on disk, while lines go by.

    Ranks are hashes of content, so this is a sample that does not depend on the order of the
    lines and that added lines disturb no more than they must.
    """

    def __init__(self, limit: int, spool: BinaryIO):
        self._limit = limit
        self._spool = spool
        self._kept: list[tuple[int, int, int, Entry]] = []

    def offer(self, rank: int, position: int, line: bytes, entry: Entry) -> Entry | None:
        """Take a line if it belongs to the sample so far.

        Args:
            position: its place among all lines, different for each.
            entry: what to give back with it.

        Returns:
            The entry that is left out for it, or its own; None while there is room.
        """
        place = (-rank, -position)
        if len(self._kept) == self._limit and place < self._kept[0][:2]:
            return entry
        kept = (*place, self._spool.tell(), entry)
        self._spool.write(line)
        if len(self._kept) < self._limit:
            heapq.heappush(self._kept, kept)
            return None
        return heapq.heapreplace(self._kept, kept)[3]

    def chosen(self) -> Iterator[tuple[bytes, Entry]]:
        """Yield the lines of the sample, each with its entry, in the order of their positions."""
        for _, _, offset, entry in sorted(self._kept, key=lambda kept: -kept[1]):
            self._spool.seek(offset)
            yield self._spool.readline(), entry


@contextmanager
def quota(limit: int, folder: Path) -> Iterator[Quota]:
    """Open a sample of at most `limit` lines; what it keeps in `folder` goes with the block."""
    folder.mkdir(parents=True, exist_ok=True)
    with TemporaryFile(dir=folder) as spool:
        yield Quota(limit, spool)
