"""Qwen3.5 Tool Calling rows."""

import json

import pyarrow
import pyarrow.parquet
import pytest
from unit.formats.harness import accepted, reason, sample_oddities, texts
from unit.tool_prompts import HERMES_REASONING, QWEN3, QWEN35

from lib.readers import read_rows

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
        },
    },
}
TIMER = {
    "type": "function",
    "function": {
        "name": "set_timer",
        "parameters": {"type": "object", "properties": {"minutes": {"type": "integer"}}},
    },
}
TOOLS = json.dumps([WEATHER, TIMER])
ASK = ("user", "Weather in Ankara?")
DONE = ("assistant", "It is 21 °C.")
THOUGHT = "<think>\nI should call get_weather.\n</think>"
CALL = (
    '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Ankara", "days": 1}}\n</tool_call>'
)
XML_CALL = (
    "<tool_call>\n<function=get_weather>\n<parameter=city>\nAnkara\n</parameter>\n"
    "<parameter=days>\n1\n</parameter>\n</function>\n</tool_call>"
)
RESULT = ("tool", '{"temp": 21}')


def qwen(*turns, system=QWEN3, **columns):
    """A row as the data set writes it; a turn may be a pair or a whole message."""
    if system is not None:
        turns = (("system", system.format(TOOLS)), *turns)
    messages = [
        turn if isinstance(turn, dict) else {"role": turn[0], "content": turn[1]} for turn in turns
    ]
    return {"messages": messages, **columns}


@pytest.mark.parametrize("system", [QWEN3, QWEN35, HERMES_REASONING])
@pytest.mark.parametrize("call", [CALL, XML_CALL])
def test_qwen_toolcalling_becomes_turns_reasoning_calls_and_tools(system, call):
    row = qwen(ASK, ("assistant", f"{THOUGHT}\n\n{call}"), RESULT, DONE, system=system)
    conversation = accepted("qwen_toolcalling", row)
    assert texts(conversation) == [
        ("human", ASK[1]),
        ("gpt", ""),
        ("tool", RESULT[1]),
        ("gpt", DONE[1]),
    ]
    _, answer, result, _ = conversation.turns
    assert answer.reasoning == "I should call get_weather."
    [made] = answer.tool_calls
    assert (made.name, json.loads(made.arguments)) == ("get_weather", {"city": "Ankara", "days": 1})
    assert result.tool_call_id == made.id
    assert json.loads(conversation.tools) == [WEATHER, TIMER]
    assert set(conversation.repairs) == {"boilerplate_system_removed", "reasoning_separated"}


def test_qwen_toolcalling_reasoning_may_stand_before_text_and_calls():
    said = f"{THOUGHT}\n\nI look.\n\n{CALL}\n{CALL}"
    answer = accepted("qwen_toolcalling", qwen(ASK, ("assistant", said))).turns[1]
    assert (answer.text, answer.reasoning) == ("I look.", "I should call get_weather.")
    assert len(answer.tool_calls) == 2
    plain = accepted("qwen_toolcalling", qwen(ASK, ("assistant", f"{THOUGHT}\n\n{DONE[1]}")))
    assert (plain.turns[1].text, plain.turns[1].reasoning) == (DONE[1], answer.reasoning)


def test_qwen_toolcalling_a_call_inside_the_reasoning_is_none():
    said = f"<think>\nMaybe {CALL}?\n</think>\n\nNo."
    answer = accepted("qwen_toolcalling", qwen(ASK, ("assistant", said))).turns[1]
    assert (answer.text, answer.reasoning) == ("No.", f"Maybe {CALL}?")
    assert answer.tool_calls == ()


def test_qwen_toolcalling_keeps_the_rest_of_the_system_prompt():
    for system in (f"You are Bob.\n\n{QWEN3}", f"{QWEN35}\n\nYou are Bob."):
        row = qwen(ASK, DONE, system=system)
        assert texts(accepted("qwen_toolcalling", row))[0] == ("system", "You are Bob.")
    listed = "You are a helpful assistant with tools. <tools>{}</tools>"
    conversation = accepted("qwen_toolcalling", qwen(ASK, ("assistant", CALL), system=listed))
    assert texts(conversation)[0] == ("system", "You are a helpful assistant with tools.")


@pytest.mark.parametrize(
    "results",
    [
        ["<tool_response>\nfog\n</tool_response>\n<tool_response>\n sun\n\n</tool_response>"],
        ["<tool_response>\nfog\n</tool_response>", "<tool_response>\n sun\n\n</tool_response>\n"],
    ],
)
@pytest.mark.parametrize("role", ["user", "tool", "observation"])
def test_qwen_toolcalling_results_may_stand_between_tags(role, results):
    turns = [(role, result) for result in results]
    row = qwen(ASK, ("assistant", f"{CALL}\n{CALL}"), *turns, DONE)
    conversation = accepted("qwen_toolcalling", row)
    assert texts(conversation)[2:4] == [("tool", "fog"), ("tool", " sun\n")]
    ids = [call.id for call in conversation.turns[1].tool_calls]
    assert [turn.tool_call_id for turn in conversation.turns[2:4]] == ids
    assert ("results_split" in conversation.repairs) == (len(results) == 1)


def made(name, arguments, id=None):
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def beside(*calls, content=None, **keys):
    return {"role": "assistant", "content": content, "tool_calls": list(calls), **keys}


def test_qwen_toolcalling_calls_may_stand_beside_the_text():
    row = qwen(
        ASK,
        beside(
            made("get_weather", '{"city":  "Ankara"}', "b"),
            made("set_timer", {"minutes": 3}, "a"),
            reasoning_content="Both.",
        ),
        {"role": "tool", "content": "set", "tool_call_id": "a", "name": "set_timer"},
        {"role": "tool", "content": "fog", "tool_call_id": "b", "name": None},
        {"role": "assistant", "content": "Done.", "tool_calls": None, "tool_call_id": None},
        tools=TOOLS,
        system=None,
    )
    conversation = accepted("qwen_toolcalling", row)
    _, answer, first, second, last = conversation.turns
    assert (answer.text, answer.reasoning) == ("", "Both.")
    weather, timer = answer.tool_calls
    assert (weather.arguments, timer.arguments) == ('{"city":  "Ankara"}', '{"minutes": 3}')
    assert [(first.text, first.tool_call_id), (second.text, second.tool_call_id)] == [
        ("set", timer.id),
        ("fog", weather.id),
    ]
    assert last.text == "Done."
    assert json.loads(conversation.tools) == [WEATHER, TIMER]


def test_qwen_toolcalling_results_may_say_the_name_of_their_function():
    calls = beside(made("get_weather", "{}"), made("set_timer", "{}"))
    results = [
        {"role": "tool", "content": name, "name": name} for name in ("set_timer", "get_weather")
    ]
    turns = accepted("qwen_toolcalling", qwen(ASK, calls, *results)).turns
    named = {call.id: call.name for call in turns[1].tool_calls}
    assert [named[turn.tool_call_id] for turn in turns[2:]] == ["set_timer", "get_weather"]


@pytest.mark.parametrize("column", [[WEATHER, TIMER], TOOLS, None, "[]", []])
def test_qwen_toolcalling_tools_stand_in_a_column_or_in_the_prompt(column):
    row = qwen(ASK, ("assistant", CALL), tools=column)
    assert json.loads(accepted("qwen_toolcalling", row).tools) == [WEATHER, TIMER]
    if column not in (None, "[]", []):
        alone = qwen(ASK, ("assistant", CALL), system=None, tools=column)
        assert json.loads(accepted("qwen_toolcalling", alone).tools) == [WEATHER, TIMER]


def test_qwen_toolcalling_keys_that_parquet_fills_in_make_no_difference(tmp_path):
    path = tmp_path / "rows.parquet"
    row = qwen(
        ASK,
        beside(made("get_weather", {"city": "Ankara"}), made("set_timer", {"minutes": 3})),
        system=None,
        tools=[WEATHER, TIMER],
    )
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist([row]), path)
    [padded] = read_rows(path)
    assert padded != row
    found, expected = accepted("qwen_toolcalling", padded), accepted("qwen_toolcalling", row)
    assert (found.turns, json.loads(found.tools)) == (expected.turns, [WEATHER, TIMER])


def test_qwen_toolcalling_nulls_among_arguments_are_kept():
    called = CALL.replace('"Ankara"', "null")
    turns = [ASK, ("assistant", called), RESULT, beside(made("set_timer", '{"minutes": null}'))]
    _, first, _, last = accepted("qwen_toolcalling", qwen(*turns)).turns
    assert first.tool_calls[0].arguments == '{"city": null, "days": 1}'
    assert last.tool_calls[0].arguments == '{"minutes": null}'


def test_qwen_toolcalling_a_fence_around_a_call_is_taken_off():
    fenced = CALL.replace("<tool_call>\n", "<tool_call>\n```json\n").replace("\n</", "\n```\n</")
    conversation = accepted("qwen_toolcalling", qwen(ASK, ("assistant", f"{THOUGHT}\n{fenced}")))
    assert conversation.turns[1].tool_calls[0].name == "get_weather"
    assert "call_fence_removed" in conversation.repairs


WITHOUT_FAITHFUL_FORM = {
    "reasoning without an end": ([ASK, ("assistant", "<think>\nHm. It is 21.")], "stray_think_tag"),
    "reasoning without a beginning": (
        [ASK, ("assistant", "Hm.\n</think>\n\nIt is 21.")],
        "stray_think_tag",
    ),
    "a call after reasoning without an end": (
        [ASK, ("assistant", f"<think>\nHm.\n\n{CALL}"), RESULT, DONE],
        "stray_think_tag",
    ),
    "a call after reasoning without a beginning": (
        [ASK, ("assistant", f"Hm.\n</think>\n\n{CALL}"), RESULT, DONE],
        "stray_think_tag",
    ),
    "two think blocks": ([ASK, ("assistant", f"{THOUGHT}\n{THOUGHT}\nHi")], "stray_think_tag"),
    "reasoning at both places": (
        [ASK, {"role": "assistant", "content": f"{THOUGHT}\n\nHi.", "reasoning_content": "Hm."}],
        "stray_think_tag",
    ),
    "reasoning alone": ([ASK, ("assistant", THOUGHT)], "empty_turn"),
    "reasoning of a user": (
        [{"role": "user", "content": "Hi", "reasoning_content": "Hm."}, DONE],
        "malformed_row",
    ),
    "a call of a user": ([{**beside(made("set_timer", "{}")), "role": "user"}], "malformed_row"),
    "a call beside a result": (
        [
            ASK,
            ("assistant", CALL),
            {**beside(made("set_timer", "{}"), content="5"), "role": "tool"},
        ],
        "malformed_row",
    ),
    "reasoning beside a result": (
        [ASK, ("assistant", CALL), {"role": "tool", "content": "5", "reasoning_content": "Hm."}],
        "malformed_row",
    ),
    "no content": ([ASK, ("assistant", None)], "malformed_row"),
    "no content of a user": ([("user", None), DONE], "malformed_row"),
    "no result text": ([ASK, ("assistant", CALL), ("tool", None), DONE], "malformed_row"),
    "no user": ([("assistant", CALL), RESULT, DONE], "no_user_turn"),
    "nothing but a result of the user": (
        [("user", "<tool_response>\n5\n</tool_response>"), DONE],
        "unmatched_result",
    ),
    "a result in plain words of the user": (
        [ASK, ("assistant", CALL), ("user", '{"temp": 21}'), DONE],
        "unmatched_result",
    ),
    "words around a result": (
        [ASK, ("assistant", CALL), ("user", "<tool_response>\n5\n</tool_response>\nSo?"), DONE],
        "stray_tool_tag",
    ),
    "a call that is no JSON": (
        [ASK, ("assistant", "<tool_call>\nget_weather(Ankara)\n</tool_call>")],
        "invalid_call",
    ),
    "an XML call that is cut off": ([ASK, ("assistant", XML_CALL[:-20])], "invalid_call"),
    "calls in the text and beside it": (
        [ASK, beside(made("set_timer", "{}"), content=CALL)],
        "invalid_call",
    ),
    "a call without an object": ([ASK, beside(made("set_timer", "[]"))], "invalid_call"),
    "an undeclared call": ([ASK, beside(made("get_news", "{}"))], "undeclared_tool"),
    "another role": ([ASK, ("reasoning", "Hm."), DONE], "unknown_role"),
    "a result that names another call": (
        [
            ASK,
            beside(made("set_timer", "{}", "a")),
            {"role": "tool", "content": "5", "tool_call_id": "b"},
        ],
        "unmatched_result",
    ),
}


@pytest.mark.parametrize("oddity", WITHOUT_FAITHFUL_FORM)
def test_qwen_toolcalling_rejects_what_has_no_faithful_form(oddity):
    turns, expected = WITHOUT_FAITHFUL_FORM[oddity]
    assert reason("qwen_toolcalling", qwen(*turns)) == expected


def test_qwen_toolcalling_tools_in_other_words_are_none():
    row = qwen(ASK, ("assistant", CALL), system="You have these tools: {}")
    assert reason("qwen_toolcalling", row) == "undeclared_tool"


@pytest.mark.parametrize("turn", [("user", "Thanks!"), RESULT])
def test_qwen_toolcalling_rows_may_end_before_an_answer(turn):
    before = [ASK, ("assistant", CALL)] if turn == RESULT else [ASK, DONE]
    conversation = accepted("qwen_toolcalling", qwen(*before, turn))
    assert conversation.turns[-1].text == turn[1]


@pytest.mark.parametrize("messages", [None, "Hi", "", {}, ["Hi"], [{"role": "user"}]])
def test_qwen_toolcalling_rows_of_another_shape_are_rejected(messages):
    assert reason("qwen_toolcalling", {"messages": messages}) == "malformed_row"
    assert reason("qwen_toolcalling", {}) == "malformed_row"


def test_qwen_toolcalling_samples_show_what_is_rejected_and_repaired():
    assert sample_oddities("qwen_toolcalling") == (
        {"invalid_call", "malformed_row", "no_user_turn", "stray_think_tag", "undeclared_tool"},
        {
            "boilerplate_system_removed",
            "call_fence_removed",
            "reasoning_separated",
            "results_split",
        },
    )
