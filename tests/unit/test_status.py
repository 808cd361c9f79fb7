"""What is stale is said in words that name the change."""

from dataclasses import replace

import pytest

from lib.status import Job, Made, last_took, reasons, setting_changes, status_text

MADE = Made(frozenset({'{"epochs":4}', "0123456789abcdef"}), frozenset({"a.json"}), "train")
FRESH = Job("train_drafter", "", False, (), False, MADE, MADE, (), (), 3725.4)


@pytest.mark.parametrize(
    ("before", "now", "said"),
    [
        ({"epochs": 8}, {"epochs": 6}, ["epochs 8 -> 6"]),
        ({"a": True, "b": False}, {"a": False, "b": True}, ["a true -> false", "b false -> true"]),
        ({"near": {"threshold": 0.8}}, {"near": {"threshold": 0.9}}, ["near.threshold 0.8 -> 0.9"]),
        ({"near": {"threshold": 0.8}}, {"near": None}, ['near {"threshold": 0.8} -> null']),
        ({}, {"limit": None}, ["limit null -> null"]),
        (
            {"sources": [{"name": "a"}, {"name": "b"}]},
            {"sources": [{"name": "b"}, {"name": "a"}]},
            ["sources in another order"],
        ),
        (
            {"sources": [{"name": "a"}, {"name": "b"}]},
            {"sources": [{"name": "b", "quota": 5}, {"name": "c"}]},
            ["sources without a", "sources with c", "sources.b.quota null -> 5"],
        ),
        ({"text": "x" * 99}, {"text": "y"}, [f'text "{"x" * 38}… -> "y"']),
        ({"epochs": 8}, {"epochs": 8}, []),
    ],
)
def test_changes_of_settings_name_key_and_values(before: dict, now: dict, said: list[str]) -> None:
    assert setting_changes(before, now) == said


def test_own_reasons_come_before_those_of_the_stages_before() -> None:
    now = Made(frozenset({'{"epochs":4}', "f" * 16}), frozenset({"a.json", "b.json"}), "train -u")
    job = replace(FRESH, stale=True, now=now, after=("verify_dataset",))
    own = ["code or environment changed", "command changed", "reads b.json now"]
    assert reasons(job) == own
    assert reasons(replace(job, now=MADE)) == ["follows verify_dataset"]


@pytest.mark.parametrize(
    ("job", "reason"),
    [
        (replace(FRESH, before=None), "never made"),
        (replace(FRESH, unfinished=True), "left unfinished by an interrupted run"),
        (replace(FRESH, missing=("train.json",)), "train.json not there"),
        (replace(FRESH, changed_inputs=("a.json",)), "a.json changed"),
        (
            replace(FRESH, after=("a", "b", "c", "d", "e")),
            "follows a, b, c and 2 more",
        ),
    ],
)
def test_each_kind_of_staleness_has_its_words(job: Job, reason: str) -> None:
    assert reasons(job) == [reason]


def test_sources_with_the_same_reason_share_a_line() -> None:
    sources = [replace(FRESH, stage="normalize_source", part=name) for name in "abcde"]
    edited = Made(frozenset({'{"epochs":4}', "f" * 16}), MADE.inputs, MADE.command)
    jobs = [replace(job, stale=True, now=edited) for job in sources[:2]] + sources[2:]
    lines = status_text([*jobs, FRESH]).splitlines()
    assert lines[1].split(maxsplit=1)[0] == "normalize_source"
    assert lines[1].endswith("2 h 4 min  a, b: code or environment changed")
    assert lines[2].split() == ["train_drafter", "fresh", "1", "h", "2", "min"]
    assert lines[-1] == "2 of 6 jobs are stale; they took 2 h 4 min when they were last made."


def test_unknown_times_are_not_taken_for_none() -> None:
    known = replace(FRESH, stale=True, before=None)
    unknown = replace(known, stage="report", seconds=None)
    total = status_text([known, unknown]).splitlines()[-1]
    assert total.endswith("they took 1 h 2 min when they were last made; of 1 no time is known.")
    assert status_text([FRESH]).splitlines()[-1] == "Nothing is stale."


def test_the_time_is_that_of_the_benchmark_file() -> None:
    assert last_took("s\th:m:s\tmax_rss\n305.69\t0:05:05\t1179.52\n") == 305.69
    assert last_took("") is None
