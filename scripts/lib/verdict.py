"""What an evaluation says to someone who decides whether to deploy the drafter."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from lib.comparison import Comparison

Kind = Literal["good", "bad", "unknown"]

_FEW_PROMPTS = 100
"""Below that many prompts an interval is wide, and a domain has only a few of them."""


@dataclass(frozen=True)
class Finding:
    """One thing that speaks for the drafter or against it, or that is not known.

    Attributes:
        title: in a few words.
        text: what was found, in plain words.
    """

    kind: Kind
    title: str
    text: str


@dataclass(frozen=True)
class Verdict:
    """The most important sentence, and what it rests on."""

    summary: str
    findings: tuple[Finding, ...]


def verdict(
    evaluation: Mapping[str, Any], minimum: Mapping[str, float], comparison: Comparison | None
) -> Verdict:
    """Return what an evaluation says.

    Args:
        evaluation: content of `evaluation.json`.
        minimum: the acceptance lengths that were asked for, by domain.
        comparison: a published drafter (first) and this one (second); None if there is none.
    """
    findings = (
        _acceptance(evaluation),
        _speed(evaluation),
        _losslessness(evaluation),
        _gates(evaluation, minimum),
        *_head(evaluation),
        *_published(comparison),
        *_mode(evaluation),
        *_prompts(evaluation),
    )
    return Verdict(_summary(evaluation), findings)


def _summary(evaluation: Mapping[str, Any]) -> str:
    length = evaluation["all"]["acceptance_length"]
    ratios = _ratios(evaluation)
    if not ratios:
        how = (
            "That was simulated; how much faster a server answers was not measured."
            if evaluation["backend"] == "simulate"
            else "How much faster that is was not measured, for nothing was answered without it."
        )
        return f"The target takes {length:.2f} tokens a step instead of 1. {how}"
    slow = [concurrency for concurrency, ratio in ratios.items() if ratio <= 1]
    if not slow:
        return (
            f"The drafter makes the server {_span(ratios)} times as fast, at every number of "
            "requests at a time that was measured."
        )
    if len(slow) == len(ratios):
        return (
            f"The drafter does not make the server faster: it gives {_span(ratios)} times the "
            "tokens a second."
        )
    return (
        f"The drafter gives {_span(ratios)} times the tokens a second: the server is faster with "
        f"it, but not at {_listed(slow)} requests at a time."
    )


def _acceptance(evaluation: Mapping[str, Any]) -> Finding:
    everything = evaluation["all"]
    low, high = everything["acceptance_length_interval"]
    domains = evaluation["domains"]
    order = sorted(domains, key=lambda name: float(domains[name]["acceptance_length"]))
    best, worst = order[-1], order[0]
    spread = ""
    if best != worst:
        spread = (
            f" It is highest for {best} ({domains[best]['acceptance_length']:.2f}) and lowest for "
            f"{worst} ({domains[worst]['acceptance_length']:.2f})."
        )
    return Finding(
        "good" if low > 1 else "bad",
        "Acceptance",
        f"{everything['acceptance_length']:.2f} tokens a step ({low:.2f} to {high:.2f}), at most "
        f"{evaluation['block_size']}.{spread}",
    )


def _speed(evaluation: Mapping[str, Any]) -> Finding:
    ratios = _ratios(evaluation)
    if ratios:
        entries = evaluation["all"]["speed"]
        slower = [entry for entry in entries if entry["ratio"]["output_tokens_per_second"] <= 1]
        text = "; ".join(f"{ratio:.2f} at {number}" for number, ratio in ratios.items())
        latency = entries[0]["ratio"]["mean_latency_seconds"]
        return Finding(
            "bad" if slower else "good",
            "Speed",
            f"Times the tokens a second without it, by requests at a time: {text}. An answer takes "
            f"{100 * latency:.0f} % of the time at {entries[0]['concurrency']}.",
        )
    if evaluation["backend"] == "simulate":
        return Finding(
            "unknown",
            "Speed",
            "Not measured: the acceptance was simulated without a server. Set evaluate.backend to "
            "vllm to measure it.",
        )
    return Finding(
        "unknown",
        "Speed",
        "There is nothing to compare with. Name none in evaluate.baseline to measure it.",
    )


def _losslessness(evaluation: Mapping[str, Any]) -> Finding:
    found = evaluation["losslessness"]
    if found is None:
        return Finding(
            "unknown",
            "Same answers",
            "Not measured: only a server that is asked with and without the drafter shows it.",
        )
    if not found["differing"]:
        return Finding(
            "good",
            "Same answers",
            f"All {found['compared']} answers are those without the drafter.",
        )
    decided = found["differing_where_decided"]
    clear = (
        "in none of them did the target clearly prefer its own token, so rounding explains them"
        if not decided
        else f"in {decided} of them the target clearly preferred its own token"
    )
    return Finding(
        "bad" if decided else "good",
        "Same answers",
        f"{found['differing']} of {found['compared']} answers differ from those without the "
        f"drafter; {clear}.",
    )


def _gates(evaluation: Mapping[str, Any], minimum: Mapping[str, float]) -> Finding:
    parts = {"all": evaluation["all"], **evaluation["domains"]}
    known = {name: least for name, least in minimum.items() if name in parts}
    if not known:
        return Finding(
            "unknown",
            "What was asked for",
            "No least acceptance length was asked for (evaluate.minimum_acceptance_length).",
        )
    missed = [name for name in known if parts[name]["acceptance_length"] < known[name]]
    reached = ", ".join(
        f"{parts[name]['acceptance_length']:.2f} for {name} (at least {least:g})"
        for name, least in known.items()
    )
    return Finding("bad" if missed else "good", "What was asked for", f"{reached}.")


def _head(evaluation: Mapping[str, Any]) -> Iterator[Finding]:
    head = evaluation["all"].get("mtp")
    if not head:
        return
    own, other = evaluation["all"]["acceptance_length"], head["acceptance_length"]
    ratios = [
        f"{entry['mtp_ratio']['output_tokens_per_second']:.2f} at {entry['concurrency']}"
        for entry in evaluation["all"]["speed"]
        if entry.get("mtp_ratio")
    ]
    speed = f" Times its tokens a second: {'; '.join(ratios)}." if ratios else ""
    yield Finding(
        "good" if own > other else "bad",
        "Against the target's own MTP head",
        f"{own:.2f} tokens a step, the head's are {other:.2f}.{speed}",
    )


def _published(comparison: Comparison | None) -> Iterator[Finding]:
    if comparison is None:
        return
    everything = comparison.domains[0]
    change = everything.difference
    kind: Kind = "good" if change.low > 0 else "bad" if change.high < 0 else "unknown"
    doubt = "" if kind != "unknown" else " So these prompts do not tell which one is better."
    yield Finding(
        kind,
        "Against the published drafter",
        f"{everything.second.value:.2f} tokens a step, the published one's are "
        f"{everything.first.value:.2f}: a difference of {change.value:+.2f} ({change.low:+.2f} to "
        f"{change.high:+.2f}).{doubt}",
    )


def _mode(evaluation: Mapping[str, Any]) -> Iterator[Finding]:
    thinking = "on" if evaluation["thinking"] else "off"
    other = evaluation.get("other_mode")
    if other:
        length = other["all"]["acceptance_length"]
        low, high = other["all"]["acceptance_length_interval"]
        yield Finding(
            "good" if low > 1 else "bad",
            "The other thinking mode",
            f"With thinking {'on' if other['thinking'] else 'off'}: {length:.2f} tokens a step "
            f"({low:.2f} to {high:.2f}). The drafter was trained with thinking {thinking}.",
        )
    else:
        yield Finding(
            "unknown",
            "The other thinking mode",
            f"Measured with thinking {thinking} only, as the drafter was trained.",
        )


def _prompts(evaluation: Mapping[str, Any]) -> Iterator[Finding]:
    count = evaluation["all"]["prompts"]
    if count < _FEW_PROMPTS:
        yield Finding(
            "unknown",
            "Other prompts",
            f"{count} prompts are few, so the intervals are wide; prompts like yours tell more "
            "(evaluate.prompts).",
        )


def _ratios(evaluation: Mapping[str, Any]) -> dict[int, float]:
    """Return how many times the tokens a second there are with the drafter, by concurrency."""
    return {
        entry["concurrency"]: entry["ratio"]["output_tokens_per_second"]
        for entry in evaluation["all"]["speed"]
        if entry["ratio"]
    }


def _span(ratios: Mapping[int, float]) -> str:
    low, high = (f"{end(ratios.values()):.2f}" for end in (min, max))
    return low if low == high else f"{low} to {high}"


def _listed(numbers: list[int]) -> str:
    *first, last = map(str, numbers)
    return f"{', '.join(first)} and {last}" if first else last
