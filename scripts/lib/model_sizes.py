"""How large a target and its drafter are, from configuration files alone.

Both are built on torch's meta device, where tensors have shapes and no numbers.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import transformers
from speculators import SpeculatorModel
from speculators.train.cli import build_draft_model
from speculators.train.config import TrainConfig
from speculators.train.optimizers import split_named_params_for_muon
from torch import Tensor

from lib.drafter_config import layers_masked_otherwise


@dataclass(frozen=True)
class TargetSize:
    """How large a target is.

    Attributes:
        parameters: all that transformers loads.
        head_parameters: those of embedding and output head, of which a prompt needs few.
        attention_layers: layers that keep keys and values of every token.
        key_value_width: numbers that such a layer keeps of a token.
        key_value_heads: how many ranks can share them out.
    """

    parameters: int
    head_parameters: int
    attention_layers: int
    key_value_width: int
    key_value_heads: int


@dataclass(frozen=True)
class DrafterSize:
    """How large a drafter is that the trainer would make.

    Attributes:
        trained: parameters that are trained.
        matrices: those of them that Muon trains, where it is the optimizer.
        layers: those of them that are in decoder layers.
        frozen: parameters of the target's embedding, output head (twice) and last norm.
        saved: parameters that a checkpoint holds.
        hidden_size, intermediate_size: of a layer.
        heads, key_heads: attention heads of a layer, and those that have keys of their own.
        head_width: numbers of a head for a token.
        windowed: for each layer whether it attends through a window.
        masked_otherwise: layers whose blocks vLLM would mask in another way than the training.
        vocabulary: tokens that can be drafted.
    """

    trained: int
    matrices: int
    layers: int
    frozen: int
    saved: int
    hidden_size: int
    intermediate_size: int
    heads: int
    key_heads: int
    head_width: int
    windowed: tuple[bool, ...]
    masked_otherwise: tuple[int, ...]
    vocabulary: int

    @property
    def query_width(self) -> int:
        """Numbers of a layer's queries for a token."""
        return self.heads * self.head_width

    @property
    def key_width(self) -> int:
        """Numbers of a layer's keys for a token, and of its values."""
        return self.key_heads * self.head_width


def target_size(folder: Path, trust_remote_code: bool) -> TargetSize | None:
    """Return the size of the target whose `config.json` is in `folder`.

    Returns:
        None if transformers does not know its architecture.
    """
    config = transformers.AutoConfig.from_pretrained(folder, trust_remote_code=trust_remote_code)
    kind = getattr(transformers, (config.architectures or [""])[0], None)
    if kind is None:
        return None
    with torch.device("meta"):
        model = kind(config)
    ends = (_weight(model, "input"), _weight(model, "output"))
    heads = {id(weight): weight for weight in ends if weight is not None}  # they may be one
    text = config.get_text_config()
    keys = getattr(text, "num_key_value_heads", None) or text.num_attention_heads
    width = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
    kinds = getattr(text, "layer_types", None) or ["full_attention"] * text.num_hidden_layers
    return TargetSize(
        parameters=_count(model.parameters()),
        head_parameters=_count(heads.values()),
        attention_layers=sum(not kind.startswith("linear") for kind in kinds),
        key_value_width=2 * keys * width,
        key_value_heads=keys,
    )


def drafter_size(config: TrainConfig, target: Path, vocabulary: int) -> DrafterSize:
    """Return the size of the drafter that the trainer would make for a target.

    Args:
        config: the trainer's configuration; the drafter is taken to be a new one.
        target: folder with the target's `config.json`.
        vocabulary: tokens that can be drafted.

    Raises:
        ValueError: speculators cannot make a drafter of this shape for this target.
    """
    options: Any = SimpleNamespace(
        **{
            **config.flatten(),
            "verifier_name_or_path": str(target),
            "mask_token_id": config.draft.mask_token_id or 0,  # any: it does not change the size
        }
    )
    kind = (SpeculatorModel.registry or {})[config.speculator_type]
    # Made as in a training, but for the step that reads the target's weights.
    weightless = type("Weightless", (kind,), {"load_verifier_weights": lambda self: None})
    with torch.device("meta"):
        model: Any = build_draft_model(options, weightless, None, None, vocabulary)
    layers = model.config.transformer_layer_config
    width = getattr(layers, "head_dim", None) or layers.hidden_size // layers.num_attention_heads
    kinds = getattr(layers, "layer_types", None) or ["full_attention"] * layers.num_hidden_layers
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    matrices, _ = split_named_params_for_muon(model)
    left_out = set(model._keys_to_ignore_on_save)
    saved = (tensor for name, tensor in model.state_dict().items() if name not in left_out)
    return DrafterSize(
        trained=_count(trained),
        matrices=_count(parameter for _, parameter in matrices),
        layers=_count(p for p in model.layers.parameters() if p.requires_grad),
        frozen=_count(model.parameters()) - _count(trained),
        saved=_count(tensor for tensor in saved if tensor is not None),
        hidden_size=layers.hidden_size,
        intermediate_size=layers.intermediate_size,
        heads=layers.num_attention_heads,
        key_heads=layers.num_key_value_heads,
        head_width=width,
        windowed=tuple(kind == "sliding_attention" for kind in kinds),
        masked_otherwise=tuple(layers_masked_otherwise(model.config.to_dict())),
        vocabulary=vocabulary,
    )


def _weight(model: Any, side: str) -> Tensor | None:
    module = getattr(model, f"get_{side}_embeddings")()
    return None if module is None else module.weight


def _count(tensors: Iterable[Tensor]) -> int:
    return sum(tensor.numel() for tensor in tensors)
