"""The list of a source's raw files, each with its size and hash when it was fetched."""

from pathlib import Path

from lib.files import describe_files, read_json, write_json


def write_manifest(manifest: Path, folder: Path, names: list[str]) -> None:
    """List files of a folder, in the order given."""
    write_json(manifest, {"files": describe_files(folder, names)})


def manifest_files(manifest: Path, folder: Path) -> list[Path]:
    """Return the paths of the files that a manifest lists, after a look at their sizes.

    Raises:
        ValueError: a file is missing or shorter or longer than it was when it was fetched.
    """
    paths = []
    for entry in read_json(manifest)["files"]:
        path = folder / entry["name"]
        size = path.stat().st_size if path.is_file() else None
        if size != entry["size"]:
            found = "is missing" if size is None else f"has {size} bytes instead of {entry['size']}"
            raise ValueError(f"{path} {found}; delete {manifest} to fetch it again")
        paths.append(path)
    return paths
