"""The kinds of drafter that can be trained, and what each takes where nothing else is said.

The values are those of speculators 0.9.0 for the algorithm, whose maintainers measured them for
DFlash (docs/training.md names the sources).
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Algorithm:
    """What an algorithm takes where the configuration says nothing.

    Attributes:
        block_size: None if it does not draft in blocks.
        position_weights: how the positions of a block weigh in the loss; None without blocks.
    """

    layers: int
    block_size: int | None
    loss: str
    position_weights: str | None

    @property
    def has_mask_token(self) -> bool:
        """Whether a token stands for each position to be drafted."""
        return self.block_size is not None


ALGORITHMS = {
    "dflash": Algorithm(5, 16, "ce", "dpace"),
    "dflash2": Algorithm(5, 8, "kl_div", "fixed-exp-decay"),
    "dspark": Algorithm(5, 8, "kl_div", "fixed-exp-decay"),
    "eagle3": Algorithm(1, None, "kl_div", None),
}
