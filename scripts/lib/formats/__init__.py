"""Raw data formats: one module each, found by name.

A format module has `convert(row) -> Conversation | Rejected`. It only says what the row means;
the rules that hold for every conversation are in `lib/cleaning.py`.

A format whose conversations span rows has instead `group(row) -> str`, which names the rows that
belong together, and `combine(rows) -> list[Combined]`, which says what becomes of such a group.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from lib.conversation import Conversation, Rejected

Combined = tuple[Sequence[int], Conversation | Rejected]
"""Positions of rows in their group, and what became of them together."""


@dataclass(frozen=True)
class RowFormat:
    """A format whose rows stand alone.

    Attributes:
        convert: from a row to its fate.
    """

    convert: Callable[[Any], Conversation | Rejected]


@dataclass(frozen=True)
class GroupFormat:
    """A format whose conversations span rows.

    Attributes:
        group: names the group of a row.
        combine: from the rows of one group to their fates; each position occurs exactly once.
    """

    group: Callable[[Mapping[str, Any]], str]
    combine: Callable[[Sequence[Any]], Sequence[Combined]]


def format_names() -> list[str]:
    """Return the names of all formats, sorted."""
    folder = Path(__file__).parent
    return sorted(path.stem for path in folder.glob("*.py") if path.stem != "__init__")


def load_format(name: str) -> RowFormat | GroupFormat:
    """Return a format.

    Raises:
        ValueError: there is no format of that name.
    """
    if name not in format_names():
        raise ValueError(f"unknown format {name!r}; there are {', '.join(format_names())}")
    module = import_module(f"lib.formats.{name}")
    if hasattr(module, "group"):
        return GroupFormat(module.group, module.combine)
    return RowFormat(module.convert)
