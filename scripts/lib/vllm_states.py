"""Hidden states of the target from a vLLM server, many rows at once.

The server writes the states of each request to a file, names it in its answer, and holds a lock
on `{file}.lock` until all is written (`ExampleHiddenStatesConnector`, as of vLLM 0.32).
"""

import fcntl
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from safetensors import SafetensorError, safe_open

from lib.serving import KeptServer, Serving, kept_server
from lib.state_files import DTYPES, StatesError, WriteStates, write_states
from lib.target_facts import read_facts
from lib.vllm_server import RequestRefused


@dataclass(frozen=True)
class VllmStates:
    """A served target, started when it is needed, that computes many rows at a time.

    Attributes:
        log: file for what the server prints.
        say: tells people that the server is started, and started again.
    """

    target: Path
    layer_ids: Sequence[int]
    dtype: str
    trust_remote_code: bool
    serving: Serving
    log: Path
    say: Callable[[str], None]

    @property
    def width(self) -> int:
        """Number of requests to have under way."""
        return self.serving.concurrency

    @property
    def gpus(self) -> int:
        """Number of GPUs that the server takes."""
        return self.serving.gpus

    @contextmanager
    def started(self, folder: Path, longest: int) -> Iterator[WriteStates]:
        """Serve the target, which writes into `folder`, while the block runs.

        Raises:
            ServerError: the server did not start.
        """
        with self.served(folder, longest) as server:

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
        """Serve the target, which writes states into `folder`, for whoever asks for them.

        Raises:
            ServerError: the server did not start.
        """
        self.say("starting vLLM")
        options = self._options(folder.resolve(), longest)
        with kept_server(self.target, self.serving, options, self.log, self.say) as server:
            yield server

    def _options(self, folder: Path, longest: int) -> list[str]:
        """Return the options of `vllm serve`."""
        layer_ids = [*self.layer_ids, read_facts(self.target).layers]
        speculative = {
            "method": "extract_hidden_states",
            "num_speculative_tokens": 1,
            "draft_model_config": {"hf_config": {"eagle_aux_hidden_state_layer_ids": layer_ids}},
        }
        transfer = {
            "kv_connector": "ExampleHiddenStatesConnector",
            "kv_role": "kv_producer",
            "kv_connector_extra_config": {"shared_storage_path": str(folder)},
        }
        if not self.serving.gpus:
            transfer["kv_connector"] = "CpuHiddenStatesConnector"
            transfer["kv_connector_module_path"] = "cpu_hidden_states_connector"
        return [
            *("--speculative_config", json.dumps(speculative)),
            *("--kv_transfer_config", json.dumps(transfer)),
            "--no-enable-prefix-caching",  # a token from that cache would have no states
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
