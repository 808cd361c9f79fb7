"""Raw files of a source: fetched once, listed in a manifest that is written last."""

import os
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlsplit

from huggingface_hub import hf_hub_download

from lib.files import atomic_path, remove, sha256_of_file
from lib.hub import hub_errors
from lib.manifest import write_manifest

Report = Callable[[str], None]


@dataclass(frozen=True)
class Location:
    """Where the files of a source are: exactly one of the three is given.

    Attributes:
        files: local paths, relative to the project or absolute.
        hub: `{"dataset", "revision", "files"}` of a data set on the Hugging Face hub.
        urls: list of `{"url", "sha256"}`.
    """

    files: tuple[str, ...] = ()
    hub: Mapping[str, Any] | None = None
    urls: tuple[Mapping[str, str], ...] = ()


def fetch_source(location: Location, folder: Path, manifest: Path, report: Report) -> list[str]:
    """Bring the files of a source into `folder` and list them in `manifest`.

    Local files are linked, not copied. Files that an interrupted run has already fetched are
    kept if their content is right.

    Returns:
        The names of the files, in the order of the configuration.

    Raises:
        ValueError: a file is missing, cannot be fetched, or has not the expected content.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if location.hub is not None:
        names = _fetch_from_hub(location.hub, folder, report)
    elif location.urls:
        names = [_fetch_url(entry, folder, report) for entry in location.urls]
    else:
        names = [_link(Path(path), folder) for path in location.files]
    if len(set(names)) < len(names):
        raise ValueError(f"two files of the source have the same name: {', '.join(names)}")
    write_manifest(manifest, folder, names)
    return names


def _link(path: Path, folder: Path) -> str:
    if not path.is_file():
        raise ValueError(f"{path} is not there")
    link = folder / path.name
    with atomic_path(link) as partial:
        partial.symlink_to(os.path.relpath(path.resolve(), folder.resolve()))
    return path.name


def _fetch_from_hub(hub: Mapping[str, Any], folder: Path, report: Report) -> list[str]:
    repository, revision = hub["dataset"], hub["revision"]
    for name in hub["files"]:
        report(f"{repository}: {name}")
        with hub_errors(repository, revision, name):
            hf_hub_download(
                repository, name, repo_type="dataset", revision=revision, local_dir=folder
            )
    return list(hub["files"])


def _fetch_url(entry: Mapping[str, str], folder: Path, report: Report) -> str:
    name = urlsplit(entry["url"]).path.rpartition("/")[2]
    path = folder / name
    if not (path.is_file() and sha256_of_file(path) == entry["sha256"]):
        report(entry["url"])
        try:
            _download(entry["url"], path, entry["sha256"])
        except (OSError, HTTPException) as error:
            raise ValueError(f"{entry['url']}: {error}") from error
    return name


def _download(url: str, path: Path, sha256: str) -> None:
    """Download to a file beside `path`, going on where an interrupted download stopped."""
    partial = path.with_name(f".{path.name}.download")
    start = partial.stat().st_size if partial.is_file() else 0
    request = urllib.request.Request(url, headers={"Range": f"bytes={start}-"} if start else {})
    try:
        with (
            urllib.request.urlopen(request, timeout=60) as response,
            partial.open("ab" if response.status == 206 else "wb") as file,
        ):
            missing = int(response.headers.get("Content-Length", 0))
            while piece := response.read(1 << 20):
                missing -= file.write(piece)
    except HTTPError as error:
        if not start or error.code != 416:
            raise
        missing = 0  # the server has nothing beyond `start`: all of it is here, as the hash shows
    if missing > 0:
        raise OSError(f"the connection broke {missing} bytes before the end")
    found = sha256_of_file(partial)
    if found != sha256:
        remove(partial)
        raise ValueError(f"{url} has the SHA-256 {found}, not the {sha256} of the configuration")
    partial.replace(path)
