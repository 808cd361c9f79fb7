"""How hidden states come from a vLLM server to speculators' trainer (0.9.0) while both run.

A transfer has two ends: the connector that vLLM loads, which puts the states somewhere, and what
the trainer is told so that it takes them from there.
"""

import importlib
import os
import socket
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_CONNECTORS = {
    "file": ("ExampleHiddenStatesConnector", None),  # vLLM finds its own by name
    "fp8": ("FP8HiddenStatesConnector", "hs_connectors.fp8_hidden_states_connector"),
    "mooncake": ("MooncakeHiddenStatesConnector", "hs_connectors.mooncake_hidden_states_connector"),
}
"""Name and module of the connector of each transfer."""

_CPU_CONNECTORS = {
    "file": "CpuHiddenStatesConnector",
    "fp8": "CpuFP8HiddenStatesConnector",
    "mooncake": "CpuMooncakeHiddenStatesConnector",
}
"""Their names for a server without a GPU, all in `cpu_hidden_states_connector.py`."""

_GIB = 1024**3
_BUFFER_GIB = 0.25
"""A Mooncake client's own buffer: small, for states go through buffers that are made for them."""


@dataclass(frozen=True)
class Mooncake:
    """The Mooncake store that states pass through; config/README.md says what the keys mean."""

    master: str = "127.0.0.1:50051"
    metadata_server: str = "P2PHANDSHAKE"
    protocol: str = "tcp"
    device: str = ""
    store_gib: float = 16.0
    writer_threads: int = 4


@dataclass(frozen=True)
class Transfer:
    """A way for hidden states from a server to a trainer on the same machine.

    Attributes:
        kind: `file`, exact states in a folder; `fp8`, the same with a byte a number; `mooncake`,
            exact states in memory.
        mooncake: where that memory is.
    """

    kind: str = "file"
    mooncake: Mooncake = field(default_factory=Mooncake)

    def check(self) -> None:
        """Look whether what the transfer needs beside vLLM and the trainer is there.

        Raises:
            ValueError: Mooncake's package cannot be loaded, or its master does not answer.
        """
        if self.kind == "mooncake":
            _check_package()
            _check_master(self.mooncake.master)

    def connector(self, folder: Path, on_gpu: bool) -> dict[str, Any]:
        """Return what the server is given as `--kv_transfer_config`.

        Args:
            folder: where files with states go, if the transfer makes files.
            on_gpu: whether the server runs on GPUs.
        """
        name, module = _CONNECTORS[self.kind]
        if not on_gpu:
            name, module = _CPU_CONNECTORS[self.kind], "cpu_hidden_states_connector"
        return {
            "kv_connector": name,
            "kv_role": "kv_producer",
            "kv_connector_extra_config": {"shared_storage_path": str(folder)}
            if self.kind != "mooncake"
            else {"mooncake": self._store()},
            **({"kv_connector_module_path": module} if module else {}),
        }

    def trainer_options(self, folder: Path) -> dict[str, dict[str, Any]]:
        """Return the keys of the trainer's configuration, by section, that belong to the transfer.

        Args:
            folder: that of the server.
        """
        return {
            "data": {"hidden_states_backend": self.kind},
            "backend": {"hidden_states_path": str(folder)}
            if self.kind != "mooncake"
            else self._client(),
        }

    def _store(self) -> dict[str, Any]:
        """Return the server's end: it alone lends memory to the store."""
        return {
            "local_hostname": _own_address(),
            "metadata_server": self.mooncake.metadata_server,
            "master_server_address": self.mooncake.master,
            "global_segment_size": round(self.mooncake.store_gib * _GIB),
            "local_buffer_size": round(_BUFFER_GIB * _GIB),
            "protocol": self.mooncake.protocol,
            "device_name": self.mooncake.device,
            "num_writer_threads": self.mooncake.writer_threads,
        }

    def _client(self) -> dict[str, Any]:
        """Return the trainer's end, of which each of its loaders is one."""
        options = {
            "master": self.mooncake.master,
            "metadata_server": self.mooncake.metadata_server,
            "protocol": self.mooncake.protocol,
            "device": self.mooncake.device,
            "global_segment_gib": 0.0,
            "local_buffer_gib": _BUFFER_GIB,
        }
        return {f"mooncake_{key}": value for key, value in options.items()}


def _own_address() -> str:
    """Return the address that other clients of the store know this machine by."""
    given = os.environ.get("MOONCAKE_LOCAL_HOSTNAME")
    return given or socket.gethostbyname(socket.gethostname())


def _check_package() -> None:
    try:
        importlib.import_module("mooncake.store")
    except ImportError as error:
        raise ValueError(
            f"hidden_states.transfer: mooncake cannot be loaded ({error}); install "
            "mooncake-transfer-engine (0.3.12 or newer) and the system's libibverbs, or choose file"
        ) from error


def _check_master(address: str) -> None:
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=5).close()
    except OSError as error:
        raise ValueError(
            f"hidden_states.mooncake.master: nothing answers at {address} ({error}); start "
            "mooncake_master there"
        ) from error
