"""Qwen3.5 Tool Calling: messages with reasoning and calls in the text of answers.

https://huggingface.co/datasets/Mustafaege/qwen3.5-toolcalling-v2; tools stand in the system prompt,
results in messages of their own or between tags in those of the user. Rows may also have a column
of tools and calls beside the text, as OpenAI writes them.
"""

from collections.abc import Mapping
from typing import Any

from lib.conversation import Conversation, rejecting
from lib.messages import read_message
from lib.raw_shapes import list_of
from lib.tool_messages import tool_conversation


@rejecting
def convert(row: Mapping[str, Any]) -> Conversation:
    """Convert `{"messages": [{"role", "content"}]}`, also with `tools` and `tool_calls`."""
    repairs: list[str] = []
    messages = [read_message(message, repairs) for message in list_of(row["messages"])]
    return tool_conversation(messages, row.get("tools"), repairs)
