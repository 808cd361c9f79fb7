"""The tools of two frameworks for coding agents, whose recorded sessions do not list them.

Names and parameters are those of OpenHands (https://github.com/All-Hands-AI/OpenHands, its
CodeActAgent) and of SWE-agent (https://github.com/SWE-agent/SWE-agent, its function calling).
"""

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

_TEXT = {"type": "string"}
_WHOLE_NUMBER = {"type": "integer"}


@dataclass(frozen=True)
class Framework:
    """What a framework lets its agent call.

    Attributes:
        always: tools that every session offers.
        at_times: tools that depend on how a session was set up.
    """

    always: tuple[Mapping[str, Any], ...]
    at_times: tuple[Mapping[str, Any], ...] = ()

    def knows(self, names: Collection[str]) -> bool:
        """Tell whether all functions of these names are the framework's."""
        return set(names) <= {_name(tool) for tool in self.always + self.at_times}

    def offered(self, called: Collection[str]) -> str:
        """Return the JSON text of the tools that a session with these calls was offered."""
        used = [tool for tool in self.at_times if _name(tool) in called]
        return json.dumps([*self.always, *used])


def _name(tool: Mapping[str, Any]) -> str:
    name: str = tool["function"]["name"]
    return name


def _tool(
    name: str, description: str, required: Collection[str] = (), **properties: Mapping[str, Any]
) -> Mapping[str, Any]:
    parameters = {"type": "object", "properties": properties}
    if required:
        parameters["required"] = list(required)
    function = {"name": name, "description": description, "parameters": parameters}
    return {"type": "function", "function": function}


def _choice(*values: str) -> Mapping[str, Any]:
    return {"type": "string", "enum": list(values)}


_EDITOR = _tool(
    "str_replace_editor",
    "Read and edit files",
    ["command", "path"],
    command=_choice("view", "create", "str_replace", "insert", "undo_edit"),
    path=_TEXT,
    file_text=_TEXT,
    old_str=_TEXT,
    new_str=_TEXT,
    insert_line=_WHOLE_NUMBER,
    view_range={"type": "array", "items": _WHOLE_NUMBER},
)
_TASK = {
    "type": "object",
    "properties": {
        "id": _TEXT,
        "title": _TEXT,
        "status": _choice("todo", "in_progress", "done"),
        "notes": _TEXT,
    },
    "required": ["id", "title", "status"],
}

OPENHANDS = Framework(
    always=(
        _tool(
            "execute_bash",
            "Run a command",
            ["command"],
            command=_TEXT,
            is_input=_choice("true", "false"),
            timeout={"type": "number"},
        ),
        _tool("think", "Note a thought", ["thought"], thought=_TEXT),
        _tool("finish", "End the work", ["message"], message=_TEXT),
        _EDITOR,
    ),
    at_times=(
        _tool("execute_ipython_cell", "Run Python code in a notebook", ["code"], code=_TEXT),
        _tool("browser", "Use a browser with Python code", ["code"], code=_TEXT),
        _tool("web_read", "Read a web page as Markdown", ["url"], url=_TEXT),
        _tool(
            "fetch",
            "Fetch an address",
            ["url"],
            url=_TEXT,
            max_length=_WHOLE_NUMBER,
            start_index=_WHOLE_NUMBER,
            raw={"type": "boolean"},
        ),
        _tool(
            "task_tracker",
            "Keep a list of tasks",
            ["command"],
            command=_choice("view", "plan"),
            task_list={"type": "array", "items": _TASK},
        ),
    ),
)

SWE_AGENT = Framework(
    always=(
        _tool("bash", "Run a command", ["command"], command=_TEXT),
        _EDITOR,
        _tool("submit", "Hand in the work"),
    )
)
