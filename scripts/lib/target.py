"""The folder of a target model: how it gets there, and whether it is complete."""

import json
import os
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from huggingface_hub import snapshot_download

from lib.files import atomic_path, describe_files, read_json, write_json
from lib.hub import hub_errors
from lib.target_facts import NEEDED_FILES, model_files


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
    names = [path.name for path in model_files(folder) if path != manifest]
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
        try:
            header = json.loads(file.read(length))
        except ValueError as error:
            raise ValueError(f"{path} has no readable safetensors header") from error
    ends = [entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__"]
    return 8 + int(length) + max(ends, default=0)


def _fetch_from_hub(hub: Mapping[str, str], folder: Path, report: Callable[[str], None]) -> None:
    repository, revision = hub["repo"], hub["revision"]
    report(f"downloading {repository} at {revision[:8]}")
    with hub_errors(repository, revision):
        snapshot_download(
            repository,
            revision=revision,
            allow_patterns=list(NEEDED_FILES),
            local_dir=folder,
        )


def _link_folder(path: Path, folder: Path) -> None:
    if not path.is_dir():
        raise ValueError(f"{path} is no folder")
    for file in model_files(path):
        with atomic_path(folder / file.name) as partial:
            partial.symlink_to(os.path.relpath(file.resolve(), folder.resolve()))
