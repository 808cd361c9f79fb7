"""Tools, calls and results that a data set writes into the text of turns.

The list of tools stands in the system prompt between `<tools>` tags, each call between
`<tool_call>` tags in the answer, and each result between `<tool_response>` tags. The target's
template writes all of that itself, so it must not stay in the text.
"""

import json
import re
from collections.abc import Iterable
from typing import Any

from lib.answers import UnreadableAnswer, read_answer
from lib.conversation import Rejected
from lib.tool_instructions import INSTRUCTIONS
from lib.transcript import RawCall

_TOOL_TAG = re.compile(r"</?(?:tools|tool_call|tool_response)>")
_CALL_OR_RESULT_TAG = re.compile(r"</?(?:tool_call|tool_response)>")
_RESULT_TAG = re.compile(r"</?tool_response>")

_LIST_START = re.compile(r"<tools>\s*(?=[\[{])")
_LIST_END = "</tools>"
_BETWEEN_TOOLS = re.compile(r"[\s,]*")
_CALL_START = re.compile(r"<tool_call>\s*(?P<fence>```(?:json)?\s*)?")
_CALL_END = re.compile(r"\s*</tool_call>\s*")
_FENCED_CALL_END = re.compile(r"\s*```\s*</tool_call>\s*")
_XML_CALL_START = re.compile(r"<tool_call>\s*<function=")
_RESULT = re.compile(r"\s*<tool_response>\n?(.*?)\n?</tool_response>\s*", re.DOTALL)
_SPACE_BEFORE = re.compile(r"\A(?:\s*\n|[ \t]+)")


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key occurs twice")
    return found


_DECODER = json.JSONDecoder()
_CALL_DECODER = json.JSONDecoder(object_pairs_hook=_distinct)


def tools_in_system(text: str, repairs: list[str]) -> tuple[str, list[Any]]:
    """Take the list of tools, and the instructions how to call them, out of a system prompt.

    Args:
        text: the system prompt.
        repairs: gets the names of what was mended.

    Returns:
        What else the prompt says, and the definitions of the tools; the text as it is and an
        empty list where it is not about tools.

    Raises:
        Rejected: the list between the tags is not JSON, or tags are left when the list and the
            known instructions are gone.
    """
    if not _TOOL_TAG.search(text):
        return text, []
    definitions: list[Any] = []
    listing: list[tuple[int, int]] = []
    if match := _LIST_START.search(text):
        definitions, end = _definitions(text, match.end())
        listing = [(match.start(), end)]
    before, after = listing[0] if listing else (len(text), len(text))
    kept = text_without(
        text,
        [
            *(found.span() for found in INSTRUCTIONS.finditer(text, 0, before)),
            *listing,
            *(found.span() for found in INSTRUCTIONS.finditer(text, after)),
        ],
    )
    _reject_tags(_TOOL_TAG, kept, "the system prompt")
    repairs.append("boilerplate_system_removed")
    return kept, definitions


def calls_in_answer(text: str, tools: str, repairs: list[str]) -> tuple[str, list[RawCall]]:
    """Take the calls out of an answer.

    Args:
        text: the answer; calls stand at its end. What a leading think block says about calls is
            reasoning and stays.
        tools: JSON text of the tools on offer, whose schemas type the values of XML calls.
        repairs: gets the names of what was mended.

    Returns:
        The text before the calls, without the white space that sets them off, and the calls.

    Raises:
        Rejected: a call is cut off or no JSON object with a name, text follows it, a tag stands
            anywhere else, or the think block is not closed.
    """
    said = _end_of_reasoning(text)
    start = text.find("<tool_call>", said)
    if start < 0:
        _reject_tags(_CALL_OR_RESULT_TAG, text[said:], "an answer")
        return text, []
    _reject_tags(_CALL_OR_RESULT_TAG, text[said:start], "an answer")
    before = text[:start].rstrip()
    if _XML_CALL_START.match(text, start):
        return before, _xml_calls(text[start:], tools)
    return before, _json_calls(text, start, repairs)


def results_in_turn(text: str) -> list[str] | None:
    """Return the texts of the results that a turn wraps in tags; None if it has no such tags.

    Raises:
        Rejected: there is more in the turn than results.
    """
    results: list[str] = []
    end = 0
    while match := _RESULT.match(text, end):
        _reject_tags(_RESULT_TAG, match[1], "a result")
        results.append(match[1])
        end = match.end()
    if not results or end < len(text):
        _reject_tags(_RESULT_TAG, text, "a turn with other text")
        return None
    return results


def text_without(text: str, stretches: Iterable[tuple[int, int]]) -> str:
    """Return a text without some stretches of it, and without the white space that sets them off.

    Args:
        text: the text.
        stretches: where each one begins and ends, in order.

    Returns:
        What is left, with a blank line between two parts that stood apart. The indentation of a
        line that is left stays.
    """
    parts: list[str] = []
    at = 0
    for start, end in stretches:
        parts.append(text[at:start].rstrip())
        at = end
    parts.append(text[at:])
    parts[1:] = [_SPACE_BEFORE.sub("", part) for part in parts[1:]]
    return "\n\n".join(part for part in parts if part.strip())


def _definitions(text: str, at: int) -> tuple[list[Any], int]:
    """Read a list, or objects one after another; return them and where the closing tag ends."""
    definitions: list[Any] = []
    while not text.startswith(_LIST_END, at):
        try:
            value, at = _DECODER.raw_decode(text, at)
        except (ValueError, RecursionError) as error:
            raise Rejected("invalid_tools", f"no JSON: {text[at : at + 80]!r}") from error
        definitions += value if isinstance(value, list) else [value]
        if gap := _BETWEEN_TOOLS.match(text, at):
            at = gap.end()
    return definitions, at + len(_LIST_END)


def _end_of_reasoning(text: str) -> int:
    """Return where a leading think block ends."""
    if not text.lstrip().startswith("<think>"):
        return 0
    before, mark, _ = text.partition("</think>")
    if not mark:
        raise Rejected("stray_think_tag", "a think block is not closed")
    return len(before) + len(mark)


def _xml_calls(text: str, tools: str) -> list[RawCall]:
    try:
        turn = read_answer(text, thinking=False, tools=tools, calls_before=0)
    except UnreadableAnswer as error:
        raise Rejected("invalid_call", str(error)) from error
    return [RawCall(call.name, call.arguments) for call in turn.tool_calls]


def _json_calls(text: str, at: int, repairs: list[str]) -> list[RawCall]:
    calls: list[RawCall] = []
    while at < len(text):
        start = _CALL_START.match(text, at)
        if not start:
            raise Rejected("invalid_call", f"text after a call: {text[at : at + 80]!r}")
        call, at = _json_call(text, start.end())
        end = (_FENCED_CALL_END if start["fence"] else _CALL_END).match(text, at)
        if not end:
            raise Rejected("invalid_call", f"the call is not closed: {text[at : at + 80]!r}")
        if start["fence"]:
            repairs.append("call_fence_removed")
        calls.append(call)
        at = end.end()
    return calls


def _json_call(text: str, at: int) -> tuple[RawCall, int]:
    try:
        call, end = _CALL_DECODER.raw_decode(text, at)
    except (ValueError, RecursionError) as error:
        raise Rejected("invalid_call", f"no JSON: {text[at : at + 80]!r}") from error
    if not isinstance(call, dict) or call.keys() != {"name", "arguments"}:
        raise Rejected("invalid_call", f"not a name and arguments: {text[at : at + 80]!r}")
    return RawCall(call["name"], call["arguments"]), end


def _reject_tags(tag: re.Pattern[str], text: str, where: str) -> None:
    if found := tag.search(text):
        around = text[max(0, found.start() - 40) : found.end() + 40]
        raise Rejected("stray_tool_tag", f"in {where}: {around!r}")
