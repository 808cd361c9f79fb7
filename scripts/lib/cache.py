"""Work that is reused between runs, keyed by content and safe against a kill at any moment."""

import fcntl
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lib.digest import digest


class Cache:
    """Values by the digest of their key, appended to one file as they are made."""

    def __init__(self, path: Path):
        self._values: dict[str, Any] = {}
        self._file = path.open("a+b")
        self._load()

    def get(self, key: Any) -> Any:
        """Return the value of a key, or None."""
        return self._values.get(digest(key))

    def put(self, key: Any, value: Any) -> None:
        """Keep a value; it is on its way to the disk when this returns."""
        name = digest(key)
        self._values[name] = value
        line = json.dumps([name, value], ensure_ascii=False) + "\n"
        self._file.write(line.encode())
        self._file.flush()

    def close(self) -> None:
        """Close the file and let other processes have it."""
        self._file.close()

    def _load(self) -> None:
        """Read what earlier runs left; a last line that a kill cut short is taken off."""
        self._file.seek(0)
        end = 0
        for line in self._file:
            if not line.endswith(b"\n"):
                break
            name, value = json.loads(line)
            self._values[name] = value
            end += len(line)
        self._file.truncate(end)


@contextmanager
def open_cache(folder: Path, *identity: Any) -> Iterator[Cache]:
    """Open the cache of whatever `identity` describes; a second process waits for the first.

    Args:
        folder: where caches of this kind lie.
        identity: everything besides the key that the values depend on.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{digest(list(identity))[:16]}.jsonl"
    with path.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        cache = Cache(path)
        try:
            yield cache
        finally:
            cache.close()
