"""What is stale and why, in words, and how long it took when it was last made."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

_SHOWN = 3
_LONGEST_VALUE = 40


@dataclass(frozen=True)
class Made:
    """What a job is made from.

    Attributes:
        params: settings as canonical JSON and digest of the code, in any order.
        inputs: paths of its input files.
        command: its shell command.
    """

    params: frozenset[str]
    inputs: frozenset[str]
    command: str

    @property
    def settings(self) -> dict[str, Any]:
        """The settings, by name."""
        found = [text for text in self.params if text.startswith("{")]
        settings: dict[str, Any] = json.loads(found[0]) if found else {}
        return settings

    @property
    def code(self) -> set[str]:
        """The digest of the code."""
        return {text for text in self.params if not text.startswith("{")}


@dataclass(frozen=True)
class Job:
    """A job of a stage, as Snakemake sees it.

    Attributes:
        stage: name of its rule.
        part: the source or shard that it works on; "" if the stage has one job.
        stale: whether it would run.
        missing: those of its files that are not there.
        unfinished: whether an interrupted run left it.
        before: what it was made from, None if it was never made.
        now: what it would be made from.
        changed_inputs: input files with another content.
        after: stages before it that would run.
        seconds: what it took when it was last made, None if that is not known.
    """

    stage: str
    part: str
    stale: bool
    missing: tuple[str, ...]
    unfinished: bool
    before: Made | None
    now: Made
    changed_inputs: tuple[str, ...]
    after: tuple[str, ...]
    seconds: float | None


def reasons(job: Job) -> list[str]:
    """Return why a job is stale: what is its own, or else what goes before it."""
    if job.unfinished:
        return ["left unfinished by an interrupted run"]
    if job.before is None:
        return ["never made"]
    own = list(_changes(job.before, job.now))
    own += [f"{_some(job.changed_inputs)} changed"] if job.changed_inputs else []
    if own or job.after:
        return own or [f"follows {_some(job.after)}"]
    return [f"{_some(job.missing)} not there"] if job.missing else ["asked for"]


def _changes(before: Made, now: Made) -> Iterable[str]:
    if changes := setting_changes(before.settings, now.settings):
        yield f"settings changed: {', '.join(changes)}"
    if before.code != now.code:
        yield "code or environment changed"
    if before.command != now.command:
        yield "command changed"
    if added := sorted(now.inputs - before.inputs):
        yield f"reads {_some(added)} now"
    if removed := sorted(before.inputs - now.inputs):
        yield f"no longer reads {_some(removed)}"


def setting_changes(before: dict[str, Any], now: dict[str, Any], outer: str = "") -> list[str]:
    """Return what differs between settings, such as `epochs 8 -> 6`, at every depth."""
    found = []
    for name in sorted({*before, *now}):
        old, new = before.get(name), now.get(name)
        if isinstance(old, dict) and isinstance(new, dict):
            found += setting_changes(old, new, f"{outer}{name}.")
        elif _are_named(old) and _are_named(new):
            found += _entry_changes(old, new, f"{outer}{name}")
        elif old != new or (name in before) != (name in now):
            found.append(f"{outer}{name} {_shown(old)} -> {_shown(new)}")
    return found


def _are_named(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(e, dict) and "name" in e for e in value)


def _entry_changes(before: Any, now: Any, what: str) -> list[str]:
    """Return what differs between two lists of entries with names."""
    old, new = ({entry["name"]: entry for entry in entries} for entries in (before, now))
    found = [f"{what} without {_some(gone)}"] if (gone := [n for n in old if n not in new]) else []
    found += [f"{what} with {_some(added)}"] if (added := [n for n in new if n not in old]) else []
    for name in new:
        if name in old:
            found += setting_changes(old[name], new[name], f"{what}.{name}.")
    if not gone and not added and list(old) != list(new):
        found.append(f"{what} in another order")
    return found


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _LONGEST_VALUE else f"{text[: _LONGEST_VALUE - 1]}…"


def _some(names: Sequence[str]) -> str:
    more = len(names) - _SHOWN
    shown = ", ".join(names if more <= 1 else names[:_SHOWN])
    return shown if more <= 1 else f"{shown} and {more} more"


def status_text(jobs: Sequence[Job]) -> str:
    """Return a table of the stages, in the order of their first jobs, and a line about all."""
    stages = {job.stage: [other for other in jobs if other.stage == job.stage] for job in jobs}
    rows = [row for name in stages for row in _rows(name, stages[name])]
    table = [("stage", "state", "last took", "why"), *rows]
    widths = [max(len(row[column]) for row in table) for column in range(3)]
    lines = [
        f"{name:<{widths[0]}}  {state:<{widths[1]}}  {took:>{widths[2]}}  {why}".rstrip()
        for name, state, took, why in table
    ]
    return "\n".join([*lines, "", _total(jobs)])


def _rows(name: str, jobs: list[Job]) -> Iterable[tuple[str, str, str, str]]:
    """Yield the rows of a stage: one, or one for each set of reasons that some of its jobs have."""
    stale = [job for job in jobs if job.stale]
    if not stale:
        state = "gone, not needed" if any(job.missing for job in jobs) else "fresh"
        yield name, state, _took(jobs), ""
    explained = sorted(((reasons(job), job) for job in stale), key=lambda pair: pair[0])
    for number, (why, group) in enumerate(groupby(explained, key=lambda pair: pair[0])):
        same = [job for _, job in group]
        whose = f"{_some([job.part for job in same])}: " if len(same) < len(jobs) else ""
        counted = f"stale, {len(same)} of {len(jobs)}" if len(jobs) > 1 else "stale"
        yield "" if number else name, counted, _took(same), f"{whose}{'; '.join(why)}"


def _total(jobs: Sequence[Job]) -> str:
    stale = [job for job in jobs if job.stale]
    if not stale:
        return "Nothing is stale."
    unknown = sum(job.seconds is None for job in stale)
    known = f"; they took {_took(stale)} when they were last made" if unknown < len(stale) else ""
    rest = f"; of {unknown} no time is known" if unknown else ""
    return f"{len(stale)} of {len(jobs)} jobs are stale{known}{rest}."


def _took(jobs: Sequence[Job]) -> str:
    """Return the seconds of all jobs together as people say it."""
    known = [job.seconds for job in jobs if job.seconds is not None]
    if not known:
        return "–"
    minutes, seconds = divmod(round(sum(known)), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {seconds} s" if minutes else f"{seconds} s"


def last_took(benchmark: str) -> float | None:
    """Return the wall time in seconds of a job from the text of its benchmark file."""
    lines = benchmark.splitlines()
    return float(lines[1].split("\t")[0]) if len(lines) > 1 else None
