"""A corpus of conversations to the data set that the trainer reads.

Pieces of the corpus are tokenized by several processes; the rows come back in the order of the
corpus. Rows of conversations that an earlier run tokenized in the same way are taken from there.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lib.arrow_rows import ArrowWriter, content_digest
from lib.files import remove, write_json
from lib.piece_rows import Job, forget_rows, tokenize_piece
from lib.pieces import pieces
from lib.processes import in_workers
from lib.row_counts import SPLITS, Totals
from lib.token_rows import RowsDiffer


def tokenize_conversations(
    job: Job,
    corpus: Path,
    folder: Path,
    workers: int,
    patience: float,
    advance: Callable[[int], None],
) -> tuple[dict[str, Any], int]:
    """Tokenize `corpus` into `folder`; training rows first, validation rows last.

    Writes the Arrow shards with `dataset_info.json` and `state.json`, `token_freq.pt` (how often
    each id is supervised), `rows.jsonl` (which conversation and turns each row holds), and
    `stats.json` last.

    Args:
        workers: processes that tokenize.
        patience: seconds that a piece of the corpus may take.
        advance: called with the number of conversations read since the last call.

    Returns:
        The content of `stats.json`, and the number of conversations whose rows were there already.

    Raises:
        ValueError: no row is left for training, or none for validation; or a line is no record.
        TimeoutError: a piece took longer than it may; names it.
    """
    tokenize = partial(
        _tokenize,
        corpus=corpus,
        folder=folder,
        workers=workers,
        patience=patience,
        advance=advance,
    )
    try:
        return tokenize(job)
    except RowsDiffer as difference:
        forget_rows(job)
        stats, reused = tokenize(replace(job, fast=False))
        stats["encoder"]["why"] = f"the fast way differs {difference}"
        write_json(folder / "stats.json", stats)
        return stats, reused


def _tokenize(
    job: Job,
    corpus: Path,
    folder: Path,
    workers: int,
    patience: float,
    advance: Callable[[int], None],
) -> tuple[dict[str, Any], int]:
    totals = Totals()
    encoder: dict[str, Any] = {}
    later = folder / "validation.jsonl"
    with _fresh(folder):
        with (
            ArrowWriter(folder, SPLITS) as writer,
            (folder / "rows.jsonl").open("wb") as first,
            later.open("wb") as second,
        ):
            indexes = dict(zip(SPLITS, (first, second), strict=True))
            work = partial(tokenize_piece, job)
            for part in in_workers(work, pieces(corpus), workers, patience):
                for split in SPLITS:
                    writer.write(split, part.rows[split])
                    indexes[split].write(part.index[split])
                totals.add(part.totals)
                encoder = part.encoder
                advance(part.totals.conversations)
        with (folder / "rows.jsonl").open("ab") as index_file, later.open("rb") as rest:
            while block := rest.read(1 << 20):
                index_file.write(block)
        later.unlink()
        _write_frequencies(folder / "token_freq.pt", totals.frequencies)
        stats = {
            **totals.stats(),
            "encoder": encoder,
            "shards": writer.shards,
            "content": content_digest(writer.shards),
        }
        write_json(folder / "stats.json", stats)
    return stats, totals.reused


def _write_frequencies(path: Path, frequencies: NDArray[np.int64]) -> None:
    import torch  # not above: each process that tokenizes would load it too

    present = np.flatnonzero(frequencies)
    counts = dict(zip(present.tolist(), frequencies[present].tolist(), strict=True))
    torch.save(counts, path)


@contextmanager
def _fresh(folder: Path) -> Iterator[None]:
    """Empty a folder before, and after a failure, so that no shard of another run is left."""
    remove(folder)
    folder.mkdir(parents=True)
    try:
        yield
    except BaseException:
        remove(folder)
        raise
