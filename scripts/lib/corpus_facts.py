"""What the records of a corpus say about their split and about evaluation prompts."""

from collections.abc import Iterable, Set
from dataclasses import dataclass, field
from functools import lru_cache, partial
from pathlib import Path

from xxhash import xxh3_64_intdigest

from lib.contamination import Contamination, read_prompts
from lib.conversation import Conversation
from lib.pieces import Piece, pieces, read_piece
from lib.processes import in_workers
from lib.words import question_words


@dataclass(frozen=True)
class EvaluationRuns:
    """How evaluation prompts are looked for.

    Attributes:
        files: files of evaluation prompts.
        words, code_tokens: lengths of the runs that no record may share with a prompt.
    """

    files: tuple[Path, ...]
    words: int
    code_tokens: int


@dataclass
class CorpusFacts:
    """What the records say.

    Attributes:
        sides: the split of each conversation by its id.
        twice: conversations or questions that are on both sides.
        contaminated: conversations that share a run with an evaluation prompt.
        sampled: the conversations that were asked for, by their ids.
    """

    sides: dict[str, str] = field(default_factory=dict)
    twice: list[str] = field(default_factory=list)
    contaminated: list[str] = field(default_factory=list)
    sampled: dict[str, Conversation] = field(default_factory=dict)


@dataclass(frozen=True)
class _PieceFacts:
    """The same of a piece: `(id, split, hash of the question)` of each record in order."""

    records: list[tuple[str, str, int]]
    contaminated: list[str]
    sampled: dict[str, Conversation]


def read_corpus(
    corpus: Path, evaluation: EvaluationRuns, wanted: Set[str], workers: int
) -> CorpusFacts:
    """Read all records, by several processes.

    Args:
        wanted: ids of conversations to return.
    """
    facts = CorpusFacts()
    questions: dict[int, str] = {}
    work = partial(_read_piece, evaluation, frozenset(wanted))
    for part in in_workers(work, pieces(corpus), workers):
        for name, split, question in part.records:
            known = facts.sides.setdefault(name, split)
            family = questions.setdefault(question, split)
            if known != split or family != split:
                facts.twice.append(f"{name} or its question is on both sides")
        facts.contaminated += part.contaminated
        facts.sampled.update(part.sampled)
    return facts


@lru_cache(maxsize=1)
def _contamination(evaluation: EvaluationRuns) -> Contamination:
    prompts = read_prompts(evaluation.files)
    return Contamination(prompts, evaluation.words, evaluation.code_tokens)


def _read_piece(evaluation: EvaluationRuns, wanted: Set[str], piece: Piece) -> _PieceFacts:
    conversations = [conversation for conversation, _, _ in read_piece(piece)]
    asked = [
        (conversation.id, turn.text)
        for conversation in conversations
        for turn in conversation.turns
        if turn.role == "human"
    ]
    found = _contamination(evaluation).find([text for _, text in asked])
    return _PieceFacts(
        [(one.id, str(one.split), _hash(question_words(one.prompt()))) for one in conversations],
        [
            f"{asked[shared.text][0]} shares {shared.run!r} with evaluation prompt {shared.prompt}"
            for shared in found
        ],
        {one.id: one for one in conversations if one.id in wanted},
    )


def _hash(words: Iterable[str]) -> int:
    return xxh3_64_intdigest(" ".join(words).encode())
