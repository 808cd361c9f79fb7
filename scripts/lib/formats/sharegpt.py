"""ShareGPT: scraped chats whose answers are the HTML of a web page."""

import re
from collections.abc import Mapping
from typing import Any

from lib.cleaning import role_of, text_of
from lib.conversation import Conversation, Turn, rejecting
from lib.html_markdown import html_to_markdown

_HTML = re.compile(r"<(?:div|p|pre|ul|ol|table|h[1-6])\b[^>]*>", re.IGNORECASE)
_REGENERATE_COUNTER = re.compile(r"\A\s*\d+ / \d+\s*(?=<)")


@rejecting
def convert(row: Mapping[str, Any]) -> Conversation:
    """Convert `{"id", "conversations": [{"from", "value"}]}`.

    Only answers are read as HTML: a person may well ask about a `<div>`.
    """
    repairs: list[str] = []
    turns = [
        _turn(role_of(turn["from"]), text_of(turn["value"]), repairs)
        for turn in row["conversations"]
    ]
    if turns and not turns[-1].text.strip():
        turns.pop()
        repairs.append("empty_turn_dropped")
    return Conversation(tuple(turns), repairs=tuple(repairs))


def _turn(role: Any, text: str, repairs: list[str]) -> Turn:
    if role != "gpt":
        return Turn(role, text)
    stripped = _REGENERATE_COUNTER.sub("", text)
    if stripped != text:
        repairs.append("page_noise_removed")
    if _HTML.search(stripped):
        stripped = html_to_markdown(stripped)
        repairs.append("html_to_markdown")
    return Turn(role, stripped)
