"""A vLLM server of the target for a whole stage, on the job's GPUs; started again if it dies."""

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lib.gpus import job_gpus
from lib.vllm_server import RequestRefused, Server, ServerEnded, ServerError, vllm_server

_ATTEMPTS = 6
_LONGEST_PAUSE = 30.0
_BETWEEN_BEATS = 10.0


@dataclass(frozen=True)
class Serving:
    """How vLLM runs the target; config/README.md says what the keys mean."""

    gpus: int = 0
    tensor_parallel: int = 1
    memory_share: float = 0.9
    concurrency: int = 256
    startup_seconds: float = 1800.0
    restarts: int = 3
    options: tuple[str, ...] = ()

    def command_options(self) -> list[str]:
        """Return the options of `vllm serve` for these GPUs, or for a processor without any."""
        if not self.gpus:
            return ["--enforce-eager", "--dtype", "float32", *self.options]
        return [
            *("--tensor-parallel-size", str(self.tensor_parallel)),
            *("--data-parallel-size", str(self.gpus // self.tensor_parallel)),
            *("--gpu-memory-utilization", str(self.memory_share)),
            *self.options,
        ]

    def environment(self) -> dict[str, str]:
        """Return the variables of the server: the first GPUs of those that the job was given.

        Raises:
            ValueError: the job was given fewer.
        """
        if not self.gpus:
            return {"VLLM_CPU_KVCACHE_SPACE": os.environ.get("VLLM_CPU_KVCACHE_SPACE", "1")}
        return {"CUDA_VISIBLE_DEVICES": ",".join(job_gpus(self.gpus))}


class KeptServer:
    """A server that is started again when it ends, a few times; many threads may use it at once."""

    def __init__(
        self,
        start: Callable[[int], AbstractContextManager[Server]],
        restarts: int,
        say: Callable[[str], None],
    ):
        self._start = start
        self._restarts = restarts
        self._say = say
        self._started = 0
        self._lock = threading.Lock()
        self._context = start(0)
        self._server = self._context.__enter__()

    def post(self, path: str, body: dict[str, Any]) -> Any:
        """Send JSON with the name of the model and return the JSON of the answer.

        What fails in passing is asked again after a pause that grows.

        Raises:
            RequestRefused: the server does not accept the request.
            ServerError: the server ended too often, or does not answer.
        """
        attempt = 0
        while True:
            server = self._server
            try:
                return server.post(path, {"model": server.model, **body})
            except RequestRefused:
                raise
            except ServerEnded as error:
                self._replace(server, error)
            except ServerError:
                attempt += 1
                if attempt == _ATTEMPTS:
                    raise
                time.sleep(min(_LONGEST_PAUSE, 0.5 * 2**attempt))

    @property
    def url(self) -> str:
        """Where the server listens."""
        return self._server.url

    def check(self) -> None:
        """Raise `ServerEnded` if the server has ended."""
        self._server.check()

    def is_healthy(self) -> bool:
        """Say whether the server answers."""
        return self._server.is_healthy()

    def get(self, path: str) -> Any:
        """Return the JSON at a path."""
        return self._server.get(path)

    def text(self, path: str) -> str:
        """Return the text at a path, such as `/metrics`."""
        return self._server.text(path)

    def close(self) -> None:
        """Stop the server."""
        with self._lock:
            self._restarts = self._started
            self._context.__exit__(None, None, None)

    def _replace(self, ended: Server, error: ServerEnded) -> None:
        """Start another server, unless another thread has done so already."""
        with self._lock:
            if self._server is not ended:
                return
            if self._started == self._restarts:
                raise error
            self._started += 1
            self._say(f"vLLM has ended; starting it again ({self._started} of {self._restarts})")
            self._context.__exit__(None, None, None)
            self._context = self._start(self._started)
            self._server = self._context.__enter__()


class Heartbeat:
    """Notices when a server that others use has ended, or lives and answers nothing."""

    def __init__(self, server: KeptServer, patience: float):
        """Watch a server that may be silent for `patience` seconds."""
        self._server = server
        self._patience = patience
        self._asked = self._heard = time.monotonic()

    def check(self) -> None:
        """Raise a `ServerError` if the server has ended or was silent for too long."""
        self._server.check()
        now = time.monotonic()
        if now - self._asked < min(_BETWEEN_BEATS, self._patience / 2):
            return
        if self._server.is_healthy():
            self._heard = now
        elif now - self._heard > self._patience:
            raise ServerError(f"vLLM has not answered for {now - self._heard:.0f} s")
        self._asked = now


@contextmanager
def kept_server(
    target: Path,
    serving: Serving,
    options: Sequence[str],
    log: Path,
    say: Callable[[str], None],
) -> Iterator[KeptServer]:
    """Serve a target while the block runs.

    Args:
        options: options of `vllm serve` that the stage needs.
        log: file for what the server prints; another one for each start.
        say: tells people that the server is started again.

    Raises:
        ServerError: the server did not start.
    """

    def start(number: int) -> AbstractContextManager[Server]:
        return vllm_server(
            target,
            str(target),  # the name that speculators' trainer expects
            [*options, *serving.command_options()],
            log.with_suffix(f".{number}{log.suffix}") if number else log,
            serving.startup_seconds,
            environment=serving.environment(),
            connections=serving.concurrency,
        )

    server = KeptServer(start, serving.restarts, say)
    try:
        yield server
    finally:
        server.close()
