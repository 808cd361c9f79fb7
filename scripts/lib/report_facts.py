"""The facts that the report shows in tables, out of what the stages wrote down."""

import csv
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from lib.data_journey import Journey, Part
from lib.row_counts import SPLITS


@dataclass(frozen=True)
class Change:
    """What is lost at a stage, or joins, for one reason.

    Attributes:
        sources: how much of it is of each source, as far as it is known.
    """

    stage: str
    is_loss: bool
    part: Part
    share: float
    sources: Mapping[str, int]


def changes(journey: Journey, journeys: Mapping[str, Journey]) -> Iterator[Change]:
    """Yield all that is lost or joins, stage by stage.

    Args:
        journeys: those of the sources, which may not know a reason; if all of them lost or gained
            just that much at a stage, it is what they lost or gained.
    """
    for number, step in enumerate(journey):
        own = {name: one[number] for name, one in journeys.items()}
        for is_loss, parts in ((True, step.lost), (False, step.joined)):
            every = {name: one.lost if is_loss else one.joined for name, one in own.items()}
            for part in parts:
                known = _amounts(every, part.reason)
                if not known and sum(_amounts(every).values()) == part.amount:
                    known = _amounts(every)
                share = part.amount / max(step.arrives, 1)
                yield Change(step.stage, is_loss, part, share, known)


def _amounts(parts: Mapping[str, Sequence[Part]], reason: str = "") -> dict[str, int]:
    """Return how much of each source is lost or joins, for one reason or for all."""
    amounts = {
        name: sum(part.amount for part in own if reason in ("", part.reason))
        for name, own in parts.items()
    }
    return {name: amount for name, amount in amounts.items() if amount}


@dataclass(frozen=True)
class Source:
    """What a source gives to the data set.

    Attributes:
        sides: rows and supervised tokens by split.
        share: of all supervised tokens.
    """

    name: str
    origin: str
    license: str
    rows: int
    supervised_tokens: int
    tokens: int
    longest: int
    sides: Mapping[str, Mapping[str, int]]
    share: float


_NOTHING = dict.fromkeys(("rows", "supervised_tokens", "tokens", "longest"), 0)


def mix(entries: Sequence[Mapping[str, Any]], rows: Mapping[str, Any]) -> Iterator[Source]:
    """Yield what each source of the configuration gives.

    Args:
        entries: `sources` of the configuration.
        rows: `stats.json` of the token rows.
    """
    for entry in entries:
        counts = rows["sources"].get(entry["name"], {})
        sides = {split: counts.get(split, _NOTHING) for split in SPLITS}
        amounts = {
            key: sum(side[key] for side in sides.values())
            for key in ("rows", "supervised_tokens", "tokens")
        }
        yield Source(
            *(entry["name"], _origin(entry), entry.get("license", "")),
            **amounts,
            longest=max(side["longest"] for side in sides.values()),
            sides=sides,
            share=amounts["supervised_tokens"] / max(rows["supervised_tokens"], 1),
        )


def prompts(evaluate: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the evaluation prompts: name or domain of each set, and where it comes from.

    Args:
        evaluate: this section of the configuration.
    """
    if files := evaluate.get("prompts"):
        yield "files", ", ".join(files)
    for entry in evaluate.get("prompt_sets", ()):
        yield f"{entry['name']} ({entry['domain']})", _origin(entry)


def _origin(entry: Mapping[str, Any]) -> str:
    """Return where a source comes from, with the revision if it has one."""
    if hub := entry.get("hub"):
        return f"{hub['dataset']} at {hub['revision'][:12]}"
    if urls := entry.get("urls"):
        return ", ".join(file["url"].partition("?")[0] for file in urls)
    return ", ".join(entry.get("files", ()))


def revisions(configuration: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield what target and training began with, and at which revision."""
    target = configuration["target"]
    if hub := target.get("hub"):
        yield "target", f"{hub['repo']} at {hub['revision']}"
    else:
        yield "target", target.get("path", "built by this project")
    if start := configuration.get("train", {}).get("from"):
        hub = start.get("hub")
        yield (
            "training started from",
            f"{hub['repo']} at {hub['revision']}" if hub else str(start["path"]),
        )


@dataclass(frozen=True)
class Timing:
    """What the last run of each job of a stage took, together.

    Attributes:
        memory: of the job that took most, in MB.
    """

    stage: str
    jobs: int
    seconds: float
    memory: float


def timings(folder: Path) -> Iterator[Timing]:
    """Yield the stages that Snakemake has measured, the longest first; not that of the page."""
    jobs: dict[str, list[Mapping[str, str]]] = {}
    for path in sorted(folder.rglob("*.tsv")):
        stage = path.relative_to(folder).parts[0].removesuffix(".tsv")
        if stage != "report":
            with path.open(encoding="utf-8", newline="") as file:
                jobs.setdefault(stage, []).extend(csv.DictReader(file, delimiter="\t"))
    timings = [
        Timing(
            *(stage, len(lines), sum(_number(line["s"]) for line in lines)),
            max(_number(line["max_rss"]) for line in lines),
        )
        for stage, lines in jobs.items()
        if lines
    ]
    yield from sorted(timings, key=lambda timing: -timing.seconds)


def _number(text: str) -> float:
    """Return a number of a benchmark, which has `NA` or `-` for what it does not know."""
    try:
        return float(text)
    except ValueError:
        return 0.0


def versions(packages: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the packages that are installed here, with their versions."""
    for name in packages:
        try:
            yield name, version(name)
        except PackageNotFoundError:
            continue


def percent(share: float) -> str:
    """Return a share as people read it: small ones with a digit more."""
    return f"{100 * share:.{1 if share < 0.0995 else 0}f}\N{NO-BREAK SPACE}%"


def large(number: int) -> str:
    """Return a number as people read it: very large ones in millions."""
    return f"{number:,}" if number < 10_000_000 else f"{number / 1e6:,.0f}\N{NO-BREAK SPACE}M"


def duration(seconds: float) -> str:
    """Return seconds as people read them."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min {rest:02} s"
