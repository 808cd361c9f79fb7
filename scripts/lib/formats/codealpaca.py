"""Code-Alpaca: an instruction, an optional input and an output a row."""

from collections.abc import Mapping
from typing import Any

from lib.conversation import Conversation, rejecting
from lib.raw_shapes import instruction_turns


@rejecting
def convert(row: Mapping[str, Any]) -> Conversation:
    """Convert `{"instruction", "input", "output"}`; the input is part of the question."""
    return Conversation(instruction_turns(row["instruction"], row.get("input"), row["output"]))
