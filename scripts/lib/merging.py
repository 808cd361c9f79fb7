"""All sources into one corpus: deduplicated, decontaminated, mixed and split.

Records are read once for an index of numbers, in which every fate is decided, and once more to
copy the lines that stay. Fates follow from hashes and from the order of the sources alone, so the
result is the same on every machine and with any number of processes.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from lib.contamination import read_prompts
from lib.corpus_index import (
    CorpusIndex,
    Hashes,
    IndexSettings,
    Numbers,
    RecordFiles,
    build_index,
    record_files,
)
from lib.drop_reasons import DROP_REASONS
from lib.files import write_json
from lib.jsonl import jsonl_writer
from lib.mixing import allotments, ranks, shares, smallest
from lib.near_duplicates import Candidates, Suspects, find_suspects, similarity, word_hashes

_REASONS = list(DROP_REASONS)
_KEPT = -1
_NOBODY = -1

Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class SourceShare:
    """A source and how much of the corpus it may be."""

    name: str
    quota: int | None = None
    weight: float | None = None


@dataclass(frozen=True)
class NearDuplicates:
    """When two conversations ask nearly the same: Jaccard similarity of their words."""

    threshold: float


@dataclass(frozen=True)
class MergeSettings:
    """What decides the corpus; config/README.md says what the keys mean."""

    sources: tuple[SourceShare, ...]
    seed: int = 0
    max_samples: int | None = None
    validation_share: float = 0.05
    deduplicate: str = "conversation"
    near_duplicates: NearDuplicates | None = None
    shared_words: int = 13
    shared_code_tokens: int = 30


@dataclass(frozen=True)
class Merged:
    """The files of the corpus, of what was left out, and of the counts."""

    corpus: Path
    dropped: Path
    stats: Path


class Steps(Protocol):
    """Something that is told about progress."""

    def advance(self, steps: int = 1) -> None:
        """Note that `steps` more steps are done."""


Watch = Callable[[str, int | None], AbstractContextManager[Steps]]
"""Shows the progress of something with so many steps (None if unknown)."""


class _Unwatched:
    def advance(self, steps: int = 1) -> None:
        pass


def unwatched(what: str, total: int | None) -> AbstractContextManager[Steps]:
    """Watch progress that nobody looks at."""
    return nullcontext(_Unwatched())


def merge_sources(
    settings: MergeSettings,
    paths: Sequence[Path],
    evaluation: Sequence[Path],
    outputs: Merged,
    workers: int,
    watch: Watch,
) -> dict[str, Any]:
    """Merge per-source records into one corpus, naming each dropped record.

    The corpus is ordered by source, then by hash.

    Args:
        paths: one file a source, in the order of `settings.sources`, which is the priority.
        evaluation: JSONL files whose prompts must not be trained on.
        workers: processes that read records.

    Returns:
        The content of `outputs.stats`; records in = kept + dropped.

    Raises:
        ValueError: a line of an input is no record, or no evaluation prompt.
    """
    near = settings.near_duplicates
    index_settings = IndexSettings(
        tuple(read_prompts(evaluation)),
        settings.shared_words,
        settings.shared_code_tokens,
        near.threshold if near else None,
    )
    with watch("records", None) as steps:
        index = build_index(paths, index_settings, workers, steps.advance)
    with record_files(paths, index) as files:
        fates = _Fates(index)
        _drop_contaminated(fates)
        _drop_same(fates, "duplicate", index.content)
        _drop_beginnings(fates)
        if settings.deduplicate == "prompt":
            _drop_same(fates, "duplicate_prompt", index.prompt)
        family = index.opening
        if near:
            texts = _Texts(index, files, near.threshold)
            with watch("near-duplicates", None) as steps:
                _drop_near_duplicates(fates, texts, steps)
            with watch("families", None) as steps:
                family = _families(fates, texts, steps)
        _drop_over_limits(fates, settings)
        validation = shares(family, settings.seed) < settings.validation_share
        with watch("lines", len(index)) as steps:
            _write_corpus(fates, validation, files, outputs.corpus, steps)
    _write_dropped(fates, settings, outputs.dropped)
    stats = _stats(fates, validation, [source.name for source in settings.sources])
    write_json(outputs.stats, stats)
    return stats


@dataclass
class _Fates:
    """What becomes of each record.

    Attributes:
        reason: place of the reason in `DROP_REASONS`, or `_KEPT`.
        winner: the record that won over it, or `_NOBODY`.
        detail: what the reason rests on, where there is more to say.
    """

    index: CorpusIndex
    reason: NDArray[np.int8] = field(init=False)
    winner: Numbers = field(init=False)
    detail: dict[int, str] = field(init=False)

    def __post_init__(self) -> None:
        self.reason = np.full(len(self.index), _KEPT, np.int8)
        self.winner = np.full(len(self.index), _NOBODY, np.int64)
        self.detail = {}

    def kept(self) -> Numbers:
        """Return the records that are left, the one that wins first."""
        return np.flatnonzero(self.reason == _KEPT)

    def drop(self, records: Numbers | list[int], reason: str, winners: Any = _NOBODY) -> None:
        """Leave records out."""
        self.reason[records] = _REASONS.index(reason)
        self.winner[records] = winners

    def final_winners(self) -> Numbers:
        """Return for each record the winner that itself lost to nobody."""
        winner = self.winner.copy()
        while True:
            over = np.where(winner == _NOBODY, _NOBODY, self.winner[winner])
            if (over == _NOBODY).all():
                return winner
            winner = np.where(over == _NOBODY, winner, over)


def _drop_contaminated(fates: _Fates) -> None:
    for record, shared in fates.index.contamination.items():
        fates.drop([record], "contaminated")
        fates.detail[record] = shared.run


def _drop_same(fates: _Fates, reason: str, identities: Hashes) -> None:
    """Of the records with the same identity keep the first."""
    kept = fates.kept()
    _, first, group = np.unique(identities[kept], return_index=True, return_inverse=True)
    winners = kept[first[group]]
    lost = winners != kept
    fates.drop(kept[lost], reason, winners[lost])


def _drop_beginnings(fates: _Fates) -> None:
    """Drop conversations that another of the same source goes on with.

    That one may itself be a duplicate of an earlier source, which then wins over both.
    """
    index = fates.index
    sound = fates.reason != _REASONS.index("contaminated")
    borders = np.searchsorted(index.source, np.arange(index.source.max(initial=-1) + 2))
    first = np.concatenate(([0], np.cumsum(index.turns - 1)))
    kept = fates.kept()
    for start, end in pairwise(borders.tolist()):
        owners = np.repeat(np.arange(start, end), index.turns[start:end] - 1)
        beginnings = index.beginnings[first[start] : first[end]][sound[owners]]
        known, longest = np.unique(beginnings, return_index=True)
        own = kept[(kept >= start) & (kept < end)]
        if not len(known) or not len(own):
            continue
        places = np.searchsorted(known, index.content[own]).clip(max=len(known) - 1)
        found = known[places] == index.content[own]
        winners = owners[sound[owners]][longest[places[found]]]
        fates.drop(own[found], "beginning", winners)


class _Texts:
    """The index's texts by their identities, and whether two of them ask nearly the same."""

    def __init__(self, index: CorpusIndex, files: RecordFiles, threshold: float):
        self._index = index
        self._files = files
        self._threshold = threshold
        self._sets = lru_cache(maxsize=20_000)(self._read_sets)

    def suspects(self, identities: Hashes) -> Suspects:
        """Return those texts that others of the same texts may be similar to."""
        return find_suspects(self._index.keys[self._places(identities)])

    def candidates(self, suspects: Suspects, identities: Hashes) -> Candidates:
        """Return what finds, among the suspects of these texts, those that may be similar."""
        places = self._places(identities[suspects.places])
        words = [word_hashes(self._files.question(place).words) for place in places]
        return Candidates(suspects, words, self._threshold)

    def similarity(self, identity: int, other: int) -> float:
        """Return the similarity of the words, or of the tools if that is smaller.

        It is 0 where it does not reach the threshold.
        """
        pairs = zip(self._sets(identity), self._sets(other), strict=True)
        degree = min(similarity(one, two) for one, two in pairs)
        return degree if degree >= self._threshold else 0.0

    def _places(self, identities: Hashes) -> list[int]:
        return list(map(int, np.searchsorted(self._index.texts, identities)))

    def _read_sets(self, identity: int) -> tuple[frozenset[str], frozenset[str]]:
        (place,) = self._places(np.array([identity], np.uint64))
        question = self._files.question(place)
        return frozenset(question.words), frozenset(question.tools)


def _drop_near_duplicates(fates: _Fates, texts: _Texts, steps: Steps) -> None:
    """Of records that ask nearly the same keep the first.

    Each different text is compared with those that stayed, in the order in which they win.
    """
    questions = fates.index.questions
    _drop_same(fates, "near_duplicate", questions)
    for record in np.flatnonzero(fates.reason == _REASONS.index("near_duplicate")).tolist():
        fates.detail[record] = _similarity_detail(1.0)
    kept = fates.kept()
    suspects = texts.suspects(questions[kept])
    candidates = texts.candidates(suspects, questions[kept])
    suspicious = kept[suspects.places].tolist()
    identities = questions[suspicious].tolist()
    for place, record in enumerate(suspicious):
        steps.advance()
        for other in candidates.of(place):
            if degree := texts.similarity(identities[place], identities[other]):
                fates.drop([record], "near_duplicate", suspicious[other])
                fates.detail[record] = _similarity_detail(degree)
                break
        else:
            candidates.enter(place)


def _similarity_detail(degree: float) -> str:
    return f"similarity {degree:.3f}"


def _families(fates: _Fates, texts: _Texts, steps: Steps) -> Hashes:
    """Return for each record an identity that all with a near-same first question share.

    A family is what chains of near-same questions connect; its identity is its smallest one.
    """
    openings = fates.index.opening
    different = np.unique(openings[fates.kept()])
    suspects = texts.suspects(different)
    candidates = texts.candidates(suspects, different)
    suspicious = different[suspects.places]
    identities = suspicious.tolist()
    parent = list(range(len(identities)))

    def head(place: int) -> int:
        while parent[place] != place:
            parent[place] = parent[parent[place]]
            place = parent[place]
        return place

    for place in range(len(identities)):
        steps.advance()
        for other in candidates.of(place):
            one, two = head(place), head(other)
            if one != two and texts.similarity(identities[place], identities[other]):
                parent[max(one, two)] = min(one, two)
        candidates.enter(place)
    heads = {identity: identities[head(place)] for place, identity in enumerate(identities)}
    result = openings.copy()
    for record in np.flatnonzero(np.isin(openings, suspicious)).tolist():
        result[record] = heads[int(openings[record])]
    return result


def _drop_over_limits(fates: _Fates, settings: MergeSettings) -> None:
    """Drop what is over a quota, then what is over the limit of all, by hash.

    The fingerprint alone would not do: a source with max_samples was chosen by it already.
    """
    index = fates.index
    rank = ranks(index.fingerprint, settings.seed)
    for number, source in enumerate(settings.sources):
        if source.quota is not None:
            _keep_smallest(fates, _of_source(fates, number), rank, source.quota, "over_quota")
    if settings.max_samples is None:
        return
    weights = [source.weight for source in settings.sources if source.weight is not None]
    if not weights:
        _keep_smallest(fates, fates.kept(), rank, settings.max_samples, "over_max_samples")
        return
    candidates = [_of_source(fates, number) for number in range(len(settings.sources))]
    allotted = allotments([len(c) for c in candidates], weights, settings.max_samples)
    for records, count in zip(candidates, allotted, strict=True):
        _keep_smallest(fates, records, rank, count, "over_max_samples")


def _of_source(fates: _Fates, number: int) -> Numbers:
    return np.flatnonzero((fates.reason == _KEPT) & (fates.index.source == number))


def _keep_smallest(fates: _Fates, records: Numbers, rank: Hashes, count: int, reason: str) -> None:
    fates.drop(records[~smallest(rank[records], count)], reason)


def _write_corpus(
    fates: _Fates, validation: Flags, files: RecordFiles, corpus: Path, steps: Steps
) -> None:
    index = fates.index
    kept = fates.kept()
    with jsonl_writer(corpus) as writer:
        for record in kept[np.lexsort((index.fingerprint[kept], index.source[kept]))].tolist():
            side = b"validation" if validation[record] else b"train"
            line = files.line(record).rstrip()
            writer.write_line(line[:-1] + b',"split":"' + side + b'"}\n')
            steps.advance()


def _write_dropped(fates: _Fates, settings: MergeSettings, dropped: Path) -> None:
    index = fates.index
    lost = np.flatnonzero(fates.reason != _KEPT)
    winners = fates.final_winners()

    def identity(record: int) -> str:
        name = settings.sources[index.source[record]].name
        return f"{name}-{int(index.fingerprint[record]):016x}"

    with jsonl_writer(dropped) as writer:
        for record in lost[np.lexsort((index.fingerprint[lost], index.source[lost]))].tolist():
            winner = int(winners[record])
            shared = index.contamination.get(record)
            writer.write(
                {
                    "id": identity(record),
                    "source": settings.sources[index.source[record]].name,
                    "reason": _REASONS[fates.reason[record]],
                    "winner": shared.prompt if shared else identity(winner) if winner >= 0 else "",
                    "detail": fates.detail.get(record, ""),
                }
            )


def _stats(fates: _Fates, validation: Flags, sources: Sequence[str]) -> dict[str, Any]:
    names = [*_REASONS, "train", "validation"]
    fate = np.where(fates.reason == _KEPT, len(_REASONS) + validation, fates.reason)
    table = {
        name: {
            names[code]: int(count)
            for code, count in zip(
                *np.unique(fate[fates.index.source == number], return_counts=True), strict=True
            )
        }
        for number, name in enumerate(sources)
    }
    total = {name: sum(counts.get(name, 0) for counts in table.values()) for name in names}
    kept = total["train"] + total["validation"]
    return {
        "records_in": len(fates.index),
        "kept": kept,
        "dropped": len(fates.index) - kept,
        "train": total["train"],
        "validation": total["validation"],
        "sources": {name: dict(sorted(counts.items())) for name, counts in table.items()},
        "lost_to": _lost_to(fates, sources),
        "overlap": _overlap(fates.index, sources),
    }


def _lost_to(fates: _Fates, sources: Sequence[str]) -> dict[str, dict[str, int]]:
    """Count for each source to which sources its dropped records lost."""
    winners = fates.final_winners()
    lost = np.flatnonzero(winners != _NOBODY)
    source = fates.index.source
    matrix = np.zeros((len(sources), len(sources)), np.int64)
    np.add.at(matrix, (source[lost], source[winners[lost]]), 1)
    return _by_name(matrix, sources)


def _overlap(index: CorpusIndex, sources: Sequence[str]) -> dict[str, dict[str, int]]:
    """Count the different first questions of each source, and those that each two share."""
    asked = [np.unique(index.opening[index.source == n]) for n in range(len(sources))]
    matrix = np.zeros((len(sources), len(sources)), np.int64)
    for one, questions in enumerate(asked):
        for two in range(one, len(sources)):
            both = len(np.intersect1d(questions, asked[two], assume_unique=one != two))
            matrix[one, two] = matrix[two, one] = both
    return _by_name(matrix, sources)


def _by_name(matrix: Numbers, sources: Sequence[str]) -> dict[str, dict[str, int]]:
    """Return the numbers above zero of a matrix of sources."""
    return {
        name: {other: count for other, count in zip(sources, row, strict=True) if count}
        for name, row in zip(sources, matrix.tolist(), strict=True)
    }
