"""The chat template of the toy target: what it refuses and what it renders."""

import json

import jinja2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lib.conversation import ToolCall, Turn
from lib.rendering import RenderError

USER = {"role": "user", "content": "Hello"}
TOOLS = json.dumps(
    [
        {"type": "function", "function": {"name": "look", "description": "Look at <things>"}},
        {"type": "function", "function": {"name": "find", "parameters": {"type": "object"}}},
    ]
)


@pytest.mark.parametrize(
    ("messages", "complaint"),
    [
        ([], "No messages"),
        ([{"role": "system", "content": "Be kind."}], "No user query"),
        ([{"role": "assistant", "content": "Hello"}], "No user query"),
        ([USER, {"role": "system", "content": "Be kind."}, USER], "must be at the beginning"),
        ([{"role": "system", "content": "a"}, {"role": "system", "content": "b"}, USER], "must be"),
        ([USER, {"role": "critic", "content": "No."}], "message role"),
        ([{"role": "user", "content": [{"type": "text", "text": "Hello"}]}], "content type"),
        ([{"role": "user", "content": None}], "content type"),
        ([USER, {"role": "tool", "content": 42}], "content type"),
    ],
)
def test_messages_that_a_strict_template_refuses(render, messages, complaint):
    with pytest.raises(jinja2.TemplateError, match=complaint):
        render().tokenizer.apply_chat_template([messages], tokenize=False)


def test_the_renderer_says_what_the_template_refused(render):
    turns = [Turn("human", "Hello"), Turn("system", "Be kind."), Turn("human", "Hello")]
    with pytest.raises(RenderError, match="must be at the beginning"):
        render().prompt(turns, "")


def test_the_renderer_refuses_an_empty_history(render):
    with pytest.raises(RenderError):
        render().prompt([], "")


def test_generation_prompt_leaves_the_think_block_open_when_thinking_is_on(render):
    text = render(thinking=True).prompt([Turn("human", "Hello")], "")
    assert text == "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n<think>\n"


def test_generation_prompt_closes_the_think_block_when_thinking_is_off(render):
    open_block = render(thinking=True).prompt([Turn("human", "Hello")], "")
    assert render().prompt([Turn("human", "Hello")], "") == open_block + "\n</think>\n\n"


TWO_QUESTIONS = [
    Turn("human", "One?"),
    Turn("gpt", "First.", reasoning="early thought"),
    Turn("human", "Two?"),
    Turn("gpt", "", reasoning="late thought", tool_calls=(ToolCall("call_0", "look", "{}"),)),
    Turn("tool", "a thing", tool_call_id="call_0"),
]


def test_history_keeps_only_the_reasoning_since_the_last_question(render):
    text = render(thinking=True).prompt(TWO_QUESTIONS, TOOLS)
    assert "early thought" not in text
    assert "<|im_start|>assistant\nFirst.<|im_end|>" in text
    assert "<|im_start|>assistant\n<think>\nlate thought\n</think>\n\n<tool_call>" in text


def test_preserve_thinking_keeps_all_reasoning_in_the_history(render):
    text = render(thinking=True, preserve_thinking=True).prompt(TWO_QUESTIONS, TOOLS)
    assert "<think>\nearly thought\n</think>\n\nFirst.<|im_end|>" in text
    assert "<think>\nlate thought\n</think>\n\n<tool_call>" in text


def test_thinking_off_shows_no_recorded_reasoning(render):
    text = render(preserve_thinking=True).prompt(TWO_QUESTIONS, TOOLS)
    assert "thought" not in text


@pytest.mark.parametrize("system", ["", "Be kind."])
def test_tools_stand_one_a_line_before_the_system_text(render, system):
    turns = [Turn("system", system)] if system else []
    text = render().prompt([*turns, Turn("human", "Hello")], TOOLS)
    block, _, after = text.partition("</tools>")
    lines = block.partition("<tools>\n")[2].splitlines()
    assert [json.loads(line) for line in lines] == json.loads(TOOLS)
    assert text.count("<|im_start|>system\n") == 1
    assert after.startswith(f"\n\n{system}<|im_end|>\n" if system else "<|im_end|>\n")


def test_calls_are_xml_with_text_as_it_is_and_other_values_as_json(render):
    arguments = {"text": 'say "é"', "number": 2, "list": ["a", None], "flag": True}
    turn = Turn("gpt", "I look.", tool_calls=(ToolCall("c", "look", json.dumps(arguments)),))
    text = render().conversation([Turn("human", "Go"), turn], TOOLS)
    assert text.endswith(
        "</think>\n\nI look.\n\n<tool_call>\n<function=look>\n"
        '<parameter=text>\nsay "é"\n</parameter>\n'
        "<parameter=number>\n2\n</parameter>\n"
        '<parameter=list>\n["a", null]\n</parameter>\n'
        "<parameter=flag>\ntrue\n</parameter>\n"
        "</function>\n</tool_call><|im_end|>\n"
    )


def test_results_of_one_turn_share_a_message(render):
    calls = (ToolCall("a", "look", "{}"), ToolCall("b", "look", "{}"))
    results = [Turn("tool", "one", tool_call_id="a"), Turn("tool", "two", tool_call_id="b")]
    turns = [Turn("human", "Go"), Turn("gpt", "", tool_calls=calls), *results]
    text = render().prompt(turns, TOOLS)
    assert (
        "<|im_start|>user\n<tool_response>\none\n</tool_response>\n"
        "<tool_response>\ntwo\n</tool_response><|im_end|>\n<|im_start|>assistant\n"
    ) in text
    assert "</tool_call>\n<tool_call>" in text


TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)


@st.composite
def histories(draw):
    """Draw questions, each with some calls and their results before the answer."""
    turns = [Turn("system", draw(TEXT))] if draw(st.booleans()) else []
    for question in range(draw(st.integers(1, 3))):
        turns.append(Turn("human", draw(TEXT)))
        for step in range(draw(st.integers(0, 2))):
            call = ToolCall(f"{question}-{step}", "look", json.dumps({"at": draw(TEXT)}))
            turns.append(Turn("gpt", draw(TEXT | st.just("")), draw(TEXT), (call,)))
            turns.append(Turn("tool", draw(TEXT), tool_call_id=call.id))
        turns.append(Turn("gpt", draw(TEXT), draw(TEXT)))
    return turns


@settings(derandomize=True, max_examples=40, deadline=None)
@given(histories(), st.booleans(), st.booleans())
def test_every_answer_goes_on_from_its_prompt(render, turns, thinking, preserve_thinking):
    renderer = render(thinking, preserve_thinking)
    for position, turn in enumerate(turns):
        if turn.role == "gpt":
            prompt = renderer.prompt(turns[:position], TOOLS)
            assert renderer.conversation(turns[: position + 1], TOOLS).startswith(prompt)
