"""OpenOrca rows."""

import pytest
from unit.formats.harness import accepted, reason, sample_oddities, texts

ORCA = {"id": "cot.1", "system_prompt": "Be brief.", "question": "2 + 2?", "response": "4"}


def test_openorca_has_three_turns():
    assert texts(accepted("openorca", ORCA)) == [
        ("system", "Be brief."),
        ("human", "2 + 2?"),
        ("gpt", "4"),
    ]


def test_openorca_drops_an_empty_system():
    conversation = accepted("openorca", {**ORCA, "system_prompt": ""})
    assert texts(conversation) == [("human", "2 + 2?"), ("gpt", "4")]
    assert conversation.repairs == ("empty_system_dropped",)


@pytest.mark.parametrize(
    ("response", "expected"),
    [
        (None, "malformed_row"),
        ("", "empty_turn"),
        (" ", "empty_turn"),
        ("4<|im_end|>", "control_token"),
    ],
)
def test_openorca_rejects_a_missing_answer_and_a_control_token(response, expected):
    assert reason("openorca", {**ORCA, "response": response}) == expected


def test_openorca_samples_show_what_is_rejected_and_repaired():
    assert sample_oddities("openorca") == (
        {"control_token", "empty_turn", "malformed_row"},
        {"empty_system_dropped", "nul_replaced"},
    )
