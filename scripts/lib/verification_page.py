"""The page for people about a verified data set."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from lib.mask_audit import AuditedRow
from lib.row_display import marked
from lib.source_limits import total

_SHOWN_ROWS = 10


def page(
    checks: Sequence[str],
    journey: Mapping[str, Mapping[str, int]],
    stats: Mapping[str, Any],
    rows: Mapping[str, AuditedRow],
    decode: Callable[[Sequence[int]], str],
) -> str:
    """Return the page as Markdown.

    Args:
        checks: what holds.
        journey: counts of each source from raw rows on, stage by stage.
        stats: `stats.json` of the token rows.
        rows: the audited rows by their names, those of one source one after the other.
        decode: gives the text of ids, special tokens included.
    """
    lines = ["# The data set is verified", "", *(f"- {name}" for name in checks), ""]
    lines += ["## From raw rows to token rows", "", journey_table(journey), ""]
    lines += ["## Token rows", "", source_table(stats), ""]
    lines += ["## Rows", "", f"The masks of {len(rows)} rows were audited. Some of them,"]
    lines += ["decoded from their ids; ⟦ ⟧ enclose what is supervised.", ""]
    for name in _shown(rows):
        text = marked(rows[name].ids, rows[name].mask, decode)
        lines += [f"### {name}", "", "~~~text", text, "~~~", ""]
    return "\n".join(lines) + "\n"


def journey_table(journey: Mapping[str, Mapping[str, int]]) -> str:
    """Return what came out of each stage, by source and in all."""
    stages = next(iter(journey.values()))
    everything = {stage: sum(counts[stage] for counts in journey.values()) for stage in stages}
    return _table(
        ["source", *stages],
        [[name, *counts.values()] for name, counts in {**journey, "all": everything}.items()],
    )


def source_table(stats: Mapping[str, Any]) -> str:
    """Return rows, lengths, share supervised and lost turns of each source."""
    lines = []
    for source, counts in stats["sources"].items():
        rows, tokens, supervised = (
            total(counts, key) for key in ("rows", "tokens", "supervised_tokens")
        )
        longest = max(counts[side]["longest"] for side in ("train", "validation") if side in counts)
        reasons = ", ".join(f"{name} {n}" for name, n in counts["turns_lost_by_reason"].items())
        mean = f"{tokens / rows:.0f}" if rows else "–"
        share = f"{supervised / tokens:.1%}" if tokens else "–"
        lines.append([source, rows, tokens, mean, longest, share, reasons or "–"])
    heads = ["source", "rows", "tokens", "mean length", "longest", "supervised", "turns lost"]
    return _table(heads, lines)


def _table(heads: Sequence[str], lines: Sequence[Sequence[object]]) -> str:
    rule = ["---", *("--:" for _ in heads[1:])]
    return "\n".join(f"| {' | '.join(map(str, cells))} |" for cells in (heads, rule, *lines))


def _shown(rows: Mapping[str, AuditedRow]) -> list[str]:
    """Return the names of the rows to show: one of each source, then the first of all."""
    sources: dict[str, str] = {}
    for name, row in rows.items():
        sources.setdefault(row.conversation.source, name)
    first = list(sources.values())
    return first + [name for name in rows if name not in first][: max(0, _SHOWN_ROWS - len(first))]
