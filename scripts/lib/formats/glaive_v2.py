"""Glaive Function Calling v2: a system text with the tools, and a whole chat in one text.

https://huggingface.co/datasets/glaiveai/glaive-function-calling-v2; the chat is a run of turns
headed `USER:`, `ASSISTANT:` and `FUNCTION RESPONSE:`. An answer ends with `<|endoftext|>`, and a
call is `<functioncall> {"name": ..., "arguments": '<JSON>'}`, whose single quotes are the format's
own.
"""

import json
import re
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from lib.cleaning import text_of
from lib.conversation import Conversation, Rejected, rejecting
from lib.tool_text import text_without
from lib.tools import tool_list
from lib.transcript import RawCall, Transcript

_SYSTEM_HEAD = "SYSTEM: "
_FUNCTIONS_FOLLOW = (
    "You are a helpful assistant with access to the following functions. Use them if required -"
)
_NO_FUNCTIONS = "You are a helpful assistant, with no access to external functions."
_BEFORE_FUNCTION = re.compile(r"\s*(?=\{)")
_LINE_WITH_BRACE = re.compile(r"^[ \t]*\{", re.MULTILINE)

_HEAD = re.compile(r"(?:\A\s*|\n[ \t\r]*\n[ \t]*)(USER|ASSISTANT|FUNCTION RESPONSE): ?")
_ALTERNATING = {"USER": "malformed_row", "ASSISTANT": "neighbouring_answers"}
_END_MARK = "<|endoftext|>"
_CALL = re.compile(
    r"""\{\s*"name":\s*"(?P<name>[^"]*)"\s*,\s*"arguments":\s*(?P<arguments>\S.*)\}""", re.DOTALL
)
_ESCAPED_QUOTE = re.compile(r"(?<!\\)((?:\\\\)*)\\'")
_DECODER = json.JSONDecoder()
_FOREIGN_CALL = re.compile(r"^AI to=", re.MULTILINE)


@rejecting
def convert(row: Mapping[str, Any]) -> Conversation:
    """Convert `{"system", "chat"}`."""
    repairs: list[str] = []
    transcript = Transcript()
    system, functions = _system(text_of(row["system"]), repairs)
    if system:
        transcript.say("system", system)
    for head, body in _turns(text_of(row["chat"])):
        if head == "USER":
            transcript.say("human", body)
        elif head == "FUNCTION RESPONSE":
            transcript.result(body)
        else:
            text, calls = _answer(body, repairs)
            transcript.say("gpt", text, calls=calls)
    tools = tool_list(functions, repairs)
    return Conversation(tuple(transcript.turns), tools=tools, repairs=tuple(repairs))


def _system(raw: str, repairs: list[str]) -> tuple[str, list[Any]]:
    """Return what a system text says besides its known sentence, and the functions it lists."""
    text = raw.removeprefix(_SYSTEM_HEAD).rstrip("\r\n")
    functions: list[Any] = []
    start = text.find(_FUNCTIONS_FOLLOW)
    if start >= 0:
        functions, end = _functions(text, start + len(_FUNCTIONS_FOLLOW))
    else:
        start = text.find(_NO_FUNCTIONS)
        end = start + len(_NO_FUNCTIONS)
    if start >= 0:
        text = text_without(text, [(start, end)])
        repairs.append("boilerplate_system_removed")
    if stray := _LINE_WITH_BRACE.search(text):
        around = text[stray.start() : stray.start() + 80]
        raise Rejected("invalid_tools", f"outside the list: {around!r}")
    return text, functions


def _functions(text: str, at: int) -> tuple[list[Any], int]:
    """Read the objects that stand one after another; return them and where the last one ends."""
    functions: list[Any] = []
    while start := _BEFORE_FUNCTION.match(text, at):
        try:
            function, at = _DECODER.raw_decode(text, start.end())
        except (ValueError, RecursionError) as error:
            raise Rejected("invalid_tools", f"{type(error).__name__}: {error}") from error
        functions.append(function)
    return functions, at


def _turns(chat: str) -> list[tuple[str, str]]:
    """Return the head and the text of each turn.

    The makers of the data set replaced "AI:" everywhere by the end mark and the head of an answer,
    in the middle of "OpenAI: ..." too. Such a head, or one that somebody wrote into a text, shows
    as two turns of one side in a row.
    """
    heads = list(_HEAD.finditer(chat))
    if not heads or heads[0].start():
        raise Rejected("malformed_row", "the chat does not begin with a turn")
    for one, next_one in pairwise(head[1] for head in heads):
        if one == next_one and one in _ALTERNATING:
            raise Rejected(_ALTERNATING[one], f"{one} twice in a row")
    ends = [head.start() for head in heads[1:]] + [len(chat)]
    return [
        (head[1], chat[head.end() : end].rstrip("\r\n"))
        for head, end in zip(heads, ends, strict=True)
    ]


def _answer(body: str, repairs: list[str]) -> tuple[str, list[RawCall]]:
    """Return the text of an answer and the call at its end, if it has one."""
    text = body.rstrip().removesuffix(_END_MARK)
    said, mark, call = text.partition("<functioncall>")
    calls = [_call(call.strip())] if mark else []
    if _FOREIGN_CALL.search(said):
        raise Rejected("invalid_call", "a call in another syntax")
    if not body.rstrip().endswith(_END_MARK):
        raise Rejected("unfinished_answer", body[-80:])
    repairs.append("end_mark_removed")
    return said.rstrip() if mark else text.removesuffix(" "), calls


def _call(text: str) -> RawCall:
    match = _CALL.fullmatch(text)
    if not match:
        raise Rejected("invalid_call", text[:120])
    arguments = match["arguments"].strip()
    if len(arguments) > 1 and arguments[0] == arguments[-1] == "'":
        arguments = _ESCAPED_QUOTE.sub(r"\1'", arguments[1:-1])
    return RawCall(match["name"], arguments)
