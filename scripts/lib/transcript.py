"""Turns in the making: calls get their numbers, results find their calls."""

import json
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from lib.conversation import Rejected, Role, ToolCall, Turn


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
        self._open: list[tuple[str, RawCall]] = []

    def say(
        self, role: Role, text: str, reasoning: str = "", calls: Iterable[RawCall] = ()
    ) -> None:
        """Add a turn of a person, of the system, or of the assistant with its calls.

        Raises:
            Rejected: a call has no name, or its arguments are no object.
        """
        made = [(tool_call(call.name, call.arguments, n), call) for n, call in self._number(calls)]
        self._open = [(call.id, raw) for call, raw in made]
        self.turns.append(Turn(role, text, reasoning, tuple(call for call, _ in made)))

    def result(self, text: str, id: str = "", name: str = "") -> None:
        """Add the result of a call.

        Args:
            id: the data set's own name of the call, "" if it has none.
            name: name of the function that was called, "" if it is not said.

        Raises:
            Rejected: no call waits for this result. Where neither `id` nor `name` decides, results
                come in the order of their calls.
        """
        waiting = self._open
        if id and any(raw.id for _, raw in waiting):
            waiting = [entry for entry in waiting if entry[1].id == id]
        elif name:
            waiting = [entry for entry in waiting if entry[1].name == name]
        if not waiting:
            raise Rejected("unmatched_result", f"no call waits for a result {id or name}".strip())
        self._open.remove(waiting[0])
        self.turns.append(Turn("tool", text, tool_call_id=waiting[0][0]))

    @property
    def waiting(self) -> int:
        """How many calls have no result yet."""
        return len(self._open)

    def _number(self, calls: Iterable[RawCall]) -> Iterable[tuple[int, RawCall]]:
        for call in calls:
            yield self._calls, call
            self._calls += 1


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
    text = arguments if isinstance(arguments, str) else None
    if text is not None:
        try:
            arguments = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise Rejected("invalid_call", f"arguments of {name}: {error}"[:200]) from error
    if not isinstance(arguments, Mapping):
        kind = type(arguments).__name__
        raise Rejected("invalid_call", f"arguments of {name} are {kind}"[:200])
    try:
        dumped = json.dumps(arguments, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise Rejected("invalid_call", f"arguments of {name}: {error}"[:200]) from error
    return ToolCall(id=f"call_{index}", name=name, arguments=dumped if text is None else text)
