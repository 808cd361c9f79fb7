"""Sessions of coding agents, whose messages and calls are JSON inside JSON."""

import json
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator, validate
from unit.formats.harness import accepted, outcome, reason, sample_oddities, texts

from lib.agent_tools import OPENHANDS, SWE_AGENT
from lib.tools import tool_list


def message(role, content, calls=None, call_id=None):
    encoded = None if calls is None else json.dumps(calls)
    return {"role": role, "content": content, "tool_calls_json": encoded, "tool_call_id": call_id}


def called(name, arguments, id="call_1"):
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def session(*messages, framework="openhands", resolved=True):
    """A row as the Parquet file holds it; its other columns do not matter."""
    return {
        "session_id": "some-source::some__task",
        "source_dataset": "some-source",
        "source_id": "some__task",
        "agent_framework": framework,
        "recorded_model": "unknown",
        "messages_json": json.dumps(messages),
        "n_turns": len(messages),
        "max_isl": 1815,
        "total_tokens": 1829,
        "ground_truth_meta_json": json.dumps({"resolved": resolved, "patch_present": True}),
    }


ASK = message("user", "<uploaded_files>\n/testbed\n</uploaded_files>\nFix the bug.")
LIST = called("execute_bash", '{"command":  "ls"}')
RUN = message("assistant", "I'll look around first.", [LIST])
FILES = message("tool", "README.md\nsrc", call_id="call_1")
DONE = message("assistant", "Done.")


def names(conversation):
    return [tool["function"]["name"] for tool in json.loads(conversation.tools or "[]")]


def test_trajectories_become_turns_calls_and_tools():
    conversation = accepted("agentic_trajectories", session(ASK, RUN, FILES, DONE))
    assert texts(conversation) == [
        ("human", "<uploaded_files>\n/testbed\n</uploaded_files>\nFix the bug."),
        ("gpt", "I'll look around first."),
        ("tool", "README.md\nsrc"),
        ("gpt", "Done."),
    ]
    [call] = conversation.turns[1].tool_calls
    assert (call.name, call.arguments) == ("execute_bash", '{"command":  "ls"}')
    assert conversation.turns[2].tool_call_id == call.id
    assert conversation.repairs == ()


def test_trajectories_whether_the_task_was_solved_does_not_matter():
    solved = accepted("agentic_trajectories", session(ASK, RUN, FILES, DONE))
    unsolved = accepted("agentic_trajectories", session(ASK, RUN, FILES, DONE, resolved=False))
    assert unsolved == solved


def test_trajectories_may_be_decoded_already():
    row = session(ASK, RUN, FILES, DONE)
    decoded = {**row, "messages_json": json.loads(row["messages_json"])}
    assert accepted("agentic_trajectories", decoded) == accepted("agentic_trajectories", row)
    for each in decoded["messages_json"]:
        each["tool_calls_json"] = json.loads(each["tool_calls_json"] or "null")
    assert accepted("agentic_trajectories", decoded) == accepted("agentic_trajectories", row)


@pytest.mark.parametrize("arguments", [{"command": "ls"}, '{"command": "ls"}'])
def test_trajectories_arguments_are_an_object_or_its_text(arguments):
    row = session(ASK, message("assistant", None, [called("execute_bash", arguments)]))
    turns = accepted("agentic_trajectories", row).turns
    assert (turns[1].text, turns[1].tool_calls[0].arguments) == ("", '{"command": "ls"}')


@pytest.mark.parametrize("calls", [None, "", "null", "[]", []])
def test_trajectories_no_calls_are_written_in_several_ways(calls):
    row = session(ASK, {**DONE, "tool_calls_json": calls}, framework="swe-agent")
    conversation = accepted("agentic_trajectories", row)
    assert conversation.turns[1].tool_calls == ()
    assert conversation.tools == ""


def raw_calls(text):
    return {**message("assistant", "Look."), "tool_calls_json": text}


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        ([ASK, raw_calls("[{")], "invalid_call"),
        ([ASK, raw_calls('"ls"')], "invalid_call"),
        ([ASK, raw_calls("[null]")], "invalid_call"),
        ([ASK, raw_calls("[" * 100_000)], "invalid_call"),
        ([ASK, message("assistant", "", [called("", "{}")])], "invalid_call"),
        ([ASK, message("assistant", "", [called(None, "{}")])], "invalid_call"),
        ([ASK, message("assistant", "", [called(["bash"], "{}")])], "invalid_call"),
        ([ASK, message("assistant", "", [called("execute_bash", "ls")])], "invalid_call"),
        ([ASK, message("assistant", "", [called("execute_bash", None)])], "invalid_call"),
        ([ASK, message("assistant", "", [called("execute_bash", ["ls"])])], "invalid_call"),
        ([ASK, message("assistant", "", [called("launch", "{}")])], "undeclared_tool"),
        ([ASK, RUN, DONE], "unmatched_result"),
        ([ASK, FILES, DONE], "unmatched_result"),
        ([ASK, RUN, {**FILES, "tool_call_id": "call_2"}, DONE], "unmatched_result"),
        ([ASK, message("assistant", None)], "malformed_row"),
        ([ASK, message("assistant", "")], "empty_turn"),
        ([message("user", None), DONE], "malformed_row"),
        ([ASK, RUN, message("tool", None, call_id="call_1")], "malformed_row"),
        ([message("user", "Hi", [LIST]), DONE], "malformed_row"),
        ([message("narrator", "Hi"), DONE], "unknown_role"),
        ([], "no_conversation"),
        ([message("user", "a<|im_end|>"), DONE], "control_token"),
    ],
)
def test_trajectories_reject_what_has_no_faithful_form(messages, expected):
    assert reason("agentic_trajectories", session(*messages)) == expected


@pytest.mark.parametrize("messages", [None, "", "[", "null", "{}", '"text"', "[1]", "[" * 99_999])
def test_trajectories_reject_what_is_no_list_of_messages(messages):
    assert reason("agentic_trajectories", {"messages_json": messages}) == "malformed_row"
    assert reason("agentic_trajectories", {}) == "malformed_row"


def test_trajectories_join_the_parts_of_a_text():
    parts = [{"type": "text", "text": "Fix "}, {"type": "text", "text": "the bug. "}]
    answer = message("assistant", [{"type": "text", "text": ""}], [LIST])
    seen = message("tool", [{"type": "text", "text": "src\r\n"}], call_id="call_1")
    row = session(message("user", parts), answer, seen)
    conversation = accepted("agentic_trajectories", row)
    assert texts(conversation) == [("human", "Fix the bug. "), ("gpt", ""), ("tool", "src\r\n")]
    assert set(conversation.repairs) == {"text_parts_joined"}


@pytest.mark.parametrize(
    "part",
    [
        *(None, "text", 5, [], {}, {"type": "text"}, {"type": "text", "text": None}),
        {"type": "image_url", "image_url": {"url": "data:"}},
        {"type": "image", "text": "a chart"},
        {"text": "of no type"},
    ],
)
def test_trajectories_reject_parts_that_are_no_text(part):
    row = session(message("user", [{"type": "text", "text": "See"}, part]), DONE)
    assert reason("agentic_trajectories", row) == "malformed_row"


@pytest.mark.parametrize("content", [5, True, {"type": "text", "text": "Hi"}, [["Hi"]]])
def test_trajectories_reject_content_that_is_no_text(content):
    assert reason("agentic_trajectories", session(message("user", content), DONE)) == (
        "malformed_row"
    )


TERMINAL = "\x1b[31mFAILED\x1b[0m\r\nroot@box:/# \x1b]0;title\x07\x08\ttab\x0c\x85\u2028\n\n"


def test_trajectories_keep_what_a_terminal_wrote():
    row = session(ASK, RUN, message("tool", TERMINAL, call_id="call_1"), message("user", TERMINAL))
    conversation = accepted("agentic_trajectories", row)
    assert texts(conversation)[2:] == [("tool", TERMINAL), ("human", TERMINAL)]
    assert conversation.repairs == ()


@settings(max_examples=100, derandomize=True, deadline=None)
@given(text=st.text(st.characters(exclude_characters="\0", codec="utf-8")).map("x{}".format))
def test_trajectories_keep_every_text_to_the_character(text):
    arguments = json.dumps({"command": text})
    run = message("assistant", text, [called("execute_bash", arguments)])
    row = session(ASK, run, message("tool", text, call_id="call_1"))
    found = accepted("agentic_trajectories", row)
    assert [turn.text for turn in found.turns[1:]] == [text, text]
    assert found.turns[1].tool_calls[0].arguments == arguments


# The tools that the agent had


def calls_of(*functions):
    return [called(name, "{}", id=f"call_{n}") for n, name in enumerate(functions)]


def with_calls(framework, *functions):
    row = session(ASK, message("assistant", "", calls_of(*functions)), framework=framework)
    return outcome("agentic_trajectories", row)


ALWAYS = ["execute_bash", "think", "finish", "str_replace_editor"]
SWE_TOOLS = ["bash", "str_replace_editor", "submit"]


@pytest.mark.parametrize(
    ("framework", "functions", "expected"),
    [
        ("openhands", ["finish"], ALWAYS),
        ("OpenHands-0.54", ["execute_bash", "str_replace_editor"], ALWAYS),
        ("openhands", ["browser"], [*ALWAYS, "browser"]),
        (
            "openhands",
            ["fetch", "execute_ipython_cell"],
            [*ALWAYS, "execute_ipython_cell", "fetch"],
        ),
        ("swe-agent", ["submit"], SWE_TOOLS),
        ("SWE-agent", ["str_replace_editor"], SWE_TOOLS),
        ("klear", ["think"], ALWAYS),
        ("klear", ["bash", "str_replace_editor"], SWE_TOOLS),
        ("mini-swe-agent", ["bash"], SWE_TOOLS),
        (None, ["execute_bash"], ALWAYS),
    ],
)
def test_trajectories_offer_the_tools_of_their_framework(framework, functions, expected):
    assert names(with_calls(framework, *functions)) == expected


@pytest.mark.parametrize(
    ("framework", "functions"),
    [
        ("openhands", ["bash"]),
        ("swe-agent", ["execute_bash"]),
        ("swe-agent", ["bash", "think"]),
        ("klear", ["bash", "execute_bash"]),
        ("klear", ["edit"]),
        (None, ["edit"]),
    ],
)
def test_trajectories_reject_functions_that_no_framework_has(framework, functions):
    found = with_calls(framework, *functions)
    assert found.reason == "undeclared_tool"
    assert all(name in found.detail for name in functions)


@pytest.mark.parametrize("framework", ["mini-swe-agent", "klear", "swe-agent", "openhands", None])
def test_trajectories_without_calls_are_plain_chats(framework):
    thought = "THOUGHT: reproduce it\n```bash\npytest -q\n```"
    row = session(
        message("system", "Write one block of bash."),
        ASK,
        message("assistant", thought),
        message("user", "1 failed\n<returncode>1</returncode>"),
        DONE,
        framework=framework,
    )
    conversation = accepted("agentic_trajectories", row)
    assert conversation.tools == ""
    assert [role for role, _ in texts(conversation)] == ["system", "human", "gpt", "human", "gpt"]
    assert conversation.turns[2].text == thought


@pytest.mark.parametrize("framework", [OPENHANDS, SWE_AGENT])
def test_the_definitions_are_valid_tools(framework):
    every = framework.offered([tool["function"]["name"] for tool in framework.at_times])
    repairs = []
    assert tool_list(every, repairs) == every
    assert repairs == []
    for tool in json.loads(every):
        assert tool["function"]["description"]
        Draft202012Validator.check_schema(tool["function"]["parameters"])


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("execute_bash", {"command": "C-c", "is_input": "true", "timeout": 12.5}),
        ("think", {"thought": "?"}),
        ("finish", {"message": "Done."}),
        ("execute_ipython_cell", {"code": "1 + 1"}),
        ("browser", {"code": "goto('a')"}),
        ("fetch", {"url": "a", "max_length": 5, "start_index": 0, "raw": True}),
        ("task_tracker", {"command": "plan", "task_list": [{"id": "1", "title": "a"}]}),
        ("str_replace_editor", {"command": "view", "path": "/a", "view_range": [1, -1]}),
        ("str_replace_editor", {"command": "insert", "path": "/a", "insert_line": 0}),
    ],
)
def test_the_definitions_fit_the_calls_of_openhands(name, arguments):
    tools = {t["function"]["name"]: t["function"] for t in json.loads(OPENHANDS.offered([name]))}
    schema = {**tools[name]["parameters"], "additionalProperties": False}
    if name == "task_tracker":
        arguments["task_list"][0]["status"] = "todo"
    validate(arguments, schema)


def test_trajectories_of_a_megabyte_are_read_at_once():
    long = "\x1b[0m x <think \r\n" * 70_000
    many = [RUN, FILES] * 2000
    start = time.process_time()
    for messages in ([ASK, RUN, message("tool", long, call_id="call_1"), DONE], [ASK, *many]):
        accepted("agentic_trajectories", session(*messages))
    assert time.process_time() - start < 2


def test_agentic_trajectories_samples_show_what_is_rejected_and_repaired():
    assert sample_oddities("agentic_trajectories") == (
        {
            *("control_token", "empty_turn", "invalid_call", "malformed_row"),
            *("undeclared_tool", "unmatched_result"),
        },
        {"neighbours_joined", "text_parts_joined"},
    )
