"""JSON schemas of tool parameters, mended where they were written with Python in mind.

Data sets write types as annotations (`str, optional`, `List[int]`, `int | None`) and mark each
parameter as required where JSON schema has one list (https://json-schema.org/draft/2020-12).
"""

from collections.abc import Mapping
from typing import Any

from lib.type_annotations import JSON_TYPES, is_marked_optional, schema_of_type

_SCHEMAS_OF_ITEMS = {"items", "additionalItems", "unevaluatedItems", "contains"}
_SCHEMAS_OF_PROPERTIES = {"additionalProperties", "unevaluatedProperties", "propertyNames"}
_SCHEMAS = _SCHEMAS_OF_ITEMS | _SCHEMAS_OF_PROPERTIES | {"not", "if", "then", "else"}
_SCHEMA_LISTS = {"anyOf", "oneOf", "allOf", "prefixItems"}
_SCHEMA_MAPS = {"properties", "patternProperties", "dependentSchemas", "$defs", "definitions"}
_NEVER_NULL = _SCHEMAS | _SCHEMA_LISTS | _SCHEMA_MAPS | {"type", "required", "enum"}
_VALUES = {"default", "const", "example", "examples"}
_ANNOTATIONS = {"dependencies", "dependentRequired", "discriminator", "externalDocs", "xml"}
_NO_SCHEMAS = _VALUES | _ANNOTATIONS
"""Keywords that may have an object that is no schema."""


def repaired_schema(raw: Mapping[str, Any], repairs: list[str]) -> dict[str, Any]:
    """Return a schema with the types of JSON schema and its required properties in one list.

    Args:
        raw: the schema; it is not changed.
        repairs: gets the names of what was mended.

    Raises:
        ValueError: a type is none that can be read, or a part is not what its keyword asks for.
    """
    schema = {key: raw[key] for key in raw if raw[key] is not None or key not in _NEVER_NULL}
    if len(schema) < len(raw):
        repairs.append("schema_nulls_dropped")
    _check_required(schema)
    if "properties" in schema:
        _gather_required(schema, repairs)
    schema = {key: _repaired_part(key, schema[key], repairs) for key in schema}
    return _with_json_types(schema, repairs)


def _repaired_part(keyword: str, part: Any, repairs: list[str]) -> Any:
    if keyword in _SCHEMA_MAPS:
        return {name: _repaired(item, repairs) for name, item in _object(keyword, part).items()}
    if keyword in _SCHEMA_LISTS or (keyword == "items" and isinstance(part, list)):
        return [_repaired(item, repairs) for item in _list(keyword, part)]
    if keyword in _SCHEMAS:
        return _repaired(part, repairs)
    if isinstance(part, Mapping) and keyword not in _NO_SCHEMAS and not keyword.startswith("x-"):
        raise ValueError(f"{keyword} is no keyword of a schema")  # a property out of place
    return part


def _repaired(schema: Any, repairs: list[str]) -> Any:
    """Repair an inner schema; `true` and `false` are schemas too."""
    return schema if isinstance(schema, bool) else repaired_schema(_object("", schema), repairs)


def _check_required(schema: Mapping[str, Any]) -> None:
    if not all(isinstance(name, str) for name in _list("required", schema.get("required", []))):
        raise ValueError(f"required is {schema['required']!r}")


def _gather_required(schema: dict[str, Any], repairs: list[str]) -> None:
    """Make one list of properties that say themselves that they are required or optional."""
    properties = {
        name: dict(item) if isinstance(item, Mapping) else item
        for name, item in _object("properties", schema["properties"]).items()
    }
    said = {
        name: item.pop("required")
        for name, item in properties.items()
        if isinstance(item, dict) and isinstance(item.get("required"), bool)
    }
    optional = [
        name
        for name, item in properties.items()
        if isinstance(item, dict) and is_marked_optional(item.get("type"))
    ]
    if any(said.get(name) for name in optional):
        raise ValueError("a property is required and optional")
    said.update(dict.fromkeys(optional, False))
    schema["properties"] = properties
    if not said:
        return
    repairs.append("required_moved")
    if "required" not in schema:
        unsaid = bool(optional)  # where some are marked as optional, the others are not
        required = [name for name in properties if said.get(name, unsaid)]
        schema |= {"required": required} if required else {}
    elif any((name in schema["required"]) != is_required for name, is_required in said.items()):
        raise ValueError("a property and the list of required ones contradict each other")


def _with_json_types(schema: dict[str, Any], repairs: list[str]) -> dict[str, Any]:
    """Return the schema with its type read; its other keywords go before what the type implies."""
    if "type" not in schema:
        return schema
    kinds = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    if kinds and all(isinstance(kind, str) and kind in JSON_TYPES for kind in kinds):
        return schema
    read = schema_of_type(kinds)
    if "anyOf" in read and "anyOf" in schema:
        raise ValueError("a type and anyOf")
    repairs.append("types_renamed")
    return read | {key: schema[key] for key in schema if key != "type"}


def _object(keyword: str, value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ValueError(f"{keyword or 'a schema'} is {value!r}, no object"[:80])
    return value


def _list(keyword: str, value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError(f"{keyword} is {value!r}, no list"[:80])
    return value
