"""Turns in the making: calls get their numbers, results find their calls."""

import json
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from lib.conversation import Rejected, Role, ToolCall, Turn
from lib.raw_shapes import check_depth


class RawCall(NamedTuple):
    """A call as a data set writes it.

    Attributes:
        name: name of the function.
        arguments: an object, or the JSON text of one, which is kept to the character.
        id: the data set's own name for the call, "" if it has none.
    """

    name: Any
    arguments: Any
    id: str = ""


class Transcript:
    """Collects the turns of one conversation in order.

    Attributes:
        turns: what was said so far.
    """

    def __init__(self) -> None:
        self.turns: list[Turn] = []
        self._calls = 0
        self._open: list[tuple[RawCall, ToolCall]] = []

    def say(
        self, role: Role, text: str, reasoning: str = "", calls: Iterable[RawCall] = ()
    ) -> None:
        """Add a turn of a person, of the system, or of the assistant with its calls.

        Results that follow answer the calls of this turn alone.

        Raises:
            Rejected: a call has no name, or its arguments are no object; or somebody else than
                the assistant reasons or calls.
        """
        self._open = [(call, self._numbered(call)) for call in calls]
        if role != "gpt" and (reasoning or self._open):
            raise Rejected("malformed_row", f"reasoning or a call in a {role} turn")
        self.turns.append(Turn(role, text, reasoning, tuple(call for _, call in self._open)))

    def result(self, text: str, id: str = "", name: str = "") -> None:
        """Add the result of the first waiting call that it can belong to.

        Results stay where they stand, in whatever order their calls are.

        Args:
            text: what the function returned.
            id: the data set's own name of the call, "" if it has none; it says nothing where the
                calls have no such names.
            name: name of the function that was called, "" if it is not said.

        Raises:
            Rejected: no call waits, or what the result says fits none of those that do.
        """
        have_ids = any(raw.id for raw, _ in self._open)
        for position, (raw, call) in enumerate(self._open):
            if (not id or not have_ids or raw.id == id) and (not name or raw.name == name):
                del self._open[position]
                self.turns.append(Turn("tool", text, tool_call_id=call.id))
                return
        raise Rejected("unmatched_result", f"no call waits for the result {id} {name}".rstrip())

    def _numbered(self, raw: RawCall) -> ToolCall:
        call = tool_call(raw.name, raw.arguments, self._calls)
        self._calls += 1
        return call


def tool_call(name: Any, arguments: Any, index: int) -> ToolCall:
    """Return a call with its arguments as the JSON text of an object.

    Args:
        name: name of the function.
        arguments: a mapping, or JSON text of one, which is kept to the character.
        index: position of the call in its conversation, which names it.

    Raises:
        Rejected: there is no name, or the arguments are no object.
    """
    if not isinstance(name, str) or not name:
        raise Rejected("invalid_call", f"function name {name!r}"[:120])
    try:
        value = json.loads(arguments) if isinstance(arguments, str) else arguments
        check_depth(value)
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise Rejected("invalid_call", f"arguments of {name}: {error}"[:200]) from error
    if not isinstance(value, Mapping):
        raise Rejected("invalid_call", f"arguments of {name} are {type(value).__name__}"[:200])
    return ToolCall(f"call_{index}", name, arguments if isinstance(arguments, str) else text)
