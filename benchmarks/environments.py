"""Resolve the pip part of each environment in envs/ on the package index, without installing it.

Usage: make environments, or .venv/bin/python benchmarks/environments.py

Prints how many packages an environment takes, and which builds of the great ones it gets. pip's
own message says what does not fit.
"""

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parent.parent
SHOWN = ("torch", "torchvision", "transformers", "speculators", "vllm")


def main() -> None:
    for path in sorted((ROOT / "envs").glob("*.yaml")):
        start = time.perf_counter()
        found = resolve(yaml.safe_load(path.read_text())["dependencies"])
        shown = "  ".join(f"{name} {found[name]}" for name in SHOWN if name in found)
        seconds = time.perf_counter() - start
        print(f"{path.name:<18}{len(found):>4} packages ({seconds:.0f} s)  {shown}", flush=True)


def resolve(dependencies: list[str | dict[str, list[str]]]) -> dict[str, str]:
    """Return the version of each package that pip would install for the environment's Python."""
    python = next(part for part in dependencies if str(part).startswith("python="))
    lines = next(part["pip"] for part in dependencies if isinstance(part, dict))
    with tempfile.TemporaryDirectory() as name:
        report = Path(name, "report.json")
        command = [
            *(sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"),
            *("--dry-run", "--report", str(report), "--target", str(Path(name, "nowhere"))),
            *("--only-binary", ":all:", "--python-version", str(python).partition("=")[2]),
        ]
        if subprocess.run([*command, *lines]).returncode:
            sys.exit("the pins above do not fit each other")
        packages = [entry["metadata"] for entry in json.loads(report.read_text())["install"]]
    return {package["name"].lower(): package["version"] for package in packages}


if __name__ == "__main__":
    main()
