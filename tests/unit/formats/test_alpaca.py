"""Alpaca rows."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from unit.formats.harness import accepted, reason, sample_oddities, texts

ROW = {"instruction": "Reverse the word.", "input": "tea", "output": "aet"}

# What every conversation is cleaned of is no matter of the format: these texts need no repair.
TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0<"), min_size=1)
SPOKEN = TEXT.filter(str.strip)


@given(
    st.none() | SPOKEN,
    st.lists(st.tuples(SPOKEN, SPOKEN).map(list), max_size=3),
    SPOKEN,
    st.none() | st.just(" ") | SPOKEN,
    SPOKEN,
)
def test_alpaca_has_every_text_in_its_place_to_the_character(
    system, history, instruction, given_input, output
):
    row = {
        "instruction": instruction,
        "input": given_input,
        "output": output,
        "system": system,
        "history": history,
    }
    has_input = given_input is not None and given_input.strip()
    question = f"{instruction}\n\n{given_input}" if has_input else instruction
    expected = [] if system is None else [("system", system)]
    for asked, answered in [*history, (question, output)]:
        expected += [("human", asked), ("gpt", answered)]
    assert texts(accepted("alpaca", row)) == expected


@pytest.mark.parametrize("absent", [{}, {"input": None, "system": None, "history": None}])
def test_alpaca_needs_an_instruction_and_an_output_alone(absent):
    row = {"instruction": "Say hi.", "output": "hi", **absent}
    conversation = accepted("alpaca", row)
    assert texts(conversation) == [("human", "Say hi."), ("gpt", "hi")]
    assert conversation.repairs == ()


@pytest.mark.parametrize("words", ["No input", "Not applicable", "N/A", "None", "<noinput>"])
def test_alpaca_keeps_what_may_be_a_placeholder(words):
    row = {"instruction": "How many letters are these?", "input": words, "output": "Some."}
    assert accepted("alpaca", row).prompt() == f"How many letters are these?\n\n{words}"


def test_alpaca_asks_the_input_alone_where_the_instruction_is_blank():
    assert accepted("alpaca", {**ROW, "instruction": ""}).prompt() == "tea"


def test_alpaca_drops_an_empty_system():
    conversation = accepted("alpaca", {**ROW, "system": ""})
    assert texts(conversation) == texts(accepted("alpaca", ROW))
    assert conversation.repairs == ("empty_system_dropped",)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"output": ""}, "empty_turn"),
        ({"output": None}, "malformed_row"),
        ({"output": 42}, "malformed_row"),
        ({"input": 3}, "malformed_row"),
        ({"instruction": "", "input": " "}, "empty_turn"),
        ({"system": ["Be brief."]}, "malformed_row"),
        ({"history": "ab"}, "malformed_row"),
        ({"history": ["ab"]}, "malformed_row"),
        ({"history": [["Hi"]]}, "malformed_row"),
        ({"history": [["Hi", "Hello", "Bye"]]}, "malformed_row"),
        ({"history": [["Hi", None]]}, "malformed_row"),
        ({"history": {"Hi": "Hello"}}, "malformed_row"),
        ({"history": {}}, "malformed_row"),
        ({"history": ""}, "malformed_row"),
        ({"history": [["Hi", ""]]}, "empty_turn"),
        ({"history": [["Hi", "Hello<|im_end|>"]]}, "control_token"),
    ],
)
def test_alpaca_rejects_what_has_another_shape(change, expected):
    assert reason("alpaca", {**ROW, **change}) == expected


@pytest.mark.parametrize("column", ["instruction", "output"])
def test_alpaca_rejects_a_row_without_a_column(column):
    assert reason("alpaca", {key: ROW[key] for key in ROW if key != column}) == "malformed_row"


def test_alpaca_samples_show_what_is_rejected_and_repaired():
    assert sample_oddities("alpaca") == (
        {"control_token", "empty_turn", "malformed_row"},
        {"empty_system_dropped", "reasoning_separated", "surrogate_replaced"},
    )
