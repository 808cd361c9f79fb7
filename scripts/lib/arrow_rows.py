"""Token rows on disk: a data set that `datasets.load_from_disk` and speculators read as it is.

Shards are written as a stream, and every byte follows from the rows: the fingerprint in
`state.json` is a hash of the content, not a random number. The layout is that of
`datasets.Dataset.save_to_disk` (datasets 5.1).
"""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lib.files import read_json, sha256_of_file, write_json
from lib.token_rows import TokenRow

if TYPE_CHECKING:
    from datasets import Features

SHARD_BYTES = 256 << 20
"""A shard is closed when its rows are this large; far below Arrow's 2 GiB offsets."""

COLUMNS = ("input_ids", "loss_mask", "seq_len")


@cache
def features() -> "Features":
    """Return the types of the columns.

    They are the smallest that hold every vocabulary; datasets gives them to torch as int64. A token
    takes 5 bytes, where int64 would take 16.
    """
    from datasets import Features, List, Value  # takes a second, and readers do not need it

    types = (List(Value("int32")), List(Value("uint8")), Value("int32"))
    return Features(dict(zip(COLUMNS, types, strict=True)))


@dataclass(frozen=True)
class RowBatch:
    """Several rows one after the other.

    Attributes:
        ids: token ids of all rows, int32.
        mask: 1 where the target generates the token, uint8, as long as `ids`.
        lengths: tokens of each row, int32.
    """

    ids: NDArray[np.int32]
    mask: NDArray[np.uint8]
    lengths: NDArray[np.int32]

    @classmethod
    def of(cls, rows: Sequence[TokenRow]) -> "RowBatch":
        """Return the batch of some rows."""
        lengths = np.array([len(row.ids) for row in rows], np.int32)
        ids = np.concatenate([np.zeros(0, np.int32), *(np.asarray(row.ids) for row in rows)])
        offsets = np.repeat(np.cumsum(lengths) - lengths, [len(row.spans) for row in rows])
        spans = np.array([span for row in rows for span in row.spans], np.int64).reshape(-1, 2)
        edges = np.zeros(len(ids) + 1, np.int8)
        edges[offsets + spans[:, 0]] += 1
        edges[offsets + spans[:, 1]] -= 1
        mask = np.cumsum(edges[:-1], dtype=np.int8).view(np.uint8)
        return cls(ids.astype(np.int32), mask, lengths)


class ArrowWriter:
    """Writes token rows into shards of a folder, then the files that name them.

    Rows of the splits may come in any order; those of the first split stand first.

    Attributes:
        shards: `{"name", "rows", "size", "sha256"}` of each shard in order, once all is written.
    """

    def __init__(self, folder: Path, splits: Sequence[str]):
        self._folder = folder
        self._splits = {split: _Shards(folder / split) for split in splits}
        self.shards: list[dict[str, Any]] = []

    def __enter__(self) -> "ArrowWriter":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        for shards in self._splits.values():
            shards.close()
        if kind is None:
            self._finish()

    def write(self, split: str, batch: RowBatch) -> None:
        """Append rows to a split."""
        if len(batch.lengths):
            self._splits[split].write(batch)

    def _finish(self) -> None:
        paths = [path for shards in self._splits.values() for path in shards.paths]
        for number, path in enumerate(paths):
            name = f"data-{number:05d}-of-{len(paths):05d}.arrow"
            path.rename(self._folder / name)
            self.shards.append(describe_shard(self._folder / name))
        _write_descriptions(self._folder, self.shards)


class _Shards:
    """A stream of record batches, cut into files."""

    def __init__(self, prefix: Path):
        self._prefix = prefix
        self._stream: Any = None
        self._bytes = 0
        self.paths: list[Path] = []

    def write(self, batch: RowBatch) -> None:
        record_batch = _record_batch(batch)
        if self._stream is None:
            path = self._prefix.with_name(f"{self._prefix.name}-{len(self.paths):05d}.arrow")
            self.paths.append(path)
            self._stream = pa.ipc.new_stream(str(path), record_batch.schema)
        self._stream.write_batch(record_batch)
        self._bytes += record_batch.nbytes
        if self._bytes >= SHARD_BYTES:
            self.close()

    def close(self) -> None:
        if self._stream is not None:
            self._stream.close()
            self._stream = None
            self._bytes = 0


def _record_batch(batch: RowBatch) -> pa.RecordBatch:
    offsets = pa.array(np.concatenate(([0], np.cumsum(batch.lengths))), pa.int32())
    columns = [
        pa.ListArray.from_arrays(offsets, pa.array(batch.ids)),
        pa.ListArray.from_arrays(offsets, pa.array(batch.mask)),
        pa.array(batch.lengths),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=features().arrow_schema)


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


@dataclass(frozen=True)
class Columns:
    """A batch of rows as it lies on disk, whatever may be wrong with it.

    Attributes:
        ids, mask: values of all rows one after the other.
        id_lengths, mask_lengths: how many of them belong to each row.
        seq_len: the recorded length of each row.
    """

    ids: NDArray[np.int32]
    mask: NDArray[np.uint8]
    id_lengths: NDArray[np.int32]
    mask_lengths: NDArray[np.int32]
    seq_len: NDArray[np.int32]

    @property
    def rows(self) -> int:
        """Number of rows."""
        return len(self.seq_len)

    def row(self, number: int) -> tuple[list[int], list[int]]:
        """Return ids and mask of one row."""
        id_end, mask_end = (
            self.id_lengths[: number + 1].sum(),
            self.mask_lengths[: number + 1].sum(),
        )
        ids = self.ids[id_end - self.id_lengths[number] : id_end]
        mask = self.mask[mask_end - self.mask_lengths[number] : mask_end]
        return ids.tolist(), mask.tolist()

    def supervised(self) -> NDArray[np.int32]:
        """Return the ids whose mask is not 0."""
        length = min(len(self.ids), len(self.mask))
        return np.asarray(self.ids[:length][self.mask[:length] != 0], np.int32)

    def problems(self, vocabulary: int) -> Iterator[tuple[int, str]]:
        """Yield each row that is not well formed, and what is wrong with it."""
        wrong = (self.id_lengths != self.mask_lengths) | (self.id_lengths != self.seq_len)
        for row in np.flatnonzero(wrong).tolist():
            yield (
                row,
                f"{self.id_lengths[row]} ids, {self.mask_lengths[row]} mask bits, "
                f"seq_len {self.seq_len[row]}",
            )
        outside = np.flatnonzero(self.ids.view(np.uint32) >= vocabulary)
        for row in _rows_of(outside, self.id_lengths):
            yield row, f"an id outside the vocabulary of {vocabulary}"
        if len(self.mask) and self.mask.max() > 1:
            for row in _rows_of(np.flatnonzero(self.mask > 1), self.mask_lengths):
                yield row, "mask values other than 0 and 1"
        supervised = _sums(self.mask != 0, self.mask_lengths)
        none_or_all = (supervised == 0) | (supervised == self.mask_lengths)
        for row in np.flatnonzero(none_or_all).tolist():
            yield row, "all or none of its tokens are supervised"


def _sums(bits: NDArray[np.bool_], lengths: NDArray[np.int32]) -> NDArray[np.int64]:
    """Return how many bits of each row are set."""
    sums = np.zeros(len(lengths), np.int64)
    filled = np.flatnonzero(lengths)  # `reduceat` gives an empty row the bit that follows it
    if len(filled):
        starts = (np.cumsum(lengths, dtype=np.int64) - lengths)[filled]
        sums[filled] = np.add.reduceat(bits, starts, dtype=np.int64)
    return sums


def _rows_of(places: NDArray[np.intp], lengths: NDArray[np.int32]) -> list[int]:
    """Return the rows that values at these places belong to."""
    ends = np.cumsum(lengths, dtype=np.int64)
    return list(map(int, np.unique(np.searchsorted(ends, places, side="right"))))


def read_columns(folder: Path) -> Iterator[Columns]:
    """Yield all rows that `state.json` names, in order, batch by batch, without copying them."""
    for name in shard_names(folder):
        with pa.memory_map(str(folder / name)) as source:
            for batch in pa.ipc.open_stream(source):
                ids, masks, lengths = (batch.column(column) for column in COLUMNS)
                yield Columns(
                    ids.flatten().to_numpy(),
                    masks.flatten().to_numpy(),
                    ids.value_lengths().to_numpy(),
                    masks.value_lengths().to_numpy(),
                    lengths.to_numpy(),
                )


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
    from datasets import DatasetInfo

    DatasetInfo(features=features()).write_to_directory(str(folder))
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
