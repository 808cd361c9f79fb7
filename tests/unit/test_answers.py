"""What the target wrote, read back as a turn."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lib.answers import UnreadableAnswer, read_answer
from lib.conversation import ToolCall, Turn

KINDS = {
    "words": "string",
    "count": "integer",
    "size": "number",
    "sure": "boolean",
    "items": "array",
    "extra": "object",
}
TOOLS = json.dumps(
    [
        {
            "type": "function",
            "function": {
                "name": name,
                "parameters": {
                    "type": "object",
                    "properties": {key: {"type": kind} for key, kind in KINDS.items()},
                },
            },
        }
        for name in ("measure", "look_up")
    ]
)

CHARACTERS = st.characters(exclude_categories=["Cs"])
TEXT = st.text(CHARACTERS, max_size=20) | st.sampled_from(["42", "null", '{"a": 1}', " x\n", "<b>"])
TRIMMED = TEXT.map(str.strip)
JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=5,
)
ARGUMENTS = st.fixed_dictionaries(
    {},
    optional={
        "words": TEXT,
        "count": st.integers(),
        "size": st.floats(allow_nan=False, allow_infinity=False),
        "sure": st.booleans() | st.none(),
        "items": st.lists(JSON_VALUES, max_size=3),
        "extra": st.dictionaries(TEXT, JSON_VALUES, max_size=3),
        "not in the schema": TEXT,
    },
)


@st.composite
def answers(draw, thinking):
    """Draw a turn of the target, its calls numbered from 2."""
    calls = draw(
        st.lists(st.tuples(st.sampled_from(["measure", "look_up"]), ARGUMENTS), max_size=3)
    )
    return Turn(
        "gpt",
        draw(TRIMMED),
        draw(TRIMMED) if thinking else "",
        tuple(
            ToolCall(f"call_{2 + number}", name, json.dumps(arguments, ensure_ascii=False))
            for number, (name, arguments) in enumerate(calls)
        ),
    )


def written(renderer, turn):
    """Return what the target writes to say a turn: the render without prompt and end."""
    question = Turn("human", "Go")
    text = renderer.conversation([question, turn], TOOLS)
    return text.removeprefix(renderer.prompt([question], TOOLS)).removesuffix("<|im_end|>\n")


@pytest.mark.parametrize("thinking", [False, True])
@settings(derandomize=True, max_examples=150, deadline=None)
@given(data=st.data())
def test_reading_inverts_the_chat_template(render, thinking, data):
    turn = data.draw(answers(thinking))
    text = written(render(thinking), turn)
    assert read_answer(text, thinking=thinking, tools=TOOLS, calls_before=2) == turn


def call_of(*parameters, name="measure"):
    inside = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in parameters)
    return f"<tool_call>\n<function={name}>\n{inside}</function>\n</tool_call>"


@pytest.mark.parametrize(
    ("text", "thinking"),
    [
        ("I am still thinking", True),
        ("done</think>\n\nBut <think>again", True),
        ("done</think>\n\nA stray </think>", True),
        ("<think>\nThinking is off.", False),
        ("A stray </think> tag", False),
        (call_of(("count", "1"))[:-1], False),
        (call_of(("count", "1")).replace("</parameter>\n", ""), False),
        (call_of(("count", "1")).replace("<function=measure>", "<function=>"), False),
        (call_of(("count", "1")).replace("</function>", "and so on\n</function>"), False),
        (call_of(("count", "1"), ("count", "2")), False),
        (call_of(name="not_offered"), False),
        (call_of() + "\nThat was the call.", False),
        (call_of() + "\n<tool_call>\n", False),
        ("Write <tool_call> to call.", False),
    ],
)
def test_what_could_not_be_rendered_again_is_unreadable(text, thinking):
    with pytest.raises(UnreadableAnswer):
        read_answer(text, thinking=thinking, tools=TOOLS, calls_before=0)


def test_a_call_without_any_tools_on_offer_is_unreadable():
    with pytest.raises(UnreadableAnswer, match="not offered"):
        read_answer(call_of(), thinking=False, tools="", calls_before=0)


def arguments_of(text, tools=TOOLS):
    turn = read_answer(text, thinking=False, tools=tools, calls_before=0)
    return json.loads(turn.tool_calls[0].arguments, parse_constant=pytest.fail)


@pytest.mark.parametrize("value", ["a lot", "", "{", "NaN", "[1, Infinity]"])
def test_a_value_that_is_no_json_stays_text(value):
    assert arguments_of(call_of(("count", value))) == {"count": value}


@pytest.mark.parametrize(
    "parameters",
    [
        None,
        [],
        {"properties": None},
        {"properties": ["at"]},
        {"properties": {"at": True}},
        {"properties": {"at": {"enum": ["1", "2"]}}},
    ],
)
def test_a_parameter_without_a_readable_schema_is_text(parameters):
    function = {"name": "measure", "parameters": parameters}
    tools = json.dumps([{"type": "function", "function": function}])
    assert arguments_of(call_of(("at", "1")), tools) == {"at": "1"}
