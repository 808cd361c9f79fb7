"""What became of the data, from raw rows to token rows: what came, joined, was lost, and went on.

At each stage what arrives and what joins is what is lost and what goes on; numbers for which that
does not hold are refused. Where a stage counts something else than the one before it (turns instead
of conversations), the further ones join.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from lib.conversation import CHOICES, REASONS
from lib.drop_reasons import DROP_REASONS
from lib.response_totals import FAILURES
from lib.row_counts import SPLITS
from lib.token_rows import ROW_REASONS

_CHOICES = {*CHOICES, *DROP_REASONS, "joined", "shared_row"}
"""Reasons that say nothing against what is lost: it is there already, or was not wanted."""

_MEANINGS = {
    **{f"normalize_source.{name}": text for name, text in REASONS.items()},
    **{f"merge_sources.{name}": text for name, text in DROP_REASONS.items()},
    **{f"regenerate_responses.{name}": text for name, text in FAILURES.items()},
    **{f"tokenize_conversations.{name}": text for name, text in ROW_REASONS.items()},
    "normalize_source.joined": "several raw rows are one conversation",
    "regenerate_responses.failed": "the target gave no answer that could be used",
    "regenerate_responses.other_endings": "further endings: other calls than were recorded",
    "tokenize_conversations.further_turns": "a conversation has further turns of the target",
    "tokenize_conversations.no_turns": "conversations without a turn of the target",
    "tokenize_conversations.shared_row": "the turn shares a row with the turns before it",
}


FIRST_UNIT = "raw rows"
"""What arrives at the first stage."""


@dataclass(frozen=True)
class Part:
    """What joins at a stage or is lost there, for one reason.

    Attributes:
        meaning: the reason in words; "" if there are none.
        is_choice: whether it was left out though nothing is wrong with it.
    """

    reason: str
    amount: int
    meaning: str
    is_choice: bool


@dataclass(frozen=True)
class Step:
    """What happens at one stage.

    Attributes:
        stage: name of the rule.
        unit: what goes on is counted in.

    Raises:
        ValueError: what arrives and joins is not what is lost and goes on, or is below 0.
    """

    stage: str
    unit: str
    arrives: int
    goes_on: int
    joined: tuple[Part, ...] = ()
    lost: tuple[Part, ...] = ()

    def __post_init__(self) -> None:
        came = self.arrives + self.amount_joined
        left = self.amount_lost + self.goes_on
        if came != left:
            raise ValueError(f"{self.stage}: {came:,} came in and {left:,} went out")
        for part in (*self.joined, *self.lost):
            if part.amount < 0:
                raise ValueError(f"{self.stage}: {part.amount:,} for the reason {part.reason}")

    @property
    def amount_joined(self) -> int:
        """Number of what joins."""
        return sum(part.amount for part in self.joined)

    @property
    def amount_lost(self) -> int:
        """Number of what is lost."""
        return sum(part.amount for part in self.lost)


Journey = tuple[Step, ...]
"""The stages in their order; what goes on from one arrives at the next."""


def whole_journey(
    sources: Sequence[Mapping[str, Any]],
    merged: Mapping[str, Any],
    responses: Mapping[str, Any] | None,
    tokenized: Mapping[str, Any],
) -> Journey:
    """Return the journey of all data together.

    Args:
        sources: `.stats.json` of each source.
        merged, responses, tokenized: `stats.json` of these stages; `responses` is None where the
            recorded answers were kept.

    Raises:
        ValueError: the numbers do not go together.
    """
    read: dict[str, Any] = {"rejected_by_reason": _added(s["rejected_by_reason"] for s in sources)}
    read |= {
        key: sum(source[key] for source in sources)
        for key in ("rows_in", "rows_written", "conversations")
    }
    fates = _added(merged["sources"].values())
    failed = {} if responses is None else responses["failed_by_reason"]
    return _joined_up(
        _reading(read),
        _merging(fates),
        *([] if responses is None else [_answering(responses, failed)]),
        _tokenizing(
            *(tokenized["conversations_in"], tokenized["turns_in"], tokenized["rows"]),
            tokenized["turns_lost_by_reason"],
        ),
    )


def source_journey(
    source: Mapping[str, Any],
    merged: Mapping[str, Any],
    responses: Mapping[str, Any] | None,
    tokenized: Mapping[str, Any],
) -> Journey:
    """Return the journey of the data of one source; the arguments are as above.

    Raises:
        ValueError: the numbers do not go together.
    """
    name = source["source"]
    answering = []
    if responses is not None:
        counts = responses["sources"].get(name, dict.fromkeys(_ANSWERED, 0))
        answering.append(_answering(counts, {"failed": counts["failed"]}))
    rows = tokenized["sources"].get(name, {})
    sides = [rows[split] for split in SPLITS if split in rows]
    return _joined_up(
        _reading(source),
        _merging(merged["sources"][name]),
        *answering,
        _tokenizing(
            *(rows.get("conversations_in", 0), rows.get("turns", 0)),
            sum(side["rows"] for side in sides),
            rows.get("turns_lost_by_reason", {}),
        ),
    )


_ANSWERED = ("conversations_in", "answered", "failed", "records")


def _joined_up(*steps: Step) -> Journey:
    for step, following in pairwise(steps):
        if step.goes_on != following.arrives:
            raise ValueError(
                f"{step.goes_on:,} {step.unit} went on from {step.stage}, and "
                f"{following.arrives:,} arrived at {following.stage}"
            )
    return steps


def _reading(counts: Mapping[str, Any]) -> Step:
    stage = "normalize_source"
    joined = counts["rows_written"] - counts["conversations"]
    lost = {**counts["rejected_by_reason"], "joined": joined}
    return Step(
        *(stage, "conversations", counts["rows_in"], counts["conversations"]),
        lost=tuple(_parts(stage, lost)),
    )


def _merging(fates: Mapping[str, int]) -> Step:
    stage = "merge_sources"
    kept = sum(fates.get(split, 0) for split in SPLITS)
    lost = {reason: fates.get(reason, 0) for reason in DROP_REASONS}
    return Step(
        *(stage, "kept conversations", sum(fates.values()), kept),
        lost=tuple(_parts(stage, lost)),
    )


def _answering(counts: Mapping[str, Any], failed: Mapping[str, int]) -> Step:
    stage = "regenerate_responses"
    return Step(
        *(stage, "conversations with answers"),
        *(counts["conversations_in"], counts["records"]),
        joined=tuple(_parts(stage, {"other_endings": counts["records"] - counts["answered"]})),
        lost=tuple(_parts(stage, failed)),
    )


def _tokenizing(conversations: int, turns: int, rows: int, lost: Mapping[str, int]) -> Step:
    stage = "tokenize_conversations"
    shared = turns - sum(lost.values()) - rows
    left_out = {**lost, "no_turns": max(0, conversations - turns), "shared_row": shared}
    return Step(
        *(stage, "token rows", conversations, rows),
        joined=tuple(_parts(stage, {"further_turns": max(0, turns - conversations)})),
        lost=tuple(_parts(stage, left_out)),
    )


def _parts(stage: str, amounts: Mapping[str, int]) -> Iterator[Part]:
    """Yield the parts that are not empty, the greatest first."""
    for reason, amount in sorted(amounts.items(), key=lambda item: (-item[1], item[0])):
        if amount:
            meaning = _MEANINGS.get(f"{stage}.{reason}", "")
            yield Part(reason, amount, meaning, reason in _CHOICES)


def _added(counts: Any) -> dict[str, int]:
    """Return the sums of several counts, by their names."""
    total: dict[str, int] = {}
    for one in counts:
        for name, count in one.items():
            total[name] = total.get(name, 0) + count
    return total
