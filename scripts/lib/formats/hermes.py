"""Hermes Function Calling: chats with tools, calls and results in the text of turns.

https://huggingface.co/datasets/NousResearch/hermes-function-calling-v1; the configurations for
JSON answers are plain chats.
"""

from collections.abc import Mapping
from typing import Any

from lib.conversation import Conversation, rejecting
from lib.messages import read_message
from lib.raw_shapes import list_of
from lib.tool_messages import tool_conversation


@rejecting
def convert(row: Mapping[str, Any]) -> Conversation:
    """Convert `{"id", "conversations": [{"from", "value"}], "tools"}`; `tools` may be missing."""
    repairs: list[str] = []
    messages = [read_message(turn, repairs) for turn in list_of(row["conversations"])]
    return tool_conversation(messages, row.get("tools"), repairs)
