"""Limits within which the token rows of a source must lie."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from lib.conversation import CHOICES
from lib.token_rows import TOO_LONG


@dataclass(frozen=True)
class SourceLimits:
    """The limits of one source; config/README.md says what the keys mean."""

    maximum_rejected_share: float = 0.5
    maximum_truncated_share: float = 0.5
    minimum_supervised_share: float = 0.01
    maximum_supervised_share: float = 0.95
    minimum_rows: int = 1


def breaches(
    limits: SourceLimits, normalized: Mapping[str, Any], tokenized: Mapping[str, Any]
) -> Iterator[str]:
    """Yield what is outside the limits of a source.

    Args:
        normalized: its `.stats.json`.
        tokenized: its counts in the `stats.json` of the token rows.
    """
    rows_in, reasons = normalized["rows_in"], normalized["rejected_by_reason"]
    rejected = sum(count for reason, count in reasons.items() if reason not in CHOICES)
    if rejected > limits.maximum_rejected_share * rows_in:
        yield f"{rejected} of {rows_in} raw rows are rejected"
    lost = tokenized["turns_lost_by_reason"]
    truncated = sum(lost.get(reason, 0) for reason in TOO_LONG)
    if truncated > limits.maximum_truncated_share * tokenized["turns"]:
        yield f"{truncated} of {tokenized['turns']} turns are too long"
    rows, tokens, supervised = (
        total(tokenized, key) for key in ("rows", "tokens", "supervised_tokens")
    )
    low, high = limits.minimum_supervised_share, limits.maximum_supervised_share
    if tokens and not low <= supervised / tokens <= high:
        yield f"{supervised / tokens:.1%} of the tokens are supervised"
    if rows < limits.minimum_rows:
        yield f"{rows} rows"


def total(tokenized: Mapping[str, Any], key: str) -> int:
    """Return a count of a source on both sides of the split together."""
    return sum(tokenized[side][key] for side in ("train", "validation") if side in tokenized)
