"""A copy of the project that a benchmark runs, and how its figures are printed."""

import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT / "tests"))

from workflow import project  # noqa: E402


def copy_project(folder: Path) -> Path:
    """Copy what the repository holds, and nothing that runs made; return the folder."""
    return project.copy_project(folder).folder


def snakemake(folder: Path, *arguments: str) -> str:
    """Run Snakemake in a folder; return what it says, and end the benchmark where it fails."""
    command = [sys.executable, "-m", "snakemake", *arguments]
    result = subprocess.run(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    if result.returncode:
        sys.exit(result.stdout)
    return result.stdout


def seconds(folder: Path, *arguments: str) -> float:
    """Run Snakemake in a folder and return the wall time."""
    start = time.perf_counter()
    snakemake(folder, *arguments)
    return time.perf_counter() - start


def show(what: str, value: float, bound: float, unit: str) -> None:
    """Print one figure with its bound and their ratio."""
    print(f"{what:<52}{value:>8.2f} {unit:<5} bound {bound:>6.2f}  ratio {value / bound:.2f}")
