"""OpenAI's messages: the form of chat requests and of fine-tuning files.

https://platform.openai.com/docs/api-reference/chat/create
"""

from collections.abc import Mapping
from typing import Any

from lib.conversation import Conversation, rejecting
from lib.messages import conversation_of, read_message
from lib.raw_shapes import list_of


@rejecting
def convert(row: Mapping[str, Any]) -> Conversation:
    """Convert `{"messages": [{"role", "content"}]}`, also with `tools` or `functions`."""
    repairs: list[str] = []
    messages = [read_message(message, repairs) for message in list_of(row["messages"])]
    return conversation_of(row, messages, repairs)
