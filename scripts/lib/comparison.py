"""Two drafters on the same prompts: what the second changes, with intervals."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lib.bootstrap import CONFIDENCE, Estimate, acceptance_length, compare_lengths

_MEASURED_WITH = ("backend", "max_tokens", "thinking")


@dataclass(frozen=True)
class DomainComparison:
    """The acceptance lengths of two drafters on the prompts of a domain that both have.

    Attributes:
        difference: second - first.
        ratio: second / first.
    """

    domain: str
    prompts: int
    first: Estimate
    second: Estimate
    difference: Estimate
    ratio: Estimate


@dataclass(frozen=True)
class Comparison:
    """Two evaluations side by side.

    Attributes:
        domains: all together, then each by name.
        only_first: ids of prompts that the second does not have.
        only_second: ids of prompts that the first does not have.
        warnings: in what they were measured differently.
    """

    domains: tuple[DomainComparison, ...]
    only_first: tuple[str, ...]
    only_second: tuple[str, ...]
    warnings: tuple[str, ...]


def compare_evaluations(first: Mapping[str, Any], second: Mapping[str, Any]) -> Comparison:
    """Compare two evaluations (contents of `evaluation.json`), paired by the ids of their prompts.

    Raises:
        ValueError: no prompt is in both, or one is of another domain in the second.
    """
    firsts, seconds = (
        {prompt["id"]: prompt for prompt in one["prompts"]} for one in (first, second)
    )
    shared = [name for name in firsts if name in seconds]
    if not shared:
        raise ValueError("no prompt is in both evaluations")
    for name in shared:
        own, other = firsts[name]["domain"], seconds[name]["domain"]
        if own != other:
            raise ValueError(f"prompt {name!r} is of two domains, {own} and {other}")

    def compared(domain: str, names: Sequence[str]) -> DomainComparison:
        old, new = (
            [(one[name]["drafts"], one[name]["accepted"]) for name in names]
            for one in (firsts, seconds)
        )
        lengths = acceptance_length(old), acceptance_length(new)
        return DomainComparison(domain, len(names), *lengths, *compare_lengths(old, new))

    domains = sorted({firsts[name]["domain"] for name in shared})
    by_domain = {
        domain: [name for name in shared if firsts[name]["domain"] == domain] for domain in domains
    }
    return Comparison(
        domains=tuple(compared(*entry) for entry in {"all": shared, **by_domain}.items()),
        only_first=tuple(name for name in firsts if name not in seconds),
        only_second=tuple(name for name in seconds if name not in firsts),
        warnings=tuple(_warnings(first, second)),
    )


def comparison_text(comparison: Comparison) -> str:
    """Return a comparison as a table of plain text, with what is to be known of it below."""
    header = ("domain", "prompts", "A", "B", "B - A", "", "B / A", "")
    rows = [header, *(_row(domain) for domain in comparison.domains)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(header))]
    lines = [
        "  ".join(
            cell.ljust(width) if column in (0, 5, 7) else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
    lines += ["", f"Acceptance lengths; in brackets intervals of {CONFIDENCE:.0%}, by prompts."]
    for name, ids in (("A", comparison.only_first), ("B", comparison.only_second)):
        if ids:
            lines.append(f"Only in {name}: {', '.join(ids)}")
    lines += comparison.warnings
    return "\n".join(lines) + "\n"


def _row(domain: DomainComparison) -> tuple[str, ...]:
    return (
        domain.domain,
        str(domain.prompts),
        f"{domain.first.value:.2f}",
        f"{domain.second.value:.2f}",
        f"{domain.difference.value:+.2f}",
        f"[{domain.difference.low:+.2f}, {domain.difference.high:+.2f}]",
        f"{domain.ratio.value:.2f}",
        f"[{domain.ratio.low:.2f}, {domain.ratio.high:.2f}]",
    )


def _warnings(first: Mapping[str, Any], second: Mapping[str, Any]) -> Iterator[str]:
    for key in _MEASURED_WITH:
        if first[key] != second[key]:
            yield f"Measured differently: {key} is {first[key]} in A and {second[key]} in B"
