"""How fast answers came, with and without a drafter."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import fmean, median
from typing import Any


@dataclass(frozen=True)
class Timing:
    """Answers to some prompts at one concurrency.

    Attributes:
        output_tokens: of all answers, their ends included.
        seconds: in which they came.
        latencies: seconds of each request.
    """

    output_tokens: int
    seconds: float
    latencies: tuple[float, ...]

    @classmethod
    def sum(cls, timings: Iterable["Timing"]) -> "Timing":
        """Return the timing of all, which came one after the other."""
        timings = list(timings)
        return cls(
            sum(timing.output_tokens for timing in timings),
            sum(timing.seconds for timing in timings),
            tuple(latency for timing in timings for latency in timing.latencies),
        )

    def summary(self) -> dict[str, Any]:
        """Return rate and latency for `evaluation.json`."""
        return {
            "output_tokens": self.output_tokens,
            "seconds": self.seconds,
            "output_tokens_per_second": self.output_tokens / self.seconds,
            "mean_latency_seconds": fmean(self.latencies),
            "median_latency_seconds": median(self.latencies),
        }


Timings = Mapping[int, Mapping[str, Timing]]
"""Timings by concurrency and domain."""

_RATES = ("output_tokens_per_second", "mean_latency_seconds", "median_latency_seconds")


def speed_summary(
    with_drafter: Timings,
    without_drafter: Timings | None,
    with_head: Timings | None,
    domains: Iterable[str],
) -> list[dict[str, Any]]:
    """Return an entry for each concurrency over some domains, with the ratios to the baselines.

    Args:
        with_head: times of the target with its own MTP head; None if not measured.
    """
    names = list(domains)

    def summary(timings: Timings | None, concurrency: int) -> dict[str, Any] | None:
        if timings is None:
            return None
        return Timing.sum(timings[concurrency][name] for name in names).summary()

    entries = []
    for concurrency in with_drafter:
        drafted, plain, head = (
            summary(timings, concurrency) for timings in (with_drafter, without_drafter, with_head)
        )
        entries.append(
            {
                "concurrency": concurrency,
                "with_drafter": drafted,
                "without_drafter": plain,
                "ratio": _ratio(drafted, plain),
                "mtp": head,
                "mtp_ratio": _ratio(drafted, head),
            }
        )
    return entries


def _ratio(
    drafted: Mapping[str, Any] | None, other: Mapping[str, Any] | None
) -> dict[str, float] | None:
    if drafted is None or other is None:
        return None
    return {key: drafted[key] / other[key] for key in _RATES}
