"""Code-Alpaca rows."""

import pytest
from unit.formats.harness import accepted, reason, sample_oddities, texts


def test_codealpaca_joins_the_input_with_a_blank_line():
    row = {"instruction": "Reverse the word.", "input": "yellow", "output": "wolley"}
    assert texts(accepted("codealpaca", row)) == [
        ("human", "Reverse the word.\n\nyellow"),
        ("gpt", "wolley"),
    ]


@pytest.mark.parametrize("given", [{}, {"input": ""}, {"input": " \n"}, {"input": None}])
def test_codealpaca_ignores_an_input_of_white_space(given):
    row = {"instruction": "Say hi.", "output": "hi", **given}
    assert texts(accepted("codealpaca", row)) == [("human", "Say hi."), ("gpt", "hi")]


@pytest.mark.parametrize("words", ["No input", "Not applicable", "N/A", "None"])
def test_codealpaca_keeps_what_may_be_a_placeholder(words):
    row = {"instruction": "Count the words.", "input": words, "output": "Two."}
    assert accepted("codealpaca", row).prompt() == f"Count the words.\n\n{words}"


def test_codealpaca_rows_that_differ_in_the_input_have_different_identities():
    rows = [{"instruction": "Reverse.", "input": word, "output": "x"} for word in ("a", "b")]
    first, second = (accepted("codealpaca", row).of_source("s").id for row in rows)
    assert first != second


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"output": ""}, "empty_turn"),
        ({"output": None}, "malformed_row"),
        ({"input": 3}, "malformed_row"),
        ({"instruction": ["a"]}, "malformed_row"),
    ],
)
def test_codealpaca_rejects_what_is_no_text(change, expected):
    row = {"instruction": "Say hi.", "input": "", "output": "hi"}
    assert reason("codealpaca", {**row, **change}) == expected
    assert reason("codealpaca", {key: row[key] for key in ("instruction", "input")}) == (
        "malformed_row"
    )


def test_codealpaca_samples_show_what_is_rejected_and_repaired():
    assert sample_oddities("codealpaca") == (
        {"empty_turn", "malformed_row"},
        {"surrogate_replaced"},
    )
