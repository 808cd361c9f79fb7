"""Evol-CodeAlpaca: an instruction and an output a row."""

from collections.abc import Mapping
from typing import Any

from lib.conversation import Conversation, rejecting
from lib.raw_shapes import instruction_turns


@rejecting
def convert(row: Mapping[str, Any]) -> Conversation:
    """Convert `{"instruction", "output"}`.

    Copies that kept the `input` column of their ancestor are read as well; what it holds is part
    of the question.
    """
    return Conversation(instruction_turns(row["instruction"], row.get("input"), row["output"]))
