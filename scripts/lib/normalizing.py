"""One source: raw rows to conversation records, with every row accounted for."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lib.cleaning import cleaned
from lib.conversation import Rejected, stored_line
from lib.formats import GroupFormat, RowFormat, load_format
from lib.grouping import grouped
from lib.row_accounts import Accounts, Fate, Limits, NumberedRow, account_for_rows


@dataclass(frozen=True)
class NormalizeSettings:
    """What decides the records of a source; config/README.md says what the keys mean."""

    name: str
    format: str
    max_samples: int | None = None
    max_reject_rate: float = 0.5


def normalize_source(
    settings: NormalizeSettings,
    paths: list[Path],
    records: Path,
    rejects: Path,
    stats: Path,
    advance: Callable[[int], None],
) -> dict[str, Any]:
    """Convert the raw files of a source to conversation records.

    Arguments, files and errors are those of `account_for_rows`.

    Returns:
        The content of `stats`.
    """
    form = load_format(settings.format)
    return account_for_rows(
        Limits(settings.name, settings.max_samples, settings.max_reject_rate),
        paths,
        lambda rows: _fates(form, rows, rejects.parent),
        stored_line,
        Accounts(records, rejects, stats),
        advance,
    )


def _fates(
    form: RowFormat | GroupFormat, rows: Iterable[NumberedRow], folder: Path
) -> Iterator[Fate]:
    """Yield what becomes of the rows; each row occurs in exactly one fate."""
    if isinstance(form, RowFormat):
        for row in rows:
            yield Fate((row,), cleaned(form.convert(row[1])))
        return
    for group in grouped(rows, _key(form.group), folder):
        for positions, outcome in form.combine([row for _, row in group]):
            yield Fate([group[n] for n in positions], cleaned(outcome))


def _key(group: Callable[[Mapping[str, Any]], str]) -> Callable[[int, Any], str]:
    """Give a row that names no group one of its own."""

    def key(number: int, row: Any) -> str:
        try:
            return group(row)
        except (LookupError, TypeError, ValueError, AttributeError, Rejected):
            return f"row {number}"

    return key
