"""Child processes that never outlive their parent, however it ends."""

import multiprocessing
import os
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import BrokenExecutor, Future, ProcessPoolExecutor
from contextlib import contextmanager
from itertools import chain, islice
from pathlib import Path
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

GUARDIAN = Path(__file__).with_name("guardian.py")


@contextmanager
def guarded_process(
    command: Sequence[str],
    log: Path,
    environment: Mapping[str, str] | None = None,
    grace: float = 15.0,
    keep_open: Sequence[int] = (),
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a command in a process group of its own, with its output appended to `log`.

    The group is ended when the block ends, and also when this process dies without a word: a
    guardian between the two notices that its standard input has closed. SIGQUIT to the process
    kills the group at once.

    Args:
        environment: variables that are added to this process's own.
        grace: seconds that the group has to end by itself before it is killed.
        keep_open: file descriptors that stay open until the group has ended, even if this
            process has not lived to see it; a lock on one is held as long.
    """
    with log.open("ab") as output:
        process = subprocess.Popen(
            [sys.executable, str(GUARDIAN), str(grace), *command],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            env={**os.environ, **(environment or {})},
            start_new_session=True,
            pass_fds=keep_open,
        )
    try:
        yield process
    finally:
        assert process.stdin is not None
        process.stdin.close()
        process.wait()


def in_workers(
    work: Callable[[Item], Result],
    items: Iterable[Item],
    workers: int,
    patience: float | None = None,
) -> Iterator[Result]:
    """Yield `work(item)` for each item, in the order of the items, from `workers` processes.

    Few items are under way at a time, so neither items nor results pile up. No more workers are
    started than there are items, and for one the work is done here. `work` must be importable by
    name, as for any pool of processes.

    Args:
        patience: seconds to wait for a result, for ever if None.

    Raises:
        TimeoutError: there was no result in time; names the item.
        OSError: a worker was killed, as it is where memory runs out.
    """
    items = iter(items)
    first = list(islice(items, workers))
    items = chain(first, items)
    workers = len(first)
    if workers <= 1:
        yield from map(work, items)
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, context, initializer=_end_with_parent) as pool:
        under_way: deque[tuple[Item, Future[Result]]] = deque()
        try:
            for item in items:
                under_way.append((item, pool.submit(work, item)))
                if len(under_way) > 2 * workers:
                    yield _result(*under_way.popleft(), patience)
            while under_way:
                yield _result(*under_way.popleft(), patience)
        finally:
            for _, future in under_way:
                future.cancel()


def _result(item: Item, future: "Future[Result]", patience: float | None) -> Result:
    try:
        return future.result(patience)
    except TimeoutError as error:
        if not future.done():
            for worker in multiprocessing.active_children():
                worker.kill()
            raise TimeoutError(f"no result within {patience:.0f} s for {item}") from error
        raise
    except BrokenExecutor as error:
        raise OSError("a worker process was killed; is there enough memory?") from error


def _end_with_parent() -> None:
    """End this worker when its parent is gone: a pool's worker would wait for work for ever."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
