"""A corpus of conversations to the data set that the trainer reads.

Pieces of the corpus are tokenized by several processes; the rows come back in the order of the
corpus. Rows of conversations that an earlier run tokenized in the same way are taken from there.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, cast

import msgspec
import numpy as np
import torch
from numpy.typing import NDArray

from lib.arrow_rows import ArrowWriter, RowBatch, content_digest
from lib.chain_rows import ChainRowMaker
from lib.conversation import Conversation
from lib.digest import code_digest, digest
from lib.encoding import FastEncoder, NotFast, TokenizerEncoder
from lib.files import read_json, remove, write_json
from lib.pieces import Piece, pieces, read_piece
from lib.processes import in_workers
from lib.rendering import Renderer, ThinkingMode
from lib.row_cache import RowCache
from lib.token_rows import RowLimits, RowMaker, Tokenized, TokenRow

CHECKED_SHARE = 64
"""One conversation in so many, and the first of each piece, is made by the tokenizer too."""

_FIRST_CHECKED = 4
_EXAMPLES = 3
SPLITS = ("train", "validation")


class RowsDiffer(Exception):
    """The fast way gives other rows than the tokenizer."""


@dataclass(frozen=True)
class TokenizeSettings:
    """What decides the token rows; config/README.md says what the keys mean."""

    thinking: bool
    preserve_thinking: bool
    trust_remote_code: bool = False
    seq_length: int = 4096
    minimum_supervised_tokens: int = 1


@dataclass(frozen=True)
class Job:
    """What a process needs to tokenize pieces.

    Attributes:
        target: folder of the target.
        cache: folder of rows that are kept between runs.
        fast: whether the fast encoder may be used where the tokenizer allows it.
    """

    settings: TokenizeSettings
    target: Path
    cache: Path
    fast: bool = True


@dataclass
class _Counts:
    """Rows and tokens of one source on one side of the split."""

    conversations: int = 0
    rows: int = 0
    tokens: int = 0
    supervised_tokens: int = 0


@dataclass
class _Totals:
    """What is counted over the whole corpus, or over one piece of it.

    Attributes:
        counts: by split and source.
        lost: turns that gave no row, by source and reason.
        turns_of: turns of the target by source.
        examples: ids of conversations with such turns, by source and reason.
        frequencies: how often each id is supervised.
        encoder: what encoded, and why not the fast one where it was not.
    """

    conversations: int = 0
    reused: int = 0
    turns: int = 0
    reasoning_left_out: int = 0
    counts: dict[tuple[str, str], _Counts] = field(default_factory=dict)
    lost: dict[str, Counter[str]] = field(default_factory=dict)
    turns_of: Counter[str] = field(default_factory=Counter)
    examples: dict[str, dict[str, list[str]]] = field(default_factory=dict)
    frequencies: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    encoder: dict[str, Any] = field(default_factory=dict)

    def add(self, other: "_Totals") -> None:
        """Add the numbers of the piece that follows."""
        self.conversations += other.conversations
        self.reused += other.reused
        self.turns += other.turns
        self.reasoning_left_out += other.reasoning_left_out
        self.encoder = other.encoder
        self.turns_of.update(other.turns_of)
        for key, count in other.counts.items():
            own = self.counts.setdefault(key, _Counts())
            for name, value in vars(count).items():
                setattr(own, name, getattr(own, name) + value)
        for source, reasons in other.lost.items():
            self.lost.setdefault(source, Counter()).update(reasons)
        for source, examples in other.examples.items():
            for reason, ids in examples.items():
                known = self.examples.setdefault(source, {}).setdefault(reason, [])
                known += ids[: _EXAMPLES - len(known)]
        length = max(len(self.frequencies), len(other.frequencies))
        self.frequencies = _longer(self.frequencies, length) + _longer(other.frequencies, length)


@dataclass(frozen=True)
class _Part:
    """The rows of a piece and their lines of `rows.jsonl`, by split, and what is counted in it."""

    rows: dict[str, RowBatch]
    index: dict[str, bytes]
    totals: _Totals


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
        stats, reused = tokenize(replace(job, fast=False))
        stats["encoder"]["why"] = f"the fast way differs {difference}"
        write_json(folder / "stats.json", stats)
        return stats, reused


def training_ratio(train_rows: int, rows: int) -> float:
    """Return the share that makes speculators' split `int(rows * share)` fall at `train_rows`."""
    return (train_rows + 0.5) / rows


def tokenizer_digest(target: Path) -> str:
    """Return a digest of all files of a target but its weights, from its manifest."""
    files = read_json(target / "weights.json")["files"]
    return digest([file for file in files if not file["name"].endswith(".safetensors")])


def _tokenize(
    job: Job,
    corpus: Path,
    folder: Path,
    workers: int,
    patience: float,
    advance: Callable[[int], None],
) -> tuple[dict[str, Any], int]:
    totals = _Totals()
    later = folder / "validation.jsonl"
    with _fresh(folder):
        with (
            ArrowWriter(folder, SPLITS) as writer,
            (folder / "rows.jsonl").open("wb") as first,
            later.open("wb") as second,
        ):
            indexes = dict(zip(SPLITS, (first, second), strict=True))
            work = partial(_tokenize_piece, job)
            for part in in_workers(work, pieces(corpus), workers, patience):
                for split in SPLITS:
                    writer.write(split, part.rows[split])
                    indexes[split].write(part.index[split])
                totals.add(part.totals)
                advance(part.totals.conversations)
        with (folder / "rows.jsonl").open("ab") as index_file, later.open("rb") as rest:
            while block := rest.read(1 << 20):
                index_file.write(block)
        later.unlink()
        present = np.flatnonzero(totals.frequencies)
        frequencies = dict(zip(present.tolist(), totals.frequencies[present].tolist(), strict=True))
        torch.save(frequencies, folder / "token_freq.pt")
        stats = {
            **_stats(totals),
            "shards": writer.shards,
            "content": content_digest(writer.shards),
        }
        write_json(folder / "stats.json", stats)
    return stats, totals.reused


@dataclass(frozen=True)
class _Workshop:
    """What a process prepares once."""

    maker: RowMaker | ChainRowMaker
    exact: RowMaker
    cache: RowCache
    encoder: dict[str, Any]


@lru_cache(maxsize=1)
def _workshop(job: Job) -> _Workshop:
    settings = job.settings
    mode = ThinkingMode(settings.thinking, settings.preserve_thinking)
    renderer = Renderer(job.target, mode, settings.trust_remote_code)
    limits = RowLimits(settings.seq_length, settings.minimum_supervised_tokens)
    exact = RowMaker(renderer, TokenizerEncoder(renderer.tokenizer), limits)
    maker, used = _maker(renderer, exact, limits) if job.fast else (exact, {"name": "tokenizer"})
    identity = digest(
        [
            tokenizer_digest(job.target),
            vars(settings),
            used,
            code_digest("tokenize_conversations.py", environment="training.yaml"),
        ]
    )
    cache = RowCache(job.cache / identity[:16])
    return _Workshop(maker, exact, cache, used)


def _maker(
    renderer: Renderer, exact: RowMaker, limits: RowLimits
) -> tuple[RowMaker | ChainRowMaker, dict[str, Any]]:
    """Return the fastest way to make rows that tokenizer and template allow, and what it is."""
    try:
        encoder = FastEncoder(renderer.tokenizer)
    except NotFast as reason:
        return exact, {"name": "tokenizer", "why": str(reason)}
    used = {"name": "tiktoken", "checked_one_in": CHECKED_SHARE}
    try:
        return ChainRowMaker(renderer, encoder, limits), {**used, "rendered": "once a chain"}
    except NotFast as reason:
        return RowMaker(renderer, encoder, limits), {
            **used,
            "rendered": "twice a turn",
            "why": str(reason),
        }


def _tokenize_piece(job: Job, piece: Piece) -> _Part:
    workshop = _workshop(job)
    conversations = [conversation for conversation, _, _ in read_piece(piece)]
    keys = [conversation.content_key() for conversation in conversations]
    known = workshop.cache.find(keys)
    totals = _Totals(len(conversations), encoder=workshop.encoder)
    rows: dict[str, list[TokenRow]] = {split: [] for split in SPLITS}
    index: dict[str, list[bytes]] = {split: [] for split in SPLITS}
    made: dict[int, bytes] = {}
    for number, (conversation, key, value) in enumerate(
        zip(conversations, keys, known, strict=True)
    ):
        if value is not None:
            tokenized = _unpacked(value)
            totals.reused += 1
        else:
            tokenized = workshop.maker.rows(conversation)
            made[key] = _packed(tokenized)
            if workshop.encoder["name"] != "tokenizer" and (
                number < _FIRST_CHECKED or key % CHECKED_SHARE == 0
            ):
                _check(workshop, conversation, tokenized)
        split = conversation.split
        if split not in SPLITS:
            raise ValueError(
                f"{piece.path}: {conversation.id} has no split; it comes from the merge"
            )
        rows[split] += tokenized.rows
        index[split] += [
            _JSON({"id": conversation.id, "split": split, "turns": row.turns}) + b"\n"
            for row in tokenized.rows
        ]
        _count(totals, conversation, tokenized)
    workshop.cache.add(made)
    batches = {split: RowBatch.of(rows[split]) for split in SPLITS}
    supervised = [batch.ids[batch.mask == 1] for batch in batches.values()]
    totals.frequencies = np.bincount(np.concatenate(supervised))
    return _Part(batches, {split: b"".join(index[split]) for split in SPLITS}, totals)


def _check(workshop: _Workshop, conversation: Conversation, found: Tokenized) -> None:
    """Compare the rows of a conversation with those of the tokenizer itself, the long way.

    Raises:
        RowsDiffer: they are not the same.
    """
    expected = workshop.exact.rows(conversation)
    if found != expected:
        place = next(
            (n for n, (a, b) in enumerate(zip(found.rows, expected.rows, strict=False)) if a != b),
            min(len(found.rows), len(expected.rows)),
        )
        raise RowsDiffer(f"in row {place} of {conversation.id}")


def _count(totals: _Totals, conversation: Conversation, tokenized: Tokenized) -> None:
    source = conversation.source
    turns = sum(turn.role == "gpt" for turn in conversation.turns)
    totals.turns += turns
    totals.turns_of[source] += turns
    totals.reasoning_left_out += tokenized.reasoning_left_out
    totals.lost.setdefault(source, Counter()).update(tokenized.lost)
    for reason in tokenized.lost:
        examples = totals.examples.setdefault(source, {}).setdefault(reason, [])
        if len(examples) < _EXAMPLES:
            examples.append(conversation.id)
    count = totals.counts.setdefault((conversation.split, source), _Counts())
    count.conversations += bool(tokenized.rows)
    for row in tokenized.rows:
        count.rows += 1
        count.tokens += len(row.ids)
        count.supervised_tokens += sum(end - start for start, end in row.spans)


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


def _longer(values: NDArray[np.int64], length: int) -> NDArray[np.int64]:
    return np.pad(values, (0, length - len(values)))


def _stats(totals: _Totals) -> dict[str, Any]:
    counts, lost = totals.counts, totals.lost
    rows = {
        split: sum(count.rows for (side, _), count in counts.items() if side == split)
        for split in SPLITS
    }
    all_lost = sum(lost.values(), Counter[str]())
    for split, number in rows.items():
        if not number:
            reasons = ", ".join(f"{reason} {count}" for reason, count in all_lost.most_common())
            raise ValueError(f"no row is left for {split}; turns lost: {reasons or 'none'}")
    total = rows["train"] + rows["validation"]
    return {
        "conversations_in": totals.conversations,
        "turns_in": totals.turns,
        "turns_supervised": totals.turns - all_lost.total(),
        "turns_lost": all_lost.total(),
        "turns_lost_by_reason": dict(sorted(all_lost.items())),
        "reasoning_left_out": totals.reasoning_left_out,
        "rows": total,
        "train_rows": rows["train"],
        "validation_rows": rows["validation"],
        "train_data_ratio": training_ratio(rows["train"], total),
        "tokens": sum(count.tokens for count in counts.values()),
        "supervised_tokens": sum(count.supervised_tokens for count in counts.values()),
        "encoder": totals.encoder,
        "sources": {
            source: {
                "turns": totals.turns_of[source],
                "turns_lost_by_reason": dict(sorted(reasons.items())),
                "examples": dict(sorted(totals.examples.get(source, {}).items())),
                **{
                    split: vars(counts[split, source])
                    for split in SPLITS
                    if (split, source) in counts
                },
            }
            for source, reasons in lost.items()
        },
    }


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
