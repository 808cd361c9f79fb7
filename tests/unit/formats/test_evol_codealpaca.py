"""Evol-CodeAlpaca rows."""

import pytest
from unit.formats.harness import SAMPLES, accepted, reason, sample_oddities, texts

ROW = {"instruction": "Add 2 to x.", "output": "x + 2"}


def test_evol_codealpaca_is_a_question_and_an_answer():
    assert texts(accepted("evol_codealpaca", ROW)) == [("human", "Add 2 to x."), ("gpt", "x + 2")]


@pytest.mark.parametrize("given", ["", " \n\t", None])
def test_evol_codealpaca_takes_a_blank_input_for_none(given):
    assert texts(accepted("evol_codealpaca", {**ROW, "input": given})) == texts(
        accepted("evol_codealpaca", ROW)
    )


def test_evol_codealpaca_makes_a_given_input_part_of_the_question():
    conversation = accepted("evol_codealpaca", {**ROW, "input": " x = 1\n"})
    assert conversation.prompt() == "Add 2 to x.\n\n x = 1\n"


@pytest.mark.parametrize("text", ["  用 x\r\n", "2024-05-01", "null", '{"a": 1}', "a\u2028b"])
def test_evol_codealpaca_keeps_text_to_the_character(text):
    row = {"instruction": text, "output": text}
    assert texts(accepted("evol_codealpaca", row)) == [("human", text), ("gpt", text)]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"output": ""}, "empty_turn"),
        ({"output": None}, "malformed_row"),
        ({"output": 3}, "malformed_row"),
        ({"instruction": None}, "malformed_row"),
        ({"instruction": " "}, "empty_turn"),
        ({"input": ["x"]}, "malformed_row"),
        ({"output": "x + 2<|endoftext|>"}, "control_token"),
        ({"output": "The tag </think> ends it."}, "stray_think_tag"),
    ],
)
def test_evol_codealpaca_rejects_what_is_no_question_and_answer(change, expected):
    assert reason("evol_codealpaca", {**ROW, **change}) == expected


def test_evol_codealpaca_shares_questions_with_magicoder():
    """Magicoder-Evol and Evol-CodeAlpaca hold the same questions; the merge has to see that."""
    questions = {row["instruction"] for row in SAMPLES["evol_codealpaca"]}
    assert questions & {row["problem"] for row in SAMPLES["magicoder"]}


def test_evol_codealpaca_samples_show_what_is_rejected_and_repaired():
    assert sample_oddities("evol_codealpaca") == (
        {"control_token", "empty_turn", "malformed_row", "stray_think_tag"},
        {"surrogate_replaced"},
    )
