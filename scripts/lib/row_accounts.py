"""Raw rows to the lines of a file, with every row accounted for."""

import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from lib.conversation import CHOICES, Conversation, Rejected
from lib.files import write_json
from lib.jsonl import JsonlWriter, jsonl_writer
from lib.quota import Quota, quota
from lib.readers import read_rows

EXAMPLES = 3
"""Rejected rows that are quoted when a source cannot be used."""

_ID_KEYS = (
    *("id", "message_id", "session_id", "prompt_id"),
    *("question_id", "task_id", "unique_id", "uid"),
)

_ROWS_A_STEP = 100
"""Rows between two reports of progress."""

NumberedRow = tuple[int, Any]
"""A raw row and its 0-based position."""

StoredLine = Callable[[Conversation, str], tuple[str, bytes]]
"""Returns the identity of a conversation in a source, and the line that stores it there."""


class UnusableSource(ValueError):
    """A raw file is damaged, or more rows were rejected than the configuration allows."""


class Fate(NamedTuple):
    """What became of the rows that one conversation was, or would have been, made of.

    Attributes:
        rows: number and raw row of each.
    """

    rows: Sequence[NumberedRow]
    outcome: Conversation | Rejected


@dataclass(frozen=True)
class Limits:
    """Whose rows these are, how many conversations are taken, and how many rows may be bad."""

    source: str
    most: int | None
    max_reject_rate: float


@dataclass(frozen=True)
class Accounts:
    """The files of what is kept, of the rows that are not, and of the counts."""

    records: Path
    rejects: Path
    stats: Path


def account_for_rows(
    limits: Limits,
    paths: Sequence[Path],
    fates: Callable[[Iterable[NumberedRow]], Iterator[Fate]],
    stored: StoredLine,
    accounts: Accounts,
    advance: Callable[[int], None],
) -> dict[str, Any]:
    """Read the rows of raw files and enter each as written or as rejected.

    Writes the lines of the conversations, the rejects (`{"source", "row", "id", "reason",
    "detail"}`) and the counts; rows in = rows written + rows rejected.

    Args:
        fates: says what becomes of the rows; each occurs in exactly one fate.
        advance: called with the number of raw rows read since the last call.

    Returns:
        The counts.

    Raises:
        UnusableSource: a file is damaged, or the share of rejected rows is above
            `max_reject_rate`; the rejects and the counts of all rows that could be read are
            written all the same, the conversations are not.
    """
    raw = _RawRows(paths, advance)
    with jsonl_writer(accounts.records) as accepted:
        with jsonl_writer(accounts.rejects) as rejected:
            ledger = _Ledger(limits.source, stored, accepted, rejected)
            if limits.most is None:
                ledger.enter_all(fates(raw))
            else:
                with quota(limits.most, accounts.rejects.parent) as sample:
                    ledger.enter_sample(fates(raw), sample)
        result = ledger.stats(raw.count)
        write_json(accounts.stats, result)
        if raw.damage is not None:
            raise UnusableSource(f"{raw.damage}\n{ledger.summary('rows before it')}")
        bad = sum(n for reason, n in ledger.reasons.items() if reason not in CHOICES)
        if bad > raw.count * limits.max_reject_rate:
            raise UnusableSource(
                f"{limits.source}: {bad} of {raw.count} rows rejected, more than max_reject_rate "
                f"{limits.max_reject_rate} allows\n{ledger.summary('rows')}"
            )
    return result


@contextmanager
def rejects_kept(rejects: Path, log: Path) -> Iterator[None]:
    """Move the rejects beside the log if the block finds that a source cannot be used.

    What a failed job wrote is removed otherwise, and nobody could see what is wrong.
    """
    try:
        yield
    except UnusableSource as error:
        kept = log.with_suffix(".rejects.jsonl")
        shutil.move(rejects, kept)
        raise UnusableSource(f"{error}\n  every rejected row: {kept}") from error


class _RawRows:
    """The numbered rows of files up to the first damage, which is kept for later.

    Attributes:
        count: rows read so far.
        damage: why reading ended early, if it did.
    """

    def __init__(self, paths: Sequence[Path], advance: Callable[[int], None]):
        self._paths = paths
        self._advance = advance
        self.count = 0
        self.damage: ValueError | None = None

    def __iter__(self) -> Iterator[NumberedRow]:
        try:
            for path in self._paths:
                for row in read_rows(path):
                    yield self.count, row
                    self.count += 1
                    if self.count % _ROWS_A_STEP == 0:
                        self._advance(_ROWS_A_STEP)
        except ValueError as damage:
            self.damage = damage
        self._advance(self.count % _ROWS_A_STEP)


def _named(rows: Iterable[NumberedRow]) -> list[tuple[int, str]]:
    """Return the number of each row and its own name for itself, "" if it has none."""
    return [(number, _raw_id(row)) for number, row in rows]


def _raw_id(row: Any) -> str:
    found = (row.get(key) for key in _ID_KEYS) if isinstance(row, Mapping) else ()
    return next((str(raw_id) for raw_id in found if raw_id is not None), "")


class _Ledger:
    """Enters every row as written or rejected, and counts.

    Attributes:
        reasons: rejected rows by reason.
    """

    def __init__(
        self, source: str, stored: StoredLine, accepted: JsonlWriter, rejected: JsonlWriter
    ):
        self._source = source
        self._stored = stored
        self._accepted = accepted
        self._rejected = rejected
        self._rows_written = 0
        self._repairs: Counter[str] = Counter()
        self.reasons: Counter[str] = Counter()
        self._examples: list[str] = []

    def enter_all(self, fates: Iterable[Fate]) -> None:
        """Write every conversation."""
        for rows, outcome in fates:
            if isinstance(outcome, Conversation):
                _, line = self._stored(outcome, self._source)
                self._accept(line, len(rows), outcome.repairs)
            else:
                self._reject(_named(rows), outcome)

    def enter_sample(self, fates: Iterable[Fate], sample: Quota) -> None:
        """Write the conversations of a sample; the rows of the others are over the quota."""
        for rows, outcome in fates:
            if isinstance(outcome, Rejected):
                self._reject(_named(rows), outcome)
                continue
            identity, line = self._stored(outcome, self._source)
            rank = int(identity.rpartition("-")[2], 16)
            entry = (_named(rows), outcome.repairs)
            left_out = sample.offer(rank, rows[0][0], line, entry)
            if left_out is not None:
                self._reject(left_out[0], Rejected("over_quota"))
        for line, (rows, repairs) in sample.chosen():
            self._accept(line, len(rows), repairs)

    def stats(self, rows: int) -> dict[str, Any]:
        """Return the account of all rows."""
        return {
            "source": self._source,
            "rows_in": rows,
            "rows_written": self._rows_written,
            "rows_rejected": self._rejected.count,
            "conversations": self._accepted.count,
            "rejected_by_reason": dict(sorted(self.reasons.items())),
            "repaired": dict(sorted(self._repairs.items())),
        }

    def summary(self, what: str) -> str:
        """Return the counts in words, with the reasons and examples of what was rejected."""
        reasons = ", ".join(f"{reason} {n}" for reason, n in self.reasons.most_common(5))
        head = f"  {what}: {self._rows_written} written, {self._rejected.count} rejected"
        return "\n".join([f"{head}: {reasons}" if reasons else head, *self._examples])

    def _accept(self, line: bytes, rows: int, repairs: Sequence[str]) -> None:
        self._accepted.write_line(line)
        self._rows_written += rows
        if repairs:
            self._repairs.update(set(repairs))

    def _reject(self, rows: Sequence[tuple[int, str]], rejected: Rejected) -> None:
        detail = _encodable(rejected.detail)
        for row, raw_id in rows:
            self.reasons[rejected.reason] += 1
            self._rejected.write(
                {
                    "source": self._source,
                    "row": row,
                    "id": _encodable(raw_id),
                    "reason": rejected.reason,
                    "detail": detail,
                }
            )
            if rejected.reason not in CHOICES and len(self._examples) < EXAMPLES:
                self._examples.append(f"  row {row}: {rejected.reason}: {detail}")


def _encodable(text: str) -> str:
    return text.encode("utf-8", "replace").decode("utf-8")
