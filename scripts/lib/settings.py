"""Typed settings of a stage from the JSON text that its rule hands over."""

from dataclasses import fields
from typing import Any, TypeVar

import msgspec

Settings = TypeVar("Settings")


def read_settings(kind: type[Settings], text: str) -> Settings:
    """Return the dataclass `kind` filled from the JSON text of an object.

    The configuration was checked against the schema before; this keeps script and schema in step.

    Raises:
        ValueError: the text is no JSON object, has keys that the stage does not know, or a value
            of another type than the stage expects.
    """
    values: Any = msgspec.json.decode(text)
    if not isinstance(values, dict):
        raise ValueError(f"settings must be a JSON object, not {type(values).__name__}")
    known = {field.name for field in fields(kind)}  # type: ignore[arg-type]
    if unknown := sorted(set(values) - known):
        raise ValueError(f"unknown settings {', '.join(unknown)}; known are {sorted(known)}")
    return msgspec.convert(values, kind)
