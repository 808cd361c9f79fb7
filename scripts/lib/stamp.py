"""The stamp of a verified data set, as the stages that spend GPUs on it look at it."""

from pathlib import Path

from lib.files import read_json


def require_stamp(stamp: Path, tokenized: Path) -> None:
    """Check in no time that a data set is the one that was verified.

    Raises:
        ValueError: a shard is missing or has another size than when it was verified.
    """
    for shard in read_json(stamp)["shards"]:
        path = tokenized / shard["name"]
        if not path.is_file() or path.stat().st_size != shard["size"]:
            raise ValueError(
                f"{path} is not as it was verified; delete {tokenized / 'state.json'} and run again"
            )
