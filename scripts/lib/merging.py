"""All sources into one corpus: deduplicated, decontaminated, mixed and split.

Records are read twice: once for a small index (identity, prompt, fate), once to copy the lines
that stay. Everything is decided by hashes and by the order of the sources, so the result is the
same on every machine.
"""

import hashlib
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lib.conversation import Conversation, Split, from_record
from lib.files import write_json
from lib.jsonl import jsonl_writer, read_jsonl, read_jsonl_at, read_jsonl_with_offsets

DROP_REASONS = {
    "duplicate": "another record holds the same conversation",
    "contaminated": "shares a run of words with a prompt that the drafter is evaluated on",
    "over_max_samples": "the corpus has more conversations than merge.max_samples",
}
"""Every reason why a record may be left out of the corpus."""

SHARED_WORDS = 13
"""Length in words of a run that counts as contamination, as usual since the GPT-3 paper."""

_WORD = re.compile(r"\w+")


@dataclass(frozen=True)
class MergeSettings:
    """What decides the corpus; config/README.md says what the keys mean."""

    sources: list[str]
    seed: int = 0
    max_samples: int | None = None
    validation_share: float = 0.05


@dataclass(slots=True)
class _Entry:
    """What is remembered of a record: who it is, where its line starts, what becomes of it."""

    source: int
    offset: int
    id: str
    fingerprint: str
    split: Split
    reason: str = ""
    winner: str = ""


def merge_sources(
    settings: MergeSettings,
    paths: list[Path],
    evaluation: Iterable[Path],
    corpus: Path,
    dropped: Path,
    stats: Path,
    advance: Callable[[int], None],
) -> dict[str, Any]:
    """Merge per-source records into `corpus`, naming each dropped record in `dropped`.

    The corpus is ordered by source, then by hash.

    Args:
        paths: one file a source, in the order of `settings.sources`, which is the priority.
        evaluation: JSONL files whose prompts must not be trained on.
        advance: called with the number of records read since the last call.

    Returns:
        The content of `stats`; records in = kept + dropped.
    """
    forbidden = forbidden_runs(questions(evaluation))
    entries: list[_Entry] = []
    winners: dict[str, str] = {}
    for source, path in enumerate(paths):
        for offset, record in read_jsonl_with_offsets(path):
            advance(1)
            conversation = from_record(record)
            entry = _entry(conversation, source, offset, settings)
            if entry.fingerprint in winners:
                entry.reason, entry.winner = "duplicate", winners[entry.fingerprint]
            elif any(shares_words(turn.text, forbidden) for turn in conversation.turns):
                entry.reason = "contaminated"
            else:
                winners[entry.fingerprint] = entry.id
            entries.append(entry)
    _limit(entries, settings)
    entries.sort(key=lambda entry: (entry.source, entry.fingerprint))
    _write_kept(entries, paths, corpus)
    with jsonl_writer(dropped) as lost:
        for entry in entries:
            if entry.reason:
                lost.write(
                    {
                        "id": entry.id,
                        "source": settings.sources[entry.source],
                        "reason": entry.reason,
                        "winner": entry.winner,
                    }
                )
    result = _stats(settings.sources, entries)
    write_json(stats, result)
    return result


def fold(text: str) -> str:
    """Return text with Unicode composed, white space folded and case removed, for comparison."""
    return " ".join(unicodedata.normalize("NFC", text).casefold().split())


def hash_share(text: str, seed: int) -> float:
    """Return a number in [0, 1) that depends on the text and the seed alone."""
    value = hashlib.sha256(f"{seed}:{text}".encode()).digest()[:8]
    return int.from_bytes(value, "big") / 2**64


def questions(evaluation: Iterable[Path]) -> Iterator[str]:
    """Yield what people ask in evaluation files."""
    for path in evaluation:
        for prompt in read_jsonl(path):
            for turn in prompt["conversations"]:
                if turn["from"] == "human":
                    yield turn["value"]


def forbidden_runs(texts: Iterable[str]) -> frozenset[str]:
    """Return the runs of words of evaluation questions, for `shares_words`."""
    return frozenset(run for text in texts for run in _runs(text))


def shares_words(text: str, forbidden: frozenset[str]) -> bool:
    """Say whether a text holds a forbidden run of words, or is itself a forbidden short text."""
    return not forbidden.isdisjoint(_runs(text))


def _runs(text: str) -> set[str]:
    """All runs of `SHARED_WORDS` words of a text; a shorter text is one run of its own."""
    words = _WORD.findall(fold(text))
    last = max(0, len(words) - SHARED_WORDS)
    return {" ".join(words[start : start + SHARED_WORDS]) for start in range(last + 1)} - {""}


def _entry(conversation: Conversation, source: int, offset: int, settings: MergeSettings) -> _Entry:
    """Conversations with the same first question always land on the same side of the split."""
    share = hash_share(fold(conversation.prompt()), settings.seed)
    return _Entry(
        source=source,
        offset=offset,
        id=conversation.id,
        fingerprint=conversation.fingerprint(),
        split="validation" if share < settings.validation_share else "train",
    )


def _limit(entries: list[_Entry], settings: MergeSettings) -> None:
    """Drop what is over the limit, by hash, so that added records disturb the choice little.

    The fingerprint alone would not do: a source with a quota was chosen by it already.
    """
    if settings.max_samples is None:
        return
    kept = sorted(
        (entry for entry in entries if not entry.reason),
        key=lambda entry: (hash_share(entry.fingerprint, settings.seed), entry.fingerprint),
    )
    for entry in kept[settings.max_samples :]:
        entry.reason = "over_max_samples"


def _write_kept(entries: list[_Entry], paths: list[Path], corpus: Path) -> None:
    with jsonl_writer(corpus) as kept:
        for source, path in enumerate(paths):
            with path.open("rb") as file:
                for entry in entries:
                    if entry.source == source and not entry.reason:
                        record = read_jsonl_at(file, entry.offset)
                        kept.write({**record, "split": entry.split})


def _stats(sources: list[str], entries: list[_Entry]) -> dict[str, Any]:
    fates = {name: Counter[str]() for name in sources}
    for entry in entries:
        fates[sources[entry.source]][entry.reason or entry.split] += 1
    total = sum(fates.values(), Counter[str]())
    kept = total["train"] + total["validation"]
    return {
        "records_in": len(entries),
        "kept": kept,
        "dropped": len(entries) - kept,
        "train": total["train"],
        "validation": total["validation"],
        "sources": {name: dict(sorted(counts.items())) for name, counts in fates.items()},
    }
