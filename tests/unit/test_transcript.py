"""Calls get their numbers, results find their calls, and arguments keep their text."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lib.conversation import Rejected, Turn
from lib.transcript import RawCall, Transcript, tool_call


def calling(*calls):
    transcript = Transcript()
    transcript.say("gpt", "", calls=[RawCall(name, {}, id) for name, id in calls])
    return transcript


def linked(transcript):
    """Return each result with the name of the call that it answers."""
    calls = {call.id: call.name for turn in transcript.turns for call in turn.tool_calls}
    return [
        (turn.text, calls[turn.tool_call_id]) for turn in transcript.turns if turn.role == "tool"
    ]


def reason(act):
    with pytest.raises(Rejected) as caught:
        act()
    return caught.value.reason


def test_turns_keep_what_was_said_in_order():
    transcript = Transcript()
    transcript.say("system", " s ")
    transcript.say("human", "q\n")
    transcript.say("gpt", "a", reasoning="r", calls=[RawCall("f", '{"x":  1}', "own")])
    transcript.result("", id="own")
    system, question, answer, result = transcript.turns
    assert (system, question) == (Turn("system", " s "), Turn("human", "q\n"))
    assert (answer.text, answer.reasoning) == ("a", "r")
    assert answer.tool_calls == (tool_call("f", '{"x":  1}', 0),)
    assert result == Turn("tool", "", tool_call_id=answer.tool_calls[0].id)


def test_calls_are_numbered_through_the_conversation():
    transcript = Transcript()
    for count in (2, 0, 1):
        transcript.say("gpt", "", calls=[RawCall("f", {}, "same")] * count)
    numbers = [call.id for turn in transcript.turns for call in turn.tool_calls]
    assert numbers == [tool_call("f", {}, index).id for index in range(3)]
    assert len(set(numbers)) == 3


def test_results_without_a_mark_come_in_the_order_of_their_calls():
    transcript = calling(("f", ""), ("g", ""), ("f", ""))
    for text in "abc":
        transcript.result(text)
    assert linked(transcript) == [("a", "f"), ("b", "g"), ("c", "f")]
    assert [turn.tool_call_id for turn in transcript.turns[1:]] == [
        call.id for call in transcript.turns[0].tool_calls
    ]


@settings(max_examples=60, derandomize=True, deadline=None)
@given(order=st.permutations(range(4)), by=st.sampled_from(["id", "name", "both"]))
def test_results_find_their_calls_and_stay_where_they_stand(order, by):
    transcript = calling(*((f"f{n}", "" if by == "name" else f"id{n}") for n in range(4)))
    for n in order:
        marks = {"id": f"id{n}"} if by != "name" else {}
        if by != "id":
            marks["name"] = f"f{n}"
        transcript.result(str(n), **marks)
    assert linked(transcript) == [(str(n), f"f{n}") for n in order]


def test_several_calls_of_one_function_are_answered_in_order():
    transcript = calling(("f", ""), ("g", ""), ("f", ""))
    for text, name in (("1", "f"), ("2", "f"), ("3", "g")):
        transcript.result(text, name=name)
    first, second, third = transcript.turns[0].tool_calls
    assert [turn.tool_call_id for turn in transcript.turns[1:]] == [first.id, third.id, second.id]


def test_arguments_that_a_later_stage_could_not_read_are_rejected():
    deep = "[" * 500 + "]" * 500
    for arguments in (f'{{"a": {deep}}}', {"a": json.loads(deep)}):
        assert reason(lambda arguments=arguments: tool_call("f", arguments, 0)) == "invalid_call"


def test_an_id_says_nothing_where_calls_have_none():
    transcript = calling(("f", ""), ("g", ""))
    transcript.result("1", id="x", name="g")
    transcript.result("2", id="y")
    assert linked(transcript) == [("1", "g"), ("2", "f")]


def test_an_id_decides_where_a_name_leaves_a_choice():
    transcript = calling(("f", "a"), ("f", "b"))
    transcript.result("1", id="b", name="f")
    assert transcript.turns[1].tool_call_id == transcript.turns[0].tool_calls[1].id


def test_an_id_that_repeats_between_turns_means_the_call_of_its_turn():
    transcript = Transcript()
    for text in ("first", "second"):
        transcript.say("gpt", "", calls=[RawCall(text, {}, "call_1")])
        transcript.result(text, id="call_1")
    assert linked(transcript) == [("first", "first"), ("second", "second")]


@pytest.mark.parametrize(
    ("calls", "marks"),
    [
        ((), {}),
        ((("f", "a"),), {"id": "b"}),
        ((("f", "a"), ("g", "")), {"id": "b"}),
        ((("f", ""),), {"name": "g"}),
        ((("f", "a"), ("g", "b")), {"id": "a", "name": "g"}),
    ],
)
def test_a_result_that_fits_no_call_is_rejected(calls, marks):
    assert reason(lambda: calling(*calls).result("r", **marks)) == "unmatched_result"


def test_a_call_is_answered_once_and_before_the_next_turn():
    transcript = calling(("f", "a"))
    transcript.result("r", id="a")
    assert reason(lambda: transcript.result("r", id="a")) == "unmatched_result"
    transcript = calling(("f", "a"))
    transcript.say("human", "Well?")
    assert reason(lambda: transcript.result("r", id="a")) == "unmatched_result"


@pytest.mark.parametrize("role", ["human", "system", "tool"])
def test_nobody_but_the_assistant_reasons_or_calls(role):
    assert reason(lambda: Transcript().say(role, "a", reasoning="r")) == "malformed_row"
    assert reason(lambda: Transcript().say(role, "a", calls=[RawCall("f", {})])) == "malformed_row"


@pytest.mark.parametrize("text", ['{"b": 1,  "a": "é"}', "{}", '{"a": {"b": [null]}}', " {} "])
def test_arguments_given_as_text_are_kept_to_the_character(text):
    assert tool_call("f", text, 0).arguments == text


def test_arguments_given_as_an_object_become_its_text():
    call = tool_call("f", {"b": "é", "a": [1]}, 3)
    assert json.loads(call.arguments) == {"b": "é", "a": [1]}
    assert "é" in call.arguments
    assert call.id == "call_3"


@pytest.mark.parametrize(
    "arguments",
    [
        *("", "null", "[1]", "'a'", '{"a": ', '{"a": Infinity}', '"a"', "[" * 100_000),
        *(None, [1], 1, True, {"a": float("nan")}, {"a": {1}}),
    ],
)
def test_arguments_that_are_no_object_are_rejected(arguments):
    assert reason(lambda: tool_call("f", arguments, 0)) == "invalid_call"


def test_arguments_that_hold_themselves_are_rejected():
    arguments = {}
    arguments["a"] = arguments
    assert reason(lambda: tool_call("f", arguments, 0)) == "invalid_call"


@pytest.mark.parametrize("name", ["", None, 1, ["f"]])
def test_a_call_without_a_name_is_rejected(name):
    assert reason(lambda: tool_call(name, {}, 0)) == "invalid_call"
