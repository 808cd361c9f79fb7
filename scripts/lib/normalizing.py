"""One source: raw rows to conversation records, with every row accounted for."""

import heapq
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lib.cleaning import clean
from lib.conversation import Conversation, Rejected, to_record
from lib.files import write_json
from lib.formats import Convert, converter
from lib.jsonl import jsonl_writer, read_jsonl
from lib.readers import read_rows

EXAMPLES = 3
"""Rejected rows that are quoted when too many are rejected."""


@dataclass(frozen=True)
class NormalizeSettings:
    """What decides the records of a source; config/README.md says what the keys mean."""

    name: str
    format: str
    max_samples: int | None = None
    max_reject_rate: float = 0.5


class TooManyRejected(ValueError):
    """More rows were rejected than the configuration allows."""


def normalize_source(
    settings: NormalizeSettings,
    paths: list[Path],
    records: Path,
    rejects: Path,
    stats: Path,
    advance: Callable[[int], None],
) -> dict[str, Any]:
    """Convert the raw files of a source.

    Writes `records` (conversations), `rejects` (`{"source", "row", "id", "reason", "detail"}`)
    and `stats`; rows in = rows written + rows rejected.

    Args:
        advance: called with the number of raw rows read since the last call.

    Returns:
        The content of `stats`.

    Raises:
        TooManyRejected: the share of rejected rows is above `max_reject_rate`; the rejects and
            the stats are written all the same, the records are not.
    """
    convert = converter(settings.format)
    chosen = None
    if settings.max_samples is not None:
        chosen = _smallest(
            (
                outcome.id
                for _, outcome in _outcomes(settings.name, convert, paths)
                if isinstance(outcome, Conversation)
            ),
            settings.max_samples,
        )
    reasons: Counter[str] = Counter()
    repairs: Counter[str] = Counter()
    rows = 0
    with jsonl_writer(records) as accepted:
        with jsonl_writer(rejects) as rejected:
            outcomes = _outcomes(settings.name, convert, paths)
            for rows, (raw_id, outcome) in enumerate(outcomes, start=1):
                advance(1)
                if isinstance(outcome, Conversation) and chosen is not None:
                    outcome = _within_quota(outcome, chosen)
                if isinstance(outcome, Conversation):
                    repairs.update(set(outcome.repairs))
                    accepted.write(to_record(outcome))
                    continue
                reasons[outcome.reason] += 1
                rejected.write(
                    {
                        "source": settings.name,
                        "row": rows - 1,
                        "id": _encodable(raw_id),
                        "reason": outcome.reason,
                        "detail": _encodable(outcome.detail),
                    }
                )
        result = {
            "source": settings.name,
            "rows_in": rows,
            "rows_written": accepted.count,
            "rows_rejected": rejected.count,
            "rejected_by_reason": dict(sorted(reasons.items())),
            "repaired": dict(sorted(repairs.items())),
        }
        write_json(stats, result)
        _check_reject_rate(settings, rows, reasons, rejects)
    return result


def _outcomes(
    source: str, convert: Convert, paths: list[Path]
) -> Iterator[tuple[str, Conversation | Rejected]]:
    """Yield each raw row's own id ("" if it has none) and what becomes of the row, in order."""
    for path in paths:
        for row in read_rows(path):
            outcome = convert(row)
            if isinstance(outcome, Conversation):
                try:
                    outcome = clean(outcome).of_source(source)
                except Rejected as rejected:
                    outcome = rejected
            raw_id = row.get("id") if isinstance(row, Mapping) else None
            yield "" if raw_id is None else str(raw_id), outcome


def _smallest(ids: Iterable[str], count: int) -> Counter[str]:
    """Return the `count` smallest identities, each as often as it was chosen.

    Identities are hashes, so this is a sample that does not depend on the order of the rows and
    that other rows, when they are added, disturb no more than they must.
    """
    return Counter(heapq.nsmallest(count, ids))


def _within_quota(conversation: Conversation, chosen: Counter[str]) -> Conversation | Rejected:
    if chosen[conversation.id] > 0:
        chosen[conversation.id] -= 1
        return conversation
    return Rejected("over_quota")


def _encodable(text: str) -> str:
    return text.encode("utf-8", "replace").decode("utf-8")


def _check_reject_rate(
    settings: NormalizeSettings, rows: int, reasons: Counter[str], rejects: Path
) -> None:
    bad = Counter({reason: n for reason, n in reasons.items() if reason != "over_quota"})
    if bad.total() <= rows * settings.max_reject_rate:
        return
    top = ", ".join(f"{reason} {count}" for reason, count in bad.most_common(5))
    examples = [
        f"  row {entry['row']}: {entry['reason']}: {entry['detail']}"
        for entry, _ in zip(
            (entry for entry in read_jsonl(rejects) if entry["reason"] != "over_quota"),
            range(EXAMPLES),
            strict=False,
        )
    ]
    raise TooManyRejected(
        f"{settings.name}: {bad.total()} of {rows} rows rejected, more than max_reject_rate "
        f"{settings.max_reject_rate} allows: {top}\n" + "\n".join(examples)
    )
