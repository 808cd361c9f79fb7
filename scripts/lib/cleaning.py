"""The few rules that every conversation meets, whatever format it came from.

A repair is named and counted; what no rule covers is rejected. Nothing is guessed.
"""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from lib.conversation import (
    Conversation,
    Rejected,
    Role,
    ToolCall,
    Turn,
    json_without_escapes,
)
from lib.digest import canonical

REPAIRS = {
    "surrogate_replaced": "a lone surrogate became U+FFFD",
    "nul_replaced": "a NUL character became U+FFFD",
    "systems_joined": "leading system turns were joined with a blank line",
    "empty_system_dropped": "an empty system turn was left out",
    "leading_answer_cut": "assistant turns before the first question were cut",
    "neighbours_joined": "neighbouring plain turns of one role were joined with a blank line",
    "html_to_markdown": "HTML of an answer became Markdown",
    "page_noise_removed": "buttons and counters of a web page were taken out of an answer",
    "end_mark_removed": "the end-of-text mark of the data format was taken off",
    "boilerplate_system_removed": "the system prompt that only listed the tools went",
    "reasoning_separated": "a leading think block became reasoning_content",
    "empty_turn_dropped": "a turn without any text at the end of the row was left out",
}
"""Every repair that may be counted, in one place."""

ROLE_NAMES: Mapping[str, Role] = {
    **dict.fromkeys(("human", "user", "prompter"), "human"),
    **dict.fromkeys(("gpt", "assistant", "chatgpt", "bing", "bard", "model"), "gpt"),
    **dict.fromkeys(("system", "developer"), "system"),
    **dict.fromkeys(("tool", "observation", "function", "ipython", "tool_response"), "tool"),
    **dict.fromkeys(("function_call", "tool_call"), "gpt"),
}
"""The closed table of role names, in lower case."""

_CONTROL_TOKEN = re.compile(
    r"<\|(?:im_start|im_end|endoftext|endofprompt|begin_of_text|end_of_text|eot_id|eom_id"
    r"|start_header_id|end_header_id|im_sep|fim_prefix|fim_middle|fim_suffix|mask)\|>"
)
_THINK_TAG = re.compile(r"</?think>")
_LEADING_REASONING = re.compile(r"\s*<think>\n?(.*?)\n?</think>\n{0,2}", re.DOTALL)
_SURROGATE = re.compile(r"[\ud800-\udfff]")
_ESCAPED_NUL = re.compile(r"(?<!\\)((?:\\\\)*)\\u0000")


def role_of(name: Any) -> Role:
    """Return the role that a raw role name stands for.

    Raises:
        Rejected: the name is not in the closed table.
    """
    role = ROLE_NAMES.get(name.strip().lower()) if isinstance(name, str) else None
    if role is None:
        raise Rejected("unknown_role", repr(name)[:80])
    return role


def text_of(value: Any) -> str:
    """Return `value` if it is text.

    Raises:
        Rejected: it is anything else; other types are never turned into text.
    """
    if not isinstance(value, str):
        raise Rejected("malformed_row", f"text expected, found {type(value).__name__}")
    return value


def tool_call(name: Any, arguments: Any, index: int) -> ToolCall:
    """Return a call with its arguments as the JSON text of an object.

    Args:
        arguments: a mapping, or JSON text of one, which is kept to the character.
        index: position of the call in its conversation, which names it.

    Raises:
        Rejected: there is no name, or the arguments are no object.
    """
    if not isinstance(name, str) or not name:
        raise Rejected("invalid_call", f"function name {name!r}"[:120])
    text = arguments if isinstance(arguments, str) else None
    if text is not None:
        try:
            arguments = json.loads(text)
        except ValueError as error:
            raise Rejected("invalid_call", f"arguments of {name}: {error}") from error
    if not isinstance(arguments, Mapping):
        raise Rejected("invalid_call", f"arguments of {name} are {type(arguments).__name__}")
    try:
        json.dumps(arguments, allow_nan=False)
    except ValueError as error:
        raise Rejected("invalid_call", f"arguments of {name}: {error}") from error
    if text is None:
        text = json.dumps(arguments, ensure_ascii=False)
    return ToolCall(id=f"call_{index}", name=name, arguments=text)


def tool_list(functions: Iterable[Any]) -> str:
    """Return the JSON text of a tool list, or "" for none, from bare or wrapped functions.

    Raises:
        Rejected: an entry is no function with a name, or one name has two definitions.
    """
    tools: dict[str, dict[str, Any]] = {}
    for entry in functions:
        function = entry.get("function", entry) if isinstance(entry, Mapping) else None
        if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
            raise Rejected("invalid_tools", f"{entry!r}"[:120])
        tool = {"type": "function", "function": dict(function)}
        known = tools.setdefault(function["name"], tool)
        if canonical(known) != canonical(tool):
            raise Rejected("invalid_tools", f"{function['name']} is defined twice")
    return json.dumps(list(tools.values()), ensure_ascii=False) if tools else ""


def clean(conversation: Conversation) -> Conversation:
    """Repair what the rules allow and check the rest.

    Returns:
        The conversation with the names of new repairs added to its own.

    Raises:
        Rejected: no rule makes it a faithful conversation.
    """
    repairs = list(conversation.repairs)
    turns = [_clean_text(turn, repairs) for turn in conversation.turns]
    turns = [_separate_reasoning(turn, repairs) for turn in turns]
    turns = _order_systems(turns, repairs)
    turns = _cut_leading_answers(turns, repairs)
    turns = _join_neighbours(turns, repairs)
    tools = _replace_unencodable_in_json(conversation.tools, repairs)
    _check(turns, tools)
    return replace(conversation, turns=tuple(turns), tools=tools, repairs=tuple(repairs))


def _clean_text(turn: Turn, repairs: list[str]) -> Turn:
    return replace(
        turn,
        text=_replace_unencodable(turn.text, repairs),
        reasoning=_replace_unencodable(turn.reasoning, repairs),
        tool_calls=tuple(
            replace(
                call,
                name=_replace_unencodable(call.name, repairs),
                arguments=_replace_unencodable_in_json(call.arguments, repairs),
            )
            for call in turn.tool_calls
        ),
    )


def _replace_unencodable(text: str, repairs: list[str]) -> str:
    if _SURROGATE.search(text):
        text = _SURROGATE.sub("\ufffd", text)
        repairs.append("surrogate_replaced")
    if "\0" in text:
        text = text.replace("\0", "\ufffd")
        repairs.append("nul_replaced")
    return text


def _replace_unencodable_in_json(text: str, repairs: list[str]) -> str:
    """Do the same to JSON text, whose escapes hide such characters until it is parsed."""
    plain = json_without_escapes(text) if "\\u" in text else text
    mended = _replace_unencodable(_ESCAPED_NUL.sub("\\1\0", plain), repairs)
    return text if mended == plain else mended


def _separate_reasoning(turn: Turn, repairs: list[str]) -> Turn:
    match = _LEADING_REASONING.match(turn.text) if turn.role == "gpt" else None
    if not match or turn.reasoning:
        return turn
    repairs.append("reasoning_separated")
    return replace(turn, text=turn.text[match.end() :], reasoning=match.group(1))


def _order_systems(turns: list[Turn], repairs: list[str]) -> list[Turn]:
    count = next((n for n, turn in enumerate(turns) if turn.role != "system"), len(turns))
    rest = turns[count:]
    if any(turn.role == "system" for turn in rest):
        raise Rejected("misplaced_system")
    texts = [turn.text for turn in turns[:count] if turn.text.strip()]
    if len(texts) < count:
        repairs.append("empty_system_dropped")
    if len(texts) > 1:
        repairs.append("systems_joined")
    return [Turn("system", "\n\n".join(texts)), *rest] if texts else rest


def _cut_leading_answers(turns: list[Turn], repairs: list[str]) -> list[Turn]:
    start = 1 if turns and turns[0].role == "system" else 0
    first = next((n for n, turn in enumerate(turns) if turn.role == "human"), None)
    if first is None:
        raise Rejected("no_user_turn" if turns else "no_conversation")
    if first > start:
        repairs.append("leading_answer_cut")
    return turns[:start] + turns[first:]


def _join_neighbours(turns: list[Turn], repairs: list[str]) -> list[Turn]:
    joined: list[Turn] = []
    for turn in turns:
        last = joined[-1] if joined else None
        if last and last.role == turn.role and _is_plain(last) and _is_plain(turn):
            joined[-1] = replace(last, text=f"{last.text}\n\n{turn.text}")
            repairs.append("neighbours_joined")
        else:
            joined.append(turn)
    return joined


def _is_plain(turn: Turn) -> bool:
    has_only_text = turn.text.strip() and not turn.tool_calls and not turn.reasoning
    return turn.role in ("human", "gpt") and bool(has_only_text)


def _check(turns: list[Turn], tools: str) -> None:
    offered = {tool["function"]["name"] for tool in json.loads(tools)} if tools else set()
    pending: list[str] = []
    for turn in turns:
        arguments = [json_without_escapes(call.arguments) for call in turn.tool_calls]
        for text in (turn.text, turn.reasoning, *arguments):
            if found := _CONTROL_TOKEN.search(text):
                raise Rejected("control_token", found.group())
        if _THINK_TAG.search(turn.text) or _THINK_TAG.search(turn.reasoning):
            raise Rejected("stray_think_tag", f"in a {turn.role} turn")
        if turn.role != "tool" and not turn.text.strip() and not turn.tool_calls:
            raise Rejected("empty_turn", turn.role)
        if turn.role == "tool":
            if turn.tool_call_id not in pending:
                raise Rejected("unmatched_result", "a tool result without a call")
            pending.remove(turn.tool_call_id)
        elif pending:
            raise Rejected("unmatched_result", "a call without a tool result")
        for call in turn.tool_calls:
            if call.name not in offered:
                raise Rejected("undeclared_tool", call.name[:120])
            pending.append(call.id)
    if found := _CONTROL_TOKEN.search(tools):
        raise Rejected("control_token", found.group())
