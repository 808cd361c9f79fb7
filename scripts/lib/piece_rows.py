"""The token rows of a piece of the corpus: those that an earlier run left, and new ones.

No tokenizer is loaded before a conversation comes whose rows are not known.
"""

import os
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from multiprocessing import parent_process
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import msgspec
import numpy as np
from xxhash import xxh3_128_intdigest

from lib.arrow_rows import RowBatch
from lib.conversation import from_line
from lib.digest import code_digest, digest
from lib.files import read_json, remove, write_json
from lib.pieces import Piece, parse_piece
from lib.row_cache import RowCache
from lib.row_counts import SPLITS, Totals
from lib.token_rows import Tokenized, TokenizeSettings, TokenRow

if TYPE_CHECKING:
    from lib.row_makers import RowMakers

CHECKED_SHARE = 64
"""One conversation in so many, and the first of each piece, is made by the tokenizer too."""

_FIRST_CHECKED = 4


@dataclass(frozen=True)
class Job:
    """What a process needs to tokenize pieces.

    Attributes:
        target: folder of the target.
        cache: folder of rows that are kept between runs.
        fast: whether a faster way than the tokenizer itself may be taken where it allows that.
    """

    settings: TokenizeSettings
    target: Path
    cache: Path
    fast: bool = True


@dataclass(frozen=True)
class Part:
    """The rows of a piece and their lines of `rows.jsonl`, by split, and what is counted in it.

    Attributes:
        encoder: what makes the rows, and why not something faster.
    """

    rows: dict[str, RowBatch]
    index: dict[str, bytes]
    totals: Totals
    encoder: dict[str, Any]


def tokenize_piece(job: Job, piece: Piece) -> Part:
    """Return the rows of a piece of the corpus.

    Raises:
        RowsDiffer: the fast way gives other rows than the tokenizer.
        ValueError: a line is no record, or has no split.
    """
    workshop = _workshop(job)
    records = [record for record, _, _ in parse_piece(piece, _Record.of)]
    known = workshop.cache.find([record.key for record in records])
    totals = Totals()
    rows: dict[str, list[TokenRow]] = {split: [] for split in SPLITS}
    index: dict[str, list[bytes]] = {split: [] for split in SPLITS}
    made: dict[int, bytes] = {}
    for number, (record, value) in enumerate(zip(records, known, strict=True)):
        split = record.head.split
        if split not in SPLITS:
            raise ValueError(
                f"{piece.path}: {record.head.id} has no split; it comes from the merge"
            )
        if value is not None:
            tokenized = _unpacked(value)
            totals.reused += 1
        else:
            is_checked = number < _FIRST_CHECKED or record.key % CHECKED_SHARE == 0
            tokenized = workshop.rows(record.line, is_checked)
            made[record.key] = _packed(tokenized)
        rows[split] += tokenized.rows
        index[split] += [
            _JSON({"id": record.head.id, "split": split, "turns": row.turns}) + b"\n"
            for row in tokenized.rows
        ]
        totals.count(record.head.id, record.head.source, split, tokenized)
    workshop.cache.add(made)
    batches = {split: RowBatch.of(rows[split]) for split in SPLITS}
    supervised = [batch.ids[batch.mask == 1] for batch in batches.values()]
    totals.frequencies = np.bincount(np.concatenate(supervised))
    lines = {split: b"".join(index[split]) for split in SPLITS}
    return Part(batches, lines, totals, workshop.encoder)


class _Head(msgspec.Struct):
    """What is read of every record; the rest of it stays text."""

    id: str
    source: str
    conversations: msgspec.Raw
    tools: msgspec.Raw = msgspec.Raw(b"")
    split: str = ""


_HEAD = msgspec.json.Decoder(_Head).decode


@dataclass(frozen=True, slots=True)
class _Record:
    """A line of the corpus, with the hash of all that decides its rows."""

    line: bytes
    head: _Head
    key: int

    @classmethod
    def of(cls, line: bytes) -> "_Record":
        head = _HEAD(line)
        content = bytes(head.conversations) + b"\n" + bytes(head.tools)
        return cls(line, head, xxh3_128_intdigest(content))


class _Workshop:
    """What a process prepares once."""

    def __init__(self, job: Job):
        self._job = job
        self._folder = _folder(job)
        self.cache = RowCache(self._folder)

    @cached_property
    def encoder(self) -> dict[str, Any]:
        """What makes the rows; kept with them, for a run that finds all of them."""
        for path in self._folder.glob("*.encoder.json"):
            return dict(read_json(path))
        checked = {} if self._makers.is_exact else {"checked_one_in": CHECKED_SHARE}
        encoder = {**self._makers.encoder, **checked}
        # A file for each process: one would remove what another is just writing.
        write_json(self._folder / f"{os.getpid()}.encoder.json", encoder)
        return encoder

    def rows(self, line: bytes, is_checked: bool) -> Tokenized:
        """Return the rows of a record, compared with those of the tokenizer if asked for."""
        conversation = from_line(line)
        tokenized = self._makers.maker.rows(conversation)
        if is_checked and not self._makers.is_exact:
            self._makers.check(conversation, tokenized)
        return tokenized

    @cached_property
    def _makers(self) -> "RowMakers":
        if parent_process() is not None and not self._job.settings.trust_remote_code:
            _leave_out_torch()
        from lib.row_makers import row_makers  # it takes seconds, which a run may not need

        return row_makers(self._job.target, self._job.settings, self._job.fast)


def _leave_out_torch() -> None:
    """Keep transformers from loading PyTorch, seconds and 230 MB, in a process that tokenizes."""
    os.environ["TRANSFORMERS_NO_ADVISORY_WARNINGS"] = "1"  # it would advise to install PyTorch
    sys.modules.setdefault("torch", cast(Any, None))  # Python's way to say: not to be imported


_workshop = lru_cache(maxsize=1)(_Workshop)


def forget_rows(job: Job) -> None:
    """Delete the rows that were kept for runs like this one."""
    remove(_folder(job))


def _folder(job: Job) -> Path:
    """Return where rows are kept that depend on the same as those of this job."""
    files = read_json(job.target / "weights.json")["files"]
    parts = [
        [file for file in files if not file["name"].endswith(".safetensors")],
        vars(job.settings),
        job.fast,
        code_digest("tokenize_conversations.py", environment="training.yaml"),
    ]
    return job.cache / digest(parts)[:16]


class _PackedRow(msgspec.Struct, array_like=True):
    ids: bytes
    spans: tuple[tuple[int, int], ...]
    turns: tuple[int, ...]


class _Packed(msgspec.Struct, array_like=True):
    rows: list[_PackedRow]
    lost: dict[str, int]
    reasoning_left_out: int


_JSON = msgspec.json.Encoder().encode
_PACK = msgspec.msgpack.Encoder().encode
_UNPACK = msgspec.msgpack.Decoder(_Packed).decode


def _packed(tokenized: Tokenized) -> bytes:
    rows = [
        _PackedRow(np.array(row.ids, "<i4").tobytes(), row.spans, row.turns)
        for row in tokenized.rows
    ]
    return _PACK(_Packed(rows, dict(tokenized.lost), tokenized.reasoning_left_out))


def _unpacked(value: bytes) -> Tokenized:
    packed = _UNPACK(value)
    rows = tuple(
        TokenRow(cast(Sequence[int], np.frombuffer(row.ids, "<i4")), row.spans, row.turns)
        for row in packed.rows
    )
    return Tokenized(rows, Counter(packed.lost), packed.reasoning_left_out)
