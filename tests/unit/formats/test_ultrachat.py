"""UltraChat rows of both shapes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from unit.formats.harness import SAMPLES, accepted, reason, sample_oddities, texts

MESSAGES = [{"role": "user", "content": " Hi"}, {"role": "assistant", "content": "Hello\n"}]
ROW = {"prompt": "another text", "prompt_id": "0", "messages": MESSAGES}

# What every conversation is cleaned of is no matter of the format: these texts need no repair.
TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0<"), min_size=1)


def test_ultrachat_takes_the_messages_and_not_the_prompt():
    assert texts(accepted("ultrachat", ROW)) == [("human", " Hi"), ("gpt", "Hello\n")]
    for prompt in ("<|im_end|>", None):
        assert accepted("ultrachat", {**ROW, "prompt": prompt}) == accepted("ultrachat", ROW)


@given(st.lists(TEXT.filter(str.strip), min_size=1, max_size=7))
def test_ultrachat_shapes_say_the_same_and_may_end_with_a_question(spoken):
    messages = [
        {"content": text, "role": ("user", "assistant")[n % 2]} for n, text in enumerate(spoken)
    ]
    conversation = accepted("ultrachat", {"id": "7", "data": spoken})
    assert conversation == accepted("ultrachat", {"prompt": spoken[0], "messages": messages})
    assert [turn.text for turn in conversation.turns] == spoken
    assert (conversation.turns[-1].role == "human") == (len(spoken) % 2 == 1)


def test_ultrachat_reads_roles_in_any_case():
    messages = [{**MESSAGES[0], "role": "User"}, {**MESSAGES[1], "role": "ASSISTANT"}]
    assert accepted("ultrachat", {"messages": messages}) == accepted("ultrachat", ROW)


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ({"messages": []}, "no_conversation"),
        ({"messages": None}, "malformed_row"),
        ({"messages": "Hi"}, "malformed_row"),
        ({"messages": ""}, "malformed_row"),
        ({"messages": {}}, "malformed_row"),
        ({"messages": ["Hi"]}, "malformed_row"),
        ({"messages": [{"role": "user"}]}, "malformed_row"),
        ({"messages": [{"role": "critic", "content": "Hi"}]}, "unknown_role"),
        ({"messages": [MESSAGES[0], {**MESSAGES[1], "content": ""}]}, "empty_turn"),
        ({"messages": [MESSAGES[0], {**MESSAGES[1], "content": None}]}, "malformed_row"),
        ({"messages": [MESSAGES[0], {**MESSAGES[1], "content": "<|im_end|>"}]}, "control_token"),
        ({"prompt": "Hi", "prompt_id": "0"}, "malformed_row"),
        ({"id": "7", "data": []}, "no_conversation"),
        ({"id": "7", "data": "Hi"}, "malformed_row"),
        ({"id": "7", "data": {"Hi": "Hello"}}, "malformed_row"),
        ({"id": "7", "data": ["Hi", 3]}, "malformed_row"),
        ({"id": "7", "data": ["Hi", ""]}, "empty_turn"),
        ({"id": "7", "data": ["Hi", "Hello", "<|im_end|>"]}, "control_token"),
        ({"id": "7"}, "malformed_row"),
    ],
)
def test_ultrachat_rejects_what_is_no_chat(row, expected):
    assert reason("ultrachat", row) == expected


def test_ultrachat_samples_show_what_is_rejected_and_repaired():
    assert sample_oddities("ultrachat") == (
        {"control_token", "empty_turn", "no_conversation"},
        {"nul_replaced"},
    )
    lengths = {len(row["messages"]) for row in SAMPLES["ultrachat"]}
    assert any(length % 2 for length in lengths), "some chats end with a question"
