"""Weights as a server takes them: numbers in bfloat16, with one tensor in memory at a time."""

import json
import struct
from math import prod
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open

_SERVED = "BF16"
_FLOATING = ("F64", "F32", "F16", _SERVED)
_BYTES = {"I64": 8, "I32": 4, "I16": 2, _SERVED: 2, "I8": 1, "U8": 1, "BOOL": 1}


def write_served_weights(checkpoint: Path, path: Path) -> None:
    """Write the tensors of a safetensors file in bfloat16; integers and flags stay as they are.

    Format: github.com/huggingface/safetensors, "Format".

    Raises:
        ValueError: a tensor has a number type that no drafter has.
    """
    with safe_open(checkpoint, framework="pt") as tensors, path.open("wb") as file:
        names = tensors.offset_keys()
        header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
        end = 0
        for name in names:
            tensor = tensors.get_slice(name)
            kind, shape = _served_kind(name, tensor.get_dtype()), tensor.get_shape()
            start, end = end, end + prod(shape) * _BYTES[kind]
            header[name] = {"dtype": kind, "shape": shape, "data_offsets": [start, end]}
        text = json.dumps(header, separators=(",", ":")).encode()
        text += b" " * (-len(text) % 8)  # tensors begin where their numbers may begin in memory
        file.write(struct.pack("<Q", len(text)) + text)
        for name in names:
            file.write(_served_bytes(tensors.get_tensor(name)))


def _served_kind(name: str, kind: str) -> str:
    if kind in _FLOATING:
        return _SERVED
    if kind not in _BYTES:
        raise ValueError(f"{name}: {kind} is no number type of a drafter")
    return kind


def _served_bytes(tensor: torch.Tensor) -> memoryview:
    if tensor.is_floating_point():
        tensor = tensor.bfloat16()
    return tensor.contiguous().flatten().view(torch.uint8).numpy().data
