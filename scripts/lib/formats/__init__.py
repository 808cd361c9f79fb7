"""Raw data formats: one module each, found by name.

A format module has `convert(row) -> Conversation | Rejected`. It only says what the row means;
the rules that hold for every conversation are in `lib/cleaning.py`.
"""

from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from lib.conversation import Conversation, Rejected

Convert = Callable[[Mapping[str, Any]], Conversation | Rejected]


def format_names() -> list[str]:
    """Return the names of all formats, sorted."""
    folder = Path(__file__).parent
    return sorted(path.stem for path in folder.glob("*.py") if path.stem != "__init__")


def converter(name: str) -> Convert:
    """Return the `convert` function of a format.

    Raises:
        ValueError: there is no format of that name.
    """
    if name not in format_names():
        raise ValueError(f"unknown format {name!r}; there are {', '.join(format_names())}")
    convert: Convert = import_module(f"lib.formats.{name}").convert
    return convert
