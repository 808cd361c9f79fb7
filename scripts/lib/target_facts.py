"""What a target's folder holds, and what its configuration files say without its weights."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lib.files import read_json

NEEDED_FILES = ("*.safetensors", "*.json", "*.jinja", "*.txt", "*.model", "*.tiktoken")
"""What a target needs of a model repository: weights, configuration, tokenizer, template."""

_CODE = "*.py"


@dataclass(frozen=True)
class TargetFacts:
    """What the configuration must agree with; `None` where the folder does not say.

    Attributes:
        layers: number of decoder layers.
        hidden_size: width of the hidden states.
        vocabulary: number of rows of the embedding.
        end_token: text of the tokenizer's end token.
        pad_token: text of its padding token.
    """

    layers: int
    hidden_size: int
    vocabulary: int
    end_token: str | None
    pad_token: str | None


def read_facts(folder: Path) -> TargetFacts:
    """Read the facts of a model folder from its configuration files, without its weights.

    A configuration that nests the language model (`text_config`) is understood.
    """
    config = read_json(folder / "config.json")
    text = config.get("text_config", config)
    tokenizer: dict[str, Any] = {}
    if (folder / "tokenizer_config.json").is_file():
        tokenizer = read_json(folder / "tokenizer_config.json")
    return TargetFacts(
        layers=text["num_hidden_layers"],
        hidden_size=text["hidden_size"],
        vocabulary=text["vocab_size"],
        end_token=_token_text(tokenizer.get("eos_token")),
        pad_token=_token_text(tokenizer.get("pad_token")),
    )


def _token_text(token: Any) -> str | None:
    return token.get("content") if isinstance(token, Mapping) else token


def needed_patterns(with_code: bool) -> tuple[str, ...]:
    """Return what the names of needed files look like; code only where it may be loaded."""
    return (*NEEDED_FILES, _CODE) if with_code else NEEDED_FILES


def model_files(folder: Path, with_code: bool = False) -> list[Path]:
    """Return the files of a model folder that a target needs, sorted.

    Args:
        with_code: whether the model's own code is among them (`target.trust_remote_code`).
    """
    found = {path for pattern in needed_patterns(with_code) for path in folder.glob(pattern)}
    return sorted(path for path in found if path.is_file())
