"""The stamp of a verified data set, as the stages that spend GPUs on it look at it."""

import hashlib
from pathlib import Path

from lib.files import read_json, sha256_of_file

_BLOCK = 4096
_BLOCKS = 64

_WEIGHTS = ".safetensors"


def require_stamp(stamp: Path, tokenized: Path, target: Path) -> None:
    """Check in less than a second that data set and tokenizer are those that were verified.

    Raises:
        ValueError: a shard is missing, has another size, or other content at one of the places that
            are looked at; or a file of the tokenizer has changed.
    """
    verified = read_json(stamp)
    for shard in verified["shards"]:
        path = tokenized / shard["name"]
        if not (
            path.is_file()
            and path.stat().st_size == shard["size"]
            and sample_digest(path) == verified["samples"][shard["name"]]
        ):
            raise ValueError(
                f"{path} is not as it was verified; delete {tokenized / 'stats.json'} and run again"
            )
    now = tokenizer_files(target)
    if changed := sorted(dict(now.items() ^ verified["tokenizer"].items())):
        raise ValueError(
            f"{target}: {', '.join(changed)} changed since the data set was verified; "
            f"delete {stamp} and run again"
        )


def altered_shards(tokenized: Path) -> list[Path]:
    """Return the shards of token rows that are missing or have another size than when written.

    It looks at no content, so it costs nothing; without token rows there is nothing to find.
    """
    stats = tokenized / "stats.json"
    shards = read_json(stats)["shards"] if stats.is_file() else []
    sizes = {tokenized / shard["name"]: shard["size"] for shard in shards}
    return [
        path for path, size in sizes.items() if not path.is_file() or path.stat().st_size != size
    ]


def sample_digest(path: Path) -> str:
    """Return a digest of a few blocks all over a file: beginning, end, and evenly between."""
    size = path.stat().st_size
    step = max(1, (size - _BLOCK) // (_BLOCKS - 1))
    found = hashlib.sha256()
    with path.open("rb") as file:
        for number in range(_BLOCKS):
            file.seek(min(number * step, max(0, size - _BLOCK)))
            found.update(file.read(_BLOCK))
    return found.hexdigest()


def tokenizer_files(target: Path) -> dict[str, str]:
    """Return the SHA-256 of each file of a target, as it is on disk now, but the weights."""
    names = [file["name"] for file in read_json(target / "weights.json")["files"]]
    return {
        name: sha256_of_file(target / name) if (target / name).is_file() else "missing"
        for name in names
        if not name.endswith(_WEIGHTS)
    }
