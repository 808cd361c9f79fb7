"""Rows of prompts alone."""

import pytest
from unit.formats.harness import SAMPLES, accepted, outcomes, reason, sample_oddities, texts

from lib.conversation import Conversation

USER = {"role": "user", "content": " How are you?\n"}
SYSTEM = {"role": "system", "content": "Be brief."}


@pytest.mark.parametrize(
    "row",
    [
        {"prompt": USER["content"]},
        {"messages": [USER]},
        {"prompt": USER["content"], "messages": None},
        {"prompt": None, "messages": [USER], "id": 3},
    ],
)
def test_prompts_are_texts_or_messages(row):
    assert texts(accepted("prompts", row)) == [("human", " How are you?\n")]


def test_prompts_may_begin_with_a_system_turn():
    assert texts(accepted("prompts", {"messages": [SYSTEM, USER]})) == [
        ("system", "Be brief."),
        ("human", " How are you?\n"),
    ]


def test_prompts_join_the_messages_of_a_person():
    conversation = accepted("prompts", {"messages": [USER, {**USER, "content": "And now?"}]})
    assert texts(conversation) == [("human", " How are you?\n\n\nAnd now?")]
    assert conversation.repairs == ("neighbours_joined",)


@pytest.mark.parametrize("role", ["assistant", "gpt", "tool", "function_call"])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_prompts_take_no_row_with_an_answer_wherever_it_stands(role, place):
    messages = [USER, USER]
    messages.insert(place, {"role": role, "content": "I am well."})
    assert reason("prompts", {"messages": messages}) == "malformed_row"


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ({}, "malformed_row"),
        ({"prompt": None}, "malformed_row"),
        ({"prompt": ["How are you?"]}, "malformed_row"),
        ({"prompt": [USER]}, "malformed_row"),
        ({"prompt": ""}, "empty_turn"),
        ({"prompt": "What is <|im_end|>?"}, "control_token"),
        ({"messages": "How are you?"}, "malformed_row"),
        ({"messages": ""}, "malformed_row"),
        ({"messages": {}}, "malformed_row"),
        ({"messages": ["How are you?"]}, "malformed_row"),
        ({"messages": [{"role": "user"}]}, "malformed_row"),
        ({"messages": []}, "no_conversation"),
        ({"messages": [SYSTEM]}, "no_user_turn"),
        ({"messages": [USER, SYSTEM]}, "misplaced_system"),
        ({"messages": [{**USER, "role": "critic"}]}, "unknown_role"),
        ({"messages": [{**USER, "content": [{"type": "text"}]}]}, "malformed_row"),
        ({"prompt": "Hello.", "messages": [USER]}, "malformed_row"),
    ],
)
def test_prompts_reject_what_is_no_prompt(row, expected):
    assert reason("prompts", row) == expected


def test_prompts_of_the_samples_hold_no_answer():
    kept = [found for _, found in outcomes("prompts", SAMPLES["prompts"])]
    kept = [found for found in kept if isinstance(found, Conversation)]
    assert kept
    for conversation in kept:
        assert {turn.role for turn in conversation.turns} <= {"system", "human"}
        assert conversation.turns[-1].role == "human"


def test_prompts_samples_show_what_is_rejected_and_repaired():
    assert sample_oddities("prompts") == (
        {"control_token", "empty_turn", "malformed_row", "no_user_turn", "unknown_role"},
        {"empty_system_dropped", "neighbours_joined", "surrogate_replaced", "systems_joined"},
    )
