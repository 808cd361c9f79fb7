"""Lists of tools: one form, JSON text, whatever shape the raw definitions have.

The form is OpenAI's: `{"type": "function", "function": {"name", "description", "parameters"}}`,
where `parameters` is a JSON schema. Strange shapes are repaired by name or reject the row.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from lib.conversation import Rejected
from lib.digest import canonical
from lib.tool_schemas import repaired_schema


def tool_list(entries: Any, repairs: list[str]) -> str:
    """Return the JSON text of a tool list, or "" for none.

    Args:
        entries: the definitions: a list, the JSON text of one, or None.
        repairs: gets the names of what was mended.

    Raises:
        Rejected: an entry is no function with a name and a readable schema, or one name has two
            definitions.
    """
    tools: dict[str, dict[str, Any]] = {}
    for entry in _entries(entries):
        tool = _tool(entry, repairs)
        name = tool["function"]["name"]
        if name not in tools:
            tools[name] = tool
        elif canonical(tools[name]) == canonical(tool):
            repairs.append("duplicate_tool_dropped")
        else:
            raise Rejected("invalid_tools", f"{name} is defined twice"[:120])
    return json.dumps(list(tools.values()), ensure_ascii=False) if tools else ""


def _entries(entries: Any) -> Iterable[Any]:
    if isinstance(entries, str):
        try:
            entries = json.loads(entries)
        except ValueError as error:
            raise Rejected("invalid_tools", f"no JSON: {error}") from error
    if entries is None:
        return ()
    if not isinstance(entries, list):
        raise Rejected("invalid_tools", f"a list expected, found {type(entries).__name__}")
    return entries


def _tool(entry: Any, repairs: list[str]) -> dict[str, Any]:
    outer = dict(_mapping(entry, "a tool"))
    function = outer.get("function")
    if function is None:
        outer, function = {}, outer
        if function.get("type") == "function":
            del function["type"]
        repairs.append("tool_wrapped")
    while isinstance(function, Mapping) and "function" in function:
        function = function["function"]
        repairs.append("tool_unwrapped")
    if outer.get("type", "function") != "function":
        raise Rejected("invalid_tools", f"a tool of type {outer['type']!r}"[:120])
    tool = {**outer, "type": "function", "function": _function(function, repairs)}
    try:
        json.dumps(tool, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise Rejected("invalid_tools", str(error)) from error
    return tool


def _function(raw: Any, repairs: list[str]) -> dict[str, Any]:
    function = dict(_mapping(raw, "a function"))
    name = function.get("name")
    if not isinstance(name, str) or not name.strip():
        raise Rejected("invalid_tools", f"function name {name!r}"[:120])
    if "arguments" in function:  # a name that some data sets give the parameters
        if function.get("parameters"):
            raise Rejected("invalid_tools", f"{name} has parameters and arguments"[:120])
        function.pop("parameters", None)
        function = {"parameters" if key == "arguments" else key: function[key] for key in function}
    if "parameters" in function:
        function["parameters"] = _parameters(function["parameters"], name, repairs)
    if "required" in function:
        _move_required(function, repairs)
    return function


def _parameters(raw: Any, name: str, repairs: list[str]) -> dict[str, Any]:
    """Return the schema of an object, from a schema, a map of parameters, or nothing."""
    if raw is None:
        raw = {}
    parameters = dict(_mapping(raw, f"parameters of {name}"))
    if not _is_schema(parameters):
        for parameter in parameters.values():
            _mapping(parameter, f"a parameter of {name}")
        parameters = {"type": "object", "properties": parameters}
        repairs.append("parameters_rebuilt")
    if "required" in parameters and parameters["required"] is None:
        del parameters["required"]
        repairs.append("required_moved")
    try:
        parameters = repaired_schema(parameters, repairs)
    except ValueError as error:
        raise Rejected("invalid_tools", f"{name}: {error}"[:120]) from error
    if parameters.get("type", "object") != "object":
        raise Rejected("invalid_tools", f"{name} takes {parameters['type']!r}, no object"[:120])
    return parameters


def _is_schema(parameters: Mapping[str, Any]) -> bool:
    """Tell a schema from a map of parameters, which may have one called `type` or `properties`."""
    properties = parameters.get("properties")
    return (
        isinstance(parameters.get("type"), str)
        or isinstance(parameters.get("$ref"), str)
        or isinstance(parameters.get("anyOf"), list)
        or (isinstance(properties, Mapping) and not isinstance(properties.get("type"), str))
    )


def _move_required(function: dict[str, Any], repairs: list[str]) -> None:
    required = function.pop("required")
    repairs.append("required_moved")
    if required is None or required == []:
        return
    parameters = function.setdefault("parameters", {"type": "object", "properties": {}})
    if parameters.setdefault("required", required) != required:
        raise Rejected("invalid_tools", f"{function['name']} has two lists of required parameters")


def _mapping(value: Any, what: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise Rejected("invalid_tools", f"{what} is {type(value).__name__}, no object"[:120])
    return value
