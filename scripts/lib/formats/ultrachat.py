"""UltraChat: a list of messages a row."""

from collections.abc import Mapping
from typing import Any

from lib.cleaning import role_of, text_of
from lib.conversation import Conversation, Turn, rejecting


@rejecting
def convert(row: Mapping[str, Any]) -> Conversation:
    """Convert `{"prompt", "prompt_id", "messages": [{"role", "content"}]}`."""
    return Conversation(
        tuple(
            Turn(role_of(message["role"]), text_of(message["content"]))
            for message in row["messages"]
        )
    )
