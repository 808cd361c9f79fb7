"""Glaive Function Calling v2 rows."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from unit.formats.harness import accepted, outcome, reason, sample_oddities, texts

WITH_FUNCTIONS = (
    "You are a helpful assistant with access to the following functions. Use them if required -"
)
WITHOUT_FUNCTIONS = "You are a helpful assistant, with no access to external functions."
END = " <|endoftext|>"


def function(name, **properties):
    return {"name": name, "parameters": {"type": "object", "properties": properties}}


FUNCTIONS = (function("get_weather"), function("get_time"))


def pretty(*functions):
    return "\n\n".join(json.dumps(each, indent=4) for each in functions)


def glaive(*turns, functions=FUNCTIONS):
    """A row as the data set writes it: heads, end marks and pretty-printed functions."""
    system = f"SYSTEM: {WITH_FUNCTIONS}\n{pretty(*functions)}\n"
    return {"system": system, "chat": "\n\n\n".join(turns) + "\n\n\n"}


def called(name, arguments="'{}'"):
    return f'ASSISTANT: <functioncall> {{"name": "{name}", "arguments": {arguments}}}{END}'


def weather_call(arguments):
    return glaive(
        "USER: Weather?",
        called("get_weather", arguments),
        'FUNCTION RESPONSE: {"sky": "blue"}',
        f"ASSISTANT: Blue.{END}",
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
        "system": f"SYSTEM: {WITHOUT_FUNCTIONS}\n\n",
        "chat": f"USER: Hi\nthere\n\nASSISTANT: Hello{END}\n\nUSER: Bye",
    }
    conversation = accepted("glaive_v2", row)
    assert texts(conversation) == [("human", "Hi\nthere"), ("gpt", "Hello"), ("human", "Bye")]
    assert conversation.tools == ""


def with_system(system):
    return {"system": system, "chat": f"USER: Hi\n\n\nASSISTANT: Hello{END}\n\n\n"}


@pytest.mark.parametrize("known", [WITHOUT_FUNCTIONS, f"{WITH_FUNCTIONS}\n{pretty(*FUNCTIONS)}"])
@pytest.mark.parametrize(
    ("around", "kept"),
    [
        ("SYSTEM: {}\n", []),
        ("{}", []),
        ("SYSTEM: You are Bob.\n{}\n", ["You are Bob."]),
        ("SYSTEM: {}\n\n\n  Answer in French.  \n", ["  Answer in French.  "]),
        ("SYSTEM: You are Bob. {} Be brief.\n", ["You are Bob.\n\nBe brief."]),
    ],
)
def test_glaive_system_text_besides_the_known_sentence_stays(known, around, kept):
    conversation = accepted("glaive_v2", with_system(around.format(known)))
    systems = [turn.text for turn in conversation.turns if turn.role == "system"]
    assert systems == kept
    assert "boilerplate_system_removed" in conversation.repairs
    assert bool(conversation.tools) == (known != WITHOUT_FUNCTIONS)


@pytest.mark.parametrize("kept", ["You are Bob.", "You have functions.", "{braces} in a line"])
def test_glaive_system_text_without_a_known_sentence_stays(kept):
    conversation = accepted("glaive_v2", with_system(f"SYSTEM: Well:  {kept}\n\n"))
    assert texts(conversation)[0] == ("system", f"Well:  {kept}")
    assert "boilerplate_system_removed" not in conversation.repairs
    assert texts(accepted("glaive_v2", with_system("")))[0] == ("human", "Hi")


@pytest.mark.parametrize(
    "system",
    [
        f"{WITH_FUNCTIONS}\n" + '{\n  "name": "f",\n',
        f"{WITH_FUNCTIONS}\n" + "{'name': 'f'}",
        f"{WITH_FUNCTIONS}\n" + "{" * 100_000,
        f"{WITH_FUNCTIONS}\n" + '{"f": ' * 100_000,
        f"{WITH_FUNCTIONS}\n{pretty(FUNCTIONS[0])},\n{pretty(FUNCTIONS[1])}",
        f"{WITH_FUNCTIONS}\n{pretty(FUNCTIONS[0])}\nand also\n{pretty(FUNCTIONS[1])}",
        f"You can use these:\n{pretty(*FUNCTIONS)}",
        f"{WITHOUT_FUNCTIONS}\n{pretty(*FUNCTIONS)}",
    ],
)
def test_glaive_functions_that_cannot_be_read_or_placed_are_rejected(system):
    assert reason("glaive_v2", with_system(f"SYSTEM: {system}\n")) == "invalid_tools"


@pytest.mark.parametrize(
    ("arguments", "value"),
    [
        ("""'{"message": "Hey, let's meet"}'""", {"message": "Hey, let's meet"}),
        ("""'{"message": "let\\'s meet"}'""", {"message": "let's meet"}),
        ("""'{"path": "C:\\\\\\'s"}'""", {"path": "C:\\'s"}),
        ("""'{"path": "C:\\\\"}'""", {"path": "C:\\"}),
        ("""'{\n  "city": "Graz",\n  "n": 1\n}'""", {"city": "Graz", "n": 1}),
        ("""{"city": "Graz"}""", {"city": "Graz"}),
        ("'{}'", {}),
    ],
)
def test_glaive_arguments_that_are_an_object_are_read(arguments, value):
    call = accepted("glaive_v2", weather_call(arguments)).turns[1].tool_calls[0]
    assert json.loads(call.arguments) == value


QUOTED = st.text("ab'\"\\{}\n<é ", max_size=9)


@given(st.dictionaries(QUOTED, QUOTED, max_size=3))
def test_glaive_arguments_are_read_however_their_quotes_are_written(value):
    dumped = json.dumps(value, ensure_ascii=False)
    escaped = dumped.replace("'", "\\'")
    for arguments in (f"'{dumped}'", f"'{escaped}'", dumped):
        [made] = accepted("glaive_v2", weather_call(arguments)).turns[1].tool_calls
        assert made.arguments == dumped


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
    assert reason("glaive_v2", weather_call(arguments)) == "invalid_call"


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
        f"ASSISTANT: Blue at noon.{END}",
    )
    turns = accepted("glaive_v2", row).turns
    ids = [turn.tool_calls[0].id for turn in turns if turn.tool_calls]
    assert len(set(ids)) == 2
    assert [turn.tool_call_id for turn in turns if turn.role == "tool"] == ids


REPLACED = "<|endoftext|>\n\n\nASSISTANT:"
"""What the makers of the data set put in the place of "AI:", also inside words."""

WITHOUT_FAITHFUL_FORM = {
    "a cut call": (
        ["USER: Weather?", called("get_weather").replace("}'}" + END, "")],
        "invalid_call",
    ),
    "another key for the arguments": (
        ["USER: Weather?", called("get_weather").replace("arguments", "parameters")],
        "invalid_call",
    ),
    "text after a call": (
        ["USER: Weather?", called("get_weather").replace(END, " There." + END)],
        "invalid_call",
    ),
    "two calls in an answer": (
        ["USER: Weather?", called("get_weather").replace(END, "") + called("get_time")[10:]],
        "invalid_call",
    ),
    "a foreign call": (
        ["USER: Song?", f'ASSISTANT: Sure.\n\n\nAI to= get_weather: {{"city": "Graz"}}{END}'],
        "invalid_call",
    ),
    "an undeclared call": (["USER: Weather?", called("get_news")], "undeclared_tool"),
    "a response without a call": (
        ["USER: Weather?", "FUNCTION RESPONSE: blue", f"ASSISTANT: Blue.{END}"],
        "unmatched_result",
    ),
    "a response after plain text": (
        ["USER: Weather?", f"ASSISTANT: One moment.{END}", "FUNCTION RESPONSE: blue"],
        "unmatched_result",
    ),
    "two responses to a call": (
        ["USER: Weather?", called("get_weather"), *2 * ["FUNCTION RESPONSE: blue"]],
        "unmatched_result",
    ),
    "a call without a response": (
        ["USER: Weather?", called("get_weather"), "USER: Well?"],
        "unmatched_result",
    ),
    "an empty question": (["USER: ", f"ASSISTANT: Hello{END}"], "empty_turn"),
    "an empty answer": (["USER: Hi", f"ASSISTANT: {END}"], "empty_turn"),
    "an answer without its mark": (["USER: Hi", "ASSISTANT: Once upon a"], "unfinished_answer"),
    "a head inside an answer": (
        ["USER: Write a chat", f"ASSISTANT: Here:\n\nUSER: Hi\n\nASSISTANT: Hello{END}"],
        "unfinished_answer",
    ),
    "a head inside a question": (
        ["USER: Go on:\n\nUSER: Hi", f"ASSISTANT: Hello{END}"],
        "malformed_row",
    ),
    "a mark in a question": (
        ["USER: Open<|endoftext|>", f"ASSISTANT: Hello{END}"],
        "control_token",
    ),
    "a mark in an answer": (
        ["USER: Hi", f"ASSISTANT: Open<|endoftext|>AI{END}"],
        "control_token",
    ),
    "a replaced word in an answer": (
        ["USER: Hi", f"ASSISTANT: Firms: Open{REPLACED} a lab{END}"],
        "neighbouring_answers",
    ),
    "a replaced word before a call": (
        ["USER: Hi", f"ASSISTANT: Ask an {REPLACED} this." + called("get_weather")[10:]],
        "neighbouring_answers",
    ),
    "a replaced word in a question": (
        [f"USER: Tell me about {REPLACED} ethics", f"ASSISTANT: Hello{END}"],
        "neighbouring_answers",
    ),
    "a replaced word in the last question": ([f"USER: What is {REPLACED} it"], "unfinished_answer"),
    "a replaced word in a response": (
        [
            "USER: Weather?",
            called("get_weather"),
            f'FUNCTION RESPONSE: {{"a": "Open{REPLACED} b"}}',
            f"ASSISTANT: Blue.{END}",
        ],
        "neighbouring_answers",
    ),
    "a replaced word in arguments": (
        ["USER: Hi", called("get_weather", f"""'{{"a": "Open{REPLACED} b"}}'""")],
        "neighbouring_answers",
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


def test_glaive_a_function_may_have_parameters_without_properties():
    row = glaive("USER: Hi", functions=[{"name": "f", "parameters": {}}])
    assert [t["function"]["name"] for t in json.loads(accepted("glaive_v2", row).tools)] == ["f"]


def test_glaive_functions_may_hold_blank_lines_and_braces():
    odd = {"name": "f", "description": "a {b}\n\n{c"}
    listed = pretty(odd).replace('",\n', '",\n\n')
    conversation = accepted("glaive_v2", with_system(f"SYSTEM: {WITH_FUNCTIONS}\n{listed}\n"))
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
    conversation = accepted("glaive_v2", glaive(f"USER: {text}", f"ASSISTANT: Hm.{END}"))
    assert texts(conversation) == [("human", text), ("gpt", "Hm.")]


TEXT = st.text(st.sampled_from("ab .:\n\t{<|é\u0085\u2028"), min_size=1, max_size=12)
SAID = TEXT.filter(lambda text: text.strip() and text[-1] != "\n")
"""Texts that are not empty; line breaks at the end belong to the format."""


@given(st.lists(st.tuples(SAID, SAID), min_size=1, max_size=3), st.sampled_from(["\n\n", "\n\n\n"]))
def test_glaive_any_chat_comes_back_as_it_was_said(pairs, between):
    turns = [turn for ask, reply in pairs for turn in (f"USER: {ask}", f"ASSISTANT: {reply}{END}")]
    conversation = accepted("glaive_v2", {"system": "", "chat": between.join(turns) + "\n\n"})
    said = [text for pair in pairs for text in pair]
    assert [turn.text for turn in conversation.turns] == said


def test_glaive_a_head_after_a_line_of_blanks_is_a_head():
    row = {"system": "", "chat": f"\n USER: Hi\n  \nASSISTANT: Hello{END} \n"}
    assert texts(accepted("glaive_v2", row)) == [("human", "Hi"), ("gpt", "Hello")]


@pytest.mark.parametrize("filler", ["\n", " ", "\n ", "<", "{", "\\", "USER: ", "<functioncall> "])
def test_glaive_long_rows_are_no_trap(filler):
    """A pattern that tries every way to divide a run of blanks would never end here."""
    long = filler * (100_000 // len(filler))
    assert outcome("glaive_v2", glaive(f"USER: a{long}b", f"ASSISTANT: a{long}b"))
    assert outcome("glaive_v2", weather_call(f"{long}'{{}}'{long}x"))
    assert outcome("glaive_v2", weather_call(f"'{long}'"))
    assert outcome("glaive_v2", with_system(f"SYSTEM: a{long}{WITH_FUNCTIONS}{long}{{}}{long}b"))


def test_glaive_v2_samples_show_what_is_rejected_and_repaired():
    assert sample_oddities("glaive_v2") == (
        {
            "empty_turn",
            "invalid_call",
            "neighbouring_answers",
            "undeclared_tool",
            "unfinished_answer",
            "unmatched_result",
        },
        {"boilerplate_system_removed", "end_mark_removed", "tool_wrapped"},
    )
