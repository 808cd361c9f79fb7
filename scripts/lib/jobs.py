"""What every job finds in its environment, and what of the scheduling is worth showing."""

import logging
import os
import sys
from pathlib import Path

MAIN_PROCESS = "DRAFTMILL_MAIN_PROCESS"
"""Environment variable with the process id of the Snakemake run that a script works for."""


def prepare_environment() -> None:
    """Make jobs use this interpreter as `python`, and tell them whom they work for.

    The environment of a rule's conda environment is put in front of this one by Snakemake.
    """
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    os.environ[MAIN_PROCESS] = str(os.getpid())
    os.environ["PYTHONUNBUFFERED"] = "1"
    # PyTorch's threads wait busily by default, and that costs whatever runs beside them its core.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")


def hide_scheduling() -> None:
    """Leave out Snakemake's two lines about each choice of jobs: stages speak for themselves."""
    logging.getLogger("snakemake.logging").addFilter(
        lambda record: not record.getMessage().startswith(("Select jobs", "Execute "))
    )
