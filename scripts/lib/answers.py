"""What the target wrote, read back as a turn: reasoning, text and tool calls.

The text is taken apart as the Qwen3 family writes it: reasoning up to `</think>`, calls as
`<tool_call><function=NAME><parameter=KEY>VALUE</parameter></function></tool_call>`.
"""

import json
import re
from collections.abc import Mapping
from typing import Any

from lib.conversation import ToolCall, Turn

_CALL = re.compile(
    r"\s*<tool_call>\n<function=([^>\n]+)>\n(.*?)</function>\n</tool_call>", re.DOTALL
)
_PARAMETER = re.compile(r"<parameter=([^>\n]+)>\n(.*?)\n</parameter>\n", re.DOTALL)


class UnreadableAnswer(ValueError):
    """The target's text is no turn that could be rendered again as it was."""


def read_answer(text: str, *, thinking: bool, tools: str, calls_before: int) -> Turn:
    """Read the text that the target wrote after its prompt.

    Args:
        thinking: the prompt opened a think block, so the text begins inside it.
        tools: JSON text of the tools on offer; their schemas say which values are text.
        calls_before: number of calls earlier in the conversation, to name the new ones.

    Raises:
        UnreadableAnswer: the think block is not closed, or a call is malformed.
    """
    reasoning = ""
    if thinking:
        reasoning, mark, text = text.partition("</think>")
        if not mark:
            raise UnreadableAnswer("the think block is not closed")
        reasoning, text = reasoning.strip("\n"), text.lstrip("\n")
    if "<think>" in text or "</think>" in text:
        raise UnreadableAnswer("a think tag in the answer")
    start = text.find("<tool_call>")
    if start < 0:
        return Turn("gpt", text, reasoning)
    calls = _read_calls(text[start:], json.loads(tools) if tools else [], calls_before)
    return Turn("gpt", text[:start].rstrip("\n"), reasoning, calls)


def _read_calls(text: str, tools: list[Any], calls_before: int) -> tuple[ToolCall, ...]:
    schemas = {tool["function"]["name"]: _types(tool["function"]) for tool in tools}
    calls: list[ToolCall] = []
    at = 0
    while at < len(text.rstrip()):
        match = _CALL.match(text, at)
        if not match:
            raise UnreadableAnswer("a malformed call")
        if match[1] not in schemas:
            raise UnreadableAnswer(f"a call of {match[1]}, which is not offered")
        arguments: dict[str, Any] = {}
        for name, value in _parameters(match[2]):
            if name in arguments:
                raise UnreadableAnswer(f"a call of {match[1]} gives {name} twice")
            arguments[name] = _typed(value, schemas[match[1]].get(name, "string"))
        arguments_text = json.dumps(arguments, ensure_ascii=False)
        calls.append(ToolCall(f"call_{calls_before + len(calls)}", match[1], arguments_text))
        at = match.end()
    return tuple(calls)


def _parameters(text: str) -> list[tuple[str, str]]:
    found = list(_PARAMETER.finditer(text))
    if "".join(match.group() for match in found) != text:
        raise UnreadableAnswer("text between the parameters of a call")
    return [(match[1], match[2]) for match in found]


def _types(function: Mapping[str, Any]) -> dict[str, Any]:
    """Return the type of each parameter as its schema says; text where it says nothing."""
    properties = _mapping(_mapping(function.get("parameters")).get("properties"))
    return {name: _mapping(schema).get("type", "string") for name, schema in properties.items()}


def _mapping(value: Any) -> Mapping[str, Any]:
    """Return a JSON object, and an empty one for anything else that a schema may hold."""
    return value if isinstance(value, Mapping) else {}


def _typed(value: str, kind: Any) -> Any:
    """Text stays text; other types are JSON, and text again where they are not."""
    if kind == "string":
        return value
    try:
        return json.loads(value, parse_constant=_no_number)
    except ValueError:
        return value


def _no_number(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")
