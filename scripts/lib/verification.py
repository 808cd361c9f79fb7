"""The proof that a data set is right, before a GPU is spent on it.

Everything is read again and compared with what the stages wrote down. The stamp is written only
if every check holds; it holds no time and no path, so equal data gives equal bytes.
"""

import heapq
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import torch
from xxhash import xxh3_64_intdigest

from lib.arrow_rows import content_digest, describe_shard, features, read_columns, shard_names
from lib.corpus_facts import CorpusFacts, EvaluationRuns, read_corpus
from lib.encoding import TokenizerEncoder
from lib.files import read_json, remove, write_json, write_text
from lib.mask_audit import AuditedRow, audit
from lib.rendering import Renderer
from lib.row_counts import SPLITS, training_ratio
from lib.row_display import marked, shown_stretches
from lib.source_limits import SourceLimits, breaches, total
from lib.stamp import sample_digest, tokenizer_files
from lib.target_facts import read_facts
from lib.token_rows import RowLimits
from lib.turn_rows import RowMaker
from lib.verification_page import page, source_table


@dataclass(frozen=True)
class VerifySettings(SourceLimits):
    """The limits of a good data set; config/README.md says what the keys mean.

    Attributes:
        limits: limits of single sources, by their names, instead of those for all.
    """

    limits: dict[str, dict[str, float]] = field(default_factory=dict)
    maximum_lost_share: float = 0.5
    audited_rows: int = 200
    thinking: bool = False
    preserve_thinking: bool = False
    seq_length: int = 4096
    minimum_supervised_tokens: int = 1
    shared_words: int = 13
    shared_code_tokens: int = 30
    trust_remote_code: bool = False

    def limits_of(self, source: str) -> SourceLimits:
        """Return the limits of a source: its own, and for the rest those for all."""
        names = [limit.name for limit in fields(SourceLimits)]
        own = self.limits.get(source, {})
        return SourceLimits(**{name: own.get(name, getattr(self, name)) for name in names})


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
    samples: Path,
    workers: int,
    advance: Callable[[int], None],
) -> dict[str, Any]:
    """Check a data set and write `stamp` and, for people, `report` and a few rows to `samples`.

    A stamp of an earlier check goes first, so there is none beside a damaged data set.

    Args:
        workers: processes that read the corpus.
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
    sources = {counts["source"]: counts for counts in map(read_json, stages.sources)}
    index = _read_index(settings, stages.tokenized / "rows.jsonl")
    runs = EvaluationRuns(
        tuple(stages.evaluation), settings.shared_words, settings.shared_code_tokens
    )
    wanted = {entry.id for entry in index.sample.values()}
    corpus = read_corpus(stages.corpus, runs, wanted, workers)
    sample, *row_checks = _check_rows(stages, stats, index.sample, advance)
    checks += [
        *row_checks,
        _check_chain(stages, sources, stats, index),
        _check_split(stats, corpus, index),
        Check("no evaluation prompt is in the data", corpus.contaminated),
        _check_limits(settings, stages, sources, stats, index),
    ]
    _require(checks)
    rows = [
        (entry, AuditedRow(*sample[row], entry.turns, corpus.sampled[entry.id]))
        for row, entry in index.sample.items()
    ]
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
    journey = _journey(stages, sources, stats)
    audited = {f"row {entry.row} of {entry.id}": row for entry, row in rows}
    write_text(report, page(result["checks"], journey, stats, audited, renderer.decode))
    write_json(samples, _samples(rows, stats["train_rows"], renderer))
    write_json(stamp, result)
    return result


_SHOWN_CHARACTERS = 4000
"""Of each row that people see."""

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
    if read_json(tokenized / "dataset_info.json")["features"] != features().to_dict():
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


class _Line(msgspec.Struct):
    """A line of `rows.jsonl`."""

    id: str
    split: str
    turns: tuple[int, ...]


def _lines(path: Path) -> Iterator[_Line]:
    decode = msgspec.json.Decoder(_Line).decode
    with path.open("rb") as file:
        for number, line in enumerate(file):
            try:
                yield decode(line)
            except ValueError as error:
                raise DatasetNotVerified(f"{path}: line {number}: {error}") from error


@dataclass(frozen=True)
class _Entry:
    """What `rows.jsonl` says of a row."""

    row: int
    id: str
    turns: tuple[int, ...]


@dataclass
class _Index:
    """What `rows.jsonl` says of all rows.

    Attributes:
        rows: their number on each side.
        mixed: whether a training row stands behind a validation row.
        sides: the side of each conversation that has rows, by its id.
        torn: conversations with rows on both sides.
        sample: the rows to audit, by their number.
    """

    rows: Counter[str] = field(default_factory=Counter)
    mixed: bool = False
    sides: dict[str, str] = field(default_factory=dict)
    torn: list[str] = field(default_factory=list)
    turns: int = 0
    by_source: Counter[str] = field(default_factory=Counter)
    sample: dict[int, _Entry] = field(default_factory=dict)


def _read_index(settings: VerifySettings, path: Path) -> _Index:
    """Read the index; of each source the rows with the smallest hashes are the sample."""
    index = _Index()
    chosen: dict[str, list[tuple[int, int, _Entry]]] = {}
    for row, line in enumerate(_lines(path)):
        source = line.id.rpartition("-")[0]
        index.rows[line.split] += 1
        index.mixed |= line.split == "train" and index.rows["validation"] > 0
        index.turns += len(line.turns)
        index.by_source[source] += 1
        if index.sides.setdefault(line.id, line.split) != line.split:
            index.torn.append(f"rows of {line.id} are on both sides")
        rank = -xxh3_64_intdigest(f"{line.id} {line.turns}".encode())
        kept = chosen.setdefault(source, [])
        if len(kept) < settings.audited_rows:
            heapq.heappush(kept, (rank, -row, _Entry(row, line.id, line.turns)))
        elif kept and rank > kept[0][0]:
            heapq.heapreplace(kept, (rank, -row, _Entry(row, line.id, line.turns)))
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
        if (found_ := sum(total(counts, key) for counts in stats["sources"].values())) != stats[key]
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


def _check_chain(
    stages: Stages, sources: Mapping[str, Any], stats: dict[str, Any], index: _Index
) -> Check:
    """Follow every raw row through all stages."""
    problems: list[str] = []

    def same(what: str, one: int, other: int) -> None:
        if one != other:
            problems.append(f"{what}: {one} is not {other}")

    merged = read_json(stages.merged / "stats.json")
    for name, source in sources.items():
        same(
            f"{name}: rows in = written + rejected",
            source["rows_in"],
            source["rows_written"] + source["rows_rejected"],
        )
        same(
            f"{name}: records in the merge",
            sum(merged["sources"][name].values()),
            source["conversations"],
        )
        if name in stats["sources"]:
            counts = stats["sources"][name]
            same(f"{name}: rows.jsonl", index.by_source[name], total(counts, "rows"))
    same(
        "records in the merge",
        merged["records_in"],
        sum(source["conversations"] for source in sources.values()),
    )
    same("merge: in = kept + dropped", merged["records_in"], merged["kept"] + merged["dropped"])
    tokenizable = merged["kept"]
    if stages.responses is not None:
        responses = read_json(stages.responses)
        same("conversations to answer", responses["conversations_in"], merged["kept"])
        tokenizable = responses["records"]
        same("answered + failed", responses["answered"] + responses["failed"], merged["kept"])
        for name, counts in responses["sources"].items():
            kept = sum(merged["sources"][name].get(side, 0) for side in SPLITS)
            same(f"{name}: conversations to answer", counts["conversations_in"], kept)
            tokenized = stats["sources"].get(name, {"conversations_in": 0})
            same(f"{name}: records", tokenized["conversations_in"], counts["records"])
    same("conversations tokenized", stats["conversations_in"], tokenizable)
    same("turns", stats["turns_in"], stats["turns_supervised"] + stats["turns_lost"])
    same("rows.jsonl", index.rows.total(), stats["rows"])
    for split in ("train", "validation"):
        same(f"{split} rows", index.rows[split], stats[f"{split}_rows"])
    same("supervised turns", index.turns, stats["turns_supervised"])
    return Check("counts chain from raw rows to token rows", problems)


def _check_split(stats: dict[str, Any], corpus: CorpusFacts, index: _Index) -> Check:
    problems: list[str] = []
    train, rows = index.rows["train"], index.rows.total()
    if index.mixed:
        problems.append("training and validation rows are mixed")
    if int(rows * stats["train_data_ratio"]) != train:
        problems.append(f"train_data_ratio {stats['train_data_ratio']} does not split at {train}")
    if stats["train_data_ratio"] != training_ratio(train, rows):
        problems.append("train_data_ratio is not the one of these rows")
    problems += corpus.twice + index.torn
    problems += [
        f"rows of {name} are in {split}, the conversation is in {corpus.sides.get(name, 'no file')}"
        for name, split in index.sides.items()
        if corpus.sides.get(name) != split
    ]
    return Check("no conversation is on both sides of the split", problems)


def _check_limits(
    settings: VerifySettings,
    stages: Stages,
    sources: Mapping[str, Any],
    stats: dict[str, Any],
    index: _Index,
) -> Check:
    problems: list[str] = []
    for source, normalized in sources.items():
        limits = settings.limits_of(source)
        tokenized = stats["sources"].get(source, {"turns": 0, "turns_lost_by_reason": {}})
        problems += [f"{source}: {what}" for what in breaches(limits, normalized, tokenized)]
    kept = read_json(stages.merged / "stats.json")["kept"]
    failed = 0 if stages.responses is None else read_json(stages.responses)["failed"]
    lost = failed + stats["conversations_in"] - len(index.sides)
    if lost > settings.maximum_lost_share * kept:
        problems.append(f"{lost} of {kept} conversations gave no row")
    if problems:
        problems.append("all sources:\n" + source_table(stats))
    return Check("shares and losses of each source are within limits", problems)


def _journey(
    stages: Stages, sources: Mapping[str, Any], stats: dict[str, Any]
) -> dict[str, dict[str, int]]:
    """Return what came out of each stage, by source."""
    merged = read_json(stages.merged / "stats.json")["sources"]
    journey = {}
    for name, source in sources.items():
        tokenized = stats["sources"].get(name, {"conversations_in": 0})
        journey[name] = {
            "raw rows": source["rows_in"],
            "rejected": source["rows_rejected"],
            "conversations": source["conversations"],
            "kept in the merge": sum(merged[name].get(side, 0) for side in SPLITS),
            "answered" if stages.responses else "tokenized": tokenized["conversations_in"],
            "with rows": total(tokenized, "conversations"),
            "token rows": total(tokenized, "rows"),
        }
    return journey


def _samples(
    rows: Sequence[tuple[_Entry, AuditedRow]], train_rows: int, renderer: Renderer
) -> list[dict[str, Any]]:
    """Return the row with the most turns of each source with its text, cut where it is long."""
    chosen: dict[str, tuple[_Entry, AuditedRow]] = {}
    for entry, row in rows:
        best = chosen.setdefault(row.conversation.source, (entry, row))
        if len(entry.turns) > len(best[0].turns):
            chosen[row.conversation.source] = (entry, row)
    return [
        {
            **{"row": entry.row, "id": entry.id, "source": source},
            "split": SPLITS[entry.row >= train_rows],
            **{"tokens": len(row.ids), "supervised_tokens": sum(row.mask)},
            "text": [
                vars(stretch)
                for stretch in shown_stretches(
                    row.ids, row.mask, renderer.decode, _SHOWN_CHARACTERS
                )
            ],
        }
        for source, (entry, row) in chosen.items()
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
