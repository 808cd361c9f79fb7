"""vLLM's connector for hidden states, for a server that runs on a processor.

vLLM's own copies from the GPU in the background, through pinned memory, which dies where there is
no GPU. The server finds this module because it lies beside `vllm_launcher.py`.
"""

from typing import Any

import torch
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
