"""The audit of masks: no false alarm for any conversation, and no mask that it misses."""

import json
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rows import rows_of
from test_token_rows import TRAJECTORY, conversations, look

from lib.conversation import Conversation, ToolCall, Turn
from lib.mask_audit import AuditedRow, audit
from lib.rendering import Renderer, ThinkingMode
from lib.row_display import coloured, marked


@pytest.fixture(scope="module")
def qwen_renderer(qwen):
    tokenizer = Renderer(qwen, ThinkingMode()).tokenizer

    @cache
    def renderer(thinking):
        made = Renderer(qwen, ThinkingMode(thinking))
        vars(made)["tokenizer"] = tokenizer  # it takes seconds to load
        return made

    return renderer


def problems_of(row, conversation, renderer, mask=None):
    audited = AuditedRow(row.ids, row.mask if mask is None else mask, row.turns, conversation)
    return audit(audited, renderer.decode, renderer.end_of_turn_ids, renderer.mode.thinking)


@settings(derandomize=True, max_examples=150, deadline=None)
@given(conversations(), st.booleans())
def test_rows_of_the_toy_target_pass(render, conversation, thinking):
    renderer = render(thinking)
    for row in rows_of(conversation, renderer).rows:
        assert problems_of(row, conversation, renderer) == []


@settings(derandomize=True, max_examples=150, deadline=None)
@given(conversations(), st.booleans())
def test_rows_of_qwen_pass(qwen_renderer, conversation, thinking):
    renderer = qwen_renderer(thinking)
    for row in rows_of(conversation, renderer).rows:
        assert problems_of(row, conversation, renderer) == []


PLAIN = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
)
NAMES = st.text("ab_é", max_size=3)
VALUES = st.recursive(
    PLAIN,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=6,
)


@settings(derandomize=True, max_examples=150, deadline=None)
@given(st.dictionaries(st.text("abcf_", min_size=1, max_size=4), VALUES, max_size=4))
def test_calls_with_any_arguments_pass(qwen_renderer, arguments):
    call = ToolCall("call_0", "f", json.dumps(arguments))
    tools = json.dumps([{"type": "function", "function": {"name": "f"}}])
    conversation = Conversation((Turn("human", "Go."), Turn("gpt", "", "", (call,))), tools)
    renderer = qwen_renderer(False)
    for row in rows_of(conversation, renderer).rows:
        assert problems_of(row, conversation, renderer) == []


@settings(derandomize=True, max_examples=150, deadline=None)
@given(st.data())
def test_any_single_wrong_bit_is_found(render, data):
    """A wrong bit gives another number of stretches, or makes a turn say less or more."""
    thinking = data.draw(st.booleans())
    renderer = render(thinking)
    (row,) = rows_of(TRAJECTORY, renderer).rows
    place = data.draw(st.integers(0, len(row.ids) - 1))
    mask = list(row.mask)
    mask[place] = 1 - mask[place]
    piece = renderer.decode(row.ids[place : place + 1])
    if piece.strip() and any(letter.isalnum() for letter in piece):
        assert problems_of(row, TRAJECTORY, renderer, mask)


@pytest.mark.parametrize(
    ("turns", "what"),
    [
        ((1, 4), "supervised stretches for 2 turns"),
        ((1, 4, 5), "turn 5 is one of tool"),
        ((1, 4, 60), "turn 60 is not in the conversation"),
        ((4, 1, 6), "turn 4 is supervised as"),
    ],
)
def test_turns_that_are_not_those_of_the_row_are_named(render, turns, what):
    (row,) = rows_of(TRAJECTORY, render()).rows
    audited = AuditedRow(row.ids, row.mask, turns, TRAJECTORY)
    found = audit(audited, render().decode, render().end_of_turn_ids, thinking=False)
    assert any(what in problem for problem in found)


def test_reasoning_counts_where_thinking_is_on_and_only_there(render):
    (row,) = rows_of(TRAJECTORY, render(True)).rows
    assert problems_of(row, TRAJECTORY, render(True)) == []
    assert problems_of(row, TRAJECTORY, render(False))


def test_another_call_than_the_recorded_one_is_found(render):
    (row,) = rows_of(TRAJECTORY, render()).rows
    turns = list(TRAJECTORY.turns)
    turns[4] = Turn("gpt", "", "think two", (look(2, "elsewhere"),))
    assert problems_of(row, Conversation(tuple(turns), TRAJECTORY.tools), render())


def test_rows_are_shown_with_what_is_supervised(render):
    (row,) = rows_of(TRAJECTORY, render()).rows
    text = marked(row.ids, row.mask, render().decode)
    assert "⟦A cat, a dog and a cow.<|im_end|>⟧" in text
    assert text.replace("⟦", "").replace("⟧", "") == render().decode(row.ids)
    screen = coloured(row.ids, row.mask, lambda ids: f"{len(ids)}\x1b]0;title\x07")
    assert "\x1b]" not in screen and "\x07" not in screen
