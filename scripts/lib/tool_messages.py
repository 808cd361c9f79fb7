"""Messages whose tools, calls and results stand in their text, made into one conversation."""

import json
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from lib.conversation import Conversation, Rejected, Role
from lib.tool_text import calls_in_answer, results_in_turn, tools_in_system
from lib.tools import tool_list
from lib.transcript import RawCall, Transcript


class Message(NamedTuple):
    """A message as a data set writes it.

    Attributes:
        calls: calls that stand beside the text.
        call_id: the data set's own name of the call that this result answers, "" if it has none.
        function: name of the function that this result comes from, "" if it is not said.
    """

    role: Role
    text: str
    reasoning: str = ""
    calls: Sequence[RawCall] = ()
    call_id: str = ""
    function: str = ""


def tool_conversation(messages: Iterable[Message], column: Any, repairs: list[str]) -> Conversation:
    """Make a conversation of messages with tools, calls and results in their text.

    Args:
        messages: in order. Results stand in turns of a tool, or in turns of a person that hold
            nothing else.
        column: the tools that the row lists outside its messages: a list, the JSON text of one,
            or None.
        repairs: gets the names of what was mended.

    Raises:
        Rejected: tools, a call or a result cannot be read, or two lists of tools differ.
    """
    messages, in_prompt = _without_lists(messages, repairs)
    tools = _offered(column, in_prompt, repairs)
    names = [tool["function"]["name"] for tool in json.loads(tools)] if tools else []
    transcript = Transcript()
    for message in messages:
        if message.role == "gpt":
            text, calls = calls_in_answer(message.text, tools, repairs)
            if calls and message.calls:
                raise Rejected("invalid_call", "calls in the text and beside it")
            transcript.say("gpt", text, message.reasoning, calls or message.calls)
        elif results := _results(message, repairs):
            if message.calls or message.reasoning:
                raise Rejected("malformed_row", "reasoning or a call beside a result")
            for result in results:
                function = message.function or _function(result, names)
                transcript.result(result, id=message.call_id, name=function)
        else:
            transcript.say(message.role, message.text, message.reasoning, message.calls)
    return Conversation(tuple(transcript.turns), tools=tools, repairs=tuple(repairs))


def _without_lists(
    messages: Iterable[Message], repairs: list[str]
) -> tuple[list[Message], list[Any]]:
    """Return the messages without lists of tools, and the definitions in the lists."""
    rest: list[Message] = []
    definitions: list[Any] = []
    for message in messages:
        if message.role == "system":
            text, found = tools_in_system(message.text, repairs)
            definitions += found
            if message.text and not text:
                continue
            message = message._replace(text=text)
        rest.append(message)
    return rest, definitions


def _offered(column: Any, in_prompt: list[Any], repairs: list[str]) -> str:
    tools, others = tool_list(column, repairs), tool_list(in_prompt, repairs)
    if tools and others and json.loads(tools) != json.loads(others):
        raise Rejected("invalid_tools", "the system prompt lists other tools than the row")
    return tools or others


def _results(message: Message, repairs: list[str]) -> list[str]:
    """Return the results that a turn of a tool or of a person holds."""
    if message.role == "system":
        return []
    results = results_in_turn(message.text)
    if results is None:
        return [message.text] if message.role == "tool" else []
    if len(results) > 1:
        repairs.append("results_split")
    return results


def _function(result: str, names: list[str]) -> str:
    """Return the function that a result says it comes from, "" if it does not say so."""
    try:
        value = json.loads(result)
    except (ValueError, RecursionError):
        return ""
    if not isinstance(value, dict) or value.keys() != {"name", "content"}:
        return ""
    return value["name"] if value["name"] in names else ""
