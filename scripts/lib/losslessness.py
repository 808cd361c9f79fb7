"""Whether a drafter left the answers as they were: greedy answers with and without it are equal.

Where a target hardly prefers one token to another, rounding decides, and that is another one when
a block is checked than when a token is computed. So each difference comes with how clearly the
target preferred its own token there.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

UNDECIDED = 0.5
"""Difference of log probabilities up to which rounding may decide: in bfloat16, logits between 16
and 32 are multiples of 1/8, and each of the two may be some steps off."""

Gap = Callable[[int, int, int], float | None]


@dataclass(frozen=True)
class Difference:
    """The first token at which two answers to a prompt differ.

    Attributes:
        position: counted from 0 in the answer.
        with_drafter: token id; None if the answer had ended.
        without_drafter: the same without the drafter.
        log_probability_gap: by how much the target preferred its token; None if the other one was
            not among its likeliest tokens.
    """

    id: str
    position: int
    with_drafter: int | None
    without_drafter: int | None
    log_probability_gap: float | None

    @property
    def is_undecided(self) -> bool:
        """Say whether rounding may have made the difference."""
        return self.log_probability_gap is not None and self.log_probability_gap <= UNDECIDED


@dataclass(frozen=True)
class Losslessness:
    """What came of comparing the answers to all prompts."""

    compared: int
    differences: tuple[Difference, ...]

    @property
    def unexplained_share(self) -> float:
        """Share of the answers that differ where the target was decided."""
        unexplained = sum(not difference.is_undecided for difference in self.differences)
        return unexplained / self.compared if self.compared else 0.0

    def summary(self) -> dict[str, Any]:
        """Return the part of `evaluation.json`."""
        return {
            "compared": self.compared,
            "differing": len(self.differences),
            "differing_where_decided": sum(not one.is_undecided for one in self.differences),
            "differing_where_decided_share": self.unexplained_share,
            "differences": [vars(difference) for difference in self.differences],
        }


def compare_answers(
    ids: Sequence[str],
    with_drafter: Sequence[Sequence[int]],
    without_drafter: Sequence[Sequence[int]],
    gap: Gap,
) -> Losslessness:
    """Compare the answers (token ids, their end included) to the same prompts.

    Args:
        ids: of the prompts.
        gap: gives, for the number of a prompt, a position in its answer and a token id, the
            log probability of the target's token less that of the other; None if it is unknown.
    """
    differences = []
    answers = zip(ids, with_drafter, without_drafter, strict=True)
    for number, (name, drafted, plain) in enumerate(answers):
        position = first_difference(drafted, plain)
        if position is None:
            continue
        one, other = _at(drafted, position), _at(plain, position)
        distance = None if one is None or other is None else gap(number, position, one)
        differences.append(Difference(name, position, one, other, distance))
    return Losslessness(len(ids), tuple(differences))


def first_difference(one: Sequence[int], other: Sequence[int]) -> int | None:
    """Return the first position at which two answers differ; None if they are equal."""
    for position, (a, b) in enumerate(zip(one, other, strict=False)):
        if a != b:
            return position
    return None if len(one) == len(other) else min(len(one), len(other))


def _at(answer: Sequence[int], position: int) -> int | None:
    return answer[position] if position < len(answer) else None
