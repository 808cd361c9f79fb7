"""Shapes that several raw formats share."""

from collections.abc import Mapping
from typing import Any

from lib.cleaning import text_of
from lib.conversation import Rejected, Turn

_DEEPEST = 100
"""Levels of nesting that a value may have, far below where JSON readers give up."""


def check_depth(value: Any, levels: int = _DEEPEST) -> None:
    """Check that a JSON value is not nested so deep that a later stage could fail on it.

    Raises:
        ValueError: it has more than `levels` levels.
    """
    if not levels:
        raise ValueError("nested too deep")
    inner = value.values() if isinstance(value, Mapping) else value
    for item in inner if isinstance(value, Mapping | list) else ():
        check_depth(item, levels - 1)


def list_of(value: Any) -> list[Any]:
    """Return `value` if it is a list.

    Raises:
        Rejected: it is anything else; a text is no list of its characters.
    """
    if not isinstance(value, list):
        raise Rejected("malformed_row", f"list expected, found {type(value).__name__}")
    return value


def instruction_turns(instruction: Any, given: Any, answer: Any) -> tuple[Turn, Turn]:
    """Return the question and the answer of an instruction, what it is about, and an output.

    Args:
        given: the input column; None or blank where there is none. Placeholders such as "N/A" are
            part of the question like any other text: nobody but the writer can tell them from an
            input that says just that.

    Raises:
        Rejected: one of them is no text.
    """
    parts = (text_of(instruction), "" if given is None else text_of(given))
    spoken = [part for part in parts if part.strip()]
    return Turn("human", "\n\n".join(spoken)), Turn("gpt", text_of(answer))
