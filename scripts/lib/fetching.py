"""Raw files of a source: fetched once, listed in a manifest that is written last."""

import functools
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlsplit

from lib.console import Progress, Stage
from lib.downloads import download, has_content, link
from lib.hub import Repository
from lib.hub_folder import HubFolder
from lib.manifest import write_manifest

Fetch = Callable[[Stage], str]
"""Brings one file to its place and returns its SHA-256."""


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


def fetch_source(location: Location, folder: Path, manifest: Path, stage: Stage) -> list[str]:
    """Bring the files of a source into `folder` and list them in `manifest`.

    Local files are linked, not copied. What an interrupted run has already fetched is kept if its
    content is right.

    Returns:
        The names of the files, in the order of the configuration.

    Raises:
        ValueError: a file is missing, cannot be fetched, or has not the expected content.
    """
    fetches = list(_fetches(location, folder))
    names = [name for name, _ in fetches]
    _check_names(names)
    hashes: dict[Path, str] = {}
    for name, fetch in fetches:
        hashes[folder / name] = fetch(stage)
    write_manifest(manifest, folder, names, hashes.__getitem__)
    return names


def _fetches(location: Location, folder: Path) -> Iterator[tuple[str, Fetch]]:
    if location.hub is not None:
        repository = Repository("dataset", location.hub["dataset"], location.hub["revision"])
        here = HubFolder(repository, folder)
        for name in location.hub["files"]:
            yield name, functools.partial(here.fetch, name)
    for entry in location.urls:
        name = urlsplit(entry["url"]).path.rpartition("/")[2]
        yield name, functools.partial(_fetch_url, entry["url"], entry["sha256"], folder / name)
    for source in map(Path, location.files):
        yield source.name, functools.partial(link, source, folder / source.name)


def _check_names(names: list[str]) -> None:
    for name in names:
        if {"", ".", ".."} & set(name.split("/")):
            raise ValueError(f"{name!r} cannot be the name of a file")
    if len(set(names)) < len(names):
        raise ValueError(f"two files of the source have the same name: {', '.join(names)}")


def _fetch_url(url: str, expected: str, path: Path, stage: Stage) -> str:
    parts = urlsplit(url)
    if "@" in parts.netloc:
        raise ValueError(f"the address of {path.name} holds a password, which logs would show")
    if has_content(path, expected, stage):
        return expected
    shown = parts._replace(query="", fragment="").geturl()  # a query may hold a signature
    stage.say(shown)
    try:
        return download(shown, path, expected, functools.partial(_download_url, url), stage)
    except (OSError, HTTPException) as error:
        raise ValueError(f"{shown}: {error}") from error


def _download_url(url: str, partial: Path, progress: Progress) -> None:
    start = partial.stat().st_size if partial.is_file() else 0
    request = urllib.request.Request(url, headers={"Range": f"bytes={start}-"} if start else {})
    try:
        with (
            urllib.request.urlopen(request, timeout=60) as response,
            partial.open("ab" if response.status == 206 else "wb") as file,
        ):
            missing = int(response.headers.get("Content-Length", 0))
            progress.reach(0, missing)
            while piece := response.read(1 << 20):
                missing -= file.write(piece)
                progress.advance(len(piece))
    except HTTPError as error:
        if not start or error.code != 416:
            raise
        missing = 0  # the server has nothing beyond `start`: all of it is here, as the hash shows
    if missing > 0:
        raise OSError(f"the connection broke {missing} bytes before the end")
