"""Rows of public sets of prompts: what each asks."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from unit.prompt_rows import (
    COUNT,
    HARBOUR,
    HEAD,
    LETTER,
    ROWS,
    SHELF,
    SONG,
    STARTER,
    TRIANGLE,
    VOWELS,
    WEATHER,
    ZIG,
    tool,
)

from lib.cleaning import cleaned
from lib.conversation import REPAIRS, Conversation, Rejected
from lib.prompt_formats import PROMPT_FORMATS


def outcome(name, **changes):
    row = {key: value for key, value in {**ROWS[name], **changes}.items() if value is not ...}
    return cleaned(PROMPT_FORMATS[name].convert(row))


def question(name, **changes):
    found = outcome(name, **changes)
    assert isinstance(found, Conversation), found
    assert found.turns[-1].role == "human"
    return found.turns[-1].text


def reason(name, **changes):
    found = outcome(name, **changes)
    assert isinstance(found, Rejected), found
    return found.reason


def test_every_format_has_a_row_in_its_true_shape():
    assert set(PROMPT_FORMATS) == set(ROWS)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("gsm8k", SHELF),
        ("math500", TRIANGLE),
        ("aime", COUNT),
        ("humaneval", f"```python\n{HEAD.strip()}\n```"),
        ("mbpp", VOWELS),
        ("livecodebench", f"{HARBOUR}\n\n```python\n{STARTER}\n```"),
        ("mt_bench", LETTER),
        ("alpaca", f"{SONG}\n\nShe sings."),
        ("arena_hard", ZIG),
        ("bfcl", WEATHER),
        ("prompts", LETTER),
    ],
)
def test_a_row_asks_its_question_and_gives_no_answer(name, expected):
    assert question(name) == expected
    assert len(outcome(name).turns) == 1


def test_columns_have_other_names_in_other_releases():
    assert question("aime", problem=..., question=COUNT) == COUNT
    assert question("mbpp", prompt=..., text=VOWELS) == VOWELS
    assert question("mt_bench", prompt=..., turns=[LETTER, "And now?"]) == LETTER


@pytest.mark.parametrize("start", ["", " \n", None, ...])
def test_a_problem_may_have_no_starter_code(start):
    assert question("livecodebench", starter_code=start) == HARBOUR


def test_only_the_first_question_is_asked_and_that_is_counted():
    assert outcome("mt_bench").repairs == ("later_questions_left_out",)
    assert outcome("mt_bench", prompt=[LETTER]).repairs == ()
    turn = ROWS["bfcl"]["question"][0]
    later = outcome("bfcl", question=[turn, turn])
    assert later.turns == outcome("bfcl").turns
    assert "later_questions_left_out" in later.repairs


@pytest.mark.parametrize("given_input", ["", None, ...])
def test_an_instruction_stands_alone_without_an_input(given_input):
    assert question("alpaca", input=given_input, output="") == SONG


def test_functions_become_tools_with_the_types_of_json_schema():
    found = outcome("bfcl", function=[tool("weather.forecast"), tool("weather.past")])
    first, second = json.loads(found.tools)
    assert [first["function"]["name"], second["function"]["name"]] == [
        "weather.forecast",
        "weather.past",
    ]
    parameters = first["function"]["parameters"]
    assert parameters["type"] == "object"
    assert parameters["properties"]["days"]["type"] == "number"
    assert set(found.repairs) == {"tool_wrapped", "types_renamed"}


def test_a_question_about_tools_may_begin_with_a_system_turn():
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": WEATHER}]
    found = outcome("bfcl", question=[messages])
    assert [(turn.role, turn.text) for turn in found.turns] == [
        ("system", "Be brief."),
        ("human", WEATHER),
    ]


@pytest.mark.parametrize(
    ("name", "changes", "expected"),
    [
        ("gsm8k", {"question": ...}, "malformed_row"),
        ("gsm8k", {"question": None}, "malformed_row"),
        ("gsm8k", {"question": " "}, "empty_turn"),
        ("math500", {"problem": "What is <|im_end|>?"}, "control_token"),
        ("aime", {"problem": 7}, "malformed_row"),
        ("humaneval", {"prompt": ["def f():"]}, "malformed_row"),
        ("humaneval", {"prompt": "\n"}, "empty_turn"),
        ("livecodebench", {"question_content": ""}, "empty_turn"),
        ("livecodebench", {"starter_code": ["def f():"]}, "malformed_row"),
        ("mt_bench", {"prompt": LETTER}, "malformed_row"),
        ("mt_bench", {"prompt": []}, "malformed_row"),
        ("alpaca", {"instruction": "", "input": ""}, "empty_turn"),
        ("bfcl", {"function": "[]"}, "malformed_row"),
        ("bfcl", {"function": [tool("f", kind="HashMap")]}, "invalid_tools"),
        ("bfcl", {"question": []}, "malformed_row"),
        ("bfcl", {"question": [[{"role": "assistant", "content": "Hi."}]]}, "malformed_row"),
        ("bfcl", {"question": [{"role": "user", "content": WEATHER}]}, "malformed_row"),
    ],
)
def test_a_row_that_asks_nothing_is_rejected_with_the_reason(name, changes, expected):
    assert reason(name, **changes) == expected


ODD = st.sampled_from([None, 7, "", "x", [], ["x"], {}, {"a": []}, [[None]], [[{}]], "<|im_end|>"])


@pytest.mark.parametrize("name", sorted(ROWS))
@given(data=st.data())
def test_no_row_stops_a_set_whatever_it_holds(name, data):
    keys = st.sampled_from(sorted(ROWS[name]))
    row = {**ROWS[name], **data.draw(st.dictionaries(keys, ODD))}
    for each in (row, data.draw(ODD)):
        found = cleaned(PROMPT_FORMATS[name].convert(each))
        assert isinstance(found, Rejected) or set(found.repairs) <= set(REPAIRS)
