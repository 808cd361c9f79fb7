"""The list of a source's raw files, each with its size and hash when it was fetched."""

from collections.abc import Callable
from pathlib import Path

from lib.files import describe_files, read_json, sha256_of_file, write_json


def write_manifest(
    manifest: Path, folder: Path, names: list[str], sha256: Callable[[Path], str] = sha256_of_file
) -> None:
    """List files of a folder, in the order given.

    Args:
        sha256: gives the SHA-256 of a file, for those who know it without reading the file again.
    """
    write_json(manifest, {"files": describe_files(folder, names, sha256)})


def manifest_files(manifest: Path, folder: Path) -> list[Path]:
    """Return the paths of the files that a manifest lists, after a look at each.

    The size of each file is compared, and the content only of one that was written after the
    manifest: to read everything again before each use would cost minutes for what the fetch has
    just checked.

    Raises:
        ValueError: a file is missing or is not what was fetched.
    """
    paths = []
    for entry in read_json(manifest)["files"]:
        path = folder / entry["name"]
        if problem := _difference(path, entry["size"], entry["sha256"], manifest):
            raise ValueError(f"{path} {problem}; delete {manifest} to fetch it again")
        paths.append(path)
    return paths


def _difference(path: Path, size: int, sha256: str, manifest: Path) -> str:
    """Return what is wrong with a file; nothing if it is what the manifest says."""
    if not path.is_file():
        return "is missing"
    found = path.stat()
    if found.st_size != size:
        return f"has {found.st_size} bytes instead of {size}"
    if found.st_mtime_ns >= manifest.stat().st_mtime_ns and sha256_of_file(path) != sha256:
        return "has another content"
    return ""
