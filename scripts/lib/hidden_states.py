"""Hidden states of the target for every token row, as speculators reads them from disk.

File `hs_{row}.safetensors` holds `hidden_states` [length, layers + 1, hidden size] and
`token_ids` [length]. Layer id k is the output of decoder layer k (0: the embeddings), as in
transformers and vLLM; the last slice is the output of the last layer before the final norm.
"""

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file

from lib.arrow_rows import read_token_rows
from lib.digest import digest
from lib.files import atomic_path, read_json, write_json
from lib.generation import load_target

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


@dataclass(frozen=True)
class HiddenStatesSettings:
    """What decides the hidden states; config/README.md says what the keys mean."""

    mode: str
    backend: str
    layer_ids: list[int]
    dtype: str = "bfloat16"
    trust_remote_code: bool = False


def extract_hidden_states(
    settings: HiddenStatesSettings,
    tokenized: Path,
    target: Path,
    manifest: Path,
    advance: Callable[[int], None],
) -> dict[str, Any]:
    """Compute the states of each row and name their folder in `manifest`, written last.

    The folder is named by a digest of the rows, the weights and the settings, so states of
    another data set can never be taken for these; files of an interrupted run are kept.

    Args:
        advance: called with 1 after each row.

    Returns:
        The content of `manifest`.

    Raises:
        ValueError: the disk is too small, or states are not finite.
    """
    stats = read_json(tokenized / "stats.json")
    identity = {
        "rows": stats["content"],
        "target": digest(read_json(target / "weights.json")),
        "layer_ids": settings.layer_ids,
        "dtype": settings.dtype,
    }
    folder = manifest.parent / "hidden_states" / digest(identity)[:8]
    folder.mkdir(parents=True, exist_ok=True)
    model = load_target(target, settings.trust_remote_code, settings.dtype)
    size = _bytes_a_token(model, settings) * stats["tokens"]
    _check_free_space(folder, size)
    capture = Capture(model, settings.layer_ids)
    for row, (ids, _, _) in enumerate(read_token_rows(tokenized)):
        path = folder / f"hs_{row}.safetensors"
        if not _is_complete(path, ids):
            states = capture.states(ids).to(DTYPES[settings.dtype])
            if not torch.isfinite(states).all():
                raise ValueError(f"row {row}: the target's hidden states are not finite")
            with atomic_path(path) as partial:
                save_file({"hidden_states": states, "token_ids": torch.tensor(ids)}, partial)
        advance(1)
    result = {**identity, "folder": folder.name, "rows_on_disk": stats["rows"], "bytes": size}
    write_json(manifest, result)
    return result


class Capture:
    """Runs a target over one row and picks the layers."""

    def __init__(self, model: Any, layer_ids: Sequence[int]):
        self._model = model
        self._layer_ids = list(layer_ids)

    def states(self, ids: Sequence[int]) -> torch.Tensor:
        """Return the states of one row, shape [length, layers + 1, hidden size]."""
        before_norm: list[torch.Tensor] = []
        look = self._model.model.norm.register_forward_pre_hook(
            lambda _, inputs: before_norm.append(inputs[0])
        )
        with look, torch.inference_mode():
            output = self._model.model(
                torch.tensor([list(ids)], device=self._model.device),
                output_hidden_states=True,
                use_cache=False,
            )
        layers = [output.hidden_states[k][0] for k in self._layer_ids]
        return torch.stack([*layers, before_norm[0][0]], dim=1).cpu()


def _bytes_a_token(model: Any, settings: HiddenStatesSettings) -> int:
    hidden_size: int = model.config.get_text_config().hidden_size
    layers = len(settings.layer_ids) + 1
    return layers * hidden_size * DTYPES[settings.dtype].itemsize + 8


def _check_free_space(folder: Path, size: int) -> None:
    present = sum(path.stat().st_size for path in folder.glob("hs_*.safetensors"))
    free = shutil.disk_usage(folder).free
    if size - present > free:
        raise ValueError(
            f"the hidden states take {size / 1e9:.1f} GB, and {free / 1e9:.1f} GB are free "
            f"at {folder}"
        )


def _is_complete(path: Path, ids: Sequence[int]) -> bool:
    """Say whether a file of an earlier run holds the states of this row."""
    if not path.is_file():
        return False
    try:
        with safe_open(path, framework="pt") as file:
            stored: list[int] = file.get_tensor("token_ids").tolist()
            return stored == list(ids)
    except Exception:
        return False
