"""Magicoder: a programming task and its solution a row, in two variants."""

from collections.abc import Mapping
from typing import Any

from lib.conversation import Conversation, rejecting
from lib.raw_shapes import instruction_turns


@rejecting
def convert(row: Mapping[str, Any]) -> Conversation:
    """Convert a row of OSS-Instruct or of Evol-Instruct.

    OSS-Instruct has `{"lang", "raw_index", "index", "seed", "openai_fingerprint", "problem",
    "solution"}`; the seed is a cut piece of code that the problem was made from, no part of the
    question. Evol-Instruct has `{"instruction", "response"}`.
    """
    if "problem" in row:
        return Conversation(instruction_turns(row["problem"], None, row["solution"]))
    return Conversation(instruction_turns(row["instruction"], None, row["response"]))
