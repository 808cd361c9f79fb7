"""Glaive Function Calling v2 rows."""

import json

import pytest
from unit.formats.harness import accepted, outcome, reason, sample_oddities, texts


def function(name, **properties):
    return {"name": name, "parameters": {"type": "object", "properties": properties}}


FUNCTIONS = (function("get_weather"), function("get_time"))


def glaive(*turns, functions=FUNCTIONS):
    """A row as the data set writes it: heads, end marks and pretty-printed functions."""
    listed = "\n\n".join(json.dumps(each, indent=4) for each in functions)
    system = f"SYSTEM: You have functions. Use them if required -\n{listed}\n"
    return {"system": system, "chat": "\n\n\n".join(turns) + "\n\n\n"}


def called(name, arguments="'{}'"):
    return f'ASSISTANT: <functioncall> {{"name": "{name}", "arguments": {arguments}}} <|endoftext|>'


def weather_call(arguments):
    return glaive(
        "USER: Weather?",
        called("get_weather", arguments),
        'FUNCTION RESPONSE: {"sky": "blue"}',
        "ASSISTANT: Blue. <|endoftext|>",
    )


def test_glaive_becomes_turns_calls_and_tools():
    conversation = accepted("glaive_v2", weather_call("""'{"city": "Graz"}'"""))
    question, call, result, last = conversation.turns
    assert (question.role, question.text) == ("human", "Weather?")
    assert (call.role, call.text) == ("gpt", "")
    assert call.tool_calls[0].name == "get_weather"
    assert call.tool_calls[0].arguments == '{"city": "Graz"}'
    assert (result.role, result.text) == ("tool", '{"sky": "blue"}')
    assert result.tool_call_id == call.tool_calls[0].id
    assert (last.role, last.text) == ("gpt", "Blue.")
    offered = [tool["function"] for tool in json.loads(conversation.tools)]
    assert offered == list(FUNCTIONS)
    assert set(conversation.repairs) == {
        "boilerplate_system_removed",
        "end_mark_removed",
        "tool_wrapped",
    }


def test_glaive_without_functions_is_a_plain_chat():
    row = {
        "system": "SYSTEM: You are a helpful assistant, with no access to external functions.\n\n",
        "chat": "USER: Hi\nthere\n\nASSISTANT: Hello <|endoftext|>\n\nUSER: Bye",
    }
    conversation = accepted("glaive_v2", row)
    assert texts(conversation) == [("human", "Hi\nthere"), ("gpt", "Hello"), ("human", "Bye")]
    assert conversation.tools == ""


@pytest.mark.parametrize(
    ("arguments", "value"),
    [
        ("""'{"message": "Hey, let's meet"}'""", {"message": "Hey, let's meet"}),
        ("""'{"message": "let\\'s meet"}'""", {"message": "let's meet"}),
        ("""'{\n  "city": "Graz",\n  "n": 1\n}'""", {"city": "Graz", "n": 1}),
        ("""{"city": "Graz"}""", {"city": "Graz"}),
        ("'{}'", {}),
    ],
)
def test_glaive_arguments_that_are_an_object_are_read(arguments, value):
    call = accepted("glaive_v2", weather_call(arguments)).turns[1].tool_calls[0]
    assert json.loads(call.arguments) == value


@pytest.mark.parametrize(
    "arguments",
    [
        """'["Graz"]'""",
        '["Graz"]',
        "null",
        "'null'",
        "'[User provided data]'",
        """'{"n": Infinity}'""",
        """'{"city": "Graz"}'}""",
        "",
        "'" + "[" * 100_000 + "'",
    ],
)
def test_glaive_arguments_that_are_no_object_are_rejected(arguments):
    assert reason("glaive_v2", weather_call(arguments)) in ("invalid_call", "malformed_row")


def test_glaive_keeps_the_text_before_a_call():
    with_text = called("get_weather").replace("<functioncall>", "I will look. <functioncall>")
    call = accepted("glaive_v2", glaive("USER: Weather?", with_text)).turns[1]
    assert (call.text, len(call.tool_calls)) == ("I will look.", 1)


def test_glaive_calls_are_told_apart_and_answered_in_order():
    row = glaive(
        "USER: Weather and time?",
        called("get_weather"),
        "FUNCTION RESPONSE: blue",
        called("get_time"),
        "FUNCTION RESPONSE: noon",
        "ASSISTANT: Blue at noon. <|endoftext|>",
    )
    turns = accepted("glaive_v2", row).turns
    ids = [turn.tool_calls[0].id for turn in turns if turn.tool_calls]
    assert len(set(ids)) == 2
    assert [turn.tool_call_id for turn in turns if turn.role == "tool"] == ids


WITHOUT_FAITHFUL_FORM = {
    "a cut call": (["USER: Weather?", called("get_weather").replace("}'}", "")], "invalid_call"),
    "another key for the arguments": (
        ["USER: Weather?", called("get_weather").replace("arguments", "parameters")],
        "invalid_call",
    ),
    "a foreign call": (
        ["USER: Weather?", 'ASSISTANT: AI to= get_weather: {"city": "Graz"}'],
        "invalid_call",
    ),
    "an undeclared call": (["USER: Weather?", called("get_news")], "undeclared_tool"),
    "a response without a call": (
        ["USER: Weather?", "FUNCTION RESPONSE: blue", "ASSISTANT: Blue."],
        "unmatched_result",
    ),
    "a response after plain text": (
        ["USER: Weather?", "ASSISTANT: One moment.", "FUNCTION RESPONSE: blue"],
        "unmatched_result",
    ),
    "an empty question": (["USER: ", "ASSISTANT: Hello <|endoftext|>"], "empty_turn"),
    "an empty answer": (["USER: Hi", "ASSISTANT:  <|endoftext|>"], "empty_turn"),
    "a mark in a question": (["USER: Open<|endoftext|>", "ASSISTANT: Hello"], "control_token"),
    "a mark in an answer": (
        ["USER: Hi", "ASSISTANT: Open<|endoftext|>AI <|endoftext|>"],
        "control_token",
    ),
    "no head": (["Hello"], "malformed_row"),
    "text before the first head": (["Hello", "USER: Hi"], "malformed_row"),
}


@pytest.mark.parametrize("oddity", WITHOUT_FAITHFUL_FORM)
def test_glaive_rejects_what_has_no_faithful_form(oddity):
    turns, expected = WITHOUT_FAITHFUL_FORM[oddity]
    assert reason("glaive_v2", glaive(*turns)) == expected


def test_glaive_tools_with_two_definitions_of_a_name_are_rejected():
    same = (function("f"), function("f"))
    assert accepted("glaive_v2", glaive("USER: Hi", functions=same))
    different = (function("f"), function("f", city={"type": "string"}))
    assert reason("glaive_v2", glaive("USER: Hi", functions=different)) == "invalid_tools"
    cut = {"system": 'SYSTEM: -\n{\n  "name": "f",\n', "chat": "USER: Hi"}
    assert reason("glaive_v2", cut) == "invalid_tools"


def test_glaive_functions_may_hold_blank_lines_and_braces():
    odd = {"name": "f", "description": "a {b}\n\n{c"}
    system = "SYSTEM: -\n" + json.dumps(odd, indent=4).replace('",\n', '",\n\n')
    conversation = accepted("glaive_v2", {"system": system, "chat": "USER: Hi"})
    assert [tool["function"] for tool in json.loads(conversation.tools)] == [odd]


@pytest.mark.parametrize(
    "text",
    [
        "a\n\nb",
        "a\n\n\n\nb",
        "    indented",
        "a\u0085",
        "\u2028a\u2028",
        "said\nUSER: not a head",
        "a USER: b",
        "<functioncall> in a question",
    ],
)
def test_glaive_keeps_the_text_of_a_turn_to_the_character(text):
    conversation = accepted("glaive_v2", glaive(f"USER: {text}", "ASSISTANT: Hm. <|endoftext|>"))
    assert texts(conversation) == [("human", text), ("gpt", "Hm.")]


def test_glaive_a_head_after_a_line_of_blanks_is_a_head():
    row = {"system": "", "chat": "\n USER: Hi\n  \nASSISTANT: Hello <|endoftext|> \n"}
    assert [text.strip() for _, text in texts(accepted("glaive_v2", row))] == ["Hi", "Hello"]


@pytest.mark.parametrize("filler", ["\n", " ", "\n ", "<", "{", "USER: ", "<functioncall> "])
def test_glaive_long_rows_are_no_trap(filler):
    """A pattern that tries every way to divide a run of blanks would never end here."""
    long = filler * (100_000 // len(filler))
    assert outcome("glaive_v2", glaive(f"USER: a{long}b", f"ASSISTANT: a{long}b"))
    assert outcome("glaive_v2", weather_call(f"{long}'{{}}'{long}x"))


def test_glaive_v2_samples_show_what_is_rejected_and_repaired():
    assert sample_oddities("glaive_v2") == (
        {"empty_turn", "invalid_call", "undeclared_tool", "unmatched_result"},
        {"boilerplate_system_removed", "end_mark_removed", "tool_wrapped"},
    )
