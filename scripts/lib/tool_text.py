"""Tools, calls and results that a data set writes into the text of turns.

Hermes (https://github.com/NousResearch/Hermes-Function-Calling) and the Qwen2.5 and Qwen3 chat
templates put the list of tools into the system prompt between `<tools>` tags, each call as JSON
between `<tool_call>` tags into the answer, and each result between `<tool_response>` tags. The
target's template writes all of that itself, so it must not stay in the text.
"""

import json
import re
from collections.abc import Iterator
from typing import Any

from lib.answers import UnreadableAnswer, read_answer
from lib.conversation import Rejected
from lib.transcript import RawCall

_TOOLS = re.compile(r"<tools>\s*(?=[\[{])(.*?)</tools>", re.DOTALL)
_EXAMPLE_CALL = re.compile(r"<tool_call>.*?</tool_call>", re.DOTALL)
_REMINDER = re.compile(r"<IMPORTANT>.*?</IMPORTANT>", re.DOTALL)
_RESULT = re.compile(r"\s*<tool_response>\n?(.*?)\n?</tool_response>\s*", re.DOTALL)
_SENTENCE = re.compile(r"[^.:!?\n]*(?:[.:!?]+|\n|$)\s*")
_TAG = re.compile(r"</?(?:tools|tool_call|tool_response)>|<(?:function-name|args-\w+)>")
_INSTRUCTIONS = re.compile(
    r"# tools|you are a function calling ai model"
    r"|you (?:may|can) call one or more functions|you have access to the following functions"
    r"|don't make assumptions about what values to plug into functions"
    r"|here are the available tools|if you choose to call a function only reply"
    r"|use the following pydantic model json schema for each tool call",
    re.IGNORECASE,
)
_DECODER = json.JSONDecoder()


def tools_in_system(text: str) -> tuple[str, list[Any]]:
    """Take the list of tools, and the instructions how to call them, out of a system prompt.

    Returns:
        What else the prompt says, and the definitions of the tools; the text as it is and an
        empty list where it has no tools.

    Raises:
        Rejected: the list between the tags is not JSON.
    """
    match = _TOOLS.search(text)
    if not match:
        return text, []
    rest = text[: match.start()] + "\n" + text[match.end() :]
    for pattern in (_REMINDER, _EXAMPLE_CALL):
        rest = pattern.sub("", rest)
    kept = "".join(
        sentence
        for sentence in _SENTENCE.findall(rest)
        if not _TAG.search(sentence) and not _INSTRUCTIONS.search(sentence)
    )
    return kept.strip(), list(_values(match[1]))


def calls_in_answer(text: str, tools: str, repairs: list[str]) -> tuple[str, list[RawCall]]:
    """Take the calls out of an answer.

    Args:
        text: the answer; calls stand at its end.
        tools: JSON text of the tools on offer, whose schemas type the values of XML calls.
        repairs: gets the names of what was mended.

    Returns:
        The text before the calls, without the line break that sets them off, and the calls.

    Raises:
        Rejected: a call is cut off or no JSON object with a name, or text follows it.
    """
    before, mark, rest = text.partition("<tool_call>")
    if not mark:
        return text, []
    if rest.lstrip().startswith("<function="):
        try:
            turn = read_answer(text, thinking=False, tools=tools, calls_before=0)
        except UnreadableAnswer as error:
            raise Rejected("invalid_call", str(error)) from error
        return turn.text, [RawCall(call.name, call.arguments) for call in turn.tool_calls]
    calls: list[RawCall] = []
    while mark:
        call, rest = _call(rest, repairs)
        calls.append(call)
        between, mark, rest = rest.partition("<tool_call>")
        if between.strip():
            raise Rejected("invalid_call", f"text after a call: {between.strip()!r}"[:120])
    return before.rstrip("\n"), calls


def results_in_turn(text: str) -> list[str] | None:
    """Return the texts of the results that a turn wraps in tags; None if it is anything else."""
    results: list[str] = []
    end = 0
    while match := _RESULT.match(text, end):
        results.append(match[1])
        end = match.end()
    return results if results and end == len(text) else None


def _call(text: str, repairs: list[str]) -> tuple[RawCall, str]:
    """Read the call at the beginning of a text; return it and what follows its closing tag."""
    body = text.lstrip()
    fence = body.startswith("```")
    if fence:
        body = body.removeprefix("```").removeprefix("json").lstrip()
        repairs.append("call_fence_removed")
    try:
        call, end = _DECODER.raw_decode(body)
    except (ValueError, RecursionError) as error:
        raise Rejected("invalid_call", f"no JSON: {body[:80]!r}") from error
    rest = body[end:].lstrip()
    if fence:
        rest = rest.removeprefix("```").lstrip()
    if not rest.startswith("</tool_call>"):
        raise Rejected("invalid_call", f"the call is not closed: {rest[:80]!r}")
    if not isinstance(call, dict) or call.keys() != {"name", "arguments"}:
        raise Rejected("invalid_call", f"not a name and arguments: {call!r}"[:120])
    return RawCall(call["name"], call["arguments"]), rest.removeprefix("</tool_call>")


def _values(text: str) -> Iterator[Any]:
    """Yield the definitions of a list, or of objects one after another."""
    at = 0
    while at < len(text):
        if text[at] in " \t\r\n,":
            at += 1
            continue
        try:
            value, at = _DECODER.raw_decode(text, at)
        except (ValueError, RecursionError) as error:
            raise Rejected("invalid_tools", f"no JSON: {text[at : at + 80]!r}") from error
        yield from value if isinstance(value, list) else [value]
