"""A copy of the project in which a test runs the real workflow."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
PARTS = ("Snakefile", "config", "envs", "profiles", "resources", "rules", "scripts")
TIMEOUT = 1500
TIMEOUT_OF_ORPHANS = 60


@dataclass(frozen=True)
class Project:
    """The folder of a copy.

    Attributes:
        variables: environment variables of its user, besides those that all have.
    """

    folder: Path
    variables: Mapping[str, str] = field(default_factory=dict)

    def snakemake(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run Snakemake to its end; its output is one text."""
        return subprocess.run(
            self._command(arguments),
            cwd=self.folder,
            env={**environment(), **self.variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=TIMEOUT,
        )

    def start(self, *arguments: str) -> "Run":
        """Start Snakemake in a process group of its own, as a terminal does."""
        output = (self.folder / "run.log").open("a")
        process = subprocess.Popen(
            self._command(arguments),
            cwd=self.folder,
            env={**environment(), **self.variables},
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            # A test runner in the background ignores Ctrl-C, and its children would too.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        )
        return Run(self, process)

    def configure(self, change: Callable[[dict[str, Any]], None]) -> None:
        """Change the configuration of this copy."""
        path = self.folder / "config/config.yaml"
        config = yaml.safe_load(path.read_text())
        change(config)
        path.write_text(yaml.safe_dump(config, sort_keys=False))

    def stale(self) -> set[str]:
        """Return the names of the rules that a dry run would run; none if all is up to date."""
        result = self.snakemake("-n", "all", "--quiet", "host")
        assert result.returncode == 0, result.stdout
        lines = result.stdout.splitlines()
        return {
            line.split()[1].rstrip(":")
            for line in lines
            if line.startswith(("rule ", "localrule ")) and line.endswith(":")
        } - {"all"}

    def outputs(self) -> dict[str, list[Path]]:
        """Return the files that each rule declares, by the name of the rule."""
        result = self.snakemake("--summary", "all", "--quiet", "all")
        assert result.returncode == 0, result.stdout
        found: dict[str, list[Path]] = {}
        for line in result.stdout.splitlines():
            fields = line.split("\t")
            if len(fields) > 2 and fields[0] != "output_file":
                found.setdefault(fields[2], []).append(self.folder / fields[0])
        return found

    def processes(self) -> list[str]:
        """Return the command lines of living processes that work in this folder."""
        found = []
        for entry in Path("/proc").iterdir():
            try:
                if entry.name.isdecimal() and (entry / "cwd").readlink() == self.folder:
                    command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                    if command:
                        found.append(command)
            except OSError:
                continue
        return found

    @staticmethod
    def _command(arguments: tuple[str, ...]) -> list[str]:
        return [sys.executable, "-m", "snakemake", *arguments]


@dataclass(frozen=True)
class Run:
    """A running Snakemake."""

    project: Project
    process: "subprocess.Popen[bytes]"

    def wait_for(self, happened: Callable[[], bool]) -> None:
        """Wait until something has happened; the run must not have ended before."""
        end = time.monotonic() + TIMEOUT
        while not happened():
            assert self.process.poll() is None, "the run ended too early"
            assert time.monotonic() < end
            time.sleep(0.05)

    def interrupt(self, number: signal.Signals) -> None:
        """Send a signal to the main process, Ctrl-C to all as a terminal does, and wait."""
        if number == signal.SIGINT:
            os.killpg(self.process.pid, number)
        else:
            os.kill(self.process.pid, number)
        self.process.wait(timeout=TIMEOUT)

    def hit(self, number: signal.Signals, everyone: bool) -> None:
        """Send a signal to the main process or to its whole group, and wait until all have gone."""
        with suppress(ProcessLookupError):
            (os.killpg if everyone else os.kill)(self.process.pid, number)
        self.process.wait(timeout=TIMEOUT)
        end = time.monotonic() + TIMEOUT_OF_ORPHANS
        while left := self.project.processes():
            assert time.monotonic() < end, f"left behind: {left}"
            time.sleep(0.1)


def environment() -> dict[str, str]:
    """Return the environment of a user who has activated nothing and is offline."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("SNAKEMAKE")}
    return {**kept, "PATH": "/usr/bin:/bin", "HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": ""}


def copy_project(folder: Path) -> Project:
    """Copy what the repository holds, and nothing that runs made."""
    for part in PARTS:
        source = ROOT / part
        if source.is_dir():
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(source, folder / part, ignore=ignored)
        else:
            folder.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, folder / part)
    return Project(folder)
