"""What a cluster is asked for where a job needs several nodes."""


def training_allocation(gpus: int, nodes: int) -> dict[str, int | str]:
    """Return the resources of the training job, by the names that Snakemake's Slurm plugin knows.

    One process of each node starts those of its GPUs, so there is one task a node. GPUs are asked
    for by node: a sum for all nodes is shared out unevenly by Slurm.

    Args:
        gpus: GPUs on each node.
    """
    if nodes == 1:
        return {"nodes": 1, "gpu": gpus}
    # `mpi` leaves starting processes on all nodes to the job itself.
    tasks: dict[str, int | str] = {"nodes": nodes, "tasks": nodes, "mpi": "srun"}
    return {**tasks, "gres": f"gpu:{gpus}", "tasks_per_gpu": 0} if gpus else tasks
