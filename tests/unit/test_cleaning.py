"""Every repair and every rejection of the common rules, and the record of a conversation."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from lib.cleaning import ROLE_NAMES, clean, role_of, text_of
from lib.conversation import (
    REASONS,
    REPAIRS,
    ROLES,
    Conversation,
    Rejected,
    ToolCall,
    Turn,
    from_record,
    rejecting,
    stored_line,
    to_messages,
    to_record,
)
from lib.jsonl import jsonl_writer, read_jsonl
from lib.tools import tool_list
from lib.transcript import tool_call

TOOLS = tool_list([{"name": "get_time", "parameters": {"type": "object"}}], [])
QUESTION = Turn("human", "What time is it?")
ANSWER = Turn("gpt", "It is noon.")
CALL = Turn("gpt", "", tool_calls=(ToolCall("call_0", "get_time", '{"city": "Graz"}'),))
RESULT = Turn("tool", '{"time": "12:00"}', tool_call_id="call_0")


def cleaned(*turns, tools=""):
    return clean(Conversation(turns, tools=tools))


def reason(*turns, tools=""):
    with pytest.raises(Rejected) as caught:
        cleaned(*turns, tools=tools)
    return caught.value.reason


def calling(arguments):
    return Turn("gpt", "", tool_calls=(ToolCall("call_0", "get_time", arguments),))


@pytest.mark.parametrize(
    "text",
    ["2024-05-01", "42", "null", '{"a": 1}', " padded \n", "\u2028\u0085\u00a0", "<div>", "\r\n😀"],
)
def test_text_is_kept_to_the_character(text):
    conversation = cleaned(Turn("human", f"?{text}"), Turn("gpt", f"{text}."))
    assert [turn.text for turn in conversation.turns] == [f"?{text}", f"{text}."]
    assert conversation.repairs == ()


def test_only_text_is_taken_for_text():
    assert text_of("42") == "42"
    for value in (42, None, ["a"], {"a": 1}, True):
        with pytest.raises(Rejected) as caught:
            text_of(value)
        assert caught.value.reason == "malformed_row"


@pytest.mark.parametrize(
    ("bad", "repair"), [("\ud83d", "surrogate_replaced"), ("\0", "nul_replaced")]
)
def test_what_cannot_be_encoded_is_replaced_everywhere(bad, repair):
    tools = tool_list([{"name": "get_time", "description": f"a{bad}b"}], [])
    call = tool_call("get_time", {"city": f"a{bad}b"}, 0)
    conversation = cleaned(
        Turn("system", f"a{bad}b"),
        Turn("human", f"a{bad}b"),
        Turn("gpt", "", reasoning=f"a{bad}b", tool_calls=(call,)),
        tools=tools,
    )
    assert set(conversation.repairs) == {repair}
    record = to_record(conversation.of_source("s"))
    assert bad not in json.dumps(record, ensure_ascii=False)
    assert json.loads(conversation.tools)[0]["function"]["description"] == "a\ufffdb"
    messages = to_messages(conversation.turns)
    assert messages[0]["content"] == messages[1]["content"] == "a\ufffdb"
    assert messages[2]["reasoning_content"] == "a\ufffdb"
    assert messages[2]["tool_calls"][0]["function"]["arguments"] == {"city": "a\ufffdb"}


@pytest.mark.parametrize("escape", [r"\ud83d", r"\u0000", r"\\\u0000"])
def test_escapes_in_arguments_do_not_hide_what_cannot_be_encoded(escape):
    conversation = cleaned(QUESTION, calling(f'{{"city": "a{escape}b"}}'), tools=TOOLS)
    assert conversation.repairs
    arguments = to_messages(conversation.turns)[1]["tool_calls"][0]["function"]["arguments"]
    assert "\ufffdb" in arguments["city"]
    arguments["city"].encode()


@pytest.mark.parametrize(
    "arguments", [r'{"city":  "\ud83d\ude00"}', r'{"city": "\\u0000"}', r'{"city": "\u00e9"}']
)
def test_harmless_escapes_in_arguments_stay_as_they_were_written(arguments):
    conversation = cleaned(QUESTION, calling(arguments), tools=TOOLS)
    assert conversation.turns[1].tool_calls[0].arguments == arguments
    assert conversation.repairs == ()


def test_leading_systems_are_joined_with_a_blank_line():
    conversation = cleaned(Turn("system", "A"), Turn("system", " "), Turn("system", "B"), QUESTION)
    assert conversation.turns == (Turn("system", "A\n\nB"), QUESTION)
    assert set(conversation.repairs) == {"systems_joined", "empty_system_dropped"}


def test_an_empty_system_is_left_out():
    conversation = cleaned(Turn("system", " \n"), QUESTION, ANSWER)
    assert conversation.turns == (QUESTION, ANSWER)
    assert conversation.repairs == ("empty_system_dropped",)


def test_leading_answers_are_cut_and_the_system_stays():
    system = Turn("system", "Be brief.")
    conversation = cleaned(system, Turn("gpt", "Hi!"), QUESTION, ANSWER)
    assert conversation.turns == (system, QUESTION, ANSWER)
    assert conversation.repairs == ("leading_answer_cut",)


def test_plain_neighbours_are_joined_with_a_blank_line():
    conversation = cleaned(QUESTION, Turn("human", "Now?"), ANSWER, Turn("gpt", "Bye."))
    assert [turn.text for turn in conversation.turns] == [
        "What time is it?\n\nNow?",
        "It is noon.\n\nBye.",
    ]
    assert conversation.repairs == ("neighbours_joined",) * 2


def test_two_answers_that_cannot_be_one_turn_are_rejected():
    assert reason(QUESTION, ANSWER, Turn("gpt", "Noon.", reasoning="Sun.")) == (
        "neighbouring_answers"
    )


@pytest.mark.parametrize(
    "turns",
    [
        (Turn("human", ""), QUESTION),
        (QUESTION, Turn("human", " ")),
        (QUESTION, Turn("gpt", ""), ANSWER),
        (QUESTION, Turn("gpt", " \n")),
        (QUESTION, Turn("gpt", "", reasoning="Hm.")),
    ],
)
def test_an_empty_turn_is_rejected_and_not_hidden_in_its_neighbour(turns):
    assert reason(*turns) == "empty_turn"


def test_a_question_without_an_answer_is_kept():
    assert cleaned(QUESTION, ANSWER, QUESTION).turns[-1] == QUESTION


@pytest.mark.parametrize(
    ("turns", "expected"),
    [
        ((), "no_conversation"),
        ((Turn("system", "A"),), "no_user_turn"),
        ((ANSWER, ANSWER), "no_user_turn"),
        ((QUESTION, Turn("system", "A"), ANSWER), "misplaced_system"),
    ],
)
def test_turns_that_make_no_conversation_are_rejected(turns, expected):
    assert reason(*turns) == expected


@pytest.mark.parametrize("name", ROLE_NAMES)
def test_role_names_do_not_depend_on_case(name):
    assert role_of(name) == role_of(name.upper()) == role_of(f" {name.title()} ")
    assert role_of(name) in ROLES


@pytest.mark.parametrize(
    ("name", "role"),
    [("User", "human"), ("bing", "gpt"), ("developer", "system"), ("observation", "tool")],
)
def test_role_names_of_the_sources(name, role):
    assert role_of(name) == role


@pytest.mark.parametrize("name", ["narrator", "", "human2", None, 1, ["gpt"]])
def test_unknown_roles_are_never_guessed(name):
    with pytest.raises(Rejected) as caught:
        role_of(name)
    assert caught.value.reason == "unknown_role"


def test_a_leading_think_block_becomes_reasoning():
    answer = Turn("gpt", "<think>\nIt is day.\n</think>\n\nNoon.")
    conversation = cleaned(QUESTION, answer)
    assert conversation.turns[1] == Turn("gpt", "Noon.", reasoning="It is day.")
    assert conversation.repairs == ("reasoning_separated",)


def test_an_empty_think_block_goes():
    conversation = cleaned(QUESTION, Turn("gpt", "<think>\n\n</think>\n\nNoon."))
    assert conversation.turns[1] == Turn("gpt", "Noon.")


@pytest.mark.parametrize(
    "turn",
    [
        Turn("gpt", "Noon. <think>Or not.</think>"),
        Turn("gpt", "<think>It is day. Noon."),
        Turn("gpt", "It is day.</think>Noon."),
        Turn("gpt", "<think>a</think>b</think>c"),
        Turn("gpt", "<think>b</think>c", reasoning="a"),
        Turn("human", "<think>I am the user.</think>Hi"),
    ],
)
def test_think_tags_anywhere_else_are_rejected(turn):
    assert reason(QUESTION, ANSWER, turn) == "stray_think_tag"


@pytest.mark.parametrize(
    "token",
    ["<|im_start|>", "<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|fim_prefix|>", "<|mask|>"],
)
@pytest.mark.parametrize("place", ["system", "human", "gpt", "reasoning", "arguments", "tools"])
def test_control_tokens_are_rejected_wherever_they_stand(token, place):
    tools = tool_list([{"name": "get_time", "description": token * (place == "tools")}], [])
    assert (
        reason(
            Turn("system", f"Be brief.{token * (place == 'system')}"),
            Turn("human", f"What time is it?{token * (place == 'human')}"),
            Turn(
                "gpt", f"Noon.{token * (place == 'gpt')}", f"Sun.{token * (place == 'reasoning')}"
            ),
            calling(json.dumps({"city": token * (place == "arguments")})),
            tools=tools,
        )
        == "control_token"
    )


def test_an_escape_does_not_hide_a_control_token():
    assert reason(QUESTION, calling(r'{"a": "\u003c|im_end|\u003e"}'), tools=TOOLS) == (
        "control_token"
    )


def test_a_call_its_result_and_the_answer_are_kept():
    turns = (QUESTION, CALL, RESULT, ANSWER)
    assert cleaned(*turns, tools=TOOLS).turns == turns


def test_a_conversation_may_end_with_a_call():
    assert cleaned(QUESTION, CALL, tools=TOOLS).turns[-1] == CALL


@pytest.mark.parametrize(
    ("turns", "expected"),
    [
        ((QUESTION, RESULT, ANSWER), "unmatched_result"),
        ((QUESTION, CALL, RESULT, RESULT), "unmatched_result"),
        ((QUESTION, CALL, QUESTION, ANSWER), "unmatched_result"),
        ((QUESTION, CALL, ANSWER), "unmatched_result"),
    ],
)
def test_calls_and_results_must_match(turns, expected):
    assert reason(*turns, tools=TOOLS) == expected


def test_a_call_of_a_tool_that_is_not_offered_is_rejected():
    assert reason(QUESTION, CALL) == "undeclared_tool"
    other = tool_list([{"name": "get_weather"}], [])
    assert reason(QUESTION, CALL, RESULT, ANSWER, tools=other) == "undeclared_tool"


def test_bare_and_wrapped_functions_give_the_same_tools():
    function = {"name": "f", "parameters": {"type": "object"}}
    wrapped = {"type": "function", "function": function}
    assert tool_list([function], []) == tool_list([function, wrapped], [])
    assert json.loads(tool_list([function], [])) == [wrapped]


def test_no_functions_are_no_tools_and_not_an_empty_list():
    assert tool_list([], []) == ""


@pytest.mark.parametrize(
    "functions",
    [
        ["f"],
        [{"parameters": {}}],
        [{"name": 1}],
        [None],
        [{"name": "f", "description": "a"}, {"name": "f", "description": "b"}],
    ],
)
def test_lists_that_are_not_of_named_functions_are_rejected(functions):
    with pytest.raises(Rejected) as caught:
        tool_list(functions, [])
    assert caught.value.reason == "invalid_tools"


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
ARGUMENTS = st.dictionaries(TEXTS, TEXTS, max_size=2).map(json.dumps)
CALLS = st.lists(st.builds(ToolCall, TEXTS, TEXTS, ARGUMENTS), max_size=2).map(tuple)
TURNS = st.builds(Turn, st.sampled_from(sorted(ROLES)), TEXTS, TEXTS, CALLS, TEXTS)
CONVERSATIONS = st.builds(
    Conversation,
    turns=st.lists(TURNS, max_size=4).map(tuple),
    tools=st.sampled_from(["", TOOLS]),
    source=TEXTS,
    split=st.sampled_from(["", "train", "validation"]),
)


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    return tmp_path_factory.mktemp("records") / "records.jsonl"


@settings(max_examples=60, derandomize=True, deadline=None)
@given(conversation=CONVERSATIONS)
def test_conversation_to_record_to_conversation_is_the_identity(stored, conversation):
    with jsonl_writer(stored) as writer:
        writer.write(to_record(conversation))
    (record,) = read_jsonl(stored)
    assert from_record(record) == conversation
    assert list(to_record(from_record(record)).items()) == list(record.items())


@settings(max_examples=60, derandomize=True, deadline=None)
@given(conversation=CONVERSATIONS)
def test_the_stored_line_is_the_record_of_the_conversation_in_its_source(conversation):
    conversation = replace(conversation, split="")
    identity, line = stored_line(conversation, "s")
    expected = conversation.of_source("s")
    assert identity == expected.id
    assert list(json.loads(line).items()) == list(to_record(expected).items())
    assert line.count(b"\n") == 1 and line.endswith(b"\n")


def test_a_record_has_its_keys_in_order_and_no_empty_ones():
    conversation = cleaned(QUESTION, CALL, RESULT, ANSWER, tools=TOOLS).of_source("s")
    record = to_record(conversation)
    assert list(record) == ["id", "source", "conversations", "tools"]
    assert [list(turn) for turn in record["conversations"]] == [
        ["from", "value"],
        ["from", "value", "tool_calls"],
        ["from", "value", "tool_call_id"],
        ["from", "value"],
    ]
    assert "tools" not in to_record(cleaned(QUESTION).of_source("s"))


@pytest.mark.parametrize(
    "record",
    [
        {},
        {"id": "a", "source": "s", "conversations": None},
        {"id": "a", "source": "s", "conversations": [{"from": "user", "value": "x"}]},
        {"id": "a", "source": "s", "conversations": [{"from": "human", "value": 42}]},
        {"id": "a", "source": "s", "conversations": [{"from": "human"}]},
        {"source": "s", "conversations": []},
        [],
    ],
)
def test_another_shape_is_no_record(record):
    with pytest.raises(ValueError, match="record"):
        from_record(record)


def test_the_identity_covers_source_turns_and_tools_but_not_the_split():
    conversation = Conversation((QUESTION, CALL), tools=TOOLS).of_source("a")
    others = [
        conversation.of_source("b"),
        Conversation((QUESTION, CALL), tools=tool_list([{"name": "f"}], [])).of_source("a"),
        Conversation((QUESTION, ANSWER), tools=TOOLS).of_source("a"),
        Conversation((Turn("human", "What time is it? "), CALL), tools=TOOLS).of_source("a"),
    ]
    assert conversation.id not in {other.id for other in others}
    split = from_record({**to_record(conversation), "split": "validation"})
    assert split.of_source("a").id == conversation.id
    assert conversation.id.startswith("a-")
    assert len(conversation.id) == len("a-") + 16


@settings(max_examples=60, derandomize=True, deadline=None)
@given(conversation=CONVERSATIONS)
def test_cleaning_is_done_once(conversation):
    try:
        once = clean(conversation)
    except Rejected as rejected:
        assert rejected.reason in REASONS
        return
    assert set(once.repairs) <= set(REPAIRS)
    again = clean(from_record(to_record(once)))
    assert again.turns == once.turns
    assert again.repairs == ()


@pytest.mark.parametrize("error", [KeyError, TypeError, ValueError, AttributeError, RecursionError])
def test_a_row_of_a_wrong_shape_is_rejected_and_stops_nothing(error):
    @rejecting
    def convert(row):
        raise error("why")

    outcome = convert({})
    assert isinstance(outcome, Rejected)
    assert outcome.reason == "malformed_row"
    assert error.__name__ in outcome.detail
    assert "why" in outcome.detail
