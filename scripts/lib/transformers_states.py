"""Hidden states of the target, computed in this process with transformers."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch

from lib.generation import load_target
from lib.state_files import WriteStates, write_states


class Capture:
    """Runs a target over one row and picks the layers."""

    def __init__(self, model: Any, layer_ids: Sequence[int]):
        self._decoder = model.get_decoder()  # the text model, also of one that sees images
        # What a layer reads is the output of the layer before it, as the norm reads the last one.
        readers = [*self._decoder.layers, self._decoder.norm]
        self._readers = [readers[k] for k in (*layer_ids, len(readers) - 1)]

    def states(self, ids: Sequence[int]) -> torch.Tensor:
        """Return the states of one row, shape [length, layers + 1, hidden size]."""
        read: list[torch.Tensor] = []
        with ExitStack() as hooks, torch.inference_mode():
            for module in self._readers:
                look = module.register_forward_pre_hook(lambda _, inputs: read.append(inputs[0][0]))
                hooks.enter_context(look)
            self._decoder(torch.tensor([list(ids)], device=self._decoder.device), use_cache=False)
        return torch.stack(read, dim=1).cpu()


@dataclass(frozen=True)
class TransformersStates:
    """A target in this process, loaded when it is needed, that computes a row at a time."""

    target: Path
    layer_ids: Sequence[int]
    dtype: str
    trust_remote_code: bool = False
    width: ClassVar[int] = 1

    @contextmanager
    def started(self, folder: Path, longest: int) -> Iterator[WriteStates]:
        """Load the target; neither the folder nor the longest row matters here."""
        model = load_target(self.target, self.trust_remote_code, self.dtype)
        capture = Capture(model, self.layer_ids)

        def write(ids: Sequence[int], path: Path) -> None:
            write_states(path, capture.states(ids), ids, self.dtype)

        yield write
