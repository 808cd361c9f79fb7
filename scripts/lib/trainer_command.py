"""The command line of the trainer's processes: one a GPU, on one node or on several."""

import os
import socket
import sys
from collections.abc import Sequence
from pathlib import Path

from lib.gpus import job_gpus

LAUNCHER = Path(__file__).with_name("training_launcher.py")


def trainer_command(
    gpus: int, nodes: int, config: Path, metrics: Path, address: str = ""
) -> list[str]:
    """Return the command.

    Args:
        gpus: GPUs on each node; 0 for one process on each node's processor.
        nodes: nodes of the Slurm job that the command runs in; 1 needs no Slurm.
        address: `host:port` where the nodes meet; only needed for several.
    """
    work = [str(LAUNCHER), str(config), str(metrics)]
    if nodes == 1 and gpus <= 1:
        return [sys.executable, *work]
    each = str(max(1, gpus))
    ranks = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", each]
    if nodes == 1:
        return [*ranks, "--standalone", *work]
    return [
        *("srun", "--overlap", "--kill-on-bad-exit", "--nodes", str(nodes)),
        *("--ntasks", str(nodes), "--ntasks-per-node", "1"),
        *("--cpu-bind", "none"),  # not to the one processor that a step gets unless told more
        *ranks,
        *("--nnodes", str(nodes), "--rdzv-backend", "c10d"),
        *("--rdzv-id", config.parent.name, "--rdzv-endpoint", address),
        *work,
    ]


def meeting_address() -> str:
    """Return an address of this node where the ranks of other nodes can meet.

    Raises:
        ValueError: there are no other nodes, because this is no job of Slurm.
    """
    if "SLURM_JOB_ID" not in os.environ:
        raise ValueError(
            "train.nodes: is more than 1, which needs a job of Slurm; give --workflow-profile "
            "profiles/slurm, or set it to 1"
        )
    with socket.socket() as probe:
        probe.bind(("", 0))
        port: int = probe.getsockname()[1]
    return f"{socket.gethostname()}:{port}"


def trainer_environment(gpus: int, first: int) -> dict[str, str]:
    """Return the variables of the trainer's processes.

    Args:
        gpus: GPUs of the trainer on each node.
        first: GPUs of the job before those of the trainer, which a server has.

    Raises:
        ValueError: the job was given fewer GPUs.
    """
    variables = {"PYTHONPATH": os.pathsep.join(_with_scripts(os.environ.get("PYTHONPATH", "")))}
    if gpus:
        variables["CUDA_VISIBLE_DEVICES"] = ",".join(job_gpus(first + gpus)[first:])
    return variables


def _with_scripts(path: str) -> Sequence[str]:
    return [str(LAUNCHER.parent.parent), *filter(None, path.split(os.pathsep))]
