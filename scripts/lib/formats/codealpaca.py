"""Code-Alpaca: an instruction, an optional input and an output a row."""

from collections.abc import Mapping
from typing import Any

from lib.cleaning import text_of
from lib.conversation import Conversation, Turn, rejecting


@rejecting
def convert(row: Mapping[str, Any]) -> Conversation:
    """Convert `{"instruction", "input", "output"}`; the input is part of the question."""
    instruction = text_of(row["instruction"])
    given = text_of(row.get("input", ""))
    question = f"{instruction}\n\n{given}" if given.strip() else instruction
    return Conversation((Turn("human", question), Turn("gpt", text_of(row["output"]))))
