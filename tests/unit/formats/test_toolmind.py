"""ToolMind rows: prefixes of one another, bundles of results, and loose messages."""

import json
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from unit.formats.harness import accepted, outcomes, reason, sample_oddities, texts

from lib.conversation import Conversation, Rejected


def offered(*names):
    return [
        {
            "type": "function",
            "function": {
                "name": name,
                "description": f"Do {name}",
                "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
            },
        }
        for name in names
    ]


TOOLS = offered("get_weather", "get_time")


def user(text):
    return {"role": "user", "content": text}


def says(text, *calls):
    return calling(*calls, content=text) if calls else {"role": "assistant", "content": text}


def calling(*calls, content=""):
    """An answer as the files write it: calls before the role, arguments as objects, no ids."""
    made = [{"function": {"name": name, "arguments": arguments}} for name, arguments in calls]
    return {"tool_calls": made, "role": "assistant", "content": content}


def result(content):
    return {"role": "tool", "content": content}


def thinking(message, thought="Hm."):
    return {**message, "content": f"<think>\n{thought}\n</think>{message['content']}"}


def row(*messages, tools=TOOLS):
    return {"conversations": list(messages), "tools": tools}


WEATHER = ("get_weather", {"city": "Graz"})
TIME = ("get_time", {"city": "Graz"})
ASK = user("Weather in Graz?")
LONG = [ASK, calling(WEATHER), result('{"sky": "blue"}'), says("Blue."), user("Sure?"), says("Yes")]


def beginning(count, messages=LONG):
    """The row of the first messages, whose last answer still has its reasoning."""
    *before, last = messages[:count]
    return row(*before, thinking(last) if last["role"] == "assistant" else last)


def fates(*rows):
    """Return the reason of each row, None where it was accepted."""
    found = {}
    for positions, outcome in outcomes("toolmind", rows):
        for position in positions:
            found[position] = None if isinstance(outcome, Conversation) else outcome.reason
    return [found[position] for position in range(len(rows))]


def test_toolmind_becomes_turns_calls_and_tools():
    conversation = accepted("toolmind", row(*LONG))
    assert texts(conversation) == [
        ("human", "Weather in Graz?"),
        ("gpt", ""),
        ("tool", '{"sky": "blue"}'),
        ("gpt", "Blue."),
        ("human", "Sure?"),
        ("gpt", "Yes"),
    ]
    [call] = conversation.turns[1].tool_calls
    assert (call.name, json.loads(call.arguments)) == WEATHER
    assert conversation.turns[2].tool_call_id == call.id
    assert json.loads(conversation.tools) == TOOLS
    assert conversation.repairs == ()


def test_toolmind_rows_may_end_on_a_call_with_its_reasoning():
    conversation = accepted("toolmind", row(ASK, thinking(calling(WEATHER), "Look it up.")))
    assert conversation.turns[1].reasoning == "Look it up."
    assert conversation.turns[1].text == ""
    assert len(conversation.turns[1].tool_calls) == 1
    assert conversation.repairs == ("reasoning_separated",)


@pytest.mark.parametrize("tools", [None, [], "[]", "null"])
def test_toolmind_without_tools_is_a_plain_chat(tools):
    conversation = accepted("toolmind", row(user("Hi"), says("Hello"), tools=tools))
    assert (texts(conversation), conversation.tools) == ([("human", "Hi"), ("gpt", "Hello")], "")
    assert reason("toolmind", row(*LONG, tools=tools)) == "undeclared_tool"


def test_toolmind_tools_in_strange_shapes_are_repaired():
    flat = {
        "name": "get_weather",
        "description": "?",
        "arguments": {
            "city": {"description": "name", "type": "str", "default": "Graz"},
            "days": {"description": "count", "type": "int, optional", "default": ""},
        },
        "required": None,
    }
    strange = [{"type": "function", "function": {"type": "function", "function": flat}}] * 2
    conversation = accepted("toolmind", row(ASK, calling(WEATHER), tools=strange))
    [tool] = json.loads(conversation.tools)
    assert tool["function"]["parameters"]["required"] == ["city"]
    assert {
        name: schema["type"]
        for name, schema in tool["function"]["parameters"]["properties"].items()
    } == {"city": "string", "days": "integer"}
    assert set(conversation.repairs) == {
        *("tool_unwrapped", "parameters_rebuilt", "types_renamed", "required_moved"),
        *("schema_nulls_dropped", "duplicate_tool_dropped"),
    }
    two = [*offered("f"), {"name": "f"}]
    assert reason("toolmind", row(user("Hi"), says("Hello"), tools=two)) == "invalid_tools"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"city": "Zürich"}, '{"city": "Zürich"}'),
        ('{"city":"Z\\u00fcrich"}', '{"city":"Z\\u00fcrich"}'),
        ({}, "{}"),
    ],
)
def test_toolmind_arguments_are_an_object_or_its_text(arguments, expected):
    turns = accepted("toolmind", row(ASK, calling(("get_weather", arguments)))).turns
    assert turns[1].tool_calls[0].arguments == expected


@pytest.mark.parametrize("arguments", [None, "", "Graz", '["Graz"]', ["Graz"], 5, '{"city": '])
def test_toolmind_arguments_that_are_no_object_are_rejected(arguments):
    assert reason("toolmind", row(ASK, calling(("get_weather", arguments)))) == "invalid_call"


REJECTED = {
    "a call in the middle without a result": (
        [ASK, calling(WEATHER), says("Blue."), user("Sure?"), says("Yes")],
        "unmatched_result",
    ),
    "one result for two calls": (
        [ASK, calling(WEATHER, TIME), result("blue"), says("Blue.")],
        "unmatched_result",
    ),
    "two results for one call": (
        [ASK, calling(WEATHER), result("blue"), result("noon"), says("Blue.")],
        "unmatched_result",
    ),
    "a result without a call": ([ASK, says("Blue."), result("blue")], "unmatched_result"),
    "a function that is not offered": ([ASK, calling(("get_news", {}))], "undeclared_tool"),
    "no name": ([ASK, calling(("", {}))], "invalid_call"),
    "another role": ([ASK, {"role": "critic", "content": "No."}], "unknown_role"),
    "an answer of nothing": ([ASK, says("")], "empty_turn"),
    "null without a call": ([ASK, says(None)], "malformed_row"),
    "a number as a result": ([ASK, calling(WEATHER), result(21)], "malformed_row"),
    "null as a result": ([ASK, calling(WEATHER), result(None)], "malformed_row"),
    "reasoning that never ends": ([ASK, says("<think>\nHm.")], "stray_think_tag"),
    "no message": ([], "no_conversation"),
    "a control token": ([ASK, says("Blue.<|im_end|>")], "control_token"),
}


@pytest.mark.parametrize("oddity", REJECTED)
def test_toolmind_rejects_what_has_no_faithful_form(oddity):
    messages, expected = REJECTED[oddity]
    assert reason("toolmind", row(*messages)) == expected


@pytest.mark.parametrize("conversations", [None, "text", {}, [None], ["text"], [[]], 5])
def test_toolmind_rejects_what_is_no_list_of_messages(conversations):
    raw = {"conversations": conversations, "tools": TOOLS}
    assert reason("toolmind", raw) in ("malformed_row", "no_conversation")
    assert fates({}, raw, row(*LONG)) == ["malformed_row", reason("toolmind", raw), None]


def test_toolmind_null_next_to_calls_is_empty_text():
    assert texts(accepted("toolmind", row(ASK, calling(WEATHER, content=None))))[1] == ("gpt", "")


def test_toolmind_joins_the_text_before_a_call_with_the_call():
    split = [ASK, says("I look it up."), calling(WEATHER), result("blue"), says("Blue.")]
    conversation = accepted("toolmind", row(*split))
    assert texts(conversation)[1] == ("gpt", "I look it up.")
    assert len(conversation.turns[1].tool_calls) == 1
    assert conversation.repairs == ("call_joined",)


@pytest.mark.parametrize(
    "text",
    [
        '"\\"{\\\\\\"tax_amount\\\\\\": 10000}\\""',
        " 21 ",
        "null",
        "[1, 2]",
        '[{"name": "a"}]',
        '[{"name": "get_weather", "results": 1}, {"name": "b"}]',
        "[" * 10_000,
        "[",
        "",
    ],
)
def test_toolmind_keeps_the_text_of_a_result_to_the_character(text):
    conversation = accepted("toolmind", row(ASK, calling(WEATHER), result(text)))
    assert texts(conversation)[2] == ("tool", text)
    assert conversation.repairs == ()


@pytest.mark.parametrize("content", [{"sky": "grün", "degrees": [1, 2.5]}, [], ["a", {"b": None}]])
def test_toolmind_a_result_that_is_an_object_becomes_its_json(content):
    conversation = accepted("toolmind", row(ASK, calling(WEATHER), result(content)))
    assert conversation.turns[2].text == json.dumps(content, ensure_ascii=False)
    assert conversation.repairs == ("result_written_as_json",)


def echo(call, results):
    return {"name": call[0], "arguments": call[1], "results": results}


def named(call, results):
    return {"name": call[0], "results": results}


@pytest.mark.parametrize("entry", [echo, named])
@pytest.mark.parametrize("written", [json.dumps, lambda bundle: bundle])
def test_toolmind_a_bundle_of_results_becomes_one_turn_a_call(entry, written):
    bundle = [entry(WEATHER, {"sky": "blau"}), entry(TIME, "noon "), entry(WEATHER, None)]
    messages = [ASK, calling(WEATHER, TIME, WEATHER), result(written(bundle)), says("Blue.")]
    conversation = accepted("toolmind", row(*messages))
    results = [turn for turn in conversation.turns if turn.role == "tool"]
    assert [turn.text for turn in results] == ['{"sky": "blau"}', "noon ", "null"]
    ids = [call.id for call in conversation.turns[1].tool_calls]
    assert [turn.tool_call_id for turn in results] == ids
    assert conversation.repairs == ("results_split",)


def test_toolmind_a_bundle_may_write_arguments_as_text():
    bundle = [echo(("get_weather", '{"city":  "Graz"}'), 1)]
    for arguments in ({"city": "Graz"}, '{"city":"Graz"}'):
        call = calling(("get_weather", arguments))
        assert texts(accepted("toolmind", row(ASK, call, result(bundle))))[2] == ("tool", "1")


@pytest.mark.parametrize(
    "bundle",
    [
        [echo(WEATHER, 1)],
        [echo(WEATHER, 1), echo(TIME, 2), echo(TIME, 3)],
        [echo(TIME, 2), echo(WEATHER, 1)],
        [echo(WEATHER, 1), echo(("get_time", {"city": "Linz"}), 2)],
        [echo(WEATHER, 1), echo(("get_time", None), 2)],
        [named(WEATHER, 1), named(("get_news", {}), 2)],
        [named(WEATHER, 1), named((None, {}), 2)],
    ],
)
def test_toolmind_a_bundle_that_contradicts_the_calls_is_rejected(bundle):
    messages = [ASK, calling(WEATHER, TIME), result(json.dumps(bundle)), says("Blue.")]
    assert reason("toolmind", row(*messages)) == "unmatched_result"
    without_call = [ASK, says("Blue."), result(json.dumps(bundle))]
    assert reason("toolmind", row(*without_call)) == "unmatched_result"


# Rows that are the beginning of one another


def test_toolmind_keeps_the_longest_of_rows_that_begin_with_one_another():
    prefixes = [beginning(count) for count in (2, 6, 4)]
    assert fates(*prefixes) == ["continued_elsewhere", None, "continued_elsewhere"]
    [(_, _), (_, kept), (_, rejected)] = sorted(outcomes("toolmind", prefixes), key=lambda o: o[0])
    assert texts(kept) == texts(accepted("toolmind", row(*LONG)))
    assert isinstance(rejected, Rejected)
    assert rejected.detail == "4 of 6 turns of another row"


def test_toolmind_the_first_of_equal_rows_is_kept():
    again = row(*LONG[:-1], thinking(LONG[-1], "Another thought."))
    assert fates(beginning(6), again, row(*LONG)) == [None, *["continued_elsewhere"] * 2]


def test_toolmind_names_of_calls_and_spaces_around_text_tell_no_rows_apart():
    loose = json.loads(json.dumps(LONG[:4]))
    loose[1]["tool_calls"][0]["id"] = "abc"
    loose[3]["content"] = "\n\nBlue. "
    assert fates(row(*LONG), row(*loose)) == [None, "continued_elsewhere"]


def test_toolmind_keeps_both_branches():
    other = [*LONG[:4], user("And Linz?"), says("Grey.")]
    more = [ASK, calling(WEATHER, TIME)]
    assert fates(row(*LONG), row(*other), row(*more)) == [None, None, None]
    assert fates(beginning(4), row(*LONG), row(*other)) == ["continued_elsewhere", None, None]


def test_toolmind_a_rejected_row_stands_in_nobodys_way():
    broken = [*LONG, user("More?"), calling(("get_news", {}))]
    assert fates(beginning(4), row(*broken), beginning(6)) == [
        *("continued_elsewhere", "undeclared_tool", None)
    ]
    worse = [row(*broken[:7], says("<|im_end|>")), {"conversations": [ASK, None], "tools": TOOLS}]
    assert fates(*worse, beginning(2)) == ["control_token", "malformed_row", None]


@pytest.mark.parametrize(
    "changed",
    [
        row(*LONG[:4], tools=offered("get_weather")),
        row({"role": "system", "content": "Be brief."}, *LONG[:4]),
        row(user("Weather in Graz? "), *LONG[1:3], says("Grey.")),
        row(ASK, calling(("get_weather", {"city": "Linz"})), *LONG[2:4]),
        row(ASK, calling(TIME), *LONG[2:4]),
        row(ASK, calling(WEATHER), result('{"sky": "grey"}'), says("Blue.")),
    ],
)
def test_toolmind_rows_that_differ_anywhere_are_both_kept(changed):
    assert fates(row(*LONG), changed) == [None, None]


def test_toolmind_the_same_words_of_somebody_else_are_no_beginning():
    assert fates(row(ASK, user("Sure?"), says("Yes")), row(ASK, says("Sure?"))) == [None, None]


def test_toolmind_text_that_becomes_part_of_a_call_is_a_beginning():
    split = [ASK, says("I look it up."), calling(WEATHER), result("blue"), says("Blue.")]
    assert fates(row(*split), beginning(2, split)) == [None, "continued_elsewhere"]


STEPS = st.lists(st.sampled_from("ab"), max_size=4)


@settings(max_examples=150, derandomize=True, deadline=None)
@given(paths=st.lists(st.tuples(STEPS, st.booleans()), min_size=1, max_size=8))
def test_toolmind_exactly_the_ends_of_paths_are_kept(paths):
    """Checked against the plain meaning: one row is a beginning of another one."""
    rows = []
    for path, broken in paths:
        messages = [ASK]
        for step in path:
            messages += [says(step), user(step)]
        messages.append(thinking(says("end", *([("get_news", {})] if broken else []))))
        rows.append(row(*messages))

    def said(index):
        path, broken = paths[index]
        return None if broken else [*path, "end"]

    for index, fate in enumerate(fates(*rows)):
        equal_before = any(said(other) == said(index) for other in range(index))
        if said(index) is None:
            assert fate == "undeclared_tool"
        else:
            assert fate == ("continued_elsewhere" if equal_before else None)

    prefixes = [
        row(ASK, *(says(step) if n % 2 == 0 else user(step) for n, step in enumerate(path)))
        for path, _ in paths
    ]
    for index, fate in enumerate(fates(*prefixes)):
        path = paths[index][0]
        longer = any(
            other[: len(path)] == path and (len(other) > len(path) or position < index)
            for position, (other, _) in enumerate(paths)
            if position != index
        )
        assert fate == ("continued_elsewhere" if longer else None)


@pytest.mark.parametrize("branching", [False, True])
def test_toolmind_groups_of_thousands_of_rows_take_linear_time(branching):
    def messages(count, number):
        turns = [says("Yes") if n % 2 else user("Sure?") for n in range(count)]
        return [ASK, says("Blue."), *turns, user(f"{number if branching else ''}?")]

    def seconds(count):
        rows = [row(*messages(20, number), tools=None) for number in range(count)]
        start = time.process_time()
        kept = fates(*rows).count(None)
        assert kept == (count if branching else 1)
        return time.process_time() - start

    seconds(100)
    assert seconds(1600) < 30 * max(seconds(200), 0.01)


def test_toolmind_long_rows_are_no_trap():
    for filler in ("<think>", " ", "[", '[{"name": ', '{"a":'):
        long = filler * (400_000 // len(filler))
        start = time.process_time()
        fates(row(ASK, calling(WEATHER), result(long), says(long)), row(user(long), says(long)))
        assert time.process_time() - start < 2


def test_toolmind_samples_show_what_is_rejected_and_repaired():
    assert sample_oddities("toolmind") == (
        {
            *("continued_elsewhere", "invalid_call", "invalid_tools", "stray_think_tag"),
            *("undeclared_tool", "unmatched_result"),
        },
        {
            *("reasoning_separated", "call_joined", "results_split", "result_written_as_json"),
            *("tool_wrapped", "tool_unwrapped", "parameters_rebuilt", "types_renamed"),
            *("required_moved", "schema_nulls_dropped", "duplicate_tool_dropped"),
        },
    )
