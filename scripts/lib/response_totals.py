"""What the target's answers come to: files and counts, of a shard or of all."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

FAILURES = {
    "unrenderable": "the chat template refuses the conversation",
    "prompt_too_long": "the prompt leaves no room for an answer",
    "cut_by_length": "the answer was cut by max_tokens",
    "unreadable_answer": "the answer is no turn that could be rendered again",
    "empty_answer": "the answer is empty",
}
"""Every reason why a turn, or a whole conversation, has no answer."""


@dataclass(frozen=True)
class Outputs:
    """The files of the stage."""

    responses: Path
    failures: Path
    stats: Path


class SourceResponses(msgspec.Struct):
    """What became of the conversations of one source."""

    conversations_in: int = 0
    answered: int = 0
    failed: int = 0
    records: int = 0


class ResponseTotals(msgspec.Struct):
    """What is counted over all conversations, or over those of a shard.

    Attributes:
        answered: conversations with at least one answer of the target.
        records: conversations written, branches included.
        branches: of these, conversations that end with calls that were not recorded.
        rewritten: answers that the template does not write as the target did, such as calls with
            other spaces in their arguments.
        answers: what became of the answers, and of the turns that have none.
        finish_reasons: why the target stopped.
        failed_by_reason: why conversations have no answer at all.
    """

    conversations_in: int = 0
    answered: int = 0
    failed: int = 0
    records: int = 0
    branches: int = 0
    rewritten: int = 0
    answers: dict[str, int] = msgspec.field(default_factory=dict)
    finish_reasons: dict[str, int] = msgspec.field(default_factory=dict)
    failed_by_reason: dict[str, int] = msgspec.field(default_factory=dict)
    sources: dict[str, SourceResponses] = msgspec.field(default_factory=dict)

    def add(self, other: "ResponseTotals") -> None:
        """Add the numbers of other conversations."""
        _add(self, other)

    def stats(self) -> dict[str, Any]:
        """Return the counts as they stand in `stats.json`, reasons in the order of their names."""
        stats: dict[str, Any] = msgspec.to_builtins(self)
        for key in ("answers", "finish_reasons", "failed_by_reason"):
            stats[key] = dict(sorted(stats[key].items()))
        return stats


def _add(own: Any, other: Any) -> None:
    """Add numbers to numbers, at every depth."""
    for name in other.__struct_fields__:
        mine, theirs = getattr(own, name), getattr(other, name)
        if isinstance(theirs, int):
            setattr(own, name, mine + theirs)
            continue
        for key, value in theirs.items():
            if isinstance(value, int):
                mine[key] = mine.get(key, 0) + value
            else:
                _add(mine.setdefault(key, type(value)()), value)
