"""Agentic Coding Trajectories: sessions of coding agents, each as JSON in one column.

https://huggingface.co/datasets/thoughtworks/agentic-coding-trajectories
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from lib.agent_tools import OPENHANDS, SWE_AGENT, Framework
from lib.conversation import Conversation, Rejected, rejecting
from lib.messages import conversation_of, read_message
from lib.raw_shapes import list_of
from lib.tool_messages import Message

_FRAMEWORKS: Mapping[str, Framework] = {"openhands": OPENHANDS, "swe-agent": SWE_AGENT}


@rejecting
def convert(row: Mapping[str, Any]) -> Conversation:
    """Convert `{"agent_framework", "messages_json": '[{"role", "content", "tool_calls_json",
    "tool_call_id"}]'}`, whether or not the agent solved its task.

    No column lists the tools: they are those of the framework. A session without calls offers
    none: its agent, as that of mini-swe-agent, was told about commands in words and wrote them
    into its answers.
    """
    repairs: list[str] = []
    messages = [_message(raw, repairs) for raw in _messages(row["messages_json"])]
    tools = _tools(str(row.get("agent_framework")), messages)
    return conversation_of({"tools": tools}, messages, repairs)


def _messages(raw: Any) -> list[Any]:
    return list_of(json.loads(raw) if isinstance(raw, str) else raw)


def _message(raw: Mapping[str, Any], repairs: list[str]) -> Message:
    names = {"tool_calls_json": "tool_calls"}
    return read_message({names.get(key, key): value for key, value in raw.items()}, repairs)


def _tools(framework: str, messages: Sequence[Message]) -> str:
    """Return the tools of the framework; where it is another one, the called functions decide."""
    names = [call.name for message in messages for call in message.calls]
    called = {name for name in names if isinstance(name, str) and name}
    if not called:
        return ""
    named = [known for name, known in _FRAMEWORKS.items() if name in framework.lower()]
    for known in named or _FRAMEWORKS.values():
        if known.knows(called):
            return known.offered(called)
    raise Rejected("undeclared_tool", f"{framework}: {', '.join(sorted(called))}"[:200])
