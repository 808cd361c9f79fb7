"""ShareGPT rows: scraped pages, files that people write in this shape, and Draftmill's records."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from unit.formats.conversations import TOOLS, conversations
from unit.formats.harness import accepted, reason, sample_oddities, texts

from lib.conversation import Turn, to_record

BOX = '<div class="markdown prose w-full break-words">{}</div>'
CALL = '{"name": "find", "arguments": {"q": "Graz"}}'


def sharegpt(*turns, **columns):
    turns = [{"from": role, "value": text} for role, text in turns]
    return {"id": "a", "conversations": turns, **columns}


def read(*turns, **columns):
    return accepted("sharegpt", sharegpt(*turns, **columns))


def refused(*turns, **columns):
    return reason("sharegpt", sharegpt(*turns, **columns))


def chat(**turn):
    """Return a row whose answer has more or other keys than `from` and `value`."""
    return {"conversations": [{"from": "human", "value": "?"}, {"from": "gpt", **turn}]}


@settings(max_examples=80, derandomize=True, deadline=None)
@given(conversation=conversations())
def test_sharegpt_reads_records_again_as_they_are(conversation):
    found = accepted("sharegpt", to_record(conversation.of_source("own")))
    assert (found.turns, found.tools, found.repairs) == (conversation.turns, conversation.tools, ())
    assert found.fingerprint() == conversation.fingerprint()


@settings(max_examples=80, derandomize=True, deadline=None)
@given(
    conversation=conversations(),
    keys=st.sampled_from([("from", "value"), ("role", "content")]),
    has_system_column=st.booleans(),
)
def test_sharegpt_reads_calls_and_results_in_turns_of_their_own(
    conversation, keys, has_system_column
):
    turns, written, columns = [], [], {}
    waiting = []
    for turn in conversation.turns:
        if turn.role == "tool":
            turn = replace(turn, tool_call_id=waiting.pop(0))
        elif turn.tool_calls:
            turn = replace(turn, text="")
            waiting = [call.id for call in turn.tool_calls]
        turns.append(turn)
        if turn.role == "system" and has_system_column:
            columns["system"] = turn.text
        else:
            written.append(dict(zip(keys, in_dialect(turn), strict=True)))
    row = {"conversations": written, "tools": conversation.tools, **columns}
    assert accepted("sharegpt", row).turns == tuple(turns)


def in_dialect(turn):
    """Return the role and the text that LLaMA-Factory's ShareGPT form has for a turn."""
    text = f"<think>\n{turn.reasoning}\n</think>\n\n" if turn.reasoning else ""
    if turn.role == "tool":
        return "observation", turn.text
    if not turn.tool_calls:
        return turn.role, text + turn.text
    calls = [
        {"name": call.name, "arguments": json.loads(call.arguments)} for call in turn.tool_calls
    ]
    return "function_call", text + json.dumps(calls if len(calls) > 1 else calls[0])


def test_sharegpt_pages_become_markdown_in_answers_alone():
    page = BOX.format("<p>A <b>b</b></p>")
    conversation = read(("system", page), ("human", page), ("bard", page))
    assert texts(conversation) == [("system", page), ("human", page), ("gpt", "A **b**")]
    assert conversation.repairs == ("html_to_markdown",)


def test_sharegpt_an_answer_that_shows_html_stays_to_the_character():
    text = 'Write `<div class="markdown">`:\n\n<p>Hi</p>'
    conversation = read(("human", "?"), ("gpt", text))
    assert conversation.turns[1].text == text
    assert conversation.repairs == ()


def test_sharegpt_takes_the_noise_of_the_page_off():
    conversation = read(
        ("human", "1 / 2<p>"), ("gpt", f"2 / 3{BOX.format('<p>1 / 2 is a half</p>')}")
    )
    assert texts(conversation) == [("human", "1 / 2<p>"), ("gpt", "1 / 2 is a half")]
    assert set(conversation.repairs) == {"page_noise_removed", "html_to_markdown"}
    conversation = read(("human", "?"), ("gpt", "```\npythonCopy codex\n```"))
    assert conversation.turns[1].text == "```python\nx\n```"
    assert conversation.repairs == ("page_noise_removed",)


@pytest.mark.parametrize(
    "page",
    [
        "<div>" * 5000,
        BOX.format("<![foo[x]]>"),
        BOX.format("<pre><i>see below</i><code>x</code></pre>"),
        BOX.format("<your-name>"),
    ],
)
def test_sharegpt_a_page_that_cannot_be_read_is_rejected(page):
    assert refused(("human", "?"), ("gpt", BOX.format(page))) == "malformed_row"


def test_sharegpt_repairs_the_order_of_turns():
    conversation = read(
        ("gpt", "Sure"), ("user", "Hi"), ("human", "there"), ("bing", "Hello"), ("human", "More?")
    )
    assert texts(conversation) == [("human", "Hi\n\nthere"), ("gpt", "Hello"), ("human", "More?")]
    assert set(conversation.repairs) == {"leading_answer_cut", "neighbours_joined"}


@pytest.mark.parametrize("role", ["gpt", "chatgpt", "bing", "bard", "assistant", "ChatGPT"])
def test_sharegpt_names_of_assistants(role):
    assert read(("User", "Hi"), (role, "Hello")).turns[1] == Turn("gpt", "Hello")


@pytest.mark.parametrize(
    "end",
    [
        [("human", "")],
        [("human", " \n")],
        [("human", ""), ("gpt", "")],
        [("human", " "), ("gpt", BOX.format("<p></p>"))],
    ],
)
def test_sharegpt_drops_empty_turns_at_the_end(end):
    conversation = read(("human", "Hi"), ("gpt", "Hello"), *end)
    assert texts(conversation) == [("human", "Hi"), ("gpt", "Hello")]
    assert "empty_turn_dropped" in conversation.repairs


def test_sharegpt_drops_no_empty_turn_in_the_middle_and_none_that_says_something():
    assert refused(("human", "Hi"), ("gpt", ""), ("human", "?")) == "empty_turn"
    assert reason("sharegpt", chat(value="", reasoning="r")) == "empty_turn"
    result = read(("human", "Hi"), ("function_call", CALL), ("tool", ""), tools=TOOLS)
    assert (result.turns[-1].role, result.turns[-1].text) == ("tool", "")
    assert read(("human", "Hi"), ("function_call", CALL), tools=TOOLS).turns[-1].tool_calls


def test_sharegpt_columns_of_a_system_prompt_and_of_tools():
    turns = (("human", "Hi"), ("gpt", "Hello"))
    conversation = read(*turns, system=" Be kind.\n", tools=json.loads(TOOLS))
    assert texts(conversation) == [("system", " Be kind.\n"), *turns]
    assert conversation.tools == TOOLS
    joined = read(("system", "Be brief."), *turns, system="Be kind.", tools=TOOLS)
    assert joined.turns[0].text == "Be kind.\n\nBe brief."
    assert (joined.repairs, joined.tools) == (("systems_joined",), TOOLS)
    for nothing in (None, ""):
        assert texts(read(*turns, system=nothing, tools=nothing)) == list(turns)
    assert refused(*turns, system=["Be kind."]) == "malformed_row"
    assert refused(*turns, tools="find, add") == "invalid_tools"


def test_sharegpt_one_conversation_under_one_name():
    row = {"conversation": [{"role": "user", "content": "Hi"}], "conversation_id": "x"}
    assert texts(accepted("sharegpt", row)) == [("human", "Hi")]
    assert accepted("sharegpt", {**row, "conversations": row["conversation"]})
    other = [{"role": "user", "content": "Ho"}]
    assert reason("sharegpt", {**row, "conversations": other}) == "malformed_row"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("I call find.", "invalid_call"),
        ("", "invalid_call"),
        ("[]", "invalid_call"),
        ("<think>\nr\n</think>", "invalid_call"),
        ('{"name": "find"}', "invalid_call"),
        ('{"name": "find", "arguments": ["Graz"]}', "invalid_call"),
        ('{"name": "find", "arguments": {}, "why": "r"}', "malformed_row"),
        ('{"name": "lose", "arguments": {}}', "undeclared_tool"),
        (f"[{CALL}, {CALL}]", "unmatched_result"),
    ],
)
def test_sharegpt_turns_of_calls_that_cannot_be_read(text, expected):
    turns = (("human", "?"), ("function_call", text), ("observation", "1"), ("gpt", "One."))
    assert refused(*turns, tools=TOOLS) == expected


def test_sharegpt_a_turn_of_calls_holds_them_in_one_place():
    calls = [{"id": "x", "type": "function", "function": json.loads(CALL)}]
    row = {"tools": TOOLS, **chat(value="", tool_calls=calls)}
    row["conversations"][1]["from"] = "Function_Call"
    assert accepted("sharegpt", row).turns[1].tool_calls
    row["conversations"][1]["value"] = CALL
    assert reason("sharegpt", row) == "invalid_call"


def test_sharegpt_a_call_that_follows_its_announcement_joins_it():
    turns = (("human", "?"), ("gpt", "I look."), ("tool_call", CALL), ("tool", "1"))
    conversation = read(*turns, tools=TOOLS)
    assert conversation.turns[1].text == "I look."
    assert len(conversation.turns[1].tool_calls) == 1
    assert conversation.repairs == ("call_joined",)


def test_sharegpt_calls_as_text_are_for_another_format():
    turns = (("human", "?"), ("gpt", f"<tool_call>\n{CALL}\n</tool_call>"), ("tool", "1"))
    assert refused(*turns, tools=TOOLS) == "stray_tool_tag"


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        (sharegpt(), "no_conversation"),
        (sharegpt(("gpt", ""), ("human", " ")), "no_conversation"),
        (sharegpt(("human", "Hi"), ("narrator", "waits")), "unknown_role"),
        (sharegpt(("human", "Hi"), (None, "Hello")), "unknown_role"),
        (sharegpt(("gpt", "Hi")), "no_user_turn"),
        (sharegpt(("human", "Hi"), ("gpt", "<p>&lt;|im_end|&gt;</p>")), "control_token"),
        (sharegpt(("human", "Hi"), ("gpt", None)), "malformed_row"),
        (sharegpt(("human", {"text": "Hi"}), ("gpt", "Ho")), "malformed_row"),
        (sharegpt(("human", 42), ("gpt", "Ho")), "malformed_row"),
        (sharegpt(("human", "Hi"), images=["a.png"]), "malformed_row"),
        (chat(value="a", content="b"), "malformed_row"),
        (chat(value="a", thoughts="r"), "malformed_row"),
        (chat(value="a", reasoning="r", thinking="s"), "malformed_row"),
        ({"id": "a", "conversations": None}, "malformed_row"),
        ({"id": "a", "conversations": "human: Hi"}, "malformed_row"),
        ({"id": "a", "conversations": {"from": "human", "value": "Hi"}}, "malformed_row"),
        ({"id": "a", "conversations": ["Hi"]}, "malformed_row"),
        ({"id": "a"}, "malformed_row"),
        ("Hi", "malformed_row"),
    ],
)
def test_sharegpt_rejects_what_is_no_chat(row, expected):
    assert reason("sharegpt", row) == expected


@pytest.mark.parametrize(
    "more",
    [
        {"content": "a"},
        {"content": "", "role": "gpt"},
        {"markdown": None, "text": None, "citations": []},
        {"markdown": "**a**", "text": "a", "model": "some", "lang": "en"},
        {"weight": 0, "toxic": False, "turn": 3},
    ],
)
def test_sharegpt_keys_that_say_nothing_new_are_left_out(more):
    assert accepted("sharegpt", chat(value="a", **more)).turns[1] == Turn("gpt", "a")


@pytest.mark.parametrize("key", ["reasoning_content", "reasoning", "thinking"])
def test_sharegpt_reasoning_under_any_name(key):
    assert accepted("sharegpt", chat(value="a", **{key: "r"})).turns[1] == Turn("gpt", "a", "r")


def test_sharegpt_samples_show_what_is_rejected_and_repaired():
    assert sample_oddities("sharegpt") == (
        {
            *("control_token", "empty_turn", "malformed_row", "no_conversation"),
            *("no_user_turn", "stray_think_tag", "unknown_role"),
        },
        {
            *("html_to_markdown", "page_noise_removed", "leading_answer_cut"),
            *("neighbours_joined", "empty_turn_dropped"),
        },
    )
