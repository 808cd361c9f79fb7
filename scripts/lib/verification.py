"""The proof that a data set is right, before a GPU is spent on it.

Everything is read again and compared with what the stages wrote down. The stamp is written only
if every check holds; it holds no time and no path, so equal data gives equal bytes.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from lib.arrow_rows import content_digest, describe_shard, read_token_rows, shard_names
from lib.contamination import Contamination, read_prompts
from lib.files import read_json, remove, write_json, write_text
from lib.jsonl import read_jsonl
from lib.rendering import Renderer
from lib.target_facts import read_facts
from lib.tokenizing import training_ratio
from lib.words import question_words


@dataclass(frozen=True)
class VerifySettings:
    """The limits of a good data set; config/README.md says what the keys mean."""

    minimum_supervised_share: float = 0.01
    maximum_supervised_share: float = 0.95
    maximum_lost_share: float = 0.5
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
    checks += [
        *_check_rows(stages, stats, advance),
        _check_chain(stages, stats),
        _check_split(stages),
        _check_evaluation(settings, stages),
        _check_shares(settings, stages, stats),
    ]
    _require(checks)
    result = {
        "checks": [check.name for check in checks],
        **{key: stats[key] for key in _STAMPED},
    }
    write_text(report, _report(result, stats, stages, renderer))
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


def _check_rows(
    stages: Stages, stats: dict[str, Any], advance: Callable[[int], None]
) -> Iterator[Check]:
    vocabulary = read_facts(stages.target).vocabulary
    shape: list[str] = []
    totals: Counter[str] = Counter()
    frequencies: Counter[int] = Counter()
    for row, (ids, mask, length) in enumerate(read_token_rows(stages.tokenized)):
        advance(1)
        if not len(ids) == len(mask) == length:
            shape.append(f"row {row}: {len(ids)} ids, {len(mask)} mask bits, seq_len {length}")
        if ids and not 0 <= min(ids) <= max(ids) < vocabulary:
            shape.append(f"row {row}: an id outside the vocabulary of {vocabulary}")
        if not set(mask) <= {0, 1}:
            shape.append(f"row {row}: mask values {sorted(set(mask))}")
        if not any(mask) or all(mask):
            shape.append(f"row {row}: all or none of its tokens are supervised")
        supervised = [token for token, bit in zip(ids, mask, strict=False) if bit]
        frequencies.update(supervised)
        totals.update(rows=1, tokens=len(ids), supervised_tokens=len(supervised))
    yield Check("every row is well formed and supervised", shape)
    counts = [
        f"{key}: {totals[key]} found, {stats[key]} recorded"
        for key in ("rows", "tokens", "supervised_tokens")
        if totals[key] != stats[key]
    ]
    counts += [
        f"{key}: {found} in all sources together, {stats[key]} recorded"
        for key in ("rows", "tokens", "supervised_tokens")
        if (found := sum(side[key] for sides in _sides(stats).values() for side in sides))
        != stats[key]
    ]
    recorded = torch.load(stages.tokenized / "token_freq.pt", weights_only=True)
    if dict(frequencies) != recorded:
        counts.append("token_freq.pt is not what the rows give")
    yield Check("counts and token frequencies follow from the rows", counts)


def _check_chain(stages: Stages, stats: dict[str, Any]) -> Check:
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
    rows = list(read_jsonl(stages.tokenized / "rows.jsonl"))
    same("rows.jsonl", len(rows), stats["rows"])
    for split in ("train", "validation"):
        found = sum(row["split"] == split for row in rows)
        same(f"{split} rows", found, stats[f"{split}_rows"])
    same("supervised turns", sum(len(row["turns"]) for row in rows), stats["turns_supervised"])
    return Check("counts chain from raw rows to token rows", problems)


def _check_split(stages: Stages) -> Check:
    problems: list[str] = []
    stats = read_json(stages.tokenized / "stats.json")
    rows = list(read_jsonl(stages.tokenized / "rows.jsonl"))
    splits = [row["split"] for row in rows]
    train = splits.count("train")
    if splits != ["train"] * train + ["validation"] * (len(splits) - train):
        problems.append("training and validation rows are mixed")
    if int(len(rows) * stats["train_data_ratio"]) != train:
        problems.append(f"train_data_ratio {stats['train_data_ratio']} does not split at {train}")
    if stats["train_data_ratio"] != training_ratio(train, len(rows)):
        problems.append("train_data_ratio is not the one of these rows")
    sides: dict[str, str] = {}
    for record in read_jsonl(stages.corpus):
        prompt = next(t["value"] for t in record["conversations"] if t["from"] == "human")
        for key in (record["id"], " ".join(question_words(prompt))):
            if sides.setdefault(key, record["split"]) != record["split"]:
                problems.append(f"{record['id']} or its question is on both sides")
    for row in rows:
        if sides.get(row["id"]) != row["split"]:
            problems.append(f"a row of {row['id']} is not on the side of its conversation")
    return Check("no conversation is on both sides of the split", problems)


def _check_evaluation(settings: VerifySettings, stages: Stages) -> Check:
    contamination = Contamination(
        read_prompts(stages.evaluation), settings.shared_words, settings.shared_code_tokens
    )
    problems: list[str] = []
    for record in read_jsonl(stages.corpus):
        asked = [turn["value"] for turn in record["conversations"] if turn["from"] == "human"]
        problems += [
            f"{record['id']} shares {shared.run!r} with evaluation prompt {shared.prompt}"
            for shared in contamination.find(asked)
        ]
    return Check("no evaluation prompt is in the data", problems)


def _check_shares(settings: VerifySettings, stages: Stages, stats: dict[str, Any]) -> Check:
    problems: list[str] = []
    low, high = settings.minimum_supervised_share, settings.maximum_supervised_share
    for source, sides in _sides(stats).items():
        tokens = sum(side["tokens"] for side in sides)
        if tokens:
            share = sum(side["supervised_tokens"] for side in sides) / tokens
            if not low <= share <= high:
                problems.append(f"{source}: {share:.1%} of the tokens are supervised")
    kept = read_json(stages.merged / "stats.json")["kept"]
    with_rows = len({row["id"] for row in read_jsonl(stages.tokenized / "rows.jsonl")})
    if kept - with_rows > settings.maximum_lost_share * kept:
        problems.append(f"{kept - with_rows} of {kept} conversations gave no row")
    return Check("shares of supervised tokens and lost conversations are within limits", problems)


def _sides(stats: dict[str, Any]) -> dict[str, list[dict[str, int]]]:
    """Return the counts of each source on the sides of the split that it is on."""
    return {
        source: [counts[side] for side in ("train", "validation") if side in counts]
        for source, counts in stats["sources"].items()
    }


def _report(
    result: dict[str, Any], stats: dict[str, Any], stages: Stages, renderer: Renderer
) -> str:
    lines = ["# The data set is verified", ""]
    lines += [f"- {name}" for name in result["checks"]]
    lines += ["", "| source | rows | tokens | supervised | turns lost |", "|---|--:|--:|--:|---|"]
    for source, sides in _sides(stats).items():
        reasons = stats["sources"][source]["turns_lost_by_reason"]
        lost = ", ".join(f"{name} {n}" for name, n in reasons.items())
        rows, tokens, supervised = (
            sum(side[key] for side in sides) for key in ("rows", "tokens", "supervised_tokens")
        )
        share = supervised / tokens if tokens else 0.0
        lines.append(f"| {source} | {rows} | {tokens} | {share:.1%} | {lost or '–'} |")
    lines += [
        "",
        "One row of each source, decoded from its ids; ⟦ ⟧ enclose what is supervised.",
        "",
    ]
    seen: set[str] = set()
    index = read_jsonl(stages.tokenized / "rows.jsonl")
    for entry, (ids, mask, _) in zip(index, read_token_rows(stages.tokenized), strict=True):
        source = entry["id"].rpartition("-")[0]
        if source not in seen:
            seen.add(source)
            lines += [f"## {entry['id']}", "", "~~~text", _marked(renderer, ids, mask), "~~~", ""]
    return "\n".join(lines) + "\n"


def _marked(renderer: Renderer, ids: list[int], mask: list[int]) -> str:
    """Decode a row and enclose each supervised stretch."""
    text = ""
    start = 0
    for end in range(1, len(ids) + 1):
        if end == len(ids) or mask[end] != mask[start]:
            piece = renderer.tokenizer.decode(ids[start:end], skip_special_tokens=False)
            text += f"⟦{piece}⟧" if mask[start] else piece
            start = end
    return text
