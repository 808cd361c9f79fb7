"""Rows and masks with the real Qwen3.6, and with families of other habits."""

from functools import cache

import pytest
from rows import rows_of
from targets.families import other_family
from test_token_rows import TOOLS, TRAJECTORY, call_text, chat, look, said, unsaid

from lib.conversation import Conversation, Turn
from lib.rendering import Renderer, ThinkingMode
from lib.token_rows import TokenRow

EMPTY = "<think>\n\n</think>\n\n"


@pytest.fixture(scope="module")
def qwen_renderer(qwen):
    tokenizer = Renderer(qwen, ThinkingMode()).tokenizer

    @cache
    def renderer(thinking=False, preserve_thinking=False):
        made = Renderer(qwen, ThinkingMode(thinking, preserve_thinking))
        vars(made)["tokenizer"] = tokenizer  # it takes seconds to load
        return made

    return renderer


def test_qwen_without_thinking_never_says_the_empty_think_block(qwen_renderer):
    renderer = qwen_renderer()
    rows = rows_of(chat(["It is red.", "def f():\n    return 1"], "a thought"), renderer).rows
    assert [said(row, renderer) for row in rows] == [
        ["It is red.<|im_end|>"],
        ["def f():\n    return 1<|im_end|>"],
    ]
    assert unsaid(rows[0], renderer).endswith(f"<|im_start|>assistant\n{EMPTY}\n")
    assert "It is red.<|im_end|>" in unsaid(rows[1], renderer)
    assert unsaid(rows[1], renderer).count(EMPTY) == 1


def test_qwen_with_thinking_says_its_reasoning(qwen_renderer):
    renderer = qwen_renderer(thinking=True)
    rows = rows_of(chat(["Red.", "Blue."], "a thought"), renderer).rows
    assert [said(row, renderer) for row in rows] == [
        ["a thought\n</think>\n\nRed.<|im_end|>"],
        ["a thought\n</think>\n\nBlue.<|im_end|>"],
    ]
    assert "a thought" not in unsaid(rows[1], renderer)


def test_qwen_that_preserves_its_thinking_makes_one_row_of_a_chat(qwen_renderer):
    renderer = qwen_renderer(thinking=True, preserve_thinking=True)
    (row,) = rows_of(chat(["Red.", "Blue."], "a thought"), renderer).rows
    answers = [f"a thought\n</think>\n\n{answer}.<|im_end|>" for answer in ("Red", "Blue")]
    assert said(row, renderer) == answers


@pytest.mark.parametrize("thinking", [False, True])
def test_a_trajectory_of_qwen_is_one_row(qwen_renderer, thinking):
    renderer = qwen_renderer(thinking)
    (row,) = rows_of(TRAJECTORY, renderer).rows
    thoughts = [f"think {n}\n</think>\n\n" if thinking else "" for n in ("one", "two", "three")]
    assert said(row, renderer) == [
        f"{thoughts[0]}I look.\n\n{call_text('here')}\n{call_text('there')}<|im_end|>",
        f"{thoughts[1]}{call_text('here')}<|im_end|>",
        f"{thoughts[2]}A cat, a dog and a cow.<|im_end|>",
    ]
    results = "<tool_response>\na cat\n</tool_response>\n<tool_response>\na dog\n</tool_response>"
    assert results in unsaid(row, renderer)


def supervised_pairs(rows):
    """Each context with the token that is supervised after it."""
    return {
        (hash(tuple(row.ids[:place])), row.ids[place])
        for row in rows
        for start, end in row.spans
        for place in range(start, end)
    }


def test_a_long_trajectory_says_the_same_in_a_tenth_of_the_tokens(qwen_renderer):
    """Against one row a turn, each with its whole history, as the stock rule has it."""
    renderer = qwen_renderer()
    turns = [Turn("human", "Look everywhere.")]
    for step in range(30):
        turns.append(Turn("gpt", f"Step {step}.", "", (look(step, f"place {step}"),)))
        turns.append(Turn("tool", f"result {step} " * 20, tool_call_id=f"call_{step}"))
    turns.append(Turn("gpt", "I looked everywhere."))
    (merged,) = rows_of(Conversation(tuple(turns), TOOLS), renderer, 65536).rows
    apart = []
    for position in merged.turns:
        through = Conversation(tuple(turns[: position + 1]), TOOLS)
        (row,) = rows_of(through, renderer, 65536).rows
        apart.append(TokenRow(row.ids, row.spans[-1:], row.turns[-1:]))
    assert supervised_pairs([merged]) == supervised_pairs(apart)
    assert len(merged.ids) <= 0.1 * sum(len(row.ids) for row in apart)


def test_qwen_needs_no_processor_and_adds_no_column(qwen, qwen_renderer):
    files = {path.name for path in qwen.iterdir()}
    assert not files & {"preprocessor_config.json", "processor_config.json"}
    assert rows_of(chat(["Red."]), qwen_renderer()).rows


@pytest.fixture(scope="module")
def gemma(tmp_path_factory, target):
    """A template that refuses system turns and calls the target `model`."""
    folder = tmp_path_factory.mktemp("families") / "gemma"
    other_family(folder, target, "gemma", ("<start_of_turn>", "<end_of_turn>"))
    return Renderer(folder, ThinkingMode())


def test_a_family_without_system_turns_counts_what_it_refuses(gemma):
    plain = chat(["Red.", "Blue."])
    (row,) = rows_of(plain, gemma).rows
    assert said(row, gemma) == ["Red.<end_of_turn>", "Blue.<end_of_turn>"]
    assert unsaid(row, gemma).count("<start_of_turn>model") == 2
    with_system = Conversation((Turn("system", "Be brief."), *plain.turns))
    assert rows_of(with_system, gemma).lost == {"unrenderable": 2}


@pytest.fixture(scope="module")
def marked(tmp_path_factory, target):
    """A template with marks around what the target generates, as trainers ask for them."""
    folder = tmp_path_factory.mktemp("families") / "marked"
    marks = ("<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>")
    other_family(folder, target, "llama3_training", marks)
    return Renderer(folder, ThinkingMode())


@pytest.mark.parametrize("answers", [["Red."], ["Red.", "  x = 1\n\ny", "Größe 🙂"]])
def test_the_mask_is_the_one_that_generation_marks_give(marked, answers):
    conversation = chat(answers)
    (row,) = rows_of(conversation, marked).rows
    assert len(row.turns) == len(answers)
    theirs = marked.tokenizer.apply_chat_template(
        marked.messages(conversation.turns),
        return_assistant_tokens_mask=True,
        return_dict=True,
        tokenize=True,
    )
    assert list(row.ids) == theirs["input_ids"]
    assert list(row.mask) == theirs["assistant_masks"]
