"""A vLLM server that lives exactly as long as a `with` block."""

import contextlib
import json
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import Any

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
    """A healthy server on this machine."""

    url: str
    model: str
    log: Path
    process: "subprocess.Popen[bytes]"

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
        request = urllib.request.Request(
            self.url + path,
            data=json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=timeout) as response:
                return json.load(response)
        except urllib.error.HTTPError as error:
            kind = RequestRefused if error.code < 500 and error.code not in _BUSY else ServerError
            raise kind(f"{path}: {error.code} {error.read().decode()[:500]}") from error
        except (OSError, HTTPException, ValueError) as error:  # broken off, perhaps inside JSON
            self._await_end()
            raise ServerError(f"{path}: {error}") from error

    def _await_end(self) -> None:
        """Raise `ServerEnded` if the process is ending: its connections close a little before."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(_MOMENT)
        self.check()

    def get(self, path: str) -> Any:
        """Return the JSON at a path."""
        return json.loads(self.text(path))

    def text(self, path: str) -> str:
        """Return the text at a path, such as `/metrics`."""
        with urllib.request.urlopen(self.url + path, timeout=60) as response:
            text: str = response.read().decode()
            return text


@contextmanager
def vllm_server(
    model: Path,
    name: str,
    options: Sequence[str],
    log: Path,
    deadline: float = 600.0,
    command: Sequence[str] = ("serve",),
    environment: Mapping[str, str] | None = None,
) -> Iterator[Server]:
    """Serve a model on a free port of 127.0.0.1 while the block runs.

    Args:
        name: the model's name in requests.
        options: further options of `vllm serve`.
        log: file for all that the server prints.
        deadline: seconds within which the server must be healthy.
        environment: variables of the server, beside those of this process.
        command: `serve`, or another command of vLLM that takes a model and serves HTTP.

    Raises:
        ServerError: the server ended while starting, or was not healthy in time.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_bytes(b"")
    port = _free_port()
    line = [
        *(sys.executable, str(LAUNCHER), *command, str(model)),
        *("--host", "127.0.0.1", "--port", str(port), "--served-model-name", name),
        *options,
    ]
    variables = {"VLLM_NO_USAGE_STATS": "1", **(environment or {})}
    with guarded_process(line, log, variables) as process:
        server = Server(f"http://127.0.0.1:{port}", name, log, process)
        _await_health(server, deadline)
        yield server


def _await_health(server: Server, deadline: float) -> None:
    end = time.monotonic() + deadline
    while time.monotonic() < end:
        server.check()
        try:
            with urllib.request.urlopen(f"{server.url}/health", timeout=5):
                return
        except OSError:
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
