"""Hermes Function Calling rows."""

import json

import pytest
from unit.formats.harness import accepted, outcome, reason, sample_oddities, texts
from unit.tool_prompts import HERMES, HERMES_EXTRACTION, HERMES_GLAIVE


def tool(name, **properties):
    parameters = {"type": "object", "properties": properties, "required": list(properties)}
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


WEATHER, TIME = tool("get_weather", city={"type": "string"}), tool("get_time")
TOOLS = json.dumps([WEATHER, TIME])
ASK = ("human", "Weather in Paris and Zürich?")
DONE = ("gpt", "Sunny in Paris, snow in Zürich.\n")


def call(name, **arguments):
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>\n"


def response(name, content):
    return f'<tool_response>\n{{"name": "{name}", "content": {content}}}\n</tool_response>\n'


def hermes(*turns, system=HERMES, tools=TOOLS, listed=None, **columns):
    """A row as the data set writes it; `tools` is None where the column is missing."""
    if system is not None:
        turns = (("system", system.format(tools if listed is None else listed)), *turns)
    row = {"id": "4f1c", "conversations": [{"from": who, "value": said} for who, said in turns]}
    return row | ({} if tools is None else {"tools": tools}) | columns


PARIS, ZURICH = call("get_weather", city="Paris"), call("get_weather", city="Zürich")
SUN, SNOW = response("get_weather", '{"sky": "sun"}'), response("get_weather", '{"sky": "snow"}')
LABELS = {"category": "Weather", "subcategory": "Forecast", "task": "Check the weather"}


def test_hermes_becomes_turns_calls_and_tools():
    row = hermes(ASK, ("gpt", PARIS + ZURICH), ("tool", SUN + SNOW), DONE, **LABELS)
    conversation = accepted("hermes", row)
    assert texts(conversation) == [
        ASK,
        ("gpt", ""),
        ("tool", '{"name": "get_weather", "content": {"sky": "sun"}}'),
        ("tool", '{"name": "get_weather", "content": {"sky": "snow"}}'),
        DONE,
    ]
    calls = conversation.turns[1].tool_calls
    assert [each.arguments for each in calls] == ['{"city": "Paris"}', '{"city": "Zürich"}']
    assert [turn.tool_call_id for turn in conversation.turns[2:4]] == [each.id for each in calls]
    assert json.loads(conversation.tools) == [WEATHER, TIME]
    assert set(conversation.repairs) == {"boilerplate_system_removed", "results_split"}


@pytest.mark.parametrize("system", [HERMES, HERMES_EXTRACTION, HERMES_GLAIVE])
def test_hermes_system_prompts_go_and_what_else_they_say_stays(system):
    row = hermes(ASK, DONE, system="You are Bob.\n\n" + system + "\n\nAnswer in French.")
    assert texts(accepted("hermes", row))[0] == ("system", "You are Bob.\n\nAnswer in French.")
    assert texts(accepted("hermes", hermes(ASK, DONE, system=system)))[0] == ASK


@pytest.mark.parametrize("column", [TOOLS, "[]", "null", "", None])
def test_hermes_tools_stand_in_the_column_or_in_the_prompt(column):
    in_prompt = hermes(ASK, ("gpt", PARIS), tools=column, listed=TOOLS)
    assert json.loads(accepted("hermes", in_prompt).tools) == [WEATHER, TIME]
    with_null = in_prompt | {"tools": column}
    assert accepted("hermes", with_null).tools == accepted("hermes", in_prompt).tools


def test_hermes_tools_may_stand_in_the_column_alone():
    row = hermes(ASK, ("gpt", PARIS), system="Be kind to {{me}}.")
    conversation = accepted("hermes", row)
    assert texts(conversation)[0] == ("system", "Be kind to {me}.")
    assert json.loads(conversation.tools) == [WEATHER, TIME]
    assert conversation.repairs == ()


def test_hermes_two_lists_of_tools_that_differ_are_rejected():
    assert reason("hermes", hermes(ASK, DONE, listed=json.dumps([WEATHER]))) == "invalid_tools"


@pytest.mark.parametrize("column", ["[]", "null", None, TOOLS])
def test_hermes_a_broken_list_in_the_prompt_is_rejected(column):
    broken = '[{"type": "object", "properties": {"a": {"type": "string"}}}}]'
    row = hermes(ASK, ("gpt", PARIS), system=HERMES_EXTRACTION, tools=column, listed=broken)
    assert reason("hermes", row) == "invalid_tools"


@pytest.mark.parametrize("column", ["null", "[]", None])
def test_hermes_a_chat_without_tools_keeps_its_system_prompt(column):
    plain = "You are a helpful assistant, with no access to external functions. "
    conversation = accepted("hermes", hermes(("human", "Hi"), DONE, system=plain, tools=column))
    assert texts(conversation)[0] == ("system", plain)
    assert (conversation.tools, conversation.repairs) == ("", ())


def test_hermes_json_mode_rows_keep_the_schema_in_their_prompt():
    schema = '{"title": "City", "properties": {"name": {"type": "string"}}}'
    system = f"You answer in JSON. This is the schema:\n<schema>\n{schema}\n</schema>\n"
    turns = [("system", system), ("human", "Name a city."), ("gpt", '{"name": "Graz"}')]
    row = hermes(*turns, system=None, tools=None, schema=schema, category="Cities")
    assert texts(accepted("hermes", row)) == turns


def test_hermes_rows_may_end_on_a_call_and_have_text_before_it():
    turns = accepted("hermes", hermes(ASK, ("gpt", "I look.\n" + PARIS))).turns
    assert (turns[-1].text, len(turns[-1].tool_calls)) == ("I look.", 1)


def test_hermes_results_find_their_calls_by_name_and_else_by_order():
    both = ("gpt", PARIS + call("get_time") + call("get_time", x=1))

    def answered(*results):
        turns = accepted("hermes", hermes(ASK, both, ("tool", "".join(results)))).turns
        ids = [each.id for each in turns[1].tool_calls]
        return [ids.index(turn.tool_call_id) for turn in turns[2:]]

    noon, night = response("get_time", '"noon"'), response("get_time", '"night"')
    plain = "<tool_response>\n{'time': None}\n</tool_response>\n"
    assert answered(noon, SUN, night) == [1, 0, 2]
    assert answered(plain, noon, night) == [0, 1, 2]
    assert answered(noon, plain, plain) == [1, 0, 2]


@pytest.mark.parametrize(
    "text",
    [
        '{"name": "notes.txt", "content": "a"}',
        '{"name": "get_time"}',
        '{"name": ["get_time"], "content": 1}',
        '["get_time"]',
        "[" * 100_000,
        "  free text\n",
        "",
    ],
)
def test_hermes_a_result_that_names_no_function_is_kept_to_the_character(text):
    for value in (f"<tool_response>\n{text}\n</tool_response>", text):
        turns = accepted("hermes", hermes(ASK, ("gpt", PARIS), ("tool", value), DONE)).turns
        assert (turns[2].text, turns[2].tool_call_id) == (text, turns[1].tool_calls[0].id)


def test_hermes_results_may_stand_in_several_turns():
    row = hermes(ASK, ("gpt", PARIS + ZURICH), ("tool", SUN), ("tool", SNOW), DONE)
    conversation = accepted("hermes", row)
    assert [turn.role for turn in conversation.turns] == ["human", "gpt", "tool", "tool", "gpt"]
    assert "results_split" not in conversation.repairs


def test_hermes_a_fence_around_a_call_is_taken_off():
    fenced = PARIS.replace("<tool_call>\n", "<tool_call>\n```json\n").replace("\n</", "\n```\n</")
    conversation = accepted("hermes", hermes(ASK, ("gpt", fenced)))
    assert conversation.turns[1].tool_calls[0].arguments == '{"city": "Paris"}'
    assert "call_fence_removed" in conversation.repairs


PYTHON_QUOTES = (
    '<tool_call>\\n{"arguments": {"queries": [\'How?\']}, "name": "get_weather"}\\n</tool_call>'
)
WITHOUT_FAITHFUL_FORM = {
    "python quotes": ([ASK, ("gpt", PYTHON_QUOTES)], "invalid_call"),
    "the name among the arguments": (
        [ASK, ("gpt", '<tool_call>\n{"arguments": {"name": "get_weather"}}\n</tool_call>')],
        "invalid_call",
    ),
    "no arguments": (
        [ASK, ("gpt", '<tool_call>\n{"name": "get_time", "arguments": null}\n</tool_call>')],
        "invalid_call",
    ),
    "no number": (
        [ASK, ("gpt", '<tool_call>\n{"name": "get_time", "arguments": {"n": NaN}}\n</tool_call>')],
        "invalid_call",
    ),
    "text after a call": ([ASK, ("gpt", PARIS + "Done.")], "invalid_call"),
    "a closing tag alone": ([ASK, ("gpt", "Done.\n</tool_call>")], "stray_tool_tag"),
    "a response without a call": ([ASK, ("tool", SUN), DONE], "unmatched_result"),
    "more responses than calls": ([ASK, ("gpt", PARIS), ("tool", SUN + SNOW)], "unmatched_result"),
    "fewer responses than calls": (
        [ASK, ("gpt", PARIS + ZURICH), ("tool", SUN), DONE],
        "unmatched_result",
    ),
    "a response of another function": (
        [ASK, ("gpt", PARIS), ("tool", response("get_time", 1))],
        "unmatched_result",
    ),
    "a call without a response": ([ASK, ("gpt", PARIS), ASK, DONE], "unmatched_result"),
    "text around a response": ([ASK, ("gpt", PARIS), ("tool", f"Well:\n{SUN}")], "stray_tool_tag"),
    "a response that is cut off": (
        [ASK, ("gpt", PARIS), ("tool", "<tool_response>\n{")],
        "stray_tool_tag",
    ),
    "an undeclared call": ([ASK, ("gpt", call("get_news"))], "undeclared_tool"),
    "an unknown role": ([ASK, ("narrator", "Hm."), DONE], "unknown_role"),
    "a call of another role": ([ASK, ("function_call", "get_weather")], "invalid_call"),
    "no question": ([DONE], "no_user_turn"),
}


@pytest.mark.parametrize("oddity", WITHOUT_FAITHFUL_FORM)
def test_hermes_rejects_what_has_no_faithful_form(oddity):
    turns, expected = WITHOUT_FAITHFUL_FORM[oddity]
    assert reason("hermes", hermes(*turns)) == expected


def test_hermes_a_call_in_a_role_of_its_own_is_a_call():
    called = ("Function_Call", '{"name": "get_weather", "arguments": {"city": "Paris"}}')
    turns = accepted("hermes", hermes(ASK, called, ("tool", SUN), DONE)).turns
    assert turns[1].tool_calls[0].arguments == '{"city": "Paris"}'


def test_hermes_a_bare_tool_without_parameters_becomes_a_tool():
    joke = {"name": "get_joke", "description": "A joke", "parameters": None}
    row = hermes(("human", "Joke?"), ("gpt", call("get_joke")), tools=json.dumps([WEATHER, joke]))
    conversation = accepted("hermes", row)
    weather, made = json.loads(conversation.tools)
    assert weather == WEATHER
    assert (made["type"], made["function"]["name"]) == ("function", "get_joke")
    assert made["function"]["parameters"]["type"] == "object"
    assert {"tool_wrapped", "parameters_rebuilt"} <= set(conversation.repairs)


def test_hermes_a_name_declared_twice():
    same = accepted("hermes", hermes(ASK, DONE, tools=json.dumps([WEATHER, WEATHER])))
    assert json.loads(same.tools) == [WEATHER]
    assert "duplicate_tool_dropped" in same.repairs
    other = tool("get_weather", place={"type": "string"})
    assert (
        reason("hermes", hermes(ASK, DONE, tools=json.dumps([WEATHER, other]))) == "invalid_tools"
    )


@pytest.mark.parametrize("column", ["{", "[{}]", '"get_time"', 5])
def test_hermes_a_column_that_lists_no_tools_is_rejected(column):
    assert reason("hermes", hermes(ASK, DONE) | {"tools": column}) == "invalid_tools"


@pytest.mark.parametrize(
    "row",
    [
        {},
        {"conversations": None},
        {"conversations": "Hi"},
        {"conversations": ""},
        {"conversations": {}},
        {"conversations": [{"from": "human", "value": None}]},
        {"conversations": [{"from": "human"}]},
        {"conversations": [["human", "Hi"]]},
    ],
)
def test_hermes_rows_of_another_shape_are_rejected(row):
    assert reason("hermes", row) == "malformed_row"


def test_hermes_a_row_without_turns_is_no_conversation():
    assert outcome("hermes", {"conversations": []}).reason == "no_conversation"


def test_hermes_samples_show_what_is_rejected_and_repaired():
    assert sample_oddities("hermes") == (
        {"invalid_tools", "invalid_call", "undeclared_tool", "unmatched_result"},
        {
            "boilerplate_system_removed",
            "call_fence_removed",
            "duplicate_tool_dropped",
            "parameters_rebuilt",
            "results_split",
            "tool_wrapped",
        },
    )
