"""OpenOrca: one question and one answer a row, in four text columns."""

from collections.abc import Mapping
from typing import Any

from lib.cleaning import text_of
from lib.conversation import Conversation, Turn, rejecting


@rejecting
def convert(row: Mapping[str, Any]) -> Conversation:
    """Convert `{"id", "system_prompt", "question", "response"}`."""
    return Conversation(
        (
            Turn("system", text_of(row["system_prompt"])),
            Turn("human", text_of(row["question"])),
            Turn("gpt", text_of(row["response"])),
        )
    )
