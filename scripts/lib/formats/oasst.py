"""OpenAssistant: trees of messages; the best path through each is one conversation.

A row is a message, and the rows of a tree belong together, or it is a whole tree whose messages
are nested. People ranked some of the replies to a message, 0 being the best. Where nobody did, a
reply that was replied to itself is taken before one that was not, and then the smallest id.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from lib.cleaning import cleaned, role_of, text_of
from lib.conversation import Conversation, Rejected, Turn, rejecting
from lib.formats import Combined
from lib.raw_shapes import list_of

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class _Message:
    """A message of a tree.

    Attributes:
        position: place among the rows, by which it is rejected; no part of what it says.
        parent: id of the message that this one answers, None at the root.
        rank: place among the replies to the same message, None if nobody ranked it.
        flaw: reason and detail why it cannot be part of a conversation, None if it can.
    """

    position: int = field(compare=False)
    id: str
    parent: str | None
    turn: Turn
    rank: int | None
    flaw: tuple[str, str] | None


def group(row: Mapping[str, Any]) -> str:
    """Return the tree that a row belongs to."""
    return text_of(row["message_tree_id"])


def combine(rows: Sequence[Any]) -> list[Combined]:
    """Convert the rows of a tree, in any order.

    A message is `{"message_id", "parent_id", "text", "role", "rank", "review_result", "deleted",
    "message_tree_id", "tree_state"}` and more. Those on the best path are one conversation, each
    of the others is rejected; what is wrong with one (a control token in its text, say) keeps
    that message alone off the path, and the replies to it. A message that stands in several rows
    is taken once; if these rows differ, nothing says which one is right, and all are rejected. Of
    several roots the best is taken, as of replies. Messages in a circle hang on no root.

    A row may be a whole tree as well: `{"message_tree_id", "tree_state", "prompt": {…, "replies":
    […]}}`.
    """
    fates: list[Combined] = []
    messages: list[_Message] = []
    for position, row in enumerate(rows):
        if isinstance(row, Mapping) and "prompt" in row:
            fates.append(((position,), _convert_tree(row)))
            continue
        try:
            messages.append(_message(row, position))
        except Rejected as rejected:
            fates.append(((position,), rejected))
    distinct, copies = _without_copies(messages)
    path, left_out = _best_path(distinct)
    if path:
        conversation = Conversation(tuple(message.turn for message in path))
        fates.append((tuple(message.position for message in path), conversation))
    return fates + [((n,), rejected) for n, rejected in {**copies, **left_out}.items()]


@rejecting
def _convert_tree(row: Mapping[str, Any]) -> Conversation:
    """Convert a row that is a whole tree; one message of a wrong shape spoils the row."""
    messages = [_message(raw, position) for position, raw in enumerate(_flattened(row))]
    if len({message.id for message in messages}) < len(messages):
        raise Rejected("malformed_row", "several messages have one id")
    path, left_out = _best_path(messages)
    if not path:
        raise left_out[messages[0].position]
    repairs = ("side_branches_left_out",) if left_out else ()
    return Conversation(tuple(message.turn for message in path), repairs=repairs)


def _flattened(tree: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the messages of a tree, root first, in the shape of those that are rows.

    The nesting says what answers what. Trees are written in full, with counts of reviews and
    without nulls, or with what is necessary alone; in the latter form no message has a result of
    its reviews, and the ones that failed have been taken out.
    """
    of_tree = {name: tree[name] for name in ("message_tree_id", "tree_state")}
    waiting: list[tuple[Mapping[str, Any], str | None]] = [(tree["prompt"], None)]
    while waiting:
        raw, parent = waiting.pop()
        reviewed = None if "review_count" in raw else True
        yield {"review_result": reviewed, **raw, **of_tree, "parent_id": parent}
        replies = raw.get("replies")
        if replies is not None:
            waiting += [(reply, raw["message_id"]) for reply in list_of(replies)]


def _message(row: Any, position: int) -> _Message:
    if not isinstance(row, Mapping):
        raise Rejected("malformed_row", f"a message expected, found {type(row).__name__}")
    _value(row, "message_tree_id", str)
    parent = _optional(row, "parent_id", str)
    turn = Turn(role_of(row.get("role")), _value(row, "text", str))
    return _Message(
        position=position,
        id=_value(row, "message_id", str),
        parent=parent,
        turn=turn,
        rank=_optional(row, "rank", int),
        flaw=_flaw(row, turn, is_root=parent is None),
    )


def _flaw(row: Mapping[str, Any], turn: Turn, is_root: bool) -> tuple[str, str] | None:
    state = _value(row, "tree_state", str)
    review_result = _optional(row, "review_result", bool)
    if state != "ready_for_export":
        return "unfinished_tree", state[:80]
    if _optional(row, "deleted", bool):
        return "deleted_message", ""
    if review_result is None:
        return "not_reviewed", ""
    if not review_result:
        return "failed_review", ""
    if is_root and turn.role != "human":
        return "orphan_message", f"a {turn.role} turn that answers no message"
    question = () if turn.role == "human" else (Turn("human", "a question"),)
    outcome = cleaned(Conversation((*question, turn)))
    return (outcome.reason, outcome.detail) if isinstance(outcome, Rejected) else None


def _value(row: Mapping[str, Any], name: str, kind: type[Value]) -> Value:
    value = row.get(name)
    if type(value) is not kind:  # a bool is no rank
        found = type(value).__name__
        raise Rejected("malformed_row", f"{name}: {kind.__name__} expected, found {found}")
    return value


def _optional(row: Mapping[str, Any], name: str, kind: type[Value]) -> Value | None:
    return None if row.get(name) is None else _value(row, name, kind)


def _without_copies(
    messages: Sequence[_Message],
) -> tuple[list[_Message], dict[int, Rejected]]:
    """Return one message of each id, and why the other rows are rejected."""
    by_id: dict[str, list[_Message]] = {}
    for message in messages:
        by_id.setdefault(message.id, []).append(message)
    distinct: list[_Message] = []
    rejected: dict[int, Rejected] = {}
    for first, *others in by_id.values():
        if all(other == first for other in others):
            distinct.append(first)
            again = Rejected("repeated_message", first.id)
        else:
            again = Rejected("malformed_row", f"several messages have the id {first.id}")
            others.append(first)
        rejected |= {other.position: again for other in others}
    return distinct, rejected


def _best_path(messages: Sequence[_Message]) -> tuple[list[_Message], dict[int, Rejected]]:
    """Return the messages of the best path, root first, and why each other one is left out."""
    left_out = {each.position: Rejected(*each.flaw) for each in messages if each.flaw}
    replies: dict[str | None, list[_Message]] = {}
    for message in messages:
        if not message.flaw:
            replies.setdefault(message.parent, []).append(message)

    def preference(message: _Message) -> tuple[bool, int, bool, str]:
        return message.rank is None, message.rank or 0, message.id not in replies, message.id

    path: list[_Message] = []
    siblings = replies.pop(None, [])
    while siblings:
        best, *others = sorted(siblings, key=preference)
        path.append(best)
        siblings = replies.pop(best.id, [])
        while others:
            other = others.pop()
            left_out[other.position] = Rejected("not_on_best_path", f"{best.id} was taken")
            others += replies.pop(other.id, [])
    for orphans in replies.values():
        for orphan in orphans:
            left_out[orphan.position] = Rejected("orphan_message", f"it answers {orphan.parent}")
    return path, left_out
