"""The files of a target: fetched from the hub, or linked from a folder on this machine."""

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from pathlib import Path

from lib.console import Stage
from lib.downloads import check_space, link
from lib.hub import Repository
from lib.hub_folder import HubFolder
from lib.sizes import show_bytes
from lib.target import INDEX, REQUIRED_FILES, TargetLocation, indexed_shards, write_manifest
from lib.target_facts import model_files, needed_patterns


def fetch_target(location: TargetLocation, manifest: Path, stage: Stage) -> list[str]:
    """Bring a target into the folder of `manifest`, which lists its files and is written last.

    What an interrupted run has already fetched is kept if its content is right.

    Returns:
        The names of the files.

    Raises:
        ValueError: it cannot be had, does not fit on the disk, or is not complete afterwards.
    """
    folder = manifest.parent
    folder.mkdir(parents=True, exist_ok=True)
    if location.hub is not None:
        patterns = needed_patterns(location.trust_remote_code)
        hashes = _fetch_from_hub(location.hub, patterns, manifest, stage)
    else:
        hashes = _link_folder(location, manifest, stage)
    return write_manifest(location, folder, manifest, hashes)


def _fetch_from_hub(
    hub: Mapping[str, str], patterns: Iterable[str], manifest: Path, stage: Stage
) -> dict[str, str]:
    """Return the SHA-256 of each file that the target needs, after it has come."""
    repository = Repository("model", hub["repo"], hub["revision"])
    folder = manifest.parent
    here = HubFolder(repository, folder)
    sizes = here.sizes()
    shards = ["model.safetensors"]
    if INDEX in sizes:
        here.fetch(INDEX, stage)
        shards = indexed_shards(folder)
    names = _needed_names(sizes, patterns, shards) - {manifest.name}
    missing = here.missing({name: sizes.get(name, 0) for name in names})
    stage.say(
        f"{repository.name} at {repository.revision[:8]}: {len(names)} files, "
        f"{show_bytes(missing)} to download"
    )
    check_space(folder, missing)
    # Large ones last: what the list lacks or the hub refuses is known before the long downloads.
    in_order = sorted(names, key=lambda name: (sizes.get(name, 0), name))
    return {name: here.fetch(name, stage) for name in in_order}


def _needed_names(
    listed: Iterable[str], patterns: Iterable[str], shards: Iterable[str]
) -> set[str]:
    """Return the files that a target needs: of the weights the shards, and no second copy."""
    others = {
        name
        for name in listed
        if any(fnmatchcase(name, pattern) for pattern in patterns)
        and not name.endswith(".safetensors")
    }
    return {*REQUIRED_FILES, *others, *shards}


def _link_folder(location: TargetLocation, manifest: Path, stage: Stage) -> dict[str, str]:
    """Link the files of a model folder; return the SHA-256 of each."""
    path = Path(location.path)
    if not path.is_dir():
        raise ValueError(f"{path} is no folder")
    return {
        file.name: link(file, manifest.with_name(file.name), stage)
        for file in model_files(path, location.trust_remote_code)
        if file.name != manifest.name
    }
