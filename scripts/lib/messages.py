"""Structured messages: text, reasoning, calls and results each under a key of its own.

OpenAI's messages (https://platform.openai.com/docs/api-reference/chat), the turns of ShareGPT
files as LLaMA-Factory reads them (https://github.com/hiyouga/LLaMA-Factory/tree/main/data) and
Draftmill's own records say the same under different names; all of them are known here.
"""

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from lib.cleaning import role_of, text_of
from lib.conversation import Conversation, Rejected
from lib.tool_messages import Message
from lib.tools import tool_list
from lib.transcript import RawCall, Transcript

_ROLE = ("from", "role")
_TEXT = ("value", "content")
_REASONING = ("reasoning_content", "reasoning", "thinking")
_CALLS = ("tool_calls", "function_call")
_MESSAGE = frozenset((*_ROLE, *_TEXT, *_REASONING, *_CALLS))
_CALL = frozenset(("id", "type", "function", "name", "arguments"))
_PART = frozenset(("type", "text"))

_LABELS = frozenset(
    ("id", "name", "model", "lang", "language", "date", "timestamp", "text", "markdown")
)
"""Keys of a message that may hold text which is no part of the conversation: what it is called,
who wrote it and when, and its text once more in another form."""

_KNOWN = _MESSAGE | _LABELS
_KNOWN_OF_RESULT = _KNOWN | {"tool_call_id"}

_MEDIA = ("image", "images", "video", "videos", "audio", "audios")
_CALL_ROLES = frozenset(("function_call", "tool_call"))
_THINKING = re.compile(r"\s*<think>.*?</think>\s*", re.DOTALL)
_TOOL_LIST = re.compile(r"<tools>\s*[\[{]")


def one_of(row: Mapping[str, Any], *names: str) -> Any:
    """Return what a row holds under one of several names for the same, or None.

    Raises:
        Rejected: it holds different things under two of them; an empty one says nothing.
    """
    found = None
    for name in names:
        value = row.get(name)
        if value is None or value == found:
            continue
        if found is None or found in ("", []):
            found = value
        elif value not in ("", []):
            raise Rejected("malformed_row", f"{' and '.join(names)} differ")
    return found


def read_message(raw: Mapping[str, Any], repairs: list[str]) -> Message:
    """Read a message with the keys of OpenAI or of ShareGPT.

    Keys beside these are left out if they hold a number, a truth value or nothing, or are labels.

    Args:
        raw: the message. Its text may be a list of text parts, null next to calls, or, in the
            role of a call, the JSON text of calls.
        repairs: gets the names of what was mended.

    Raises:
        Rejected: a part of it cannot be read, or a key that is not known holds more than a label.
    """
    name, content = one_of(raw, *_ROLE), one_of(raw, *_TEXT)
    role = role_of(name)
    _reject_unknown(raw, _KNOWN_OF_RESULT if role == "tool" else _KNOWN, f"a {role} turn")
    calls = _calls(one_of(raw, *_CALLS))
    if content is None and calls:
        content = ""
    text = _text(content, repairs)
    if name.strip().lower() in _CALL_ROLES:
        text, calls = _calls_in_text(text, calls)
    return Message(
        role=role,
        text=text,
        reasoning=_optional(one_of(raw, *_REASONING)),
        calls=calls,
        call_id=_optional(raw.get("tool_call_id")),
        function=_optional(raw.get("name")) if role == "tool" else "",
    )


def conversation_of(
    row: Mapping[str, Any], messages: Iterable[Message], repairs: list[str]
) -> Conversation:
    """Make a conversation of the messages of a row and of its columns `system` and `tools`.

    Args:
        row: may also call its tools `functions`, and list them as JSON text.
        messages: in order.
        repairs: gets the names of what was mended.

    Raises:
        Rejected: a part of it cannot be read; a call, a result or a list of tools stands in the
            text; or the row comes with pictures or sound.
    """
    if media := [name for name in _MEDIA if row.get(name)]:
        raise Rejected("malformed_row", f"a conversation with {media[0]}")
    transcript = Transcript()
    system = [Message("system", text_of(row["system"]))] if row.get("system") else []
    for message in (*system, *messages):
        _reject_tools_in_text(message)
        if message.role != "tool":
            transcript.say(message.role, message.text, message.reasoning, message.calls)
        elif message.calls or message.reasoning:
            raise Rejected("malformed_row", "reasoning or a call in a tool turn")
        else:
            transcript.result(message.text, id=message.call_id, name=message.function)
    tools = tool_list(one_of(row, "tools", "functions"), repairs)
    return Conversation(tuple(transcript.turns), tools=tools, repairs=tuple(repairs))


def _reject_unknown(raw: Mapping[str, Any], known: frozenset[str], what: str) -> None:
    for key, value in raw.items():
        if key not in known and isinstance(value, (str, list, Mapping)) and value:
            raise Rejected("malformed_row", f"{what} has the unknown key {key!r}"[:120])


def _optional(value: Any) -> str:
    return "" if value is None else text_of(value)


def _text(content: Any, repairs: list[str]) -> str:
    if not isinstance(content, list):
        return text_of(content)
    repairs.append("text_parts_joined")
    return "".join(map(_part, content))


def _part(part: Mapping[str, Any]) -> str:
    if part["type"] != "text":
        raise Rejected("malformed_row", f"a part of type {part['type']!r}"[:120])
    _reject_unknown(part, _PART, "a text part")
    return text_of(part["text"])


def _calls_in_text(text: str, beside: list[RawCall]) -> tuple[str, list[RawCall]]:
    """Read a turn that is nothing but calls, and the reasoning that may stand before them."""
    thinking = _THINKING.match(text)
    start = thinking.end() if thinking else 0
    calls = _calls(text[start:])
    if bool(calls) == bool(beside):
        raise Rejected("invalid_call", "calls in the text and beside it, or in neither")
    return text[:start], calls or beside


def _calls(raw: Any) -> list[RawCall]:
    """Read a call, a list of calls, or the JSON text of either."""
    if isinstance(raw, str) and raw:
        try:
            raw = json.loads(raw)
        except (ValueError, RecursionError) as error:
            raise Rejected("invalid_call", f"no JSON: {raw[:80]!r}") from error
    if not raw:
        return []
    return [_call(call) for call in (raw if isinstance(raw, list) else [raw])]


def _call(raw: Any) -> RawCall:
    function = raw.get("function", raw) if isinstance(raw, Mapping) else None
    if not isinstance(function, Mapping) or raw.get("type", "function") != "function":
        raise Rejected("invalid_call", f"no call of a function: {raw!r}"[:120])
    for mapping in (raw, function):
        _reject_unknown(mapping, _CALL, "a call")
    return RawCall(function.get("name"), function.get("arguments"), _optional(raw.get("id")))


def _reject_tools_in_text(message: Message) -> None:
    """Reject what another model's template would write; the target's writes it in its own way."""
    text = message.text
    if message.role == "system":
        found = _TOOL_LIST.search(text) is not None
    elif message.role == "gpt":
        found = _ends_with_call(text)
    else:
        found = text.lstrip().startswith("<tool_response>") and "</tool_response>" in text
    if found:
        raise Rejected("stray_tool_tag", f"in a {message.role} turn; the format hermes reads those")


def _ends_with_call(text: str) -> bool:
    _, mark, rest = text.rpartition("<tool_call>")
    call, _, after = rest.partition("</tool_call>")
    return bool(mark) and call.lstrip().startswith(("{", "<function=")) and not after.strip()
