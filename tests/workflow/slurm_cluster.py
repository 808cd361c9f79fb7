"""A real Slurm cluster for tests: its daemons on this machine, with devices that pass for GPUs."""

import os
import re
import shutil
import socket
import stat
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "squeue")
GPUS = 4
CPUS = 16
"""Of each node; more than the machine may have, so that jobs are placed as on a larger one."""

PATIENCE = 60.0
"""Seconds to wait for daemons and for jobs that are cancelled."""

_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"


def missing() -> str:
    """Say why there can be no cluster on this machine; "" if there can be one."""
    absent = [name for name in PROGRAMS if shutil.which(name, path=_PATH) is None]
    if absent:
        return f"Slurm is not installed ({', '.join(absent)}); Debian has slurm-wlm and munge"
    if os.geteuid() != 0:
        return "the daemons of Slurm need root"
    return ""


@dataclass(frozen=True)
class Job:
    """What Slurm's controller knows of a job.

    Attributes:
        rule: rule of the workflow that it was submitted for.
        record: all fields, as `scontrol show job` names them.
    """

    number: int
    rule: str
    state: str
    record: dict[str, str]


@dataclass(frozen=True)
class Cluster:
    """A running cluster with the partitions `cpu` and `gpu`."""

    folder: Path

    @property
    def environment(self) -> dict[str, str]:
        """Variables with which Slurm's commands find this cluster, in jobs too."""
        return {
            "SLURM_CONF": str(self.folder / "slurm.conf"),
            "PATH": f"{self.folder / 'bin'}:{_PATH}",
        }

    def command(self, *words: str) -> str:
        """Run one of Slurm's commands and return what it prints."""
        environment = {**os.environ, **self.environment}
        result = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=60)
        assert result.returncode == 0, (words, result.stderr)
        return result.stdout

    def wait_until_empty(self) -> None:
        """Wait until no job is left, running or queued."""
        _wait_until(lambda: not self.command("squeue", "--noheader"))

    def jobs(self) -> list[Job]:
        """Return all jobs that were ever submitted, the first one first."""
        text = self.command("scontrol", "show", "job", "--details", "--oneliner")
        records = [dict(re.findall(r"(\S+?)=(\S*)", line)) for line in text.splitlines() if line]
        return [
            Job(
                int(record["JobId"]),
                re.sub(r"^rule_|_wildcards_.*$", "", record.get("Comment", "")),
                record["JobState"],
                record,
            )
            for record in records
            if "JobId" in record
        ]


@contextmanager
def slurm_cluster(folder: Path, nodes: int = 1) -> Iterator[Cluster]:
    """Run a cluster while the block runs; all that it writes is in `folder`.

    Args:
        nodes: each a daemon of its own on this machine, with `GPUS` fake GPUs.
    """
    folder.mkdir(parents=True)
    names = [f"node{number}" for number in range(nodes)]
    for number in range(GPUS):
        os.mknod(folder / f"gpu{number}", stat.S_IFCHR | 0o666, os.makedev(1, 3))
    (folder / "munge.key").write_bytes(os.urandom(128))
    (folder / "munge.key").chmod(0o400)
    (folder / "gres.conf").write_text(f"Name=gpu File={folder}/gpu[0-{GPUS - 1}]\n")
    (folder / "slurm.conf").write_text(_configuration(folder, names))
    # Snakemake's plugin starts jobs with an `srun` from whose environment it takes SLURM_CONF.
    srun = folder / "bin/srun"
    srun.parent.mkdir()
    srun.write_text(f'#!/bin/sh\nSLURM_CONF={folder}/slurm.conf exec /usr/bin/srun "$@"\n')
    srun.chmod(0o755)
    cluster = Cluster(folder)
    with ExitStack() as daemons:
        daemons.enter_context(
            _daemon(
                cluster,
                *("munged", "--foreground", "--force", "--key-file", str(folder / "munge.key")),
                *(
                    "--socket",
                    str(folder / "munge.socket"),
                    "--pid-file",
                    str(folder / "munge.pid"),
                ),
                *("--log-file", str(folder / "munge.log"), "--seed-file", str(folder / "seed")),
            )
        )
        _wait_until(lambda: (folder / "munge.socket").exists())
        daemons.enter_context(_daemon(cluster, "slurmctld", "-D"))
        for name in names:
            daemons.enter_context(_daemon(cluster, "slurmd", "-D", "-N", name))
        _wait_until(lambda: _idle_nodes(cluster) == nodes)
        try:
            yield cluster
        finally:
            cluster.command("scancel", "--user=root")
            cluster.wait_until_empty()


def _configuration(folder: Path, names: list[str]) -> str:
    ports = _free_ports(1 + len(names))
    host = socket.gethostname()
    node_lines = [
        f"NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs={CPUS}"
        f" RealMemory=200000 Gres=gpu:{GPUS} State=UNKNOWN"
        for name, port in zip(names, ports[1:], strict=True)
    ]
    lines = [
        "ClusterName=test",
        f"SlurmctldHost={host}(127.0.0.1)",
        f"SlurmctldPort={ports[0]}",
        "SlurmUser=root",
        "AuthType=auth/munge",
        f"AuthInfo=socket={folder}/munge.socket",
        f"StateSaveLocation={folder}/state",
        f"SlurmdSpoolDir={folder}/%n",
        f"SlurmctldPidFile={folder}/slurmctld.pid",
        f"SlurmdPidFile={folder}/%n.pid",
        f"SlurmctldLogFile={folder}/slurmctld.log",
        f"SlurmdLogFile={folder}/%n.log",
        "ProctrackType=proctrack/linuxproc",
        "TaskPlugin=task/none",
        "MpiDefault=none",
        "SelectType=select/cons_tres",
        "SelectTypeParameters=CR_Core_Memory",
        "SlurmdParameters=config_overrides",
        "SchedulerParameters=sched_interval=2,bf_interval=2",
        "AccountingStorageType=accounting_storage/none",
        "JobAcctGatherType=jobacct_gather/none",
        "GresTypes=gpu",
        "ReturnToService=2",
        *node_lines,
        f"PartitionName=cpu Nodes={','.join(names)} Default=YES",
        f"PartitionName=gpu Nodes={','.join(names)}",
    ]
    return "".join(f"{line}\n" for line in lines)


def _free_ports(count: int) -> list[int]:
    with ExitStack() as sockets:
        probes = [sockets.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]


@contextmanager
def _daemon(cluster: Cluster, *command: str) -> Iterator[None]:
    with (cluster.folder / "daemons.log").open("ab") as log:
        process = subprocess.Popen(
            command,
            env={**os.environ, **cluster.environment},
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _idle_nodes(cluster: Cluster) -> int:
    result = subprocess.run(
        ["sinfo", "--noheader", "--Node", "--partition=cpu", "--format=%T"],
        env={**os.environ, **cluster.environment},
        capture_output=True,
        text=True,
    )
    return result.stdout.split().count("idle")


def _wait_until(happened: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not happened():
        assert time.monotonic() < end, "Slurm does not come up; see the logs in its folder"
        time.sleep(0.2)
