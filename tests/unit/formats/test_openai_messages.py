"""OpenAI's messages: text, parts, calls, results and reasoning, each under its key."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from unit.formats.conversations import TOOLS, conversations
from unit.formats.harness import accepted, reason, sample_oddities, texts

from lib.conversation import Turn, to_messages

QUESTION = {"role": "user", "content": "Where is Graz?"}
ANSWER = {"role": "assistant", "content": "In Austria."}
RESULT = {"role": "tool", "tool_call_id": "x", "content": '{"found":  true}'}


def row(*messages, tools=TOOLS):
    return {"messages": list(messages), "tools": tools}


def call(name="find", arguments='{"q":  "Graz"}', id="x"):
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def calling(*calls, **more):
    return {"role": "assistant", "content": None, "tool_calls": list(calls) or [call()], **more}


def read(*messages, tools=TOOLS):
    return accepted("openai_messages", row(*messages, tools=tools))


def refused(*messages, tools=TOOLS):
    return reason("openai_messages", row(*messages, tools=tools))


@settings(max_examples=80, derandomize=True, deadline=None)
@given(
    conversation=conversations(),
    has_objects=st.booleans(),
    has_parts=st.booleans(),
    key=st.sampled_from(["reasoning_content", "reasoning", "thinking"]),
)
def test_openai_messages_are_read_as_they_are_written(conversation, has_objects, has_parts, key):
    messages = to_messages(conversation.turns)
    for message in messages:
        for made in message.get("tool_calls", ()):
            made["id"] = f"own-{made['id']}"
            if not has_objects:
                arguments = made["function"]["arguments"]
                made["function"]["arguments"] = json.dumps(arguments, ensure_ascii=False)
        if "tool_call_id" in message:
            message["tool_call_id"] = f"own-{message['tool_call_id']}"
        if "reasoning_content" in message:
            message[key] = message.pop("reasoning_content")
        if has_parts:
            half = len(message["content"]) // 2
            parts = (message["content"][:half], message["content"][half:])
            message["content"] = [{"type": "text", "text": part} for part in parts]
        elif not message["content"]:
            message["content"] = None
    tools = json.loads(conversation.tools) if conversation.tools else None
    found = read(*messages, tools=tools)
    assert (found.turns, found.tools) == (conversation.turns, conversation.tools)
    assert set(found.repairs) == ({"text_parts_joined"} if has_parts else set())


@pytest.mark.parametrize(
    ("name", "role"),
    [("system", "system"), ("developer", "system"), ("user", "human"), ("assistant", "gpt")],
)
def test_openai_roles(name, role):
    turns = read({"role": name, "content": " a\n"}, QUESTION, ANSWER).turns
    if role != "gpt":
        assert turns[0].role == role
        assert turns[0].text.startswith(" a\n")
    else:
        assert turns[0] == Turn("human", QUESTION["content"])


def test_openai_calls_and_results_keep_their_text():
    conversation = read(QUESTION, calling(), RESULT, ANSWER)
    assert conversation.turns[1].tool_calls[0].arguments == '{"q":  "Graz"}'
    assert conversation.turns[2].text == RESULT["content"]
    assert conversation.tools == TOOLS


def test_openai_results_find_their_calls_by_id():
    calls = [call("find", id="x"), call("add", id="y")]
    results = [{**RESULT, "tool_call_id": "y"}, {**RESULT, "tool_call_id": "x", "name": "find"}]
    turns = read(QUESTION, calling(*calls), *results, ANSWER).turns
    first, second = turns[1].tool_calls
    assert [turn.tool_call_id for turn in turns[2:4]] == [second.id, first.id]


def test_openai_functions_of_the_time_before_tools():
    legacy = {
        "messages": [
            QUESTION,
            {**ANSWER, "content": None, "function_call": {"name": "find", "arguments": "{}"}},
            {"role": "function", "name": "find", "content": "found"},
            ANSWER,
        ],
        "functions": [tool["function"] for tool in json.loads(TOOLS)],
    }
    conversation = accepted("openai_messages", legacy)
    asked, call_turn, result, _ = conversation.turns
    assert asked.text == QUESTION["content"]
    assert [(made.name, made.arguments) for made in call_turn.tool_calls] == [("find", "{}")]
    assert (result.text, result.tool_call_id) == ("found", call_turn.tool_calls[0].id)
    assert conversation.tools == TOOLS
    legacy["messages"][2]["name"] = "add"
    assert reason("openai_messages", legacy) == "unmatched_result"


@pytest.mark.parametrize("tools", [None, [], "[]", "null", ""])
def test_openai_no_tools_are_none(tools):
    assert read(QUESTION, ANSWER, tools=tools).tools == ""
    assert accepted("openai_messages", {"messages": [QUESTION, ANSWER]}).tools == ""


@pytest.mark.parametrize("key", ["reasoning_content", "reasoning", "thinking"])
def test_openai_reasoning_under_any_name(key):
    assert read(QUESTION, {**ANSWER, key: " r\n"}).turns[1] == Turn("gpt", "In Austria.", " r\n")
    for empty in ("", None):
        assert read(QUESTION, {**ANSWER, key: empty}).turns[1].reasoning == ""


def test_openai_reasoning_given_twice_is_one_or_none():
    same = {**ANSWER, "reasoning": "r", "reasoning_content": "r", "thinking": ""}
    assert read(QUESTION, same).turns[1].reasoning == "r"
    assert refused(QUESTION, {**same, "thinking": "s"}) == "malformed_row"


def test_openai_think_blocks_in_the_text_are_separated():
    turn = read(QUESTION, {**ANSWER, "content": "<think>\nr\n</think>\n\nIn Austria."}).turns[1]
    assert turn == Turn("gpt", "In Austria.", "r")


@pytest.mark.parametrize(
    "more",
    [
        {"refusal": None, "annotations": [], "audio": {}},
        {"weight": 0, "score": 0.5, "train": True},
        {"name": "Ada", "id": "m1", "timestamp": "2024-05-01", "model": "some"},
        {"tool_calls": None, "function_call": None},
        {"tool_calls": []},
    ],
)
def test_openai_keys_without_content_are_left_out(more):
    conversation = read(QUESTION, {**ANSWER, **more})
    assert texts(conversation) == [("human", "Where is Graz?"), ("gpt", "In Austria.")]
    assert conversation.repairs == ()


@pytest.mark.parametrize(
    "more",
    [
        {"refusal": "I cannot say."},
        {"audio": {"id": "a"}},
        {"thoughts": "r"},
        {"tool_call_id": "x"},
        {"reasoning": ["r"]},
        {"reasoning": 1},
        {"content": ["In ", "Austria."]},
        {"content": [{"type": "image_url", "image_url": {"url": "/a.png"}}]},
        {"content": [{"type": "text", "text": "In"}, {"type": "input_audio", "input_audio": {}}]},
        {"content": [{"type": "text", "text": 1}]},
        {"content": [{"type": "thinking", "text": "r"}]},
        {"content": [{"type": "text", "text": "a", "citation": "b"}]},
        {"content": {"text": "a"}},
        {"content": None},
        {"content": 42},
    ],
)
def test_openai_what_would_be_lost_rejects(more):
    assert refused(QUESTION, {**ANSWER, **more}) == "malformed_row"


@pytest.mark.parametrize(
    ("calls", "expected"),
    [
        ([call(arguments='{"q": ')], "invalid_call"),
        ([call(arguments="[1]")], "invalid_call"),
        ([call(arguments=None)], "invalid_call"),
        ([call(name="")], "invalid_call"),
        ([{**call(), "type": "custom"}], "invalid_call"),
        ([{"id": "x", "type": "function"}], "invalid_call"),
        ([{"id": "x", "function": "find"}], "invalid_call"),
        (["find"], "invalid_call"),
        ("find", "invalid_call"),
        ([call(name="lose")], "undeclared_tool"),
        ([call(), call(id="y")], "unmatched_result"),
        ([call(id="y")], "unmatched_result"),
        ([{**call(), "id": 1}], "malformed_row"),
        ([{**call(), "comment": "why"}], "malformed_row"),
        ([{"function": {"name": "find", "arguments": {}, "why": "r"}}], "malformed_row"),
    ],
)
def test_openai_calls_that_cannot_be_read(calls, expected):
    assert refused(QUESTION, {**calling(), "tool_calls": calls}, RESULT, ANSWER) == expected


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        ([], "no_conversation"),
        ([{"role": "critic", "content": "a"}], "unknown_role"),
        ([{"content": "a"}], "unknown_role"),
        ([QUESTION, {"role": "user"}], "malformed_row"),
        ([QUESTION, {**ANSWER, "content": ""}], "empty_turn"),
        ([QUESTION, RESULT, ANSWER], "unmatched_result"),
        ([QUESTION, calling(), ANSWER], "unmatched_result"),
        ([{**QUESTION, "reasoning": "r"}, ANSWER], "malformed_row"),
        ([{**QUESTION, "tool_calls": [call()]}, ANSWER], "malformed_row"),
        ([QUESTION, calling(), {**RESULT, "reasoning": "r"}, ANSWER], "malformed_row"),
        ([QUESTION, calling(), {**RESULT, "content": {"found": True}}, ANSWER], "malformed_row"),
        ([QUESTION, calling(function_call={"name": "add", "arguments": "{}"})], "malformed_row"),
        ([["user", "a"]], "malformed_row"),
        (["a"], "malformed_row"),
    ],
)
def test_openai_what_is_no_chat_is_rejected(messages, expected):
    assert refused(*messages) == expected


@pytest.mark.parametrize(
    "messages",
    [
        [QUESTION, {**ANSWER, "content": 'Yes.\n<tool_call>\n{"name": "find"}\n</tool_call>'}],
        [QUESTION, {**ANSWER, "content": "<tool_call><function=find></function></tool_call>\n"}],
        [QUESTION, {**ANSWER, "content": '<tool_call>{"name": "fi'}],
        [{"role": "system", "content": "Use <tools>\n[{}]</tools>"}, QUESTION, ANSWER],
        [QUESTION, ANSWER, {"role": "user", "content": "<tool_response>1</tool_response>"}],
        [QUESTION, calling(), {**RESULT, "content": "<tool_response>1</tool_response>"}, ANSWER],
    ],
)
def test_openai_tools_in_the_text_are_for_another_format(messages):
    assert refused(*messages) == "stray_tool_tag"


@pytest.mark.parametrize(
    "text",
    [
        "Models write <tool_call> before a call.",
        'Like this:\n```\n<tool_call>\n{"name": "f"}\n</tool_call>\n```',
        "<tool_call>{}</tool_call> is an empty call.",
    ],
)
def test_openai_tools_that_are_only_talked_about_stay(text):
    assert read(QUESTION, {**ANSWER, "content": text}).turns[1].text == text


@pytest.mark.parametrize("key", ["images", "audios", "video"])
def test_openai_pictures_beside_the_messages_reject(key):
    assert reason("openai_messages", {**row(QUESTION, ANSWER), key: ["/a"]}) == "malformed_row"
    assert accepted("openai_messages", {**row(QUESTION, ANSWER), key: []})


def test_openai_tools_under_two_names_are_one_list():
    twice = {**row(QUESTION, ANSWER), "functions": TOOLS}
    assert accepted("openai_messages", twice).tools == TOOLS
    other = {**twice, "functions": [{"name": "other"}]}
    assert reason("openai_messages", other) == "malformed_row"


@pytest.mark.parametrize("bad", [{}, {"messages": None}, {"messages": "Hi"}, {"messages": {}}, []])
def test_openai_rows_without_messages_are_rejected(bad):
    assert reason("openai_messages", bad) == "malformed_row"


def test_openai_messages_samples_show_what_is_rejected_and_repaired():
    assert sample_oddities("openai_messages") == (
        {
            *("invalid_call", "malformed_row", "misplaced_system", "stray_tool_tag"),
            *("undeclared_tool", "unknown_role", "unmatched_result"),
        },
        {
            *("empty_system_dropped", "leading_answer_cut", "systems_joined"),
            *("text_parts_joined", "tool_wrapped"),
        },
    )
