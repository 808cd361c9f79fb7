"""A folder that gets files of a repository of the hub, each fetched once."""

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lib.console import Stage
from lib.downloads import download, has_content, link, partial_path
from lib.files import read_json, remove, write_json
from lib.hub import HubFile, Repository, hub_errors


class HubFolder:
    """A folder with files of a repository at a commit.

    A hidden file beside the folder notes what the repository holds and the SHA-256 of each file
    that has come, so a later run asks the hub for nothing that is here.
    """

    def __init__(self, repository: Repository, folder: Path):
        self._repository = repository
        self._folder = folder
        self._record = folder.with_name(f".{folder.name}.hub.json")

    def sizes(self) -> dict[str, int]:
        """Return the size of each file at the top of the repository, by name.

        Raises:
            ValueError: the hub does not say.
        """
        notes = self._notes()
        if "sizes" not in notes:
            with hub_errors(self._repository):
                notes["sizes"] = self._repository.sizes()
            write_json(self._record, notes)
        return dict(notes["sizes"])

    def missing(self, sizes: Mapping[str, int]) -> int:
        """Return how many bytes of files must still be downloaded; their content is not read.

        Args:
            sizes: the size of each file, by name.
        """
        return sum(self._missing(name, size) for name, size in sizes.items())

    def fetch(self, name: str, stage: Stage) -> str:
        """Fetch a file, or link the copy that the hub's client has, unless it is here already.

        Returns:
            Its SHA-256.

        Raises:
            ValueError: it cannot be had, or has not the content that the hub states.
        """
        path = self._folder / name
        notes = self._notes()
        known: dict[str, str] = notes.setdefault("sha256", {})
        found = known.get(name)
        if found is None or not has_content(path, found, stage):
            file = HubFile(self._repository, name)
            with hub_errors(self._repository, name):
                found = _link_cached(file, path, stage) or _download(file, path, stage)
            known[name] = found
            write_json(self._record, notes)
        return found

    def _notes(self) -> dict[str, Any]:
        """Return what is noted about this commit."""
        notes = read_json(self._record) if self._record.is_file() else {}
        revision = self._repository.revision
        return dict(notes) if notes.get("revision") == revision else {"revision": revision}

    def _missing(self, name: str, size: int) -> int:
        path = self._folder / name
        if _size(path) == size or HubFile(self._repository, name).cached()[0] is not None:
            return 0
        return max(size - _size(partial_path(path)), 0)


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0


def _link_cached(file: HubFile, path: Path, stage: Stage) -> str | None:
    """Link the copy in the cache of the hub's client; return None if there is no sound one."""
    copy, stated = file.cached()
    if copy is None:
        return None
    found = link(copy, path, stage)
    if stated in (None, found):
        return found
    remove(path)
    stage.say(f"{copy} is damaged: it has the SHA-256 {found}; it is not used")
    return None


def _download(file: HubFile, path: Path, stage: Stage) -> str:
    what = f"{file.repository.name}: {file.name}"
    stage.say(what)
    size, stated = file.stated()
    if stated is not None and has_content(path, stated, stage):
        return stated
    return download(what, path, stated, functools.partial(file.download, size), stage)
