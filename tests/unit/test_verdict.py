"""What the verdict says: what was measured, plainly, and what was not."""

import random

import pytest
from written_run import measured

from lib.comparison import compare_evaluations
from lib.verdict import verdict

DOMAINS = ("chat", "code")


@pytest.fixture
def served():
    return measured(random.Random(0), DOMAINS, served=True)


def kinds(evaluation, **minimum):
    return {found.title: found.kind for found in verdict(evaluation, minimum, None).findings}


def text(evaluation, title, **minimum):
    findings = verdict(evaluation, minimum, None).findings
    return next(found.text for found in findings if found.title == title)


def with_ratios(evaluation, *ratios):
    for entry, ratio in zip(evaluation["all"]["speed"], ratios, strict=True):
        entry["ratio"]["output_tokens_per_second"] = ratio
    return evaluation


def test_a_simulation_says_that_speed_and_answers_are_not_known():
    evaluation = measured(random.Random(0), DOMAINS, served=False)
    found = verdict(evaluation, {}, None)
    assert f"{evaluation['all']['acceptance_length']:.2f} tokens a step" in found.summary
    assert "simulated" in found.summary
    unknown = {"Speed", "Same answers", "What was asked for", "The other thinking mode"}
    assert unknown <= {one.title for one in found.findings if one.kind == "unknown"}


@pytest.mark.parametrize(
    ("ratios", "kind", "summary"),
    [
        ((1.5, 1.4, 1.2), "good", "1.20 to 1.50 times as fast"),
        ((1.5, 0.9, 0.8), "bad", "but not at 8 and 32 requests at a time"),
        ((1.5, 1.2, 1.0), "bad", "but not at 32 requests at a time"),
        ((0.9, 0.9, 0.8), "bad", "does not make the server faster"),
    ],
)
def test_speed_is_judged_at_every_concurrency(served, ratios, kind, summary):
    evaluation = with_ratios(served, *ratios)
    assert kinds(evaluation)["Speed"] == kind
    assert summary in verdict(evaluation, {}, None).summary


def test_a_server_without_a_baseline_has_no_speed_to_compare(served):
    for entry in served["all"]["speed"]:
        entry |= {"without_drafter": None, "ratio": None}
    served["losslessness"] = None
    assert kinds(served)["Speed"] == kinds(served)["Same answers"] == "unknown"
    assert "evaluate.baseline" in text(served, "Speed")
    assert "nothing was answered without it" in verdict(served, {}, None).summary


def test_a_difference_counts_only_where_the_target_was_decided(served):
    assert kinds(served)["Same answers"] == "bad"
    assert "in 1 of them the target clearly preferred" in text(served, "Same answers")
    served["losslessness"] |= {"differing_where_decided": 0}
    assert kinds(served)["Same answers"] == "good"
    assert "rounding" in text(served, "Same answers")
    served["losslessness"] |= {"differing": 0, "differences": []}
    assert text(served, "Same answers") == "All 60 answers are those without the drafter."


def test_what_was_asked_for_is_compared_with_what_was_measured(served):
    assert kinds(served, all=1.1, chat=1.2)["What was asked for"] == "good"
    assert kinds(served, all=1.1, chat=7)["What was asked for"] == "bad"
    assert "for chat (at least 7)" in text(served, "What was asked for", chat=7)


def test_a_drafter_that_is_worse_than_the_targets_own_head_is_told(served):
    served["all"]["mtp"] |= {"acceptance_length": 4.5}
    title = "Against the target's own MTP head"
    assert kinds(served)[title] == "bad"
    assert "the head's are 4.50" in text(served, title)


def test_few_prompts_are_told_and_many_are_not(served):
    assert kinds(served)["Other prompts"] == "unknown"
    served["all"]["prompts"] = 800
    assert "Other prompts" not in kinds(served)


def test_the_other_mode_is_told(served):
    assert "With thinking on:" in text(served, "The other thinking mode")
    served["other_mode"] = None
    assert kinds(served)["The other thinking mode"] == "unknown"


@pytest.mark.parametrize(("more", "kind"), [(20, "good"), (0, "unknown"), (-20, "bad")])
def test_a_published_drafter_is_compared_prompt_by_prompt(served, more, kind):
    published = measured(random.Random(0), DOMAINS, served=True)
    for prompt in published["prompts"]:
        prompt["accepted"] = max(0, prompt["accepted"] - more)
    found = verdict(served, {}, compare_evaluations(published, served)).findings
    (told,) = [one for one in found if one.title == "Against the published drafter"]
    assert told.kind == kind
    assert ("do not tell which one is better" in told.text) == (kind == "unknown")
