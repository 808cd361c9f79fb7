"""The proof that a data set is right, before a GPU is spent on it.

Everything is read again and compared with what the stages wrote down. The stamp is written only
if every check holds; it holds no time and no path, so equal data gives equal bytes.
"""

import heapq
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from xxhash import xxh3_64_intdigest

from lib.arrow_rows import FEATURES, content_digest, describe_shard, read_columns, shard_names
from lib.contamination import Contamination, read_prompts
from lib.encoding import TokenizerEncoder
from lib.files import read_json, remove, write_json, write_text
from lib.jsonl import read_jsonl
from lib.mask_audit import AuditedRow, audit
from lib.pieces import pieces, read_piece
from lib.rendering import Renderer
from lib.row_counts import training_ratio
from lib.row_display import marked
from lib.stamp import sample_digest, tokenizer_files
from lib.target_facts import read_facts
from lib.token_rows import TOO_LONG, RowLimits
from lib.turn_rows import RowMaker
from lib.words import question_words


@dataclass(frozen=True)
class VerifySettings:
    """The limits of a good data set; config/README.md says what the keys mean."""

    minimum_supervised_share: float = 0.01
    maximum_supervised_share: float = 0.95
    maximum_lost_share: float = 0.5
    maximum_truncated_share: float = 0.5
    minimum_rows: int = 1
    audited_rows: int = 200
    thinking: bool = False
    preserve_thinking: bool = False
    seq_length: int = 4096
    minimum_supervised_tokens: int = 1
    shared_words: int = 13
    shared_code_tokens: int = 30
    trust_remote_code: bool = False


@dataclass(frozen=True)
class Stages:
    """The folders and files of a run that are compared.

    Attributes:
        sources: `.stats.json` of each source.
        merged: folder of the merge.
        responses: `.stats.json` of the responses, None where they are kept as recorded.
        corpus: the records that were tokenized.
        tokenized: folder of the token rows.
        target: folder of the target.
        evaluation: files of evaluation prompts.
    """

    sources: list[Path]
    merged: Path
    responses: Path | None
    corpus: Path
    tokenized: Path
    target: Path
    evaluation: list[Path]


@dataclass(frozen=True)
class Check:
    """One thing that was checked: what must hold, and every way in which it does not."""

    name: str
    problems: list[str]


class DatasetNotVerified(ValueError):
    """At least one check failed."""


def verify_dataset(
    settings: VerifySettings,
    stages: Stages,
    renderer: Renderer,
    stamp: Path,
    report: Path,
    advance: Callable[[int], None],
) -> dict[str, Any]:
    """Check a data set and write `stamp` and, for people, `report`.

    A stamp of an earlier check goes first, so there is none beside a damaged data set.

    Args:
        advance: called with the number of token rows read since the last call.

    Returns:
        The content of `stamp`.

    Raises:
        DatasetNotVerified: names every check that failed and what was found.
    """
    remove(stamp)
    stats = read_json(stages.tokenized / "stats.json")
    checks = [_check_shards(stages.tokenized, stats)]
    _require(checks)  # rows of damaged shards cannot be read
    corpus = _read_corpus(settings, stages)
    index = _read_index(settings, stages.tokenized / "rows.jsonl", corpus.sides)
    sample, *row_checks = _check_rows(stages, stats, index.sample, advance)
    checks += [
        *row_checks,
        _check_chain(stages, stats, index),
        _check_split(stats, corpus, index),
        Check("no evaluation prompt is in the data", corpus.contaminated),
        _check_limits(settings, stages, stats, index),
    ]
    _require(checks)
    rows = _sampled_rows(stages.corpus, index.sample, sample)
    audits = [_check_masks(settings, rows, renderer), _check_remade(settings, rows, renderer)]
    _require(audits)
    checks += audits
    result = {
        "checks": [check.name for check in checks],
        "audited_rows": len(rows),
        **{key: stats[key] for key in _STAMPED},
        "samples": {
            shard["name"]: sample_digest(stages.tokenized / shard["name"])
            for shard in stats["shards"]
        },
        "tokenizer": tokenizer_files(stages.target),
    }
    write_text(report, _report(result, stats, rows, renderer))
    write_json(stamp, result)
    return result


_STAMPED = (
    "rows",
    "train_rows",
    "validation_rows",
    "train_data_ratio",
    "tokens",
    "supervised_tokens",
    "shards",
    "content",
)


def _require(checks: list[Check]) -> None:
    if failed := [check for check in checks if check.problems]:
        lines = [f"  {check.name}: {problem}" for check in failed for problem in check.problems[:5]]
        raise DatasetNotVerified("the data set is not right:\n" + "\n".join(lines))


def _check_shards(tokenized: Path, stats: dict[str, Any]) -> Check:
    problems: list[str] = []
    named = shard_names(tokenized)
    present = sorted(path.name for path in tokenized.glob("*.arrow"))
    if read_json(tokenized / "dataset_info.json")["features"] != FEATURES.to_dict():
        problems.append("dataset_info.json names other columns or types")
    if named != [shard["name"] for shard in stats["shards"]]:
        problems.append("state.json and stats.json name different shards")
    if present != sorted(named):
        problems.append(f"state.json names {sorted(named)}, the folder holds {present}")
    for shard in stats["shards"]:
        try:
            found = describe_shard(tokenized / shard["name"])
        except (OSError, ValueError) as error:
            problems.append(f"{shard['name']} cannot be read: {error}")
            continue
        if found != shard:
            problems.append(f"{shard['name']} is {found}, was {shard}")
    if content_digest(stats["shards"]) != stats["content"]:
        problems.append("the content digest does not follow from the shards")
    return Check("every shard is there, opens and has its rows and hash", problems)


@dataclass
class _Corpus:
    """What the records say.

    Attributes:
        sides: the split of each conversation by its id.
        twice: conversations or questions that are on both sides.
        contaminated: conversations that share a run with an evaluation prompt.
    """

    sides: dict[str, str]
    twice: list[str]
    contaminated: list[str]


def _read_corpus(settings: VerifySettings, stages: Stages) -> _Corpus:
    contamination = Contamination(
        read_prompts(stages.evaluation), settings.shared_words, settings.shared_code_tokens
    )
    corpus = _Corpus({}, [], [])
    questions: dict[int, str] = {}
    for piece in pieces(stages.corpus):
        asked: list[str] = []
        owners: list[str] = []
        for conversation, _, _ in read_piece(piece):
            split = str(conversation.split)
            question = " ".join(question_words(conversation.prompt()))
            known = corpus.sides.setdefault(conversation.id, split)
            family = questions.setdefault(xxh3_64_intdigest(question.encode()), split)
            if known != split or family != split:
                corpus.twice.append(f"{conversation.id} or its question is on both sides")
            texts = [turn.text for turn in conversation.turns if turn.role == "human"]
            asked += texts
            owners += [conversation.id] * len(texts)
        corpus.contaminated += [
            f"{owners[shared.text]} shares {shared.run!r} with evaluation prompt {shared.prompt}"
            for shared in contamination.find(asked)
        ]
    return corpus


@dataclass(frozen=True)
class _Entry:
    """What `rows.jsonl` says of a row."""

    row: int
    id: str
    turns: tuple[int, ...]

    @property
    def source(self) -> str:
        return self.id.rpartition("-")[0]


@dataclass
class _Index:
    """What `rows.jsonl` says of all rows.

    Attributes:
        rows: their number on each side.
        mixed: whether a training row stands behind a validation row.
        elsewhere: rows that are not on the side of their conversation.
        sample: the rows to audit, by their number.
    """

    rows: Counter[str] = field(default_factory=Counter)
    mixed: bool = False
    elsewhere: list[str] = field(default_factory=list)
    turns: int = 0
    conversations: set[str] = field(default_factory=set)
    by_source: Counter[str] = field(default_factory=Counter)
    sample: dict[int, _Entry] = field(default_factory=dict)


def _read_index(settings: VerifySettings, path: Path, sides: Mapping[str, str]) -> _Index:
    """Read the index; of each source the rows with the smallest hashes are the sample."""
    index = _Index()
    chosen: dict[str, list[tuple[int, int, _Entry]]] = {}
    for row, value in enumerate(read_jsonl(path)):
        entry = _Entry(row, value["id"], tuple(value["turns"]))
        split = value["split"]
        index.rows[split] += 1
        index.mixed |= split == "train" and index.rows["validation"] > 0
        index.turns += len(entry.turns)
        index.conversations.add(entry.id)
        index.by_source[entry.source] += 1
        if sides.get(entry.id) != split:
            index.elsewhere.append(f"a row of {entry.id} is not on the side of its conversation")
        rank = xxh3_64_intdigest(f"{entry.id} {entry.turns}".encode())
        kept = chosen.setdefault(entry.source, [])
        if len(kept) < settings.audited_rows:
            heapq.heappush(kept, (-rank, -row, entry))
        elif kept:
            heapq.heappushpop(kept, (-rank, -row, entry))
    entries = sorted(
        (entry for kept in chosen.values() for _, _, entry in kept), key=lambda entry: entry.row
    )
    index.sample = {entry.row: entry for entry in entries}
    return index


_Arrays = tuple[list[int], list[int]]


def _check_rows(
    stages: Stages,
    stats: dict[str, Any],
    wanted: Mapping[int, _Entry],
    advance: Callable[[int], None],
) -> tuple[dict[int, _Arrays], Check, Check]:
    """Check every row, and return ids and mask of those that are wanted, by their number."""
    vocabulary = read_facts(stages.target).vocabulary
    shape: list[str] = []
    totals: Counter[str] = Counter()
    frequencies = np.zeros(vocabulary, np.int64)
    found: dict[int, _Arrays] = {}
    first = 0
    for batch in read_columns(stages.tokenized):
        advance(batch.rows)
        shape += [f"row {first + row}: {what}" for row, what in batch.problems(vocabulary)]
        supervised = batch.supervised()
        frequencies += np.bincount(
            supervised[(supervised >= 0) & (supervised < vocabulary)], minlength=vocabulary
        )
        totals.update(
            rows=batch.rows, tokens=int(batch.ids.size), supervised_tokens=int(supervised.size)
        )
        for row in range(batch.rows):
            if first + row in wanted:
                found[first + row] = batch.row(row)
        first += batch.rows
    counts = [
        f"{key}: {totals[key]} found, {stats[key]} recorded"
        for key in ("rows", "tokens", "supervised_tokens")
        if totals[key] != stats[key]
    ]
    counts += [
        f"{key}: {found_} in all sources together, {stats[key]} recorded"
        for key in ("rows", "tokens", "supervised_tokens")
        if (found_ := sum(side[key] for sides in _sides(stats).values() for side in sides))
        != stats[key]
    ]
    recorded = torch.load(stages.tokenized / "token_freq.pt", weights_only=True)
    present = np.flatnonzero(frequencies)
    if dict(zip(present.tolist(), frequencies[present].tolist(), strict=True)) != recorded:
        counts.append("token_freq.pt is not what the rows give")
    return (
        found,
        Check("every row is well formed and supervised", shape),
        Check("counts and token frequencies follow from the rows", counts),
    )


def _check_chain(stages: Stages, stats: dict[str, Any], index: _Index) -> Check:
    """Follow every raw row through all stages."""
    problems: list[str] = []

    def same(what: str, one: int, other: int) -> None:
        if one != other:
            problems.append(f"{what}: {one} is not {other}")

    sources = [read_json(path) for path in stages.sources]
    for source in sources:
        same(
            f"{source['source']}: rows in = written + rejected",
            source["rows_in"],
            source["rows_written"] + source["rows_rejected"],
        )
    merged = read_json(stages.merged / "stats.json")
    same("records in the merge", merged["records_in"], sum(s["conversations"] for s in sources))
    same("merge: in = kept + dropped", merged["records_in"], merged["kept"] + merged["dropped"])
    tokenizable = merged["kept"]
    if stages.responses is not None:
        responses = read_json(stages.responses)
        same("conversations to answer", responses["conversations_in"], merged["kept"])
        tokenizable = responses["answered"]
        same("answered + failed", tokenizable + responses["failed"], merged["kept"])
    same("conversations tokenized", stats["conversations_in"], tokenizable)
    same("turns", stats["turns_in"], stats["turns_supervised"] + stats["turns_lost"])
    same("rows.jsonl", index.rows.total(), stats["rows"])
    for split in ("train", "validation"):
        same(f"{split} rows", index.rows[split], stats[f"{split}_rows"])
    same("supervised turns", index.turns, stats["turns_supervised"])
    return Check("counts chain from raw rows to token rows", problems)


def _check_split(stats: dict[str, Any], corpus: _Corpus, index: _Index) -> Check:
    problems: list[str] = []
    train, rows = index.rows["train"], index.rows.total()
    if index.mixed:
        problems.append("training and validation rows are mixed")
    if int(rows * stats["train_data_ratio"]) != train:
        problems.append(f"train_data_ratio {stats['train_data_ratio']} does not split at {train}")
    if stats["train_data_ratio"] != training_ratio(train, rows):
        problems.append("train_data_ratio is not the one of these rows")
    problems += corpus.twice + index.elsewhere
    return Check("no conversation is on both sides of the split", problems)


def _check_limits(
    settings: VerifySettings, stages: Stages, stats: dict[str, Any], index: _Index
) -> Check:
    problems: list[str] = []
    low, high = settings.minimum_supervised_share, settings.maximum_supervised_share
    for source, sides in _sides(stats).items():
        tokens = sum(side["tokens"] for side in sides)
        if tokens:
            share = sum(side["supervised_tokens"] for side in sides) / tokens
            if not low <= share <= high:
                problems.append(f"{source}: {share:.1%} of the tokens are supervised")
        if index.by_source[source] < settings.minimum_rows:
            problems.append(f"{source}: {index.by_source[source]} rows")
        lost = stats["sources"][source]["turns_lost_by_reason"]
        truncated = sum(lost.get(reason, 0) for reason in TOO_LONG)
        turns = stats["sources"][source]["turns"]
        if truncated > settings.maximum_truncated_share * turns:
            problems.append(f"{source}: {truncated} of {turns} turns are too long")
    kept = read_json(stages.merged / "stats.json")["kept"]
    with_rows = len(index.conversations)
    if kept - with_rows > settings.maximum_lost_share * kept:
        problems.append(f"{kept - with_rows} of {kept} conversations gave no row")
    if problems:
        problems.append("all sources:\n" + _table(stats))
    return Check("shares and losses of each source are within limits", problems)


def _sampled_rows(
    corpus: Path, sample: Mapping[int, _Entry], arrays: Mapping[int, _Arrays]
) -> list[tuple[_Entry, AuditedRow]]:
    """Join the sampled rows with their conversations, in the order of the rows."""
    wanted = {entry.id for entry in sample.values()}
    conversations = {
        conversation.id: conversation
        for piece in pieces(corpus)
        for conversation, _, _ in read_piece(piece)
        if conversation.id in wanted
    }
    return [
        (entry, AuditedRow(*arrays[row], entry.turns, conversations[entry.id]))
        for row, entry in sample.items()
    ]


def _check_masks(
    settings: VerifySettings, rows: Sequence[tuple[_Entry, AuditedRow]], renderer: Renderer
) -> Check:
    problems = []
    for entry, row in rows:
        found = audit(row, renderer.decode, renderer.end_of_turn_ids, settings.thinking)
        if found:
            shown = marked(row.ids, row.mask, renderer.decode)
            problems.append(f"row {entry.row} of {entry.id}: {'; '.join(found)}\n{shown}")
    return Check("the masks of a sample of each source say what the target said", problems)


def _check_remade(
    settings: VerifySettings, rows: Sequence[tuple[_Entry, AuditedRow]], renderer: Renderer
) -> Check:
    """Make the rows of the sample again, with the tokenizer itself."""
    limits = RowLimits(settings.seq_length, settings.minimum_supervised_tokens)
    maker = RowMaker(renderer, TokenizerEncoder(renderer.tokenizer), limits)
    problems = []
    for entry, row in rows:
        made = {again.turns: again for again in maker.rows(row.conversation).rows}
        again = made.get(entry.turns)
        if again is None:
            problems.append(f"row {entry.row} of {entry.id} has turns {entry.turns}, not {[*made]}")
        elif list(again.ids) != list(row.ids) or list(again.mask) != list(row.mask):
            shown = marked(row.ids, row.mask, renderer.decode)
            problems.append(f"row {entry.row} of {entry.id} is another when made again:\n{shown}")
    return Check("a sample of each source is what template and tokenizer make now", problems)


def _sides(stats: dict[str, Any]) -> dict[str, list[dict[str, int]]]:
    """Return the counts of each source on the sides of the split that it is on."""
    return {
        source: [counts[side] for side in ("train", "validation") if side in counts]
        for source, counts in stats["sources"].items()
    }


def _table(stats: dict[str, Any]) -> str:
    lines = ["| source | rows | tokens | supervised | turns lost |", "|---|--:|--:|--:|---|"]
    for source, sides in _sides(stats).items():
        reasons = stats["sources"][source]["turns_lost_by_reason"]
        lost = ", ".join(f"{name} {n}" for name, n in reasons.items())
        rows, tokens, supervised = (
            sum(side[key] for side in sides) for key in ("rows", "tokens", "supervised_tokens")
        )
        share = supervised / tokens if tokens else 0.0
        lines.append(f"| {source} | {rows} | {tokens} | {share:.1%} | {lost or '–'} |")
    return "\n".join(lines)


_SHOWN_ROWS = 10


def _report(
    result: dict[str, Any],
    stats: dict[str, Any],
    rows: Sequence[tuple[_Entry, AuditedRow]],
    renderer: Renderer,
) -> str:
    lines = ["# The data set is verified", "", *(f"- {name}" for name in result["checks"]), ""]
    lines += [_table(stats), "", f"The masks of {len(rows)} rows were audited. Some of them,"]
    lines += ["decoded from their ids; ⟦ ⟧ enclose what is supervised.", ""]
    first_of_source = {entry.source: (entry, row) for entry, row in reversed(rows)}
    chosen = sorted(first_of_source.values(), key=lambda pair: pair[0].row)
    chosen += [pair for pair in rows if pair not in chosen][: max(0, _SHOWN_ROWS - len(chosen))]
    for entry, row in chosen:
        text = marked(row.ids, row.mask, renderer.decode)
        lines += [f"## {entry.id}", "", "~~~text", text, "~~~", ""]
    return "\n".join(lines) + "\n"
