"""A vLLM server that lives exactly as long as a `with` block."""

import contextlib
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from urllib3 import BaseHTTPResponse, HTTPConnectionPool
from urllib3.exceptions import HTTPError

from lib.processes import guarded_process

LAUNCHER = Path(__file__).with_name("vllm_launcher.py")

_BUSY = (408, 425, 429)
"""Answers that say: ask again later."""

_MOMENT = 2.0
"""Seconds after which a server that broke a connection off is taken to be alive."""


class ServerError(RuntimeError):
    """The server did not start, or does not answer."""


class ServerEnded(ServerError):
    """The server's process has ended; holds the end of its log."""


class RequestRefused(ServerError):
    """The server says that a request is wrong; asking again would not help."""


@dataclass(frozen=True)
class Server:
    """A healthy server on this machine; many threads may use it at once.

    Attributes:
        connections: kept open from one request to the next, for opening one costs more than a
            short answer.
    """

    model: str
    log: Path
    process: "subprocess.Popen[bytes]"
    connections: HTTPConnectionPool

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://{self.connections.host}:{self.connections.port}"

    def check(self) -> None:
        """Raise `ServerEnded` if the server has ended."""
        if (code := self.process.poll()) is not None:
            raise ServerEnded(f"vLLM ended with exit code {code}\n{_end_of(self.log)}")

    def post(self, path: str, body: Any, timeout: float = 600.0) -> Any:
        """Send JSON and return the JSON of the answer.

        Raises:
            RequestRefused: the server does not accept the request.
            ServerEnded: the server has ended.
            ServerError: it could not answer this time.
        """
        try:
            return _checked(path, self._request("POST", path, timeout, json=body)).json()
        except (OSError, HTTPError, ValueError) as error:  # broken off, perhaps inside JSON
            self._await_end()
            raise ServerError(f"{path}: {error}") from error

    def get(self, path: str) -> Any:
        """Return the JSON at a path."""
        return _checked(path, self._request("GET", path, 60.0)).json()

    def text(self, path: str) -> str:
        """Return the text at a path, such as `/metrics`."""
        return _checked(path, self._request("GET", path, 60.0)).data.decode()

    def is_healthy(self) -> bool:
        """Say whether it is ready for requests."""
        try:
            return self._request("GET", "/health", 5.0).status == 200
        except (OSError, HTTPError):
            return False

    def _request(self, method: str, path: str, timeout: float, **body: Any) -> BaseHTTPResponse:
        return self.connections.request(method, path, timeout=timeout, retries=False, **body)

    def _await_end(self) -> None:
        """Raise `ServerEnded` if the process is ending: its connections close a little before."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(_MOMENT)
        self.check()


def _checked(path: str, response: BaseHTTPResponse) -> BaseHTTPResponse:
    """Return a response, or raise what its status says."""
    if response.status < 400:
        return response
    is_refused = response.status < 500 and response.status not in _BUSY
    kind = RequestRefused if is_refused else ServerError
    raise kind(f"{path}: {response.status} {response.data.decode(errors='replace')[:500]}")


def server_command(
    model: Path, name: str, options: Sequence[str], port: int, command: Sequence[str] = ("serve",)
) -> list[str]:
    """Return the command line of a server; `vllm_server` says what the arguments are."""
    return [
        *(sys.executable, str(LAUNCHER), *command, str(model)),
        *("--host", "127.0.0.1", "--port", str(port), "--served-model-name", name),
        *options,
    ]


@contextmanager
def vllm_server(
    model: Path,
    name: str,
    options: Sequence[str],
    log: Path,
    deadline: float = 600.0,
    command: Sequence[str] = ("serve",),
    environment: Mapping[str, str] | None = None,
    connections: int = 16,
) -> Iterator[Server]:
    """Serve a model on a free port of 127.0.0.1 while the block runs.

    Args:
        name: the model's name in requests.
        options: further options of `vllm serve`.
        log: file for all that the server prints.
        deadline: seconds within which the server must be healthy.
        environment: variables of the server, beside those of this process.
        command: `serve`, or another command of vLLM that takes a model and serves HTTP.
        connections: how many are kept open at most.

    Raises:
        ServerError: the server ended while starting, or was not healthy in time.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_bytes(b"")
    port = _free_port()
    line = server_command(model, name, options, port, command)
    variables = {"VLLM_NO_USAGE_STATS": "1", **(environment or {})}
    with (
        guarded_process(line, log, variables) as process,
        HTTPConnectionPool("127.0.0.1", port, maxsize=connections) as pool,
    ):
        server = Server(name, log, process, pool)
        _await_health(server, deadline)
        yield server


def _await_health(server: Server, deadline: float) -> None:
    end = time.monotonic() + deadline
    while time.monotonic() < end:
        server.check()
        if server.is_healthy():
            return
        time.sleep(0.2)
    raise ServerError(f"vLLM was not healthy after {deadline:.0f} s\n{_end_of(server.log)}")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _end_of(log: Path, lines: int = 30) -> str:
    with log.open(encoding="utf-8", errors="replace") as file:
        return "".join(deque(file, maxlen=lines))
