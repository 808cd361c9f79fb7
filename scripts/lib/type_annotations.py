"""Types as Python writes them, read as JSON schemas.

Data sets describe parameters with annotations such as `str, optional`, `List[int]` or
`Union[int, None]` (https://docs.python.org/3/library/typing.html).
"""

import ast
import re
from typing import Any

_NAMES = {
    "string": ("str",),
    "integer": ("int", "long"),
    "number": ("float", "double"),
    "boolean": ("bool",),
    "array": ("list", "tuple", "set", "sequence", "iterable"),
    "object": ("dict", "mapping"),
    "null": ("none", "nonetype"),
}
_TYPES = {name: kind for kind, names in _NAMES.items() for name in (kind, *names)}
# Short enough for the parser's stack, and without escapes, about which it would warn.
_ANNOTATION = re.compile(r"""[\w\s\[\].,|'"]{1,200}""")
_OPTIONAL = re.compile(r",\s*optional\s*\Z", re.IGNORECASE)

JSON_TYPES = frozenset(_NAMES)
"""The types of JSON schema."""


def is_marked_optional(kind: Any) -> bool:
    """Tell whether a type ends with the remark that its parameter is optional."""
    return isinstance(kind, str) and bool(_OPTIONAL.search(kind))


def schema_of_type(kinds: list[Any]) -> dict[str, Any]:
    """Return the schema of what is one of several types.

    Args:
        kinds: annotations, in any mix of lower and upper case, or types of JSON schema.

    Raises:
        ValueError: one is none that can be read.
    """
    try:
        return _any_of([_annotation(node) for kind in kinds for node in _choices(_parsed(kind))])
    except (SyntaxError, LookupError, ValueError) as error:
        raise ValueError(f"type {kinds!r}"[:80]) from error


def _parsed(kind: Any) -> ast.expr:
    if not isinstance(kind, str) or not _ANNOTATION.fullmatch(kind):
        raise ValueError("no annotation")
    return ast.parse(_OPTIONAL.sub("", kind).strip(), mode="eval").body


def _choices(node: ast.expr) -> list[ast.expr]:
    """Return the alternatives that an annotation joins."""
    match node:
        case ast.BinOp(left=left, op=ast.BitOr(), right=right):
            return _choices(left) + _choices(right)
        case ast.Subscript():
            name, parts = _generic(node)
            if name == "optional" and len(parts) == 1:
                return [*_choices(parts[0]), ast.Constant(None)]
            if name == "union":
                return [choice for part in parts for choice in _choices(part)]
    return [node]


def _annotation(node: ast.expr) -> dict[str, Any]:
    match node:
        case ast.Constant(value=None):
            return {"type": "null"}
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return {} if name.lower() == "any" else {"type": _TYPES[name.lower()]}
        case ast.Subscript():
            return _container(*_generic(node))
    raise ValueError("no annotation")


def _generic(node: ast.Subscript) -> tuple[str, list[ast.expr]]:
    """Return the name of a generic type in lower case, and what stands in its brackets."""
    match node.value:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            inner = node.slice
            return name.lower(), inner.elts if isinstance(inner, ast.Tuple) else [inner]
    raise ValueError("no annotation")


def _container(name: str, parts: list[ast.expr]) -> dict[str, Any]:
    if name == "literal":
        return {"enum": [_constant(part) for part in parts]}
    match name, parts:
        case "tuple", [part, ast.Constant(value=value)] if value is ...:
            keyword, inner = "items", _joined(part)
        case "tuple", _:
            return {"type": "array", "prefixItems": [_joined(part) for part in parts]}
        case _, [part] if _TYPES[name] == "array":
            keyword, inner = "items", _joined(part)
        case _, [_, part] if _TYPES[name] == "object":
            keyword, inner = "additionalProperties", _joined(part)
        case _:
            raise ValueError("no container")
    return {"type": _TYPES[name]} | ({keyword: inner} if inner else {})


def _joined(node: ast.expr) -> dict[str, Any]:
    return _any_of([_annotation(choice) for choice in _choices(node)])


def _constant(node: ast.expr) -> Any:
    if isinstance(node, ast.Constant) and isinstance(node.value, str | int | None):
        return node.value
    raise ValueError("no constant")


def _any_of(choices: list[dict[str, Any]]) -> dict[str, Any]:
    """Join choices: plain types in one list, others as schemas, anything where one is that."""
    distinct = [choice for n, choice in enumerate(choices) if choice not in choices[:n]]
    if not distinct:
        raise ValueError("no type")
    if {} in distinct:
        return {}
    if len(distinct) == 1:
        return distinct[0]
    if all(choice.keys() == {"type"} for choice in distinct):
        return {"type": [choice["type"] for choice in distinct]}
    return {"anyOf": distinct}
