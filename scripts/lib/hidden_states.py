"""Hidden states of the target for every token row, stored where the trainer reads them.

Row k is file `hs_{k}.safetensors`. Layer id k is the output of decoder layer k (0: the
embeddings), as in transformers and vLLM; the last slice is the output of the last layer before the
final norm.
"""

import shutil
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from lib.arrow_rows import read_columns
from lib.console import Stage
from lib.digest import digest
from lib.files import emptied, read_json, write_json
from lib.sizes import show_bytes
from lib.state_files import Layout, StatesError, WriteStates, holds_states_of
from lib.target_facts import read_facts

Row = tuple[int, NDArray[np.int32]]
"""Number and token ids of a row."""

_UNCHECKED = ".unchecked"
"""Folder beside the finished ones, for files until they are checked."""


@dataclass(frozen=True)
class HiddenStatesSettings:
    """What decides the hidden states; config/README.md says what the keys mean."""

    mode: str
    backend: str
    layer_ids: list[int]
    dtype: str = "bfloat16"
    trust_remote_code: bool = False


class StatesBackend(Protocol):
    """Whatever computes hidden states: a model in this process or a server."""

    @property
    def width(self) -> int:
        """Number of rows to have under way, each in a thread of its own."""
        ...

    def started(self, folder: Path, longest: int) -> AbstractContextManager[WriteStates]:
        """Have the target at hand while the block runs.

        Args:
            folder: an empty folder for files on their way, removed afterwards.
            longest: tokens of the longest row.
        """
        ...


@dataclass(frozen=True)
class _Work:
    """The files that are to be there, and the rows that have none yet.

    Attributes:
        tokenized: folder of the rows.
        folder: where the files go.
        layout: what each file holds.
        rows, tokens: how many there are in all.
        missing: numbers of the rows without a file.
        missing_tokens: how many tokens they have.
        longest: tokens of the longest row.
    """

    tokenized: Path
    folder: Path
    layout: Layout
    rows: int
    tokens: int
    missing: frozenset[int]
    missing_tokens: int
    longest: int

    @property
    def size(self) -> int:
        """Return the bytes that all states take."""
        return self.tokens * self.layout.bytes_a_token

    @property
    def missing_size(self) -> int:
        """Return the bytes that have yet to be written."""
        return self.missing_tokens * self.layout.bytes_a_token


def extract_hidden_states(
    settings: HiddenStatesSettings,
    tokenized: Path,
    target: Path,
    manifest: Path,
    backend: StatesBackend,
    show: Stage,
) -> dict[str, Any]:
    """Store the states of each row and name their folder in `manifest`, written last.

    The folder is named by a digest of the rows, the weights and the settings, so states of
    another data set can never be taken for these. Files of an interrupted run are kept, and
    each file is checked before it is given its place.

    Args:
        backend: computes the states that are missing; not started if none are.
        show: is told the size on disk before the work, and each row that is done.

    Returns:
        The content of `manifest`.

    Raises:
        ValueError: the disk is too small.
        StatesError: a row has no states, or not what they must be; names the row.
    """
    content = read_json(tokenized / "stats.json")["content"]
    identity = {
        "rows": content,
        "target": digest(read_json(target / "weights.json")),
        "backend": settings.backend,
        "layer_ids": settings.layer_ids,
        "dtype": settings.dtype,
    }
    folder = manifest.parent / "hidden_states" / digest(identity)[:8]
    folder.mkdir(parents=True, exist_ok=True)
    layout = Layout(len(settings.layer_ids) + 1, read_facts(target).hidden_size, settings.dtype)
    with emptied(folder.with_name(_UNCHECKED)) as unchecked:
        work = _look_for_work(tokenized, folder, layout)
        _announce(work, show)
        if work.missing:
            _write_missing(work, unchecked, backend, show)
    result = {**identity, "folder": folder.name, "rows_on_disk": work.rows, "bytes": work.size}
    write_json(manifest, result)
    return result


def _look_for_work(tokenized: Path, folder: Path, layout: Layout) -> _Work:
    rows = tokens = missing_tokens = longest = 0
    missing = set()
    for row, ids in _read_rows(tokenized):
        rows, tokens, longest = rows + 1, tokens + len(ids), max(longest, len(ids))
        if not holds_states_of(_file_of(row, folder), ids):
            missing.add(row)
            missing_tokens += len(ids)
    return _Work(
        tokenized, folder, layout, rows, tokens, frozenset(missing), missing_tokens, longest
    )


def _announce(work: _Work, show: Stage) -> None:
    """Say what the states take on disk, and stop if it is more than there is.

    Raises:
        ValueError: the disk is too small.
    """
    layout, free = work.layout, shutil.disk_usage(work.folder).free
    show.say(
        f"{work.rows} rows, {work.tokens} tokens x {layout.slices} layers x "
        f"{layout.hidden_size} {layout.dtype} numbers: {show_bytes(work.size)} in {work.folder}"
        + (
            f", {show_bytes(work.missing_size)} of it missing"
            if work.missing_size < work.size
            else ""
        )
        + f"; {show_bytes(free)} are free"
    )
    others = [path for path in work.folder.parent.iterdir() if _is_other(path, work.folder)]
    if others:
        size = sum(file.stat().st_size for path in others for file in path.iterdir())
        show.say(
            f"hidden states of other data sets or settings take {show_bytes(size)} beside it: "
            f"{', '.join(sorted(path.name for path in others))}; delete them if nothing needs them"
        )
    if work.missing_size > free:
        raise ValueError(
            f"the hidden states need {show_bytes(work.missing_size)} more, and {show_bytes(free)} "
            f"are free at {work.folder}; make room, or store fewer rows or layers"
        )


def _write_missing(work: _Work, unchecked: Path, backend: StatesBackend, show: Stage) -> None:
    rows = (row for row in _read_rows(work.tokenized) if row[0] in work.missing)
    # The backend ends first: a thread that waits for it is told so, and the pool can end.
    with (
        ThreadPoolExecutor(backend.width) as pool,
        backend.started(unchecked, work.longest) as write,
        show.progress("rows", len(work.missing)) as progress,
    ):
        store = partial(_store, work, unchecked, write, show.say)
        for _ in _in_threads(pool, 2 * backend.width, store, rows):
            progress.advance()


def _store(
    work: _Work, unchecked: Path, write: WriteStates, say: Callable[[str], None], row: Row
) -> None:
    """Store the states of a row; what is wrong with them once may be right the second time."""
    number, ids = row
    path = _file_of(number, unchecked)
    try:
        _write_checked(work.layout, write, ids, path)
    except StatesError as error:
        say(f"row {number}: {error}; trying once more")
        try:
            _write_checked(work.layout, write, ids, path)
        except StatesError as again:
            raise StatesError(
                f"row {number}: {again}, twice; no row may be left out, so the stage stops here "
                "(finished rows are kept)"
            ) from again
    path.replace(_file_of(number, work.folder))


def _write_checked(layout: Layout, write: WriteStates, ids: NDArray[np.int32], path: Path) -> None:
    write(ids.tolist(), path)
    layout.check(path, ids)


def _in_threads(
    pool: Executor, width: int, work: Callable[[Row], None], rows: Iterable[Row]
) -> Iterator[None]:
    """Yield after each row that is done, in any order, with at most `width` rows in the pool."""
    under_way: set[Future[None]] = set()
    try:
        for row in rows:
            under_way.add(pool.submit(work, row))
            while len(under_way) == width:
                done, under_way = wait(under_way, return_when=FIRST_COMPLETED)
                yield from (future.result() for future in done)
        while under_way:
            done, under_way = wait(under_way, return_when=FIRST_COMPLETED)
            yield from (future.result() for future in done)
    finally:
        for future in under_way:
            future.cancel()


def _read_rows(tokenized: Path) -> Iterator[Row]:
    number = 0
    for columns in read_columns(tokenized):
        ends = np.cumsum(columns.id_lengths, dtype=np.int64)
        for end, length in zip(ends, columns.id_lengths, strict=True):
            yield number, columns.ids[end - length : end]
            number += 1


def _is_other(path: Path, folder: Path) -> bool:
    return path.is_dir() and path.name not in (folder.name, _UNCHECKED)


def _file_of(row: int, folder: Path) -> Path:
    return folder / f"hs_{row}.safetensors"
