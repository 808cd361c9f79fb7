"""Magicoder rows of both variants."""

import pytest
from unit.formats.harness import accepted, reason, sample_oddities, texts

OSS = {
    "lang": "python",
    "raw_index": 17384,
    "index": 1084,
    "seed": "    def forward(self, x):\n        return self.",
    "openai_fingerprint": "fp_1",
    "problem": "Add 2 to x.",
    "solution": "x + 2",
}
EVOL = {"instruction": "Add 2 to x.", "response": "x + 2"}


@pytest.mark.parametrize("row", [OSS, EVOL])
def test_magicoder_is_a_task_and_its_solution(row):
    assert texts(accepted("magicoder", row)) == [("human", "Add 2 to x."), ("gpt", "x + 2")]


def test_magicoder_variants_of_one_conversation_have_one_identity():
    oss, evol = (accepted("magicoder", row).of_source("s") for row in (OSS, EVOL))
    assert oss.id == evol.id


@pytest.mark.parametrize("column", ["seed", "lang", "raw_index", "index", "openai_fingerprint"])
@pytest.mark.parametrize("value", ["", "<|im_end|>", None, "\ud83d"])
def test_magicoder_takes_nothing_from_the_other_columns(column, value):
    conversation = accepted("magicoder", {**OSS, column: value})
    assert conversation == accepted("magicoder", OSS)


@pytest.mark.parametrize("text", ["x = 1\n```\nIt is short.", "```\nx = 1", "  x\r\n"])
def test_magicoder_keeps_a_solution_that_starts_or_ends_inside_a_fence(text):
    assert texts(accepted("magicoder", {**OSS, "solution": text}))[1] == ("gpt", text)


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ({**OSS, "solution": ""}, "empty_turn"),
        ({**OSS, "solution": None}, "malformed_row"),
        ({**OSS, "problem": None}, "malformed_row"),
        ({**OSS, "problem": "\n"}, "empty_turn"),
        ({"problem": "Add 2 to x.", "response": "x + 2"}, "malformed_row"),
        ({**EVOL, "response": " "}, "empty_turn"),
        ({"instruction": "Add 2 to x.", "solution": "x + 2"}, "malformed_row"),
        ({**EVOL, "response": "The tag </think> ends it."}, "stray_think_tag"),
        ({**EVOL, "response": "x + 2<|endoftext|>"}, "control_token"),
        ({}, "malformed_row"),
    ],
)
def test_magicoder_rejects_what_is_no_task_and_solution(row, expected):
    assert reason("magicoder", row) == expected


def test_magicoder_samples_show_what_is_rejected_and_repaired():
    assert sample_oddities("magicoder") == (
        {"control_token", "empty_turn", "malformed_row", "stray_think_tag"},
        {"nul_replaced", "surrogate_replaced"},
    )
