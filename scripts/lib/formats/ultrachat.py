"""UltraChat: a whole chat a row, as messages or as texts by turns."""

from collections.abc import Mapping
from itertools import cycle
from typing import Any

from lib.cleaning import role_of, text_of
from lib.conversation import Conversation, Role, Turn, rejecting
from lib.raw_shapes import list_of

_SPEAKERS: tuple[Role, Role] = ("human", "gpt")


@rejecting
def convert(row: Mapping[str, Any]) -> Conversation:
    """Convert a row of ultrachat_200k or of the original UltraChat.

    The former has `{"prompt", "prompt_id", "messages": [{"role", "content"}]}`, where the prompt
    repeats the first message. The latter has `{"id", "data": [text, …]}`: a person and the
    assistant take turns, the person first. Either may end with a question.
    """
    if "messages" in row:
        messages = list_of(row["messages"])
        spoken = [(role_of(each["role"]), text_of(each["content"])) for each in messages]
    else:
        texts = [text_of(each) for each in list_of(row["data"])]
        spoken = list(zip(cycle(_SPEAKERS), texts, strict=False))
    return Conversation(tuple(Turn(role, text) for role, text in spoken))
