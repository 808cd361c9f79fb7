"""What the merge remembers of each record: identities, places and similarities, not texts.

Records are read in pieces by several processes; what comes back is arrays of numbers, about 100
bytes a record and four a band. The same records give the same index with any number of processes.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import accumulate, chain
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray
from xxhash import xxh3_64, xxh3_64_intdigest

from lib.contamination import Contamination, EvaluationPrompt, SharedRun
from lib.conversation import Conversation, from_line
from lib.near_duplicates import BandKeys, Bands
from lib.pieces import Piece, pieces, read_piece
from lib.processes import in_workers
from lib.words import question_words, with_single_spaces

Numbers = NDArray[np.int64]
Hashes = NDArray[np.uint64]

_ENCODE = msgspec.json.Encoder().encode


@dataclass(frozen=True)
class IndexSettings:
    """What is looked for in each record.

    Attributes:
        prompts: what must not be in a record.
        shared_words: length of a run of words that counts as contamination.
        shared_code_tokens: the same for code tokens and prompts of code.
        threshold: similarity of near-duplicates, None where they are not looked for.
    """

    prompts: tuple[EvaluationPrompt, ...]
    shared_words: int
    shared_code_tokens: int
    threshold: float | None


@dataclass(frozen=True)
class Question:
    """What a person asks: the words and the names of the tools on offer."""

    words: tuple[str, ...]
    tools: tuple[str, ...] = ()

    def identity(self) -> int:
        """Return 64 bits that depend on the words in their order and the tools."""
        return xxh3_64_intdigest("\n".join((" ".join(self.words), *self.tools)).encode())


@dataclass(frozen=True)
class CorpusIndex:
    """Records in the order in which they win over one another, as arrays.

    The order is: source, most turns, longest line, hash. Record `n` is at place `n` of each array.

    Attributes:
        source: number of the source.
        offset: where the line starts in the file of the source.
        length: bytes of the line.
        turns: number of turns.
        fingerprint: the 16 hexadecimal digits of the record's id.
        content: identity of turns and tools.
        beginnings: identities of the conversation when it ends after fewer turns, all records
            one after the other, `turns - 1` each.
        prompt: identity of the first question with its tools, to the letter.
        opening: identity of the words of the first question.
        questions: identity of the words of all questions, with the tools.
        contamination: what a record shares with an evaluation prompt.
        texts: identities of the different openings and questions, sorted; empty where
            near-duplicates are not looked for, as the following.
        text_record: a record that holds the text.
        text_is_opening: whether the text is that record's opening, or else its questions.
        text_words: number of different words of the text.
        keys: band keys of the text.
    """

    source: Numbers
    offset: Numbers
    length: Numbers
    turns: Numbers
    fingerprint: Hashes
    content: Hashes
    beginnings: Hashes
    prompt: Hashes
    opening: Hashes
    questions: Hashes
    contamination: dict[int, SharedRun]
    texts: Hashes
    text_record: Numbers
    text_is_opening: NDArray[np.bool_]
    text_words: Numbers
    keys: BandKeys

    def __len__(self) -> int:
        return len(self.source)


def build_index(
    paths: Sequence[Path],
    settings: IndexSettings,
    workers: int,
    advance: Callable[[int], None],
) -> CorpusIndex:
    """Read the records of all sources.

    Args:
        paths: files of records, in the order of the sources.
        advance: called with the number of records read since the last call.

    Raises:
        ValueError: a line is no record; names the file and the byte where it starts.
    """
    todo = [(source, piece) for source, path in enumerate(paths) for piece in pieces(path)]
    parts = []
    for part in in_workers(partial(_index, settings), todo, workers):
        advance(len(part))
        parts.append(part)
    return _in_order(_joined([_index_of([], 0, settings), *parts]))


@dataclass(frozen=True)
class Asked:
    """What a person asks in a conversation.

    Attributes:
        opening: the first question, without tools.
        questions: all questions, with the names of the tools.
    """

    opening: Question
    questions: Question


def asked(conversation: Conversation) -> Asked:
    """Return what a person asks in a conversation."""
    words = [question_words(turn.text) for turn in conversation.turns if turn.role == "human"]
    questions = Question(tuple(chain.from_iterable(words)), _tool_names(conversation))
    return Asked(Question(tuple(words[0])), questions)


class RecordFiles:
    """Lines of records, read again from open files."""

    def __init__(self, files: Sequence[int], index: CorpusIndex):
        self._files = files
        self._index = index

    def line(self, record: int) -> bytes:
        """Return the line of a record."""
        index = self._index
        file = self._files[index.source[record]]
        return os.pread(file, int(index.length[record]), int(index.offset[record]))

    def question(self, text: int) -> Question:
        """Return one of the index's texts."""
        found = asked(from_line(self.line(int(self._index.text_record[text]))))
        return found.opening if self._index.text_is_opening[text] else found.questions


@contextmanager
def record_files(paths: Sequence[Path], index: CorpusIndex) -> Iterator[RecordFiles]:
    """Open the files that an index was built from."""
    with ExitStack() as stack:
        files = [stack.enter_context(path.open("rb")) for path in paths]
        yield RecordFiles([file.fileno() for file in files], index)


@lru_cache(maxsize=1)
def _contamination(settings: IndexSettings) -> Contamination:
    """Prepared once a process, not once a piece."""
    return Contamination(settings.prompts, settings.shared_words, settings.shared_code_tokens)


def _index(settings: IndexSettings, todo: tuple[int, Piece]) -> CorpusIndex:
    """Return the index of a piece of a source, in the order of its lines."""
    source, piece = todo
    return _index_of(list(read_piece(piece)), source, settings)


def _index_of(
    records: Sequence[tuple[Conversation, int, int]], source: int, settings: IndexSettings
) -> CorpusIndex:
    conversations = [conversation for conversation, _, _ in records]
    chains = [_chain(conversation) for conversation in conversations]
    heard = [asked(conversation) for conversation in conversations]
    openings = [one.opening.identity() for one in heard]
    questions = [one.questions.identity() for one in heard]
    texts: dict[int, tuple[int, bool, frozenset[str]]] = {}
    if settings.threshold is not None:
        for record, one in enumerate(heard):
            if openings[record] not in texts:
                texts[openings[record]] = (record, True, frozenset(one.opening.words))
            if questions[record] not in texts:
                texts[questions[record]] = (record, False, frozenset(one.questions.words))
    return CorpusIndex(
        source=np.full(len(records), source, np.int64),
        offset=_numbers(offset for _, offset, _ in records),
        length=_numbers(length for _, _, length in records),
        turns=_numbers(len(conversation.turns) for conversation in conversations),
        fingerprint=_hashes(int(c.id[-16:], 16) for c in conversations),
        content=_hashes(chain[-1] for chain in chains),
        beginnings=_hashes(identity for chain in chains for identity in chain[:-1]),
        prompt=_hashes(
            Question((with_single_spaces(c.prompt()),), one.questions.tools).identity()
            for c, one in zip(conversations, heard, strict=True)
        ),
        opening=_hashes(openings),
        questions=_hashes(questions),
        contamination=_contaminated(conversations, _contamination(settings)),
        texts=_hashes(texts),
        text_record=_numbers(record for record, _, _ in texts.values()),
        text_is_opening=np.array([is_opening for _, is_opening, _ in texts.values()], np.bool_),
        text_words=_numbers(len(words) for _, _, words in texts.values()),
        keys=Bands(settings.threshold or 1.0).keys([words for _, _, words in texts.values()]),
    )


def _chain(conversation: Conversation) -> list[int]:
    """Return the identity of the conversation when it ends after each of its turns."""
    state = xxh3_64(conversation.tools.encode())
    identities = []
    for turn in conversation.turns:
        state.update(_ENCODE(turn))
        identities.append(state.intdigest())
    return identities


def _tool_names(conversation: Conversation) -> tuple[str, ...]:
    if not conversation.tools:
        return ()
    tools: list[dict[str, Any]] = msgspec.json.decode(conversation.tools)
    return tuple(sorted(tool["function"]["name"] for tool in tools))


def _contaminated(
    conversations: Sequence[Conversation], contamination: Contamination
) -> dict[int, SharedRun]:
    texts = []
    owners = []
    for number, conversation in enumerate(conversations):
        for turn in conversation.turns:
            said = (turn.text, turn.reasoning, *(call.arguments for call in turn.tool_calls))
            texts += [text for text in said if text]
            owners += [number for text in said if text]
    found: dict[int, SharedRun] = {}
    for shared in contamination.find(texts):
        found.setdefault(owners[shared.text], shared)
    return found


def _numbers(values: Iterator[int]) -> Numbers:
    return np.fromiter(values, np.int64)


def _hashes(values: Any) -> Hashes:
    return np.fromiter(values, np.uint64)


def _joined(parts: Sequence[CorpusIndex]) -> CorpusIndex:
    """Return the index of all records; of each text only the first is kept."""
    firsts = [0, *accumulate(len(part) for part in parts)]
    texts, kept = np.unique(_together(parts, "texts"), return_index=True)
    owners = np.concatenate(
        [part.text_record + first for part, first in zip(parts, firsts, strict=False)]
    )
    return CorpusIndex(
        **{name: _together(parts, name) for name in (*_OF_RECORDS, "beginnings")},
        contamination={
            record + first: shared
            for part, first in zip(parts, firsts, strict=False)
            for record, shared in part.contamination.items()
        },
        texts=texts,
        text_record=owners[kept],
        **{name: _together(parts, name)[kept] for name in _OF_TEXTS},
    )


_OF_RECORDS = (
    *("source", "offset", "length", "turns", "fingerprint"),
    *("content", "prompt", "opening", "questions"),
)
_OF_TEXTS = ("text_is_opening", "text_words", "keys")


def _together(parts: Sequence[CorpusIndex], name: str) -> Any:
    return np.concatenate([getattr(part, name) for part in parts])


def _in_order(index: CorpusIndex) -> CorpusIndex:
    """Return the index with the record first that wins over the others."""
    order = np.lexsort((index.offset, index.fingerprint, -index.length, -index.turns, index.source))
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    counts = index.turns - 1
    firsts = np.concatenate(([0], np.cumsum(counts)))[:-1]
    ordered = counts[order]
    shifts = firsts[order] - np.concatenate(([0], np.cumsum(ordered)))[:-1]
    beginnings = np.repeat(shifts, ordered) + np.arange(len(index.beginnings))
    return CorpusIndex(
        **{name: getattr(index, name)[order] for name in _OF_RECORDS},
        beginnings=index.beginnings[beginnings],
        contamination={int(place[n]): shared for n, shared in index.contamination.items()},
        texts=index.texts,
        text_record=place[index.text_record],
        **{name: getattr(index, name) for name in _OF_TEXTS},
    )
