"""ToolMind: chats with tools, of which most rows are the beginning of another one.

https://huggingface.co/datasets/Nanbeige/ToolMind; the text of the last answer begins with its
reasoning, earlier answers have lost theirs. Some of its files give the results of several calls in
one message, as a list of `{"name", "arguments", "results"}` or of `{"name", "results"}`.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from lib.cleaning import cleaned, role_of
from lib.conversation import Conversation, Rejected, Turn, rejecting
from lib.digest import digest
from lib.formats import Combined
from lib.messages import conversation_of, read_message
from lib.raw_shapes import list_of
from lib.tool_messages import Message
from lib.transcript import RawCall

_RESULT_KEYS = ({"name", "arguments", "results"}, {"name", "results"})
_THINKING = re.compile(r"\A\s*<think>.*?</think>", re.DOTALL)


def group(row: Mapping[str, Any]) -> str:
    """Return the first question of a row, "" if it has none."""
    messages = row.get("conversations")
    for message in messages if isinstance(messages, list) else ():
        if isinstance(message, Mapping) and message.get("role") == "user":
            return str(message.get("content"))
    return ""


def combine(rows: Sequence[Any]) -> list[Combined]:
    """Convert rows `{"conversations": [{"role", "content", "tool_calls"}], "tools"}`.

    Of rows that are the beginning of one another the longest is kept, the first of equal ones; a
    row that is rejected itself stands in nobody's way. Rows with other tools, or that part ways
    somewhere, are different conversations. Reasoning tells no rows apart, since an answer loses
    its own as soon as the conversation goes on, nor do the names of calls.
    """
    converted = [_convert(row) for row in rows]
    outcomes = [cleaned(each) for each in converted]
    beginnings = {
        n: list(_beginnings(conversation))
        for n, conversation in enumerate(converted)
        if isinstance(conversation, Conversation) and isinstance(outcomes[n], Conversation)
    }
    longer: dict[str, int] = {}
    for n in sorted(beginnings, key=lambda n: -len(beginnings[n])):
        *_, whole = beginnings[n]
        if whole in longer:
            turns, of = len(beginnings[n]), len(beginnings[longer[whole]])
            outcomes[n] = Rejected("continued_elsewhere", f"{turns} of {of} turns of another row")
        else:
            longer |= dict.fromkeys(beginnings[n], n)
    return [((n,), outcome) for n, outcome in enumerate(outcomes)]


def _beginnings(conversation: Conversation) -> Iterator[str]:
    """Yield, for each turn, a name of all that was said up to it."""
    so_far = digest(conversation.tools)
    for turn in conversation.turns:
        so_far = digest([so_far, *_said(turn)])
        yield so_far


def _said(turn: Turn) -> list[Any]:
    """Return what a turn says whether or not its reasoning was cut away, and no names of calls."""
    text = _THINKING.sub("", turn.text).strip()
    return [turn.role, text, [[call.name, call.arguments] for call in turn.tool_calls]]


@rejecting
def _convert(row: Mapping[str, Any]) -> Conversation:
    repairs: list[str] = []
    messages: list[Message] = []
    for raw in list_of(row["conversations"]):
        messages += _messages(raw, messages[-1].calls if messages else (), repairs)
    return conversation_of({"tools": row.get("tools")}, messages, repairs)


def _messages(
    raw: Mapping[str, Any], calls: Sequence[RawCall], repairs: list[str]
) -> list[Message]:
    """Read one message, which may be as many as there are calls before it."""
    if role_of(raw["role"]) != "tool":
        return [read_message(raw, repairs)]
    content = raw.get("content")
    bundle = _bundle(content)
    if bundle:
        if not _answers(bundle, calls):
            raise Rejected("unmatched_result", "a list of results differs from the calls before it")
        repairs.append("results_split")
        return [Message("tool", _text(entry["results"])) for entry in bundle]
    if isinstance(content, Mapping | list):
        repairs.append("result_written_as_json")
        raw = {**raw, "content": _text(content)}
    return [read_message(raw, repairs)]


def _bundle(content: Any) -> list[dict[str, Any]]:
    """Return the results of a message that lists them call by call; none if it is anything else."""
    entries = _value(content)
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        return []
    for keys in _RESULT_KEYS:
        if all(entry.keys() == keys for entry in entries):
            return entries
    return []


def _answers(bundle: list[dict[str, Any]], calls: Sequence[RawCall]) -> bool:
    """Tell whether results belong to calls: the same names, and arguments if any, in order."""
    return len(bundle) == len(calls) and all(
        result["name"] == call.name
        and _value(result.get("arguments", call.arguments)) == _value(call.arguments)
        for result, call in zip(bundle, calls, strict=True)
    )


def _text(value: Any) -> str:
    """Return a result as text: what is text already is kept, anything else is written as JSON."""
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def _value(written: Any) -> Any:
    """Return what a text says as JSON; anything that is no JSON text as it is."""
    if not isinstance(written, str) or not written.lstrip().startswith(("{", "[")):
        return written
    try:
        return json.loads(written)
    except (ValueError, RecursionError):
        return written
