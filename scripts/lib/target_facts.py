"""What a target's folder holds, and what its configuration files say without its weights."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lib.files import read_json

NEEDED_FILES = ("*.safetensors", "*.json", "*.jinja", "*.txt", "*.model", "*.tiktoken")
"""What a target needs of a model repository: weights, configuration, tokenizer, template."""

_CODE = "*.py"

_MTP_KEYS = ("mtp_num_hidden_layers", "num_nextn_predict_layers", "num_mtp_modules")
"""How families call the number of layers of a target's MTP head."""

_WITHOUT_MTP_KEY = ("qwen3_next", "longcat_flash")
"""Families whose head has one layer and no key."""


@dataclass(frozen=True)
class TargetFacts:
    """What the configuration must agree with; `None` where the folder does not say.

    Attributes:
        layers: number of decoder layers.
        hidden_size: width of the hidden states.
        vocabulary: number of rows of the embedding.
        end_token: text of the tokenizer's end token.
        pad_token: text of its padding token.
        mtp_layers: number of layers of its own MTP head (multi-token prediction); 0 without one.
    """

    layers: int
    hidden_size: int
    vocabulary: int
    end_token: str | None
    pad_token: str | None
    mtp_layers: int = 0


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
        mtp_layers=_mtp_layers(config, text),
    )


def head_problem(facts: TargetFacts, tokens: int) -> str | None:
    """Return why a target cannot draft so many tokens at a time by itself, as a line that names
    the key of the configuration; None if it can.
    """
    if not facts.mtp_layers:
        return (
            "evaluate.baseline: mtp is the target's own MTP head, and the configuration of "
            "this target names none; take it out"
        )
    if tokens > facts.mtp_layers and tokens % facts.mtp_layers:
        return (
            f"evaluate.mtp_tokens: {tokens} must be a multiple of {facts.mtp_layers}, for the "
            "target's MTP head has so many layers"
        )
    return None


def _mtp_layers(config: Mapping[str, Any], text: Mapping[str, Any]) -> int:
    said = [each[key] for each in (text, config) for key in _MTP_KEYS if each.get(key) is not None]
    unsaid = 1 if text.get("model_type") in _WITHOUT_MTP_KEY else 0
    return int(said[0]) if said else unsaid


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
