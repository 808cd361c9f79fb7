"""Glaive Function Calling v2: a system text with the tools, and a whole chat in one text.

The chat is a run of turns headed `USER:`, `ASSISTANT:` and `FUNCTION RESPONSE:`; an answer ends
with `<|endoftext|>`, and a call is `<functioncall> {"name": ..., "arguments": '<JSON>'}`, whose
single quotes are the format's own.
"""

import json
import re
from collections.abc import Mapping
from typing import Any

from lib.cleaning import text_of
from lib.conversation import Conversation, Rejected, ToolCall, Turn, rejecting
from lib.tools import tool_list
from lib.transcript import tool_call

_HEAD = re.compile(r"^[ \t]*(USER|ASSISTANT|FUNCTION RESPONSE): ?", re.MULTILINE)
_END_MARK = "<|endoftext|>"
_CALL = re.compile(
    r"""\{\s*"name":\s*"(?P<name>[^"]*)"\s*,\s*"arguments":\s*(?P<arguments>\S.*)\}""", re.DOTALL
)
_FOREIGN_CALL = re.compile(r"^AI to=", re.MULTILINE)


@rejecting
def convert(row: Mapping[str, Any]) -> Conversation:
    """Convert `{"system", "chat"}`."""
    repairs = ["boilerplate_system_removed"]
    tools = tool_list(_functions(text_of(row["system"])), repairs)
    turns: list[Turn] = []
    calls = 0
    for head, body in _split(text_of(row["chat"])):
        if head == "USER":
            turns.append(Turn("human", body))
        elif head == "FUNCTION RESPONSE":
            if not turns or not turns[-1].tool_calls:
                raise Rejected("unmatched_result", "a function response without a call")
            turns.append(Turn("tool", body, tool_call_id=turns[-1].tool_calls[-1].id))
        else:
            marked = body.rstrip()
            if marked.endswith(_END_MARK):
                body = marked.removesuffix(_END_MARK).removesuffix(" ")
                repairs.append("end_mark_removed")
            turn = _answer(body, calls)
            calls += len(turn.tool_calls)
            turns.append(turn)
    return Conversation(tuple(turns), tools=tools, repairs=tuple(repairs))


def _functions(system: str) -> list[Any]:
    """Read the pretty-printed function objects that stand one after another in the text."""
    decoder = json.JSONDecoder()
    functions: list[Any] = []
    start = system.find("{")
    while start >= 0:
        try:
            function, end = decoder.raw_decode(system, start)
        except ValueError as error:
            raise Rejected("invalid_tools", str(error)) from error
        functions.append(function)
        start = system.find("{", end)
    return functions


def _split(chat: str) -> list[tuple[str, str]]:
    """Return the head and the text of each turn."""
    heads = [head for head in _HEAD.finditer(chat) if _follows_blank_line(chat, head.start())]
    if not heads or chat[: heads[0].start()].strip():
        raise Rejected("malformed_row", "the chat does not begin with a turn")
    ends = [head.start() for head in heads[1:]] + [len(chat)]
    return [
        (head.group(1), chat[head.end() : end].rstrip("\r\n"))
        for head, end in zip(heads, ends, strict=True)
    ]


def _follows_blank_line(chat: str, start: int) -> bool:
    line = chat[chat.rfind("\n", 0, max(0, start - 1)) + 1 : start]
    return not line.strip()


def _answer(body: str, calls: int) -> Turn:
    if _FOREIGN_CALL.search(body):
        raise Rejected("invalid_call", "a call in another syntax")
    text, mark, call = body.partition("<functioncall>")
    if not mark:
        return Turn("gpt", body)
    return Turn("gpt", text.strip(), tool_calls=(_parse_call(call.strip(), calls),))


def _parse_call(text: str, index: int) -> ToolCall:
    match = _CALL.fullmatch(text)
    if not match:
        raise Rejected("invalid_call", text[:120])
    arguments = match["arguments"].strip()
    if len(arguments) > 1 and arguments[0] == arguments[-1] == "'":
        arguments = arguments[1:-1].replace("\\'", "'")
    return tool_call(match["name"], arguments, index)
