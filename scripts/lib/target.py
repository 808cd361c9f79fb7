"""The folder of a target model: where it comes from, and whether it is complete."""

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from lib.files import describe_files, read_json, sha256_of_file, write_json
from lib.target_facts import model_files

REQUIRED_FILES = ("config.json", "tokenizer_config.json")
"""What no target is without, besides its weights."""

INDEX = "model.safetensors.index.json"
"""The file that says which shard holds which tensor, where there is more than one."""

_ADVICE = "use another copy or revision of the model"


@dataclass(frozen=True)
class TargetLocation:
    """Where a target comes from: exactly one of the three is given.

    Attributes:
        name: name of its folder below `models/`.
        build: name of a target that Draftmill builds itself.
        hub: `{"repo", "revision"}` on the Hugging Face hub.
        path: a local model folder.
        trust_remote_code: whether code that comes with the target is loaded, so is needed.
    """

    name: str
    build: str = ""
    hub: Mapping[str, str] | None = None
    path: str = ""
    trust_remote_code: bool = False


def write_manifest(
    location: TargetLocation,
    folder: Path,
    manifest: Path,
    hashes: Mapping[str, str] | None = None,
) -> list[str]:
    """Check that a target is complete and list its files with size and SHA-256.

    The manifest also says how the target is called outside of this project: its repository on
    the hub, or the folder.

    Args:
        hashes: the SHA-256 of files by name, for those who know it without reading them again.

    Returns:
        The names of the files.

    Raises:
        ValueError: a file is missing or short.
    """
    for name in REQUIRED_FILES:
        if not (folder / name).is_file():
            raise ValueError(f"{folder}: {name} is missing: {_ADVICE}")
    check_shards(folder)
    known = hashes or {}
    found = model_files(folder, location.trust_remote_code)
    names = [path.name for path in found if path != manifest]
    files = describe_files(folder, names, lambda path: known.get(path.name) or sha256_of_file(path))
    known_as = location.hub["repo"] if location.hub is not None else str(folder)
    write_json(manifest, {"known_as": known_as, "files": files})
    return names


def check_shards(folder: Path) -> None:
    """Check that every shard of the weights is there and as long as its header says.

    The length of a safetensors file follows from its header (8 bytes of length, JSON, data), so
    a download that was cut is noticed without reading the tensors.

    Raises:
        ValueError: a shard is missing, or shorter or longer than its header says.
    """
    if (folder / INDEX).is_file():
        names = indexed_shards(folder)
    else:
        names = sorted(path.name for path in folder.glob("*.safetensors"))
    if not names:
        raise ValueError(f"{folder}: no safetensors weights: {_ADVICE}")
    for name in names:
        path = folder / name
        if not path.is_file():
            raise ValueError(f"{path} is missing, which {INDEX} names: {_ADVICE}")
        size, expected = path.stat().st_size, _safetensors_size(path)
        if size != expected:
            raise ValueError(
                f"{path} has {size} bytes instead of {expected}, which its header says: {_ADVICE}"
            )


def indexed_shards(folder: Path) -> list[str]:
    """Return the names of the shards that the index of a model folder names, sorted.

    Raises:
        ValueError: the index is not one, or names something else.
    """
    index = folder / INDEX
    try:
        names = sorted({str(name) for name in read_json(index)["weight_map"].values()})
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(
            f"{index} does not say which shard holds which tensor: {_ADVICE}"
        ) from error
    for name in names:
        if "/" in name or not name.endswith(".safetensors"):
            raise ValueError(f"{index}: {name!r} cannot be the name of a shard: {_ADVICE}")
    return names


def _safetensors_size(path: Path) -> int:
    """Return how long a file must be; format: github.com/huggingface/safetensors, "Format"."""
    with path.open("rb") as file:
        prefix = file.read(8)
        length = struct.unpack("<Q", prefix)[0] if len(prefix) == 8 else -1
        if not 0 < length < path.stat().st_size:
            raise ValueError(f"{path} has no complete safetensors header: {_ADVICE}")
        try:
            header = json.loads(file.read(length))
        except ValueError as error:
            raise ValueError(f"{path} has no readable safetensors header: {_ADVICE}") from error
    ends = [entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__"]
    return 8 + int(length) + max(ends, default=0)
