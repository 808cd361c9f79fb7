"""The few rules that every conversation meets, whatever format it came from.

A repair is named and counted; what no rule covers is rejected. Nothing is guessed.
"""

import json
import re
from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from lib.conversation import Conversation, Rejected, Role, Turn, json_without_escapes

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


def cleaned(outcome: Conversation | Rejected) -> Conversation | Rejected:
    """Return what becomes of a converted row: clean, or rejected."""
    if isinstance(outcome, Rejected):
        return outcome
    try:
        return clean(outcome)
    except Rejected as rejected:
        return rejected


def clean(conversation: Conversation) -> Conversation:
    """Repair what the rules allow and check the rest.

    Returns:
        The conversation with the names of new repairs added to its own.

    Raises:
        Rejected: no rule makes it a faithful conversation.
    """
    repairs = list(conversation.repairs)
    turns = [
        _separate_reasoning(_clean_text(turn, repairs), repairs) for turn in conversation.turns
    ]
    if not _alternate(turns):
        turns = _order_systems(turns, repairs)
        turns = _cut_leading_answers(turns, repairs)
        turns = _join_neighbours(turns, repairs)
    tools = _replace_unencodable_in_json(conversation.tools, repairs)
    _check(turns, tools)
    return Conversation(
        turns=tuple(turns),
        tools=tools,
        source=conversation.source,
        id=conversation.id,
        split=conversation.split,
        repairs=tuple(repairs),
    )


def _clean_text(turn: Turn, repairs: list[str]) -> Turn:
    text = _replace_unencodable(turn.text, repairs)
    if text is turn.text and not (turn.reasoning or turn.tool_calls):
        return turn  # as nearly all are
    return replace(
        turn,
        text=text,
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
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            text = _SURROGATE.sub("\ufffd", text)
            repairs.append("surrogate_replaced")
    if "\0" in text:
        text = text.replace("\0", "\ufffd")
        repairs.append("nul_replaced")
    return text


def _replace_unencodable_in_json(text: str, repairs: list[str]) -> str:
    """Do the same to JSON text, whose escapes hide such characters until it is parsed."""
    if "\\u" not in text:
        return _replace_unencodable(text, repairs)
    plain = json_without_escapes(text)
    mended = _replace_unencodable(_ESCAPED_NUL.sub("\\1\0", plain), repairs)
    return text if mended == plain else mended


def _separate_reasoning(turn: Turn, repairs: list[str]) -> Turn:
    match = _LEADING_REASONING.match(turn.text) if turn.role == "gpt" else None
    if not match or turn.reasoning:
        return turn
    repairs.append("reasoning_separated")
    return replace(turn, text=turn.text[match.end() :], reasoning=match.group(1))


def _alternate(turns: list[Turn]) -> bool:
    """Say whether a person and the assistant take turns, as in most rows: nothing to order then."""
    roles = [turn.role for turn in turns]
    in_order = roles[::2].count("human") + roles[1::2].count("gpt")
    return 0 < in_order == len(roles)


def _order_systems(turns: list[Turn], repairs: list[str]) -> list[Turn]:
    count = 0
    while count < len(turns) and turns[count].role == "system":
        count += 1
    rest = turns[count:]
    for turn in rest:
        if turn.role == "system":
            raise Rejected("misplaced_system")
    texts = [turn.text for turn in turns[:count] if turn.text.strip()]
    if len(texts) < count:
        repairs.append("empty_system_dropped")
    if len(texts) > 1:
        repairs.append("systems_joined")
    return [Turn("system", "\n\n".join(texts)), *rest] if texts else rest


def _cut_leading_answers(turns: list[Turn], repairs: list[str]) -> list[Turn]:
    start = 1 if turns and turns[0].role == "system" else 0
    first = start
    while first < len(turns) and turns[first].role != "human":
        first += 1
    if first == len(turns):
        raise Rejected("no_user_turn" if turns else "no_conversation")
    if first > start:
        repairs.append("leading_answer_cut")
    return turns[:start] + turns[first:]


def _join_neighbours(turns: list[Turn], repairs: list[str]) -> list[Turn]:
    joined: list[Turn] = []
    for turn in turns:
        last = joined[-1] if joined else None
        if last is None or last.role != turn.role or turn.role not in ("human", "gpt"):
            joined.append(turn)
        elif _is_plain(last) and _is_plain(turn):
            joined[-1] = replace(last, text=f"{last.text}\n\n{turn.text}")
            repairs.append("neighbours_joined")
        elif turn.tool_calls and not (turn.text or turn.reasoning or last.tool_calls):
            joined[-1] = replace(last, tool_calls=turn.tool_calls)
            repairs.append("call_joined")
        else:
            joined.append(turn)
    return joined


def _is_plain(turn: Turn) -> bool:
    return bool(turn.text.strip()) and not turn.tool_calls and not turn.reasoning


def _check(turns: list[Turn], tools: str) -> None:
    offered = {tool["function"]["name"] for tool in json.loads(tools)} if tools else set()
    pending: list[str] = []
    last = ""
    for turn in turns:
        _check_text(turn)
        if turn.role == "tool":
            if turn.tool_call_id not in pending:
                raise Rejected("unmatched_result", "a tool result without a call")
            pending.remove(turn.tool_call_id)
        elif pending:
            raise Rejected("unmatched_result", "a call without a tool result")
        elif turn.role == last == "gpt":
            raise Rejected("neighbouring_answers")
        for call in turn.tool_calls:
            if call.name not in offered:
                raise Rejected("undeclared_tool", call.name[:120])
            pending.append(call.id)
        last = turn.role
    _check_control_tokens(tools)


def _check_text(turn: Turn) -> None:
    for text in (turn.text, turn.reasoning) if turn.reasoning else (turn.text,):
        _check_control_tokens(text)
        if ">" in text and _THINK_TAG.search(text):
            raise Rejected("stray_think_tag", f"in a {turn.role} turn")
    for call in turn.tool_calls:
        _check_control_tokens(call.name)
        _check_control_tokens(json_without_escapes(call.arguments))
    if turn.role != "tool" and not turn.text.strip() and not turn.tool_calls:
        raise Rejected("empty_turn", turn.role)


def _check_control_tokens(text: str) -> None:
    if "|" in text and (found := _CONTROL_TOKEN.search(text)):
        raise Rejected("control_token", found.group())
