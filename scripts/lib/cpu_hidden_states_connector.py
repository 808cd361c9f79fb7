"""Connectors for hidden states of vLLM and speculators, for a server that runs on a processor.

Theirs copy from the GPU in the background, through pinned memory or on a stream of its own, and
die where there is no GPU. The server finds this module because it lies beside `vllm_launcher.py`.
"""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from hs_connectors.fp8_hidden_states_connector import FP8HiddenStatesConnector
from hs_connectors.mooncake_hidden_states_connector import MooncakeHiddenStatesConnector
from vllm.distributed.kv_transfer.kv_connector.v1.example_hidden_states_connector import (
    ExampleHiddenStatesConnector,
    PendingSave,
    extract_from_kv_cache,
)


class CopiedAlready:
    """Stands for the CUDA event that says that a copy is finished."""

    def synchronize(self) -> None:
        """Return at once."""

    def query(self) -> bool:
        """Say that the copy is finished."""
        return True


class CpuHiddenStatesConnector(ExampleHiddenStatesConnector):
    """Copies the states of a finished request at once, then writes them as vLLM does."""

    def _submit_async_write(self, pending: PendingSave) -> None:
        if not self._is_tp_rank_zero:
            return
        assert self._kv_cache is not None
        blocks = torch.tensor(pending.block_ids) * self._block_size
        slots = (blocks[:, None] + torch.arange(self._block_size)).flatten()
        tensors = {
            # Indexing copies, so the blocks may be given to another request.
            "hidden_states": extract_from_kv_cache(self._kv_cache, slots, len(pending.token_ids)),
            "token_ids": pending.token_ids,
        }
        copied: Any = CopiedAlready()
        lock = self._lock_fds.pop(pending.req_id, None)
        self._req_copy_events[pending.req_id] = copied
        self._req_futures[pending.req_id] = future = self._executor.submit(
            self._write_tensors, tensors, copied, pending.filename, lock
        )
        future.add_done_callback(lambda done: self._on_write_done(pending.req_id, done))


class CpuFP8HiddenStatesConnector(CpuHiddenStatesConnector, FP8HiddenStatesConnector):
    """Copies the states at once too, then writes them as speculators does, a byte a number."""


class NoStreams:
    """Stands for an accelerator with its streams and events, where all work is done in order."""

    def Stream(self) -> "NoStreams":
        """Return a stream."""
        return self

    def Event(self) -> "NoStreams":
        """Return an event."""
        return self

    def stream(self, stream: "NoStreams") -> AbstractContextManager[None]:
        """Work on a stream while the block runs."""
        return nullcontext()

    def record(self) -> None:
        """Return at once."""

    def wait_event(self, event: "NoStreams") -> None:
        """Return at once."""


class CpuMooncakeHiddenStatesConnector(MooncakeHiddenStatesConnector):
    """Puts the states into a Mooncake store from the threads that do so on a GPU.

    The blocks of a request are not given to another one before its states are in the store.
    """

    def _device(self) -> NoStreams:
        return NoStreams()
