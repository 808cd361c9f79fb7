"""ShareGPT: chats as a list of turns, scraped from pages or written down by anybody.

https://huggingface.co/datasets/RyokoAI/ShareGPT52K holds answers as HTML; LLaMA-Factory
(https://github.com/hiyouga/LLaMA-Factory/tree/main/data) adds columns for the system prompt and the
tools, and turns for calls and their results; https://huggingface.co/datasets/lmsys/lmsys-chat-1m
writes `conversation`; Draftmill's own records are such rows, too.
"""

from collections.abc import Mapping
from typing import Any

from lib.chat_page import answer_of_page
from lib.conversation import Conversation, rejecting
from lib.messages import conversation_of, one_of, read_message
from lib.raw_shapes import list_of
from lib.tool_messages import Message


@rejecting
def convert(row: Mapping[str, Any]) -> Conversation:
    """Convert `{"conversations": [{"from", "value"}]}`, also with `system` and `tools`.

    Turns may have the keys and the roles of OpenAI's messages; a turn of the role `function_call`
    holds the JSON text of calls. Only answers are read as HTML: a person may well ask about a
    `<div>`.
    """
    repairs: list[str] = []
    turns = list_of(one_of(row, "conversations", "conversation"))
    messages = [_without_page(read_message(turn, repairs), repairs) for turn in turns]
    while messages and _says_nothing(messages[-1]):
        messages.pop()
        repairs.append("empty_turn_dropped")
    return conversation_of(row, messages, repairs)


def _without_page(message: Message, repairs: list[str]) -> Message:
    if message.role != "gpt":
        return message
    return message._replace(text=answer_of_page(message.text, repairs))


def _says_nothing(message: Message) -> bool:
    is_result = message.role == "tool"
    return not (is_result or message.text.strip() or message.reasoning or message.calls)
