"""Token rows: the mask is exactly what the target says."""

import json
import shutil
from itertools import groupby, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from rows import rows_of

from lib.conversation import Conversation, ToolCall, Turn, to_messages
from lib.rendering import Renderer, ThinkingMode
from lib.token_rows import ROW_REASONS

END = "<|im_end|>"
TOOLS = json.dumps([{"type": "function", "function": {"name": "look", "description": "Look"}}])


def look(number, at="here"):
    return ToolCall(f"call_{number}", "look", json.dumps({"at": at}))


def said(row, renderer):
    """Decode each supervised stretch of a row."""
    stretches = groupby(zip(row.ids, row.mask, strict=True), key=lambda pair: pair[1])
    return [renderer.tokenizer.decode([i for i, _ in run]) for bit, run in stretches if bit]


def unsaid(row, renderer):
    return renderer.tokenizer.decode(
        [i for i, bit in zip(row.ids, row.mask, strict=True) if not bit]
    )


def chat(answers, reasoning=""):
    turns = []
    for number, answer in enumerate(answers):
        turns += [Turn("human", f"Question {number}?"), Turn("gpt", answer, reasoning)]
    return Conversation(tuple(turns))


TRAJECTORY = Conversation(
    (
        Turn("human", "What is here and there?"),
        Turn("gpt", "I look.", "think one", (look(0), look(1, "there"))),
        Turn("tool", "a cat", tool_call_id="call_0"),
        Turn("tool", "a dog", tool_call_id="call_1"),
        Turn("gpt", "", "think two", (look(2),)),
        Turn("tool", "a cow", tool_call_id="call_2"),
        Turn("gpt", "A cat, a dog and a cow.", "think three"),
    ),
    TOOLS,
)


def call_text(at):
    return (
        f"<tool_call>\n<function=look>\n<parameter=at>\n{at}\n</parameter>\n"
        "</function>\n</tool_call>"
    )


@pytest.mark.parametrize("turns", [1, 2, 3])
def test_a_chat_gives_a_row_a_turn_that_supervises_the_answer_alone(render, turns):
    answers = ["It is red.", "def f():\n    return 1", "Größe: 3 € 🙂"][:turns]
    rows = rows_of(chat(answers), render()).rows
    assert [said(row, render()) for row in rows] == [[answer + END] for answer in answers]
    assert [row.turns for row in rows] == [(1,), (3,), (5,)][:turns]


@pytest.mark.parametrize("turns", [1, 2, 3])
def test_thinking_on_supervises_the_reasoning_too(render, turns):
    answers = ["Red.", "Blue.", "Green."][:turns]
    renderer = render(thinking=True)
    rows = rows_of(chat(answers, "a thought"), renderer).rows
    assert [said(row, renderer) for row in rows] == [
        [f"a thought\n</think>\n\n{answer}{END}"] for answer in answers
    ]


def test_the_empty_think_block_belongs_to_the_prompt(render):
    (row,) = rows_of(chat(["Red."]), render()).rows
    assert "<think>\n\n</think>\n\n" in unsaid(row, render())
    assert said(row, render()) == ["Red." + END]


def test_nothing_after_the_end_of_the_turn_is_supervised(render):
    (row,) = rows_of(chat(["Red."]), render()).rows
    end = render().tokenizer.convert_tokens_to_ids(END)
    last = max(position for position, bit in enumerate(row.mask) if bit)
    assert row.ids[last] == end
    assert last < len(row.ids) - 1


def test_a_trajectory_after_one_question_is_one_row_with_every_turn_supervised(render):
    result = rows_of(TRAJECTORY, render())
    (row,) = result.rows
    assert row.turns == (1, 4, 6)
    assert said(row, render()) == [
        f"I look.\n\n{call_text('here')}\n{call_text('there')}{END}",
        f"{call_text('here')}{END}",
        f"A cat, a dog and a cow.{END}",
    ]
    assert "a cat" in unsaid(row, render())


def test_a_trajectory_with_thinking_on_supervises_each_reasoning(render):
    renderer = render(thinking=True)
    (row,) = rows_of(TRAJECTORY, renderer).rows
    assert said(row, renderer) == [
        f"think one\n</think>\n\nI look.\n\n{call_text('here')}\n{call_text('there')}{END}",
        f"think two\n</think>\n\n{call_text('here')}{END}",
        f"think three\n</think>\n\nA cat, a dog and a cow.{END}",
    ]


@pytest.mark.parametrize("thinking", [False, True])
def test_a_second_question_begins_a_new_row(render, thinking):
    more = (Turn("human", "Sure?"), Turn("gpt", "Yes.", "think four"))
    conversation = Conversation(TRAJECTORY.turns + more, TOOLS)
    rows = rows_of(conversation, render(thinking)).rows
    assert [row.turns for row in rows] == [(1, 4, 6), (8,)]
    assert "think one" not in unsaid(rows[1], render(thinking))


def test_preserved_thinking_makes_one_row_of_a_chat(render):
    renderer = render(thinking=True, preserve_thinking=True)
    (row,) = rows_of(chat(["Red.", "Blue."], "a thought"), renderer).rows
    assert row.turns == (1, 3)
    assert said(row, renderer) == [
        f"a thought\n</think>\n\n{answer}{END}" for answer in ("Red.", "Blue.")
    ]


def test_thinking_on_drops_a_turn_without_reasoning_and_keeps_the_others(render):
    turns = list(chat(["Red.", "Blue.", "Green."], "a thought").turns)
    turns[3] = Turn("gpt", "Blue.")
    result = rows_of(Conversation(tuple(turns)), render(thinking=True))
    assert [row.turns for row in result.rows] == [(1,), (5,)]
    assert result.lost == {"no_reasoning": 1}


def test_thinking_off_leaves_recorded_reasoning_out_and_counts_it(render):
    turns = list(chat(["Red.", "Blue.", "Green."], "a thought").turns)
    turns[3] = Turn("gpt", "Blue.")
    result = rows_of(Conversation(tuple(turns)), render())
    assert result.reasoning_left_out == 2
    assert result.rows == rows_of(chat(["Red.", "Blue.", "Green."]), render()).rows


@pytest.mark.parametrize("thinking", [False, True])
@pytest.mark.parametrize("conversation", [chat(["Red.", "Blue."], "why"), TRAJECTORY])
def test_ids_are_those_of_the_tokenizers_own_chat_rendering(render, conversation, thinking):
    renderer = render(thinking)
    turns = conversation.turns
    messages = to_messages(turns)
    if not thinking:
        messages = [{**m, "reasoning_content": ""} for m in messages]
    expected = renderer.tokenizer.apply_chat_template(
        messages,
        tools=json.loads(conversation.tools) if conversation.tools else None,
        tokenize=True,
        enable_thinking=thinking,
    )["input_ids"]
    assert list(rows_of(conversation, renderer).rows[-1].ids) == expected


def test_a_long_last_answer_does_not_drop_the_earlier_ones(render):
    result = rows_of(chat(["Red.", "Blue.", "long " * 200]), render(), seq_length=200)
    assert [row.turns for row in result.rows] == [(1,), (3,)]
    assert result.lost == {"answer_too_long": 1}


def test_a_long_answer_loses_itself_and_what_needs_it_as_context(render):
    result = rows_of(chat(["Red.", "long " * 200, "Green."]), render(), seq_length=200)
    assert [row.turns for row in result.rows] == [(1,)]
    assert result.lost == {"answer_too_long": 1, "context_too_long": 1}


def test_the_window_holds_a_row_of_exactly_its_length(render):
    (row,) = rows_of(chat(["Red."]), render()).rows
    assert rows_of(chat(["Red."]), render(), seq_length=len(row.ids)).rows == (row,)
    shorter = rows_of(chat(["Red."]), render(), seq_length=len(row.ids) - 1)
    assert (shorter.rows, shorter.lost) == ((), {"answer_too_long": 1})


def test_a_prompt_that_fills_the_window_is_no_context(render):
    (row,) = rows_of(chat(["Red."]), render()).rows
    prompt = row.mask.index(1)
    assert rows_of(chat(["Red."]), render(), seq_length=prompt).lost == {"context_too_long": 1}
    assert rows_of(chat(["Red."]), render(), seq_length=prompt + 1).lost == {"answer_too_long": 1}


def test_turns_with_too_few_supervised_tokens_are_dropped(render):
    conversation = chat(["Red.", "It is rather a long answer."])
    short, long = (sum(row.mask) for row in rows_of(conversation, render()).rows)
    assert short < long
    assert len(rows_of(conversation, render(), minimum=short).rows) == 2
    result = rows_of(conversation, render(), minimum=short + 1)
    assert [row.turns for row in result.rows] == [(3,)]
    assert result.lost == {"too_few_supervised": 1}


def with_call(arguments, tools=TOOLS):
    turns = (
        Turn("human", "Go"),
        Turn("gpt", "", tool_calls=(ToolCall("c", "look", arguments),)),
        Turn("tool", "a cat", tool_call_id="c"),
        Turn("gpt", "A cat."),
    )
    return Conversation(turns, tools)


@pytest.mark.parametrize(
    "conversation",
    [
        Conversation((Turn("human", "What is <|mask|>?"), Turn("gpt", "A"), Turn("gpt", "B"))),
        Conversation((Turn("human", "Go"), Turn("gpt", "A"), Turn("gpt", "x<|im_end|>y"))),
        Conversation((Turn("human", "Go"), Turn("gpt", "A", "<|im_start|>"), Turn("gpt", "B"))),
        with_call('{"at": "<|endoftext|>"}'),
        with_call('{"at": "\\u003c|im_end|\\u003e"}'),
        with_call("{}", TOOLS.replace("Look", "\\u003c|im_end|>")),
    ],
    ids=["question", "answer", "reasoning", "arguments", "escaped", "escaped tools"],
)
def test_a_special_token_inside_text_loses_the_whole_conversation(render, conversation):
    result = rows_of(conversation, render())
    assert (result.rows, result.lost) == ((), {"special_token": 2})


def test_what_the_template_refuses_is_counted(render):
    turns = (Turn("human", "A"), Turn("gpt", "B"), Turn("system", "C"), Turn("gpt", "D"))
    result = rows_of(Conversation(turns), render())
    assert [row.turns for row in result.rows] == [(1,)]
    assert result.lost == {"unrenderable": 1}


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ('"\\n</think>\\n\\n"', '"\\n</think>\\n\\n "', "prompt_not_prefix"),
        ('endfor -%}\n        {{- "<|im_end|>\\n" -}}', "endfor -%}", "no_end_of_turn"),
    ],
)
def test_a_template_that_breaks_the_mask_is_noticed(target, tmp_path, old, new, reason):
    copy = tmp_path / "target"
    shutil.copytree(target, copy)
    template = (copy / "chat_template.jinja").read_text()
    before, found, after = template.rpartition(old)
    assert found
    (copy / "chat_template.jinja").write_text(before + new + after)
    result = rows_of(chat(["Red."]), Renderer(copy, ThinkingMode()))
    assert (result.rows, result.lost) == ((), {reason: 1})


TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=30)


@st.composite
def conversations(draw):
    """Draw questions with trajectories, reasoning here and there, and sometimes an odd end."""
    turns = [Turn("system", draw(TEXT))] if draw(st.booleans()) else []
    for question in range(draw(st.integers(1, 3))):
        turns.append(Turn("human", draw(TEXT)))
        for step in range(draw(st.integers(0, 2))):
            calls = tuple(
                ToolCall(f"{question}-{step}-{n}", "look", json.dumps({"at": draw(TEXT)}))
                for n in range(draw(st.integers(1, 2)))
            )
            turns.append(Turn("gpt", draw(TEXT | st.just("")), draw(TEXT | st.just("")), calls))
            turns += [Turn("tool", draw(TEXT), tool_call_id=call.id) for call in calls]
        turns.append(Turn("gpt", draw(TEXT), draw(TEXT | st.just(""))))
    if draw(st.booleans()):
        turns.append(Turn("human", draw(TEXT)))
    return Conversation(tuple(turns), TOOLS)


@settings(derandomize=True, max_examples=60, deadline=None)
@given(
    conversations(),
    st.booleans(),
    st.booleans(),
    st.integers(60, 400),
    st.integers(1, 20),
)
def test_every_turn_is_supervised_in_one_row_or_lost_for_a_reason(
    render, conversation, thinking, preserve_thinking, seq_length, minimum
):
    renderer = render(thinking, preserve_thinking)
    result = rows_of(conversation, renderer, seq_length, minimum)
    supervised = [position for row in result.rows for position in row.turns]
    answers = [n for n, turn in enumerate(conversation.turns) if turn.role == "gpt"]
    assert len(set(supervised)) == len(supervised)
    assert set(supervised) <= set(answers)
    assert len(supervised) + result.lost.total() == len(answers)
    assert set(result.lost) <= set(ROW_REASONS) - {"prompt_not_prefix", "no_end_of_turn"}
    end = renderer.tokenizer.eos_token_id
    for row in result.rows:
        assert len(row.ids) == len(row.mask) <= seq_length
        assert set(row.mask) == {0, 1}
        ends = [bit for token, bit in zip(row.ids, row.mask, strict=True) if token == end]
        assert sum(ends) == len(row.turns) == len(said(row, renderer))
        assert all(stretch.endswith(END) for stretch in said(row, renderer))


@settings(derandomize=True, max_examples=40, deadline=None)
@given(conversations(), st.booleans())
def test_no_row_is_the_beginning_of_the_next(render, conversation, thinking):
    rows = rows_of(conversation, render(thinking)).rows
    for row, following in pairwise(rows):
        assert following.ids[: len(row.ids)] != row.ids


@settings(derandomize=True, max_examples=60, deadline=None)
@given(data=st.data(), thinking=st.booleans(), seq_length=st.integers(80, 400))
def test_a_recorded_turn_is_read_and_never_said(render, data, thinking, seq_length):
    """What is supervised of the other turns, in what context, is as without the mark."""
    conversation = data.draw(conversations())
    answers = [n for n, turn in enumerate(conversation.turns) if turn.role == "gpt"]
    recorded = data.draw(st.sets(st.sampled_from(answers)))
    turns = [replace(turn, recorded=n in recorded) for n, turn in enumerate(conversation.turns)]
    marked = replace(conversation, turns=tuple(turns))
    renderer = render(thinking)
    everything = spans_of(rows_of(conversation, renderer, seq_length))
    assert spans_of(rows_of(marked, renderer, seq_length)) == {
        turn: span for turn, span in everything.items() if turn not in recorded
    }
    assert marked.answers() == [n for n in answers if n not in recorded]


def spans_of(tokenized):
    """Return what is supervised of each turn, with all that stands before it."""
    return {
        turn: (tuple(row.ids[:end]), start)
        for row in tokenized.rows
        for turn, (start, end) in zip(row.turns, row.spans, strict=True)
    }
