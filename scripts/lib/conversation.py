"""The one type of a conversation, and the record that it is stored as.

A record is one line of `sources/*.jsonl`, `merged/sharegpt.jsonl` and `responses/sharegpt.jsonl`;
docs/data-format.md describes it. Text is kept to the character. The types are msgspec's, which
makes and writes them several times faster than dataclasses and `json`: millions go by.
"""

import json
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, Literal, get_args

import msgspec
from msgspec import Struct
from xxhash import xxh3_64_hexdigest

Role = Literal["system", "human", "gpt", "tool"]
Split = Literal["train", "validation"]

_ENCODER = msgspec.json.Encoder()

ROLES: frozenset[str] = frozenset(get_args(Role))

REASONS = {
    "malformed_row": "the raw row has not the shape of its format",
    "unknown_role": "a turn has a role outside the closed table",
    "no_user_turn": "no turn of a person is left",
    "no_conversation": "the row holds no turn at all",
    "empty_turn": "a turn has neither text nor a tool call",
    "misplaced_system": "a system turn stands after other turns",
    "control_token": "text holds a chat control token such as <|im_end|>",
    "stray_think_tag": "a think tag stands outside a leading reasoning block",
    "stray_tool_tag": "a tag of a tool list, a call or a result stands where none can be read",
    "invalid_tools": "the list of tools is not a list of named functions",
    "invalid_call": "a tool call is cut off, has no name or its arguments are no JSON object",
    "undeclared_tool": "a call names a function that the conversation does not offer",
    "unmatched_result": "a tool result answers no call, or a call has no result",
    "neighbouring_answers": "two answers stand in a row that cannot be one turn",
    "unfinished_answer": "the mark that ends each answer of the data format is missing",
    "deleted_message": "the message was deleted",
    "failed_review": "reviewers refused the message, as spam for instance",
    "not_reviewed": "nobody has reviewed the message",
    "unfinished_tree": "the message belongs to a tree that was not ready for export",
    "orphan_message": "the message that this one answers is missing or was rejected",
    "not_on_best_path": "another message of the same tree was ranked better",
    "repeated_message": "another row of the source holds the same message",
    "continued_elsewhere": "another row of the source goes on with the same conversation",
    "repeated_prompt": "another row of the set of prompts asks the same",
    "over_quota": "the source has more rows than its max_samples (a set of prompts: max_prompts)",
}
"""Every reason why a raw row may be rejected, in one place."""

CHOICES = frozenset(
    (
        *("not_on_best_path", "repeated_message", "continued_elsewhere"),
        *("repeated_prompt", "over_quota"),
    )
)
"""Reasons that say nothing against a row: another one was chosen in its place."""

REPAIRS = {
    "surrogate_replaced": "a lone surrogate became U+FFFD",
    "nul_replaced": "a NUL character became U+FFFD",
    "systems_joined": "leading system turns were joined with a blank line",
    "empty_system_dropped": "an empty system turn was left out",
    "leading_answer_cut": "assistant turns before the first question were cut",
    "neighbours_joined": "neighbouring plain turns of one role were joined with a blank line",
    "call_joined": "a call became part of the answer right before it",
    "html_to_markdown": "HTML of an answer became Markdown",
    "page_noise_removed": "buttons and counters of a web page were taken out of an answer",
    "end_mark_removed": "the end-of-text mark of the data format was taken off",
    "boilerplate_system_removed": "the part of the system prompt that only listed the tools went",
    "reasoning_separated": "a leading think block became reasoning_content",
    "empty_turn_dropped": "a turn without any text at the end of the row was left out",
    "tool_wrapped": "a bare function became a tool",
    "tool_unwrapped": "a tool inside a tool was taken out",
    "parameters_rebuilt": "a map of parameters, or none at all, became a schema",
    "types_renamed": "types of another language became those of JSON schema",
    "required_moved": "the list of required parameters went to its place in the schema",
    "schema_nulls_dropped": "a keyword of a schema that was null was left out",
    "duplicate_tool_dropped": "a tool that was listed twice is listed once",
    "call_fence_removed": "the code fence around a call was taken off",
    "results_split": "one message with the results of several calls became one turn a call",
    "result_written_as_json": "a tool result that was an object or a list became its JSON text",
    "text_parts_joined": "a message whose text was a list of parts became one text",
    "side_branches_left_out": "of a tree of messages only the best path was taken",
    "later_questions_left_out": "of a prompt with several questions only the first stayed",
}
"""Every repair that may be counted, in one place."""


class Rejected(Exception):
    """A row that cannot be represented faithfully, and why.

    Raised inside, returned at the border.
    """

    def __init__(self, reason: str, detail: str = ""):
        assert reason in REASONS, reason
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail


class ToolCall(Struct, frozen=True, gc=False):
    """A call of a function; `arguments` is the JSON text of an object."""

    id: str
    name: str
    arguments: str


class Turn(Struct, frozen=True, gc=False):
    """What one side said: text, the reasoning before it, and calls of tools.

    Attributes:
        recorded: an answer of the corpus that stands as history among answers of the target; the
            target did not give it, so nothing is learned from it.
    """

    role: Role
    text: str
    reasoning: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str = ""
    recorded: bool = False


class Conversation(Struct, frozen=True, gc=False):
    """Turns in order and the tools on offer.

    Attributes:
        tools: JSON text of a non-empty list of tools in OpenAI's form, or "".
        source: name of the source, "" until the conversation is stored.
        id: identity from source and content, "" until the conversation is stored.
        split: "train" or "validation", "" before the merge.
        repairs: names of what was mended while reading; counted, never stored.
    """

    turns: tuple[Turn, ...]
    tools: str = ""
    source: str = ""
    id: str = ""
    split: Split | Literal[""] = ""
    repairs: tuple[str, ...] = ()

    def of_source(self, source: str) -> "Conversation":
        """Return the conversation with its source and the identity that follows from both."""
        identity = f"{source}-{self.fingerprint()}"
        return Conversation(self.turns, self.tools, source, identity, self.split, self.repairs)

    def fingerprint(self) -> str:
        """Return 16 hexadecimal digits that depend on turns and tools alone."""
        return _fingerprint(_ENCODER.encode(_content(self)))

    def prompt(self) -> str:
        """Return the text of the first turn of a person."""
        return next(turn.text for turn in self.turns if turn.role == "human")

    def answers(self) -> list[int]:
        """Return the positions of the turns that the drafter learns from."""
        return [
            position
            for position, turn in enumerate(self.turns)
            if turn.role == "gpt" and not turn.recorded
        ]


Converter = Callable[[Mapping[str, Any]], Conversation]


def rejecting(convert: Converter) -> Callable[[Mapping[str, Any]], Conversation | Rejected]:
    """Turn a raised rejection into a returned one.

    A row of a wrong shape (a missing key, a number where a list should be, markup that is nested
    without end) is rejected too, so that one bad row never stops a run.
    """

    @wraps(convert)
    def wrapper(row: Mapping[str, Any]) -> Conversation | Rejected:
        try:
            return convert(row)
        except Rejected as rejected:
            return rejected
        except (LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
            return Rejected("malformed_row", f"{type(error).__name__}: {error}")

    return wrapper


def to_record(conversation: Conversation) -> dict[str, Any]:
    """Return the record of a conversation: keys in the fixed order, empty ones left out."""
    record = {"id": conversation.id, "source": conversation.source, **_content(conversation)}
    if conversation.split:
        record["split"] = conversation.split
    return record


def stored_line(conversation: Conversation, source: str) -> tuple[str, bytes]:
    """Return the identity of a conversation in a source, and the line of its record there.

    That is what `of_source` and `to_record` give, written once instead of twice.
    """
    content = _ENCODER.encode(_content(conversation))
    identity = f"{source}-{_fingerprint(content)}"
    head = _ENCODER.encode({"id": identity, "source": source})
    return identity, b"".join((head[:-1], b",", memoryview(content)[1:], b"\n"))


def from_line(line: bytes) -> Conversation:
    """Return the conversation of the line of a record.

    Raises:
        ValueError: the line is not JSON, or no record.
    """
    return from_record(msgspec.json.decode(line))


def from_record(record: Mapping[str, Any]) -> Conversation:
    """Return the conversation of a record.

    Raises:
        ValueError: the record has another shape than `to_record` gives.
    """
    try:
        _require_text(record.get("tools", ""))
        return Conversation(
            turns=tuple(_turn_from_record(turn) for turn in record["conversations"]),
            tools=record.get("tools", ""),
            source=record["source"],
            id=record["id"],
            split=record.get("split", ""),
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"not a conversation record: {type(error).__name__}: {error}") from error


def _content(conversation: Conversation) -> dict[str, Any]:
    content: dict[str, Any] = {"conversations": [_turn_record(turn) for turn in conversation.turns]}
    if conversation.tools:
        content["tools"] = conversation.tools
    return content


def _fingerprint(content: bytes) -> str:
    return xxh3_64_hexdigest(content)


def _turn_record(turn: Turn) -> dict[str, Any]:
    record: dict[str, Any] = {"from": turn.role, "value": turn.text}
    if turn.reasoning:
        record["reasoning_content"] = turn.reasoning
    if turn.tool_calls:
        record["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for call in turn.tool_calls
        ]
    if turn.tool_call_id:
        record["tool_call_id"] = turn.tool_call_id
    if turn.recorded:
        record["recorded"] = True
    return record


def _turn_from_record(record: Mapping[str, Any]) -> Turn:
    if record["from"] not in ROLES:
        raise TypeError(f"turn of {record['from']!r}")
    _require_text(record["value"], record.get("reasoning_content", ""))
    return Turn(
        role=record["from"],
        text=record["value"],
        reasoning=record.get("reasoning_content", ""),
        tool_calls=tuple(_call_from_record(call) for call in record.get("tool_calls", ())),
        tool_call_id=record.get("tool_call_id", ""),
        recorded=record.get("recorded", False) is True,
    )


def _call_from_record(record: Mapping[str, Any]) -> ToolCall:
    function = record["function"]
    _require_text(record["id"], function["name"], function["arguments"])
    return ToolCall(record["id"], function["name"], function["arguments"])


def _require_text(*values: Any) -> None:
    for value in values:
        if not isinstance(value, str):
            raise TypeError(f"text expected, found {type(value).__name__}")


def json_without_escapes(text: str) -> str:
    r"""Return JSON text with each character as itself, as templates print it, not as `\u003c`.

    Text that is no JSON is returned as it is.
    """
    if "\\" not in text:
        return text
    try:
        return json.dumps(json.loads(text), ensure_ascii=False)
    except ValueError:
        return text


def to_messages(turns: tuple[Turn, ...]) -> list[dict[str, Any]]:
    """Return turns as chat templates expect them: OpenAI roles, arguments as objects.

    Assistant turns always carry `reasoning_content`, so that no template looks for reasoning
    inside the text of an answer.
    """
    names = {"system": "system", "human": "user", "gpt": "assistant", "tool": "tool"}
    messages: list[dict[str, Any]] = []
    for turn in turns:
        message: dict[str, Any] = {"role": names[turn.role], "content": turn.text}
        if turn.role == "gpt":
            message["reasoning_content"] = turn.reasoning
        if turn.tool_calls:
            message["tool_calls"] = [
                {
                    "id": call.id,
                    "type": "function",
                    "function": {"name": call.name, "arguments": json.loads(call.arguments)},
                }
                for call in turn.tool_calls
            ]
        if turn.tool_call_id:
            message["tool_call_id"] = turn.tool_call_id
        messages.append(message)
    return messages
