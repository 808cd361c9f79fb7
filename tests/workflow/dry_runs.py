"""Dry runs by the hundred: what Snakemake finds stale in a project."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from workflow.project import Project, environment

CONDA = """#!/bin/sh
case "$*" in
  "info --json") echo '{"conda_prefix": "/opt/conda", "platform": "linux-64"}' ;;
  "config --get channel_priority --json") echo '{"get": {"channel_priority": "strict"}}' ;;
  *) echo "conda 26.1.1" ;;
esac
"""
"""What Snakemake asks of conda when nothing is to be installed."""

OF_A_SOURCE = ("fetch_source", "normalize_source", "prepare_prompts")


@dataclass(frozen=True)
class Plan:
    """What Snakemake would do: stages by name, those of a source as `fetch_source:openorca`."""

    jobs: frozenset[str]
    stale: frozenset[str]

    @property
    def stale_stages(self) -> set[str]:
        """The names of the stages with something stale."""
        return {job.partition(":")[0] for job in self.stale}


class DryRuns:
    """One process that answers for a project; the project may change between two questions.

    Args:
        path: folders of programs that Snakemake finds.
    """

    def __init__(self, project: Project, path: str = "") -> None:
        self.project = project
        variables = environment()
        self._server = subprocess.Popen(
            [sys.executable, Path(__file__).with_name("dry_run_server.py")],
            cwd=project.folder,
            env={**variables, "PATH": f"{path}:{variables['PATH']}"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def close(self) -> None:
        """End the process."""
        self._server.kill()
        self._server.communicate()

    def ask(self, *arguments: str) -> dict[str, Any]:
        """Return what Snakemake says to these arguments, and whether it ended well."""
        assert self._server.stdin is not None and self._server.stdout is not None
        print(json.dumps(arguments), file=self._server.stdin, flush=True)
        answer: dict[str, Any] = json.loads(self._server.stdout.readline())
        return answer

    def output(self, *arguments: str) -> str:
        """Return what Snakemake writes to its standard output; it must end well."""
        answer = self.ask(*arguments)
        assert answer["ended_well"], answer["said"]
        return str(answer["output"])

    def plan(self, config: dict[str, Any] | None = None, *arguments: str) -> Plan:
        """Return what is stale with a configuration; with that of the project without one."""
        return _plan(self.output("--summary", "all", *self.given(config), *arguments))

    def status(self, config: dict[str, Any] | None = None, *arguments: str) -> dict[str, str]:
        """Return what `snakemake status` says of each stage, and under "" of all."""
        text = self.output("status", *self.given(config), *arguments)
        *lines, _, total = text.splitlines()
        table = (line.split(maxsplit=1) for line in lines[1:])
        return {name: " ".join(rest.split()) for name, rest in table} | {"": total}

    def given(self, config: dict[str, Any] | None) -> tuple[str, ...]:
        """Return the arguments that give a configuration, which is written to a file."""
        if config is None:
            return ()
        path = self.project.folder / "asked.yaml"
        path.write_text(yaml.safe_dump(config, sort_keys=False))
        return ("--configfile", path.name)


def _plan(summary: str) -> Plan:
    rows = [line.split("\t") for line in summary.splitlines()[1:]]
    stale = frozenset(_job(row[2], row[0]) for row in rows if row[-1] == "update pending")
    return Plan(frozenset(_job(row[2], row[0]) for row in rows), stale)


def _job(rule: str, output: str) -> str:
    return f"{rule}:{Path(output).name.partition('.')[0]}" if rule in OF_A_SOURCE else rule


@contextmanager
def edited(path: Path, *, old: str = "", new: str = "", end: str = "") -> Iterator[None]:
    """Have another content in a file while the block runs: text replaced, or put at its end."""
    content, times = path.read_bytes(), path.stat()
    assert old.encode() in content, path
    path.write_bytes(
        (content.replace(old.encode(), new.encode()) if old else content) + end.encode()
    )
    try:
        yield
    finally:
        path.write_bytes(content)
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


@contextmanager
def without(path: Path) -> Iterator[None]:
    """Have a file away while the block runs."""
    away = path.with_name(f"{path.name}.away")
    path.rename(away)
    try:
        yield
    finally:
        away.rename(path)
