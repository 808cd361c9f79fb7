"""The folder of a target model: what is in it, whether it is complete, how it got there."""

import json
import os
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lib.files import atomic_path, describe_files, read_json, write_json

NEEDED_FILES = ("*.safetensors", "*.json", "*.jinja", "*.txt", "*.model", "*.tiktoken")
"""What a target needs of a model repository: weights, configuration, tokenizer, template."""


@dataclass(frozen=True)
class TargetLocation:
    """Where a target comes from: exactly one of the three is given.

    Attributes:
        name: name of its folder below `models/`.
        build: name of a target that Draftmill builds itself.
        hub: `{"repo", "revision"}` on the Hugging Face hub.
        path: a local model folder.

    """

    name: str
    build: str = ""
    hub: Mapping[str, str] | None = None
    path: str = ""


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


def fetch_target(location: TargetLocation, folder: Path, report: Callable[[str], None]) -> None:
    """Bring a target into `folder`: from the hub at its revision, or linked from a local folder.

    Raises:
        ValueError: it cannot be had, or is not complete afterwards.

    """
    folder.mkdir(parents=True, exist_ok=True)
    if location.hub is not None:
        _fetch_from_hub(location.hub, folder, report)
    else:
        _link_folder(Path(location.path), folder)


def write_manifest(location: TargetLocation, folder: Path, manifest: Path) -> list[str]:
    """Check that a target is complete and list its files with size and SHA-256.

    The manifest also says how the target is called outside of this project: its repository on
    the hub, or the folder.

    Returns:
        The names of the files.

    Raises:
        ValueError: a file is missing or short.

    """
    for name in ("config.json", "tokenizer_config.json"):
        if not (folder / name).is_file():
            raise ValueError(f"{folder}: {name} is missing")
    check_shards(folder)
    names = sorted(
        path.name
        for pattern in NEEDED_FILES
        for path in folder.glob(pattern)
        if path != manifest and path.is_file()
    )
    known_as = location.hub["repo"] if location.hub is not None else str(folder)
    write_json(manifest, {"known_as": known_as, "files": describe_files(folder, names)})
    return names


def check_shards(folder: Path) -> None:
    """Check that every shard of the weights is there and as long as its header says.

    The length of a safetensors file follows from its header (8 bytes of length, JSON, data), so
    a download that was cut is noticed without reading the tensors.

    Raises:
        ValueError: a shard is missing, or shorter or longer than its header says.

    """
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        names = sorted(set(read_json(index)["weight_map"].values()))
    else:
        names = sorted(path.name for path in folder.glob("*.safetensors"))
    if not names:
        raise ValueError(f"{folder}: no safetensors weights")
    for name in names:
        path = folder / name
        if not path.is_file():
            raise ValueError(f"{path} is missing")
        expected = _safetensors_size(path)
        if path.stat().st_size != expected:
            raise ValueError(f"{path} has {path.stat().st_size} bytes instead of {expected}")


def _safetensors_size(path: Path) -> int:
    """Return how long a file must be; format: github.com/huggingface/safetensors, "Format"."""
    with path.open("rb") as file:
        prefix = file.read(8)
        length = struct.unpack("<Q", prefix)[0] if len(prefix) == 8 else -1
        if not 0 < length < path.stat().st_size:
            raise ValueError(f"{path} has no complete safetensors header")
        header = json.loads(file.read(length))
    ends = [entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__"]
    return 8 + int(length) + max(ends, default=0)


def _fetch_from_hub(hub: Mapping[str, str], folder: Path, report: Callable[[str], None]) -> None:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import GatedRepoError, HfHubHTTPError, RepositoryNotFoundError

    report(f"downloading {hub['repo']} at {hub['revision'][:8]}")
    try:
        snapshot_download(
            hub["repo"],
            revision=hub["revision"],
            allow_patterns=list(NEEDED_FILES),
            local_dir=folder,
        )
    except GatedRepoError as error:
        raise ValueError(
            f"{hub['repo']} is gated: accept its terms on the hub and set HF_TOKEN"
        ) from error
    except RepositoryNotFoundError as error:
        raise ValueError(f"{hub['repo']} is not on the hub, or needs HF_TOKEN") from error
    except HfHubHTTPError as error:
        raise ValueError(f"{hub['repo']}: {str(error).splitlines()[0]}") from error


def _link_folder(path: Path, folder: Path) -> None:
    if not path.is_dir():
        raise ValueError(f"{path} is no folder")
    for pattern in NEEDED_FILES:
        for file in sorted(path.glob(pattern)):
            with atomic_path(folder / file.name) as partial:
                partial.symlink_to(os.path.relpath(file.resolve(), folder.resolve()))
