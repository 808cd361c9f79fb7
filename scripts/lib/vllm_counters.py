"""What a vLLM server counts: tokens of answers, drafts, and what of them was accepted."""

import re
from dataclasses import dataclass

from lib.acceptance import Acceptance

_PREFIX = "vllm:spec_decode_num"
_SAMPLE = re.compile(r"^(vllm:\w+)\{(.*)\} (\S+)$", re.MULTILINE)
_POSITION = re.compile(r'\bposition="(\d+)"')


@dataclass(frozen=True)
class Counters:
    """What a server has counted since it was started, all engines together.

    Attributes:
        generated: tokens of answers.
        drafted: what it drafted and accepted; no positions if it does not draft.
    """

    generated: int
    drafted: Acceptance

    @classmethod
    def read(cls, metrics: str) -> "Counters":
        """Return the counters in the text at `/metrics`."""
        totals: dict[str, int] = {}
        by_position: dict[int, int] = {}
        for name, labels, value in _SAMPLE.findall(metrics):
            if name == f"{_PREFIX}_accepted_tokens_per_pos_total":
                match = _POSITION.search(labels)
                position = int(match[1]) if match else 0
                by_position[position] = by_position.get(position, 0) + int(float(value))
            elif name in (f"{_PREFIX}_drafts_total", "vllm:generation_tokens_total"):
                totals[name] = totals.get(name, 0) + int(float(value))
        counts = tuple(by_position[position] for position in sorted(by_position))
        return cls(
            totals.get("vllm:generation_tokens_total", 0),
            Acceptance(totals.get(f"{_PREFIX}_drafts_total", 0), counts),
        )

    def since(self, before: "Counters") -> "Counters":
        """Return what was counted after `before`."""
        now, then = self.drafted, before.drafted
        pairs = zip(now.by_position, then.by_position, strict=True)
        by_position = tuple(one - other for one, other in pairs)
        return Counters(
            self.generated - before.generated, Acceptance(now.drafts - then.drafts, by_position)
        )
