"""A corpus of conversations to the data set that the trainer reads."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from lib.arrow_rows import ArrowWriter, content_digest
from lib.conversation import from_record
from lib.files import remove, write_json
from lib.jsonl import jsonl_writer, read_jsonl
from lib.rendering import Renderer
from lib.token_rows import TokenRow, tokenize


@dataclass(frozen=True)
class TokenizeSettings:
    """What decides the token rows; config/README.md says what the keys mean."""

    thinking: bool
    preserve_thinking: bool
    trust_remote_code: bool = False
    seq_length: int = 4096
    minimum_supervised_tokens: int = 1


@dataclass
class _Counts:
    """Rows and tokens of one source on one side of the split."""

    conversations: int = 0
    rows: int = 0
    tokens: int = 0
    supervised_tokens: int = 0


def tokenize_conversations(
    settings: TokenizeSettings,
    corpus: Path,
    renderer: Renderer,
    folder: Path,
    advance: Callable[[int], None],
) -> dict[str, Any]:
    """Tokenize `corpus` into `folder`; training rows first, validation rows last.

    Writes the Arrow shards with `dataset_info.json` and `state.json`, `token_freq.pt` (how often
    each id is supervised), `rows.jsonl` (which conversation and turns each row holds), and
    `stats.json` last.

    Args:
        advance: called with the number of conversations read since the last call.

    Returns:
        The content of `stats.json`.

    Raises:
        ValueError: no row is left for training, or none for validation.
    """
    counts: dict[tuple[str, str], _Counts] = {}
    lost: dict[str, Counter[str]] = {}
    frequencies: Counter[int] = Counter()
    conversations = turns = left_out = 0
    with _fresh(folder):
        writer = ArrowWriter(folder)
        with jsonl_writer(folder / "rows.jsonl") as index:
            for split in ("train", "validation"):
                for record in read_jsonl(corpus):
                    if record.get("split") != split:
                        continue
                    conversation = from_record(record)
                    tokenized = tokenize(
                        conversation,
                        renderer,
                        settings.seq_length,
                        settings.minimum_supervised_tokens,
                    )
                    conversations += 1
                    turns += sum(turn.role == "gpt" for turn in conversation.turns)
                    left_out += tokenized.reasoning_left_out
                    lost.setdefault(conversation.source, Counter()).update(tokenized.lost)
                    count = counts.setdefault((split, conversation.source), _Counts())
                    count.conversations += bool(tokenized.rows)
                    for row in tokenized.rows:
                        writer.write(row)
                        _count(count, row, frequencies)
                        index.write({"id": conversation.id, "split": split, "turns": row.turns})
                    advance(1)
        shards = writer.close()
        torch.save(dict(sorted(frequencies.items())), folder / "token_freq.pt")
        stats = {
            "conversations_in": conversations,
            **_stats(counts, lost, turns, left_out),
            "shards": shards,
            "content": content_digest(shards),
        }
        write_json(folder / "stats.json", stats)
    return stats


def training_ratio(train_rows: int, rows: int) -> float:
    """Return the share that makes speculators' split `int(rows * share)` fall at `train_rows`."""
    return (train_rows + 0.5) / rows


def _count(count: _Counts, row: TokenRow, frequencies: Counter[int]) -> None:
    supervised = [token for token, bit in zip(row.ids, row.mask, strict=True) if bit]
    frequencies.update(supervised)
    count.rows += 1
    count.tokens += len(row.ids)
    count.supervised_tokens += len(supervised)


def _stats(
    counts: dict[tuple[str, str], _Counts],
    lost: dict[str, Counter[str]],
    turns: int,
    left_out: int,
) -> dict[str, Any]:
    rows = {
        split: sum(count.rows for (side, _), count in counts.items() if side == split)
        for split in ("train", "validation")
    }
    all_lost = sum(lost.values(), Counter[str]())
    for split, number in rows.items():
        if not number:
            reasons = ", ".join(f"{reason} {count}" for reason, count in all_lost.most_common())
            raise ValueError(f"no row is left for {split}; turns lost: {reasons or 'none'}")
    total = rows["train"] + rows["validation"]
    return {
        "turns_in": turns,
        "turns_supervised": turns - all_lost.total(),
        "turns_lost": all_lost.total(),
        "turns_lost_by_reason": dict(sorted(all_lost.items())),
        "reasoning_left_out": left_out,
        "rows": total,
        "train_rows": rows["train"],
        "validation_rows": rows["validation"],
        "train_data_ratio": training_ratio(rows["train"], total),
        "tokens": sum(count.tokens for count in counts.values()),
        "supervised_tokens": sum(count.supervised_tokens for count in counts.values()),
        "sources": {
            source: {
                "turns_lost_by_reason": dict(sorted(reasons.items())),
                **{
                    split: vars(counts[split, source])
                    for split in ("train", "validation")
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
