"""Lists of tools: one form, JSON text, whatever shape the raw definitions have.

The form is OpenAI's: `{"type": "function", "function": {"name", "description", "parameters"}}`,
where `parameters` is a JSON schema. Strange shapes are repaired by name or reject the row.
"""

import json
from collections.abc import Mapping
from typing import Any

from lib.conversation import Rejected
from lib.digest import canonical
from lib.raw_shapes import check_depth
from lib.tool_schemas import repaired_schema


def tool_list(entries: Any, repairs: list[str]) -> str:
    """Return the JSON text of a tool list, or "" for none.

    Args:
        entries: the definitions: a list, the JSON text of one, or None or "" for none; it is not
            changed.
        repairs: gets the names of what was mended.

    Raises:
        Rejected: an entry is no function with a name and a readable schema, or one name has two
            definitions.
    """
    try:
        tools = _distinct([_tool(entry, repairs) for entry in _entries(entries)], repairs)
        return json.dumps(tools, ensure_ascii=False, allow_nan=False) if tools else ""
    except (TypeError, ValueError, RecursionError) as error:
        raise Rejected("invalid_tools", str(error)[:200]) from error


def _entries(entries: Any) -> list[Any]:
    if isinstance(entries, str) and entries:
        entries = json.loads(entries)
    if entries is None or entries == "":
        return []
    if not isinstance(entries, list):
        raise ValueError(f"a list expected, found {type(entries).__name__}")
    check_depth(entries)
    return entries


def _distinct(tools: list[dict[str, Any]], repairs: list[str]) -> list[dict[str, Any]]:
    by_name: dict[str, dict[str, Any]] = {}
    for tool in tools:
        name = tool["function"]["name"]
        first = by_name.setdefault(name, tool)
        if first is not tool and canonical(first) != canonical(tool):
            raise ValueError(f"{name} is defined twice")
    if len(by_name) < len(tools):
        repairs.append("duplicate_tool_dropped")
    return list(by_name.values())


def _tool(entry: Any, repairs: list[str]) -> dict[str, Any]:
    tool = dict(_mapping(entry, "a tool"))
    if "function" not in tool:
        tool = {"type": tool.pop("type", "function"), "function": tool}
        repairs.append("tool_wrapped")
    elif tool.get("type") is None:
        tool = {"type": "function"} | {key: tool[key] for key in tool if key != "type"}
        repairs.append("tool_wrapped")
    _check_type(tool["type"])
    function = dict(_mapping(tool["function"], "a function"))
    while "function" in function or "type" in function:
        function = _unwrapped(function)
        repairs.append("tool_unwrapped")
    return {**tool, "function": _function(function, repairs)}


def _unwrapped(tool: dict[str, Any]) -> dict[str, Any]:
    """Return the function of a tool that stands where a function should be."""
    _check_type(tool.pop("type", "function"))
    if "function" not in tool:
        return tool
    if len(tool) > 1:
        raise ValueError(f"a function beside {', '.join(tool)}")
    return dict(_mapping(tool["function"], "a function"))


def _check_type(kind: Any) -> None:
    if kind != "function":
        raise ValueError(f"a tool of type {kind!r}")


def _function(function: dict[str, Any], repairs: list[str]) -> dict[str, Any]:
    name = function.get("name")
    if not isinstance(name, str) or not name.strip():
        raise ValueError(f"function name {name!r}")
    try:
        if not isinstance(function.get("description", ""), str | None):
            raise ValueError("the description is no text")
        if "properties" in function:
            raise ValueError("properties stand outside the parameters")
        function = _with_schema(function, repairs)
        if "required" in function:
            _move_required(function, repairs)
        if "parameters" in function:
            function["parameters"] = _object_schema(function["parameters"], repairs)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error
    return function


def _with_schema(function: dict[str, Any], repairs: list[str]) -> dict[str, Any]:
    """Return the function with a schema as its parameters, if it has any, under that name."""
    if "arguments" in function:  # a name that some data sets give the parameters
        if function.pop("parameters", None):
            raise ValueError("both parameters and arguments")
        function = {"parameters" if key == "arguments" else key: function[key] for key in function}
        repairs.append("parameters_rebuilt")
    if "parameters" in function:
        parameters = function["parameters"]
        parameters = {} if parameters is None else _mapping(parameters, "the list of parameters")
        if not _is_schema(parameters):
            for parameter in parameters.values():
                _mapping(parameter, "a parameter")
            parameters = {"type": "object", "properties": parameters}
            repairs.append("parameters_rebuilt")
        function["parameters"] = dict(parameters)
    return function


def _is_schema(parameters: Mapping[str, Any]) -> bool:
    """Tell a schema from a map of parameters, which may have one called `type` or `properties`."""
    properties = parameters.get("properties")
    return (
        isinstance(parameters.get("type"), str | list)
        or isinstance(parameters.get("$ref"), str)
        or any(isinstance(parameters.get(key), list) for key in ("anyOf", "oneOf", "allOf"))
        or (
            isinstance(properties, Mapping)
            and all(isinstance(item, Mapping | bool) for item in properties.values())
        )
    )


def _move_required(function: dict[str, Any], repairs: list[str]) -> None:
    """Move the list of required parameters from the function into the schema."""
    required = function.pop("required")
    repairs.append("schema_nulls_dropped" if required is None else "required_moved")
    if required is None or required == []:
        return
    if "parameters" not in function:
        raise ValueError("required parameters, but no parameters")
    parameters = function["parameters"]
    if parameters.get("required") is None:
        parameters["required"] = required
    elif canonical(parameters["required"]) != canonical(required):
        raise ValueError("two lists of required parameters")


def _object_schema(parameters: Mapping[str, Any], repairs: list[str]) -> dict[str, Any]:
    schema = repaired_schema(parameters, repairs)
    if schema.get("type", "object") != "object":
        raise ValueError(f"parameters of type {schema['type']!r}, no object")
    return schema


def _mapping(value: Any, what: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ValueError(f"{what} is {type(value).__name__}, no object")
    return value
