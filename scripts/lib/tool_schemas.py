"""JSON schemas of tool parameters, mended where they were written with Python in mind.

Data sets write types as annotations (`str, optional`, `List[int]`, `int | None`) and mark each
parameter as required where JSON schema has one list (https://json-schema.org/draft/2020-12).
"""

import ast
from collections.abc import Mapping
from typing import Any

_NAMES = {
    "string": ("str", "string"),
    "integer": ("int", "integer"),
    "number": ("float", "number"),
    "boolean": ("bool", "boolean"),
    "array": ("list", "array", "tuple", "set", "sequence"),
    "object": ("dict", "object", "mapping"),
    "null": ("none", "null"),
}
_TYPES = {name: schema_type for schema_type, names in _NAMES.items() for name in names}
_LONGEST_TYPE = 200
_SCHEMAS = ("items", "additionalProperties", "not")
_SCHEMA_LISTS = ("anyOf", "oneOf", "allOf", "prefixItems")
_SCHEMA_MAPS = ("properties", "$defs", "definitions", "patternProperties")


def repaired_schema(raw: Mapping[str, Any], repairs: list[str]) -> dict[str, Any]:
    """Return a schema with the types of JSON schema and its required properties in one list.

    Args:
        raw: the schema; it is not changed.
        repairs: gets the names of what was mended.

    Raises:
        ValueError: a type is none that can be read, or a property is no schema.
    """
    schema = dict(raw)
    for key in _SCHEMAS:
        if isinstance(schema.get(key), Mapping):
            schema[key] = repaired_schema(schema[key], repairs)
    for key in _SCHEMA_LISTS:
        if isinstance(schema.get(key), list):
            schema[key] = [_repaired(item, repairs) for item in schema[key]]
    if isinstance(schema.get("properties"), Mapping):
        _gather_required(schema, repairs)
    for key in _SCHEMA_MAPS:
        if isinstance(schema.get(key), Mapping):
            schema[key] = {name: _repaired(item, repairs) for name, item in schema[key].items()}
    return _with_json_types(schema, repairs)


def _repaired(schema: Any, repairs: list[str]) -> Any:
    """Repair an inner schema; `true` and `false` are schemas too."""
    if isinstance(schema, bool):
        return schema
    if not isinstance(schema, Mapping):
        raise ValueError(f"a schema is {schema!r}")
    return repaired_schema(schema, repairs)


def _gather_required(schema: dict[str, Any], repairs: list[str]) -> None:
    """Make one list of properties that say themselves that they are required or optional."""
    properties = {
        name: dict(item) if isinstance(item, Mapping) else item
        for name, item in schema["properties"].items()
    }
    optional = {name for name, item in properties.items() if _is_marked_optional(item)}
    said = {
        name: item.pop("required")
        for name, item in properties.items()
        if isinstance(item, dict) and isinstance(item.get("required"), bool)
    }
    schema["properties"] = properties
    if not (optional or said) or "required" in schema:
        return
    repairs.append("required_moved")
    default = bool(optional)  # where some are marked as optional, the others are not
    required = [n for n in properties if n not in optional and said.get(n, default)]
    if required:
        schema["required"] = required


def _is_marked_optional(schema: Any) -> bool:
    kind = schema.get("type") if isinstance(schema, Mapping) else None
    return isinstance(kind, str) and (
        kind.replace(" ", "").lower().endswith(",optional") or kind.lower().startswith("optional[")
    )


def _with_json_types(schema: dict[str, Any], repairs: list[str]) -> dict[str, Any]:
    kind = schema.get("type")
    if kind is None or kind in _NAMES:
        return schema
    found = _any_of([_type(item) for item in kind]) if isinstance(kind, list) else _type(kind)
    if found == {"type": kind}:
        return schema
    repairs.append("types_renamed")
    return {**found, **{key: value for key, value in schema.items() if key != "type"}}


def _type(text: Any) -> dict[str, Any]:
    """Read one type."""
    if not isinstance(text, str) or len(text) > _LONGEST_TYPE:
        raise ValueError(f"type {text!r}")
    annotation = text.strip()
    if annotation.replace(" ", "").lower().endswith(",optional"):
        annotation = annotation.rpartition(",")[0].strip()
    try:
        return _annotation(ast.parse(annotation, mode="eval").body)
    except (SyntaxError, LookupError, ValueError, RecursionError) as error:
        raise ValueError(f"type {text!r}") from error


def _annotation(node: ast.expr) -> dict[str, Any]:
    match node:
        case ast.Constant(value=None):
            return {"type": "null"}
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return {} if name.lower() == "any" else {"type": _TYPES[name.lower()]}
        case ast.BinOp(left=left, op=ast.BitOr(), right=right):
            return _any_of([_annotation(left), _annotation(right)])
        case ast.Subscript(value=ast.Name(id=name) | ast.Attribute(attr=name), slice=inner):
            parts = inner.elts if isinstance(inner, ast.Tuple) else [inner]
            return _generic(name.lower(), parts)
    raise ValueError(ast.dump(node))


def _generic(name: str, parts: list[ast.expr]) -> dict[str, Any]:
    if name == "optional" and len(parts) == 1:
        return _annotation(parts[0])
    if name == "union":
        return _any_of([_annotation(part) for part in parts])
    if name == "literal":
        return {"enum": [ast.literal_eval(part) for part in parts]}
    if _TYPES[name] == "array":
        items = _annotation(parts[0]) if len(parts) == 1 else {}
        return {"type": "array", "items": items} if items else {"type": "array"}
    if _TYPES[name] == "object":
        values = _annotation(parts[1]) if len(parts) == 2 else {}
        return {"type": "object", "additionalProperties": values} if values else {"type": "object"}
    raise ValueError(name)


def _any_of(choices: list[dict[str, Any]]) -> dict[str, Any]:
    """Join choices: simple types in one list, others as schemas, anything where one is that."""
    if {} in choices:
        return {}
    if all(choice.keys() == {"type"} and isinstance(choice["type"], str) for choice in choices):
        return {"type": [choice["type"] for choice in choices]}
    return {"anyOf": choices}
