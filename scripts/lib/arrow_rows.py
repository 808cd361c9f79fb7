"""Token rows on disk: a data set that `datasets.load_from_disk` and speculators read as it is.

Shards are written as a stream, and every byte follows from the rows: the fingerprint in
`state.json` is a hash of the content, not a random number. The layout is that of
`datasets.Dataset.save_to_disk` (datasets 5.1).
"""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from datasets import DatasetInfo, Features, List, Value

from lib.files import read_json, sha256_of_file, write_json
from lib.token_rows import TokenRow

SHARD_BYTES = 256 << 20
"""A shard is closed when its rows are this large; far below Arrow's 2 GiB offsets."""

_BATCH_ROWS = 256

FEATURES = Features(
    {
        "input_ids": List(Value("int64")),
        "loss_mask": List(Value("int64")),
        "seq_len": Value("int64"),
    }
)


class ArrowWriter:
    """Writes token rows into shards of a folder, then the files that name them."""

    def __init__(self, folder: Path):
        self._folder = folder
        self._schema = FEATURES.arrow_schema
        self._paths: list[Path] = []
        self._stream: Any = None
        self._rows: list[TokenRow] = []
        self._bytes = 0

    def write(self, row: TokenRow) -> None:
        """Append one row."""
        self._rows.append(row)
        self._bytes += 16 * len(row.ids)
        if len(self._rows) == _BATCH_ROWS:
            self._flush()
            if self._bytes >= SHARD_BYTES:
                self._close_shard()

    def close(self) -> list[dict[str, Any]]:
        """Finish the data set.

        Returns:
            `{"name", "rows", "size", "sha256"}` of each shard, in order.
        """
        self._flush()
        self._close_shard()
        shards = []
        for number, path in enumerate(self._paths):
            name = f"data-{number:05d}-of-{len(self._paths):05d}.arrow"
            path.rename(self._folder / name)
            shards.append(describe_shard(self._folder / name))
        _write_descriptions(self._folder, shards)
        return shards

    def _flush(self) -> None:
        if not self._rows:
            return
        if self._stream is None:
            path = self._folder / f"shard-{len(self._paths):05d}.arrow"
            self._paths.append(path)
            self._stream = pa.ipc.new_stream(str(path), self._schema)
        columns = {
            "input_ids": [row.ids for row in self._rows],
            "loss_mask": [row.mask for row in self._rows],
            "seq_len": [len(row.ids) for row in self._rows],
        }
        self._stream.write_batch(pa.RecordBatch.from_pydict(columns, schema=self._schema))
        self._rows = []

    def _close_shard(self) -> None:
        if self._stream is not None:
            self._stream.close()
            self._stream = None
            self._bytes = 0


def describe_shard(path: Path) -> dict[str, Any]:
    """Return name, number of rows, size in bytes and SHA-256 of a shard."""
    with pa.memory_map(str(path)) as source:
        rows = sum(batch.num_rows for batch in pa.ipc.open_stream(source))
    return {
        "name": path.name,
        "rows": rows,
        "size": path.stat().st_size,
        "sha256": sha256_of_file(path),
    }


def content_digest(shards: list[dict[str, Any]]) -> str:
    """Return 16 hexadecimal digits that depend on the content of all shards, in order."""
    joined = "".join(shard["sha256"] for shard in shards)
    return hashlib.sha256(joined.encode()).hexdigest()[:16]


def shard_names(folder: Path) -> list[str]:
    """Return the names of the shards that `state.json` lists, in order."""
    return [entry["filename"] for entry in read_json(folder / "state.json")["_data_files"]]


def read_token_rows(folder: Path) -> Iterator[tuple[list[int], list[int], int]]:
    """Yield `(input_ids, loss_mask, seq_len)` of every row that `state.json` names, in order."""
    for name in shard_names(folder):
        with pa.memory_map(str(folder / name)) as source:
            for batch in pa.ipc.open_stream(source):
                columns = batch.to_pydict()
                yield from zip(
                    columns["input_ids"], columns["loss_mask"], columns["seq_len"], strict=True
                )


def _write_descriptions(folder: Path, shards: list[dict[str, Any]]) -> None:
    DatasetInfo(features=FEATURES).write_to_directory(str(folder))
    write_json(
        folder / "state.json",
        {
            "_data_files": [{"filename": shard["name"]} for shard in shards],
            "_fingerprint": content_digest(shards),
            "_format_columns": None,
            "_format_kwargs": {},
            "_format_type": "torch",
            "_output_all_columns": False,
            "_split": None,
        },
    )
