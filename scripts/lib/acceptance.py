"""How many drafted tokens a target accepted."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from lib.bootstrap import acceptance_length


@dataclass(frozen=True)
class Acceptance:
    """How many drafted tokens the target accepted over one answer.

    Attributes:
        drafts: number of blocks that were drafted and checked.
        by_position: for each position after the anchor, how many blocks were accepted that far.
    """

    drafts: int
    by_position: tuple[int, ...]

    @property
    def accepted(self) -> int:
        """Number of drafted tokens that were accepted."""
        return sum(self.by_position)


def summarize(acceptances: Iterable[Acceptance]) -> dict[str, Any]:
    """Return counts and rates over several answers.

    The acceptance length is 1 + accepted / drafts, as vLLM reports it: each step also gives the
    target's own next token.
    """
    acceptances = list(acceptances)
    drafts = sum(acceptance.drafts for acceptance in acceptances)
    columns = zip(*(acceptance.by_position for acceptance in acceptances), strict=True)
    length = acceptance_length([(one.drafts, one.accepted) for one in acceptances])
    return {
        "prompts": len(acceptances),
        "drafts": drafts,
        "accepted": sum(acceptance.accepted for acceptance in acceptances),
        "acceptance_length": length.value,
        "acceptance_length_interval": [length.low, length.high],
        "acceptance_by_position": [sum(column) / drafts if drafts else 0.0 for column in columns],
    }
