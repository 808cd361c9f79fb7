"""The GPUs of a job: those that it was given, less what other jobs of the machine have.

A batch system gives each job GPUs of its own and names them in `CUDA_VISIBLE_DEVICES`. Snakemake
only counts them, so jobs that it runs at once on one machine would all begin with the first.
"""

import fcntl
import os
import re
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

VISIBLE = "CUDA_VISIBLE_DEVICES"

_UNCOUNTED = 64
"""GPUs that a machine may have whose driver shows no devices."""

_BETWEEN_LOOKS = 2.0


def job_gpus(count: int) -> list[str]:
    """Return the first GPUs of those that the job was given, as `CUDA_VISIBLE_DEVICES` has them.

    Raises:
        ValueError: the job was given fewer.
    """
    given = os.environ.get(VISIBLE)
    if given is None:
        return [str(number) for number in range(count)]
    return _enough(count, _named(given))[:count]


@contextmanager
def own_gpus(count: int, say: Callable[[str], None]) -> Iterator[None]:
    """Have GPUs that no other job has while the block runs; wait until there are as many.

    `CUDA_VISIBLE_DEVICES` names them meanwhile, here and in processes that are started.

    Args:
        count: how many; for 0 nothing happens.
        say: tells people which ones these are, and that the job waits.

    Raises:
        ValueError: the job, or the machine, has fewer.
    """
    if not count:
        yield
        return
    given = os.environ.get(VISIBLE)
    names = _enough(count, _of_the_machine() if given is None else _named(given))
    with ExitStack() as claims:
        own = _claim(count, names, claims)
        if not own:
            say(f"waiting until other jobs leave it {count} GPUs")
        while not own:
            time.sleep(_BETWEEN_LOOKS)
            own = _claim(count, names, claims)
        say(f"GPU {', '.join(own)}")
        os.environ[VISIBLE] = ",".join(own)
        try:
            yield
        finally:
            if given is None:
                del os.environ[VISIBLE]
            else:
                os.environ[VISIBLE] = given


def _named(given: str) -> list[str]:
    return [name for name in given.split(",") if name]


def _of_the_machine() -> list[str]:
    """Return the numbers that CUDA gives the machine's GPUs."""
    devices = [path for path in Path("/dev").glob("nvidia*") if path.name[6:].isdecimal()]
    return [str(number) for number in range(len(devices) or _UNCOUNTED)]


def _enough(count: int, names: list[str]) -> list[str]:
    if len(names) < count:
        raise ValueError(
            f"serving.gpus, train.gpus: {count} GPUs are configured, the job was given "
            f"{len(names)} ({','.join(names)!r})"
        )
    return names


def _claim(count: int, names: list[str], claims: ExitStack) -> list[str]:
    """Lock `count` of the GPUs until `claims` ends, and return them; none if fewer are free."""
    # A batch system may count the GPUs of every job from 0, so its jobs are apart.
    job = os.environ.get("SLURM_JOB_ID", "machine")
    folder = Path(tempfile.gettempdir(), f"draftmill-gpus-{os.getuid()}-{job}")
    folder.mkdir(mode=0o700, exist_ok=True)
    with (folder / "claiming").open("w") as claiming, ExitStack() as found:
        fcntl.flock(claiming, fcntl.LOCK_EX)
        own: list[str] = []
        for name in names:
            lock = found.enter_context((folder / re.sub(r"[^\w-]", "_", name)).open("w"))
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            own.append(name)
            if len(own) == count:
                claims.enter_context(found.pop_all())
                return own
    return []
