"""Hidden states of the target from a vLLM server, many rows at once.

Where they are stored, the server writes the states of each request to a file, names it in its
answer, and holds a lock on `{file}.lock` until all is written (`ExampleHiddenStatesConnector`, as
of vLLM 0.32). Where a trainer asks for them, they go any way that it knows.
"""

import fcntl
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from lib.serving import KeptServer, Serving, kept_server
from lib.state_files import DTYPES, StatesError, WriteStates, write_states
from lib.states_transfer import Transfer
from lib.target_facts import read_facts
from lib.vllm_server import RequestRefused


@dataclass(frozen=True)
class VllmStates:
    """A served target, started when it is needed, that computes many rows at a time.

    Attributes:
        log: file for what the server prints.
        say: tells people that the server is started, and started again.
        transfer: how states come to a trainer; those that are stored always come as files.
    """

    target: Path
    layer_ids: Sequence[int]
    dtype: str
    trust_remote_code: bool
    serving: Serving
    log: Path
    say: Callable[[str], None]
    transfer: Transfer = field(default_factory=Transfer)

    @property
    def width(self) -> int:
        """Number of requests to have under way."""
        return self.serving.concurrency

    @property
    def gpus(self) -> int:
        """Number of GPUs that the server takes."""
        return self.serving.gpus

    def trainer_options(self, folder: Path) -> dict[str, dict[str, Any]]:
        """Return the keys of the trainer's configuration, by section, for states of `served`.

        Args:
            folder: that of the server.
        """
        return self.transfer.trainer_options(folder)

    @contextmanager
    def started(self, folder: Path, longest: int) -> Iterator[WriteStates]:
        """Serve the target, which writes into `folder`, while the block runs.

        Raises:
            ServerError: the server did not start.
        """
        with replace(self, transfer=Transfer()).served(folder, longest) as server:

            def write(ids: Sequence[int], path: Path) -> None:
                written = _ask(server, ids)
                try:
                    _take(written, path, self.dtype)
                except (OSError, SafetensorError) as error:
                    raise StatesError(
                        f"vLLM has not written its hidden states ({error}; see {self.log})"
                    ) from error

            yield write

    @contextmanager
    def served(self, folder: Path, longest: int) -> Iterator[KeptServer]:
        """Serve the target, which gives its states away by `transfer`, for whoever asks for them.

        Args:
            folder: where files with states go, if the transfer makes files.
            longest: tokens of the longest row.

        Raises:
            ValueError: something that the transfer needs is not there.
            ServerError: the server did not start.
        """
        self.transfer.check()
        self.say("starting vLLM")
        options = self.options(folder.resolve(), longest)
        with kept_server(self.target, self.serving, options, self.log, self.say) as server:
            yield server

    def options(self, folder: Path, longest: int) -> list[str]:
        """Return the options of `vllm serve` for states, besides those of `serving`.

        Args:
            folder: where files with states go, if the transfer makes files.
            longest: tokens of the longest row.
        """
        layer_ids = [*self.layer_ids, read_facts(self.target).layers]
        speculative = {
            "method": "extract_hidden_states",
            "num_speculative_tokens": 1,
            "draft_model_config": {"hf_config": {"eagle_aux_hidden_state_layer_ids": layer_ids}},
        }
        connector = self.transfer.connector(folder, on_gpu=self.serving.gpus > 0)
        return [
            *("--speculative_config", json.dumps(speculative)),
            *("--kv_transfer_config", json.dumps(connector)),
            "--no-enable-prefix-caching",  # states of a row never come from an earlier request
            *("--max-model-len", str(longest + 1)),  # a row, and the token that must be asked for
            *("--dtype", self.dtype),
            *(["--trust-remote-code"] if self.trust_remote_code else []),
        ]


def _ask(server: KeptServer, ids: Sequence[int]) -> Path:
    """Return the file that the server names for the states of these tokens.

    Raises:
        StatesError: the server refuses the row, or names no file.
        ServerError: the server ended too often, or does not answer.
    """
    try:
        answer = server.post("/v1/completions", {"prompt": ids, "max_tokens": 1, "temperature": 0})
    except RequestRefused as error:
        raise StatesError(f"vLLM refuses it ({error})") from error
    parameters = answer.get("kv_transfer_params") or {}
    if "hidden_states_path" not in parameters:
        raise StatesError("vLLM names no file with its hidden states")
    return Path(parameters["hidden_states_path"])


def _take(written: Path, path: Path, dtype: str) -> None:
    """Wait until a file is written, and move it to `path` with its states in the wanted type."""
    lock = written.with_name(f"{written.name}.lock")
    try:
        with lock.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH)  # the kernel lets go of a dead server's lock
        with safe_open(written, framework="pt") as stored:
            if stored.get_slice("hidden_states")[:0].dtype != DTYPES[dtype]:
                ids = stored.get_tensor("token_ids").tolist()
                write_states(path, stored.get_tensor("hidden_states"), ids, dtype)
                return
        written.replace(path)
    finally:
        written.unlink(missing_ok=True)
        lock.unlink(missing_ok=True)
