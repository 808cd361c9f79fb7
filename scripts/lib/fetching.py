"""Raw files of a source: fetched once, listed in a manifest that is written last."""

import functools
import os
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from errno import EDQUOT, ENOSPC
from hashlib import sha256
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlsplit

from lib.console import Progress, Stage
from lib.files import atomic_path, read_json, remove, write_json
from lib.hub import HubFile, hub_errors
from lib.manifest import write_manifest

Fetch = Callable[[Path, Stage], str]
"""Brings one file to a path and returns its SHA-256."""


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
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        hashes[path] = fetch(path, stage)
    write_manifest(manifest, folder, names, hashes.__getitem__)
    return names


def _fetches(location: Location, folder: Path) -> Iterator[tuple[str, Fetch]]:
    if location.hub is not None:
        record = folder.with_name(f".{folder.name}.hub.json")
        for name in location.hub["files"]:
            file = HubFile(location.hub["dataset"], location.hub["revision"], name)
            yield name, functools.partial(_fetch_from_hub, file, record)
    for entry in location.urls:
        name = urlsplit(entry["url"]).path.rpartition("/")[2]
        yield name, functools.partial(_fetch_url, entry["url"], entry["sha256"])
    for source in map(Path, location.files):
        yield source.name, functools.partial(_link, source)


def _check_names(names: list[str]) -> None:
    for name in names:
        if {"", ".", ".."} & set(name.split("/")):
            raise ValueError(f"{name!r} cannot be the name of a file")
    if len(set(names)) < len(names):
        raise ValueError(f"two files of the source have the same name: {', '.join(names)}")


def _link(source: Path, path: Path, stage: Stage) -> str:
    if not source.is_file():
        raise ValueError(f"{source} is not there")
    with atomic_path(path) as link:
        link.symlink_to(os.path.relpath(source.resolve(), path.parent.resolve()))
    return _hash(path, stage)


def _fetch_from_hub(file: HubFile, record: Path, path: Path, stage: Stage) -> str:
    """Fetch a file unless it is here already, which needs no network for one in `record`."""
    known = _known_hashes(record, file.revision)
    found = known.get(file.name)
    if found is None or not _has(path, found, stage):
        with hub_errors(file.repository, file.revision, file.name):
            found = _link_cached(file, path, stage) or _download_from_hub(file, path, stage)
        hashes = {**known, file.name: found}
        write_json(record, {"revision": file.revision, "sha256": hashes})
    return found


def _known_hashes(record: Path, revision: str) -> dict[str, str]:
    """Return the SHA-256 of each file that came from this commit before."""
    known = read_json(record) if record.is_file() else {}
    return dict(known["sha256"]) if known.get("revision") == revision else {}


def _link_cached(file: HubFile, path: Path, stage: Stage) -> str | None:
    """Link the copy in the cache of the hub's client; return None if there is no sound one."""
    copy, stated = file.cached()
    if copy is None:
        return None
    found = _link(copy, path, stage)
    if stated in (None, found):
        return found
    remove(path)
    stage.say(f"{copy} is damaged: it has the SHA-256 {found}; it is not used")
    return None


def _download_from_hub(file: HubFile, path: Path, stage: Stage) -> str:
    what = f"{file.repository}: {file.name}"
    stage.say(what)
    size, stated = file.stated()
    if stated is not None and _has(path, stated, stage):
        return stated
    return _download(what, path, stated, functools.partial(file.download, size), stage)


def _fetch_url(url: str, expected: str, path: Path, stage: Stage) -> str:
    parts = urlsplit(url)
    if "@" in parts.netloc:
        raise ValueError(f"the address of {path.name} holds a password, which logs would show")
    if _has(path, expected, stage):
        return expected
    shown = parts._replace(query="", fragment="").geturl()  # a query may hold a signature
    stage.say(shown)
    try:
        return _download(shown, path, expected, functools.partial(_download_url, url), stage)
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


def _download(
    what: str,
    path: Path,
    expected: str | None,
    go_on: Callable[[Path, Progress], None],
    stage: Stage,
) -> str:
    """Download beside `path` and rename if the content is right; once more if it is not.

    Args:
        expected: the right SHA-256; None if nobody states one.
        go_on: downloads what is missing at a path.
    """
    partial = path.with_name(f".{path.name}.download")
    if expected is None:
        remove(partial)  # nothing would show that it is the beginning of another content
    for last in (False, True):
        try:
            with stage.progress(f"bytes of {path.name}") as progress:
                go_on(partial, progress)
        except OSError as error:
            if error.errno not in (ENOSPC, EDQUOT):
                raise
            raise ValueError(
                f"no space left for {path}: make room and run the same command again, "
                "it goes on from here"
            ) from error
        found = _hash(partial, stage)
        if expected in (None, found):
            partial.replace(path)
            return found
        remove(partial)
        problem = f"{what} has the SHA-256 {found} instead of {expected}"
        if not last:
            stage.say(f"{problem}; fetching it once more")
    raise ValueError(f"{problem}, twice: its origin has another content")


def _has(path: Path, expected: str, stage: Stage) -> bool:
    return path.is_file() and _hash(path, stage) == expected


def _hash(path: Path, stage: Stage) -> str:
    """Return the SHA-256 of a file, showing the progress."""
    digest = sha256()
    size = path.stat().st_size
    with path.open("rb") as file, stage.progress(f"checking {path.name}", size) as progress:
        while piece := file.read(1 << 20):
            digest.update(piece)
            progress.advance(len(piece))
    return digest.hexdigest()
