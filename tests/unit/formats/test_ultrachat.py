"""UltraChat rows."""

from unit.formats.harness import accepted, reason, texts


def test_ultrachat_takes_the_messages_and_not_the_prompt():
    row = {
        "prompt": "another text",
        "prompt_id": "0",
        "messages": [{"role": "User", "content": " Hi"}, {"role": "assistant", "content": "Hello"}],
    }
    assert texts(accepted("ultrachat", row)) == [("human", " Hi"), ("gpt", "Hello")]
    assert reason("ultrachat", {**row, "messages": []}) == "no_conversation"
    assert reason("ultrachat", {**row, "messages": None}) == "malformed_row"
