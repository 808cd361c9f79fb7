"""A drafter that others have published, made ready to train on from it, or to measure it.

Its folder holds what was published in `published/`, and beside it the same weights, linked, with
a configuration that names this project's target and that speculators' trainer reads.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from lib.console import Stage
from lib.downloads import check_space, link
from lib.drafter_fit import check_target, check_tensors, fitting
from lib.drafter_formats import FormatError, Verifier, load_config, read_published
from lib.files import atomic_path, describe_files, read_json, write_json
from lib.hub import Repository
from lib.hub_folder import HubFolder
from lib.sizes import show_bytes
from lib.special_ids import read_special_ids
from lib.target import INDEX, check_shards, indexed_shards
from lib.target_facts import model_files, read_facts

CONFIG = "config.json"


@dataclass(frozen=True)
class PublishedDrafterSettings:
    """Where a drafter comes from, one of the first two, and what section `train` says of it.

    Attributes:
        hub: `{"repo", "revision"}` on the Hugging Face hub.
        path: a local folder.
        key: where the configuration names it; what it is for.
    """

    hub: Mapping[str, str] | None = None
    path: str = ""
    key: str = "train.from"
    algorithm: str | None = None
    layers: int | None = None
    block_size: int | None = None
    target_layer_ids: list[int] | None = None
    mask_token: str | int | None = None
    sliding_window: int | None = None
    full_attention_layers: list[int] | None = None
    draft_vocabulary: int | None = None
    trust_remote_code: bool = False


class _Origin(Protocol):
    """Where files come from."""

    def sizes(self) -> Mapping[str, int]:
        """Return the size in bytes of each file, by name."""
        ...

    def missing(self, sizes: Mapping[str, int]) -> int:
        """Return how many bytes of files must still be downloaded."""
        ...

    def fetch(self, name: str, stage: Stage) -> str:
        """Bring a file and return its SHA-256."""
        ...


@dataclass(frozen=True)
class _LocalFolder:
    """A folder of this machine, whose files are linked."""

    path: Path
    folder: Path

    def sizes(self) -> Mapping[str, int]:
        """Return the size in bytes of each file, by name."""
        return {file.name: file.stat().st_size for file in model_files(self.path)}

    def missing(self, sizes: Mapping[str, int]) -> int:
        """Return 0: nothing is downloaded."""
        return 0

    def fetch(self, name: str, stage: Stage) -> str:
        """Link a file and return its SHA-256."""
        return link(self.path / name, self.folder / name, stage)


def fetch_drafter(
    settings: PublishedDrafterSettings, target: Path, manifest: Path, stage: Stage
) -> dict[str, Any]:
    """Bring a drafter into the folder of `manifest`, which is written last.

    Its configuration comes first: whether it fits is known before the weights are downloaded.

    Args:
        target: folder of the target that it is to draft for.

    Returns:
        The content of `manifest`: where the drafter comes from, its format, and its files.

    Raises:
        ValueError: it cannot be had, cannot be read, or does not fit the target or section
            `train` of the configuration.
    """
    folder = manifest.parent
    origin, known_as, revision = _origin(settings, folder / "published")
    sizes = origin.sizes()
    origin.fetch(CONFIG, stage)
    published = read_json(folder / "published" / CONFIG)
    try:
        kind, content = read_published(published, _verifier(target))
        config = load_config(content)
        write_json(folder / CONFIG, content)
        fitting(_said(settings, target), folder)
        check_target(config, published, read_facts(target))
        hashes = _fetch_weights(origin, sizes, folder, known_as, stage)
        check_tensors(config, [folder / name for name in hashes if name != INDEX])
    except FormatError as error:
        raise ValueError(f"{settings.key}: {known_as} cannot be taken: {error}") from error
    files = describe_files(folder, [CONFIG])
    files += describe_files(folder, sorted(hashes), lambda path: hashes[path.name])
    outcome = {
        "known_as": known_as,
        "revision": revision,
        "format": kind,
        "algorithm": content["speculators_model_type"],
        "files": files,
    }
    write_json(manifest, outcome)
    return outcome


def _origin(settings: PublishedDrafterSettings, published: Path) -> tuple[_Origin, str, str | None]:
    """Return where the files come from, how the drafter is called there, and the revision."""
    published.mkdir(parents=True, exist_ok=True)
    if settings.hub is not None:
        repository = Repository("model", settings.hub["repo"], settings.hub["revision"])
        return HubFolder(repository, published), repository.name, repository.revision
    return _LocalFolder(Path(settings.path), published), settings.path, None


def _verifier(target: Path) -> Verifier:
    return Verifier(str(target), read_json(target / CONFIG).get("architectures") or [])


def _said(settings: PublishedDrafterSettings, target: Path) -> dict[str, Any]:
    """Return what section `train` says, with the id of the mask token."""
    number = settings.mask_token
    if isinstance(number, str):
        number = read_special_ids(target, settings.trust_remote_code).id_of(number)
        if number is None:
            raise ValueError(f"train.mask_token: {settings.mask_token!r} is no token of the target")
    return {**vars(settings), "mask_token_id": number}


def _fetch_weights(
    origin: _Origin, sizes: Mapping[str, int], folder: Path, known_as: str, stage: Stage
) -> dict[str, str]:
    """Bring the weights and link them beside the configuration; return the SHA-256 of each file."""
    published = folder / "published"
    hashes: dict[str, str] = {}
    names = ["model.safetensors"]
    if INDEX in sizes:
        hashes[INDEX] = origin.fetch(INDEX, stage)
        names = indexed_shards(published)
    missing = origin.missing({name: sizes.get(name, 0) for name in names})
    stage.say(f"{known_as}: {len(names)} files of weights, {show_bytes(missing)} to download")
    check_space(published, missing)
    hashes |= {name: origin.fetch(name, stage) for name in names}
    check_shards(published)
    for name in hashes:
        with atomic_path(folder / name) as partial:
            partial.symlink_to(Path("published", name))
    return hashes
