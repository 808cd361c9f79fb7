"""How vLLM is told to draft, and what its log says that it does."""

import ast
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lib.drafter_config import drafted_tokens

MTP = "mtp"
"""Method of a target that drafts by itself."""

_METHODS = {"dflash2": "dflash"}
"""How vLLM calls an algorithm, where it has another name for it."""

_LOGGED = re.compile(
    r"\bspeculative_config=(?:None|SpeculativeConfig\("
    r"method=(?P<method>.+?), model=(?P<model>.+?), num_spec_tokens=(?P<tokens>\d+)\))"
)
"""What vLLM 0.32 prints of its configuration when an engine starts."""


@dataclass(frozen=True)
class Speculation:
    """What vLLM drafts with.

    Attributes:
        method: kind of drafter, as vLLM calls it.
        model: folder of the drafter, or of the target that drafts by itself.
        tokens: how many it proposes at a time.
    """

    method: str
    model: str
    tokens: int

    @classmethod
    def of_drafter(cls, config: Mapping[str, Any], model: str) -> "Speculation":
        """Return how a drafter is served.

        Args:
            config: `config.json` of the drafter.
            model: where its folder lies.
        """
        algorithm = config["speculators_config"]["algorithm"]
        return cls(_METHODS.get(algorithm, algorithm), model, drafted_tokens(config))

    @classmethod
    def of_head(cls, target: str, tokens: int) -> "Speculation":
        """Return how a target drafts with its own MTP head.

        Args:
            target: where its folder lies, as the server is told.
        """
        return cls(MTP, target, tokens)

    def option(self) -> str:
        """Return the value of `--speculative-config`."""
        value: dict[str, Any] = {
            "method": self.method,
            "num_speculative_tokens": self.tokens,
        }
        if self.method != MTP:  # a head is loaded as its target is
            value["model"] = self.model
        return json.dumps(value)

    def __str__(self) -> str:
        return f"{self.method} with {self.model}, {self.tokens} tokens at a time"


def check_log(log: Path, wanted: Speculation | None) -> None:
    """Check in the log of a started server that it drafts as it should, or not at all.

    Raises:
        ValueError: it drafts otherwise, or the log does not say how.
    """
    match = _LOGGED.search(log.read_text(encoding="utf-8", errors="replace"))
    if match is None:
        raise ValueError(
            f"{log} does not say what vLLM drafts with, so nothing proves what would be measured; "
            "unset VLLM_LOGGING_LEVEL if it is set"
        )
    found = None
    if match["method"] is not None:
        method, model = ast.literal_eval(match["method"]), ast.literal_eval(match["model"])
        found = Speculation(method, model, int(match["tokens"]))
    if found != wanted:
        raise ValueError(
            f"vLLM was to draft with {wanted or 'nothing'}, but {log} says: {found or 'nothing'}; "
            "serving.options must not say how to draft"
        )
