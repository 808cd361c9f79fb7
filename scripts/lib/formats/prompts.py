"""Prompts: questions alone, every answer to which is for the target to write."""

from collections.abc import Mapping
from typing import Any

from lib.cleaning import role_of, text_of
from lib.conversation import Conversation, Rejected, Turn, rejecting
from lib.raw_shapes import list_of


@rejecting
def convert(row: Mapping[str, Any]) -> Conversation:
    """Convert `{"prompt"}` or `{"messages": [{"role", "content"}]}` of the system and a person.

    Neighbouring messages of a person become one question, as in every format. A row that holds
    an answer is rejected: left in, it would be no prompt, and what follows it is no question
    without it. Rows with both columns filled are rejected too, for they do not say which is meant.
    """
    prompt, messages = row.get("prompt"), row.get("messages")
    if messages is None:
        return Conversation((Turn("human", text_of(prompt)),))
    if prompt is not None:
        raise Rejected("malformed_row", "both a prompt and messages")
    return Conversation(tuple(_turn(message) for message in list_of(messages)))


def _turn(message: Mapping[str, Any]) -> Turn:
    role = role_of(message["role"])
    if role not in ("system", "human"):
        raise Rejected("malformed_row", f"a {message['role']} turn, which is no part of a prompt")
    return Turn(role, text_of(message["content"]))
