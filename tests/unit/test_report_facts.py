"""The tables of the report: times, shares and numbers as people read them."""

import pytest

from lib.data_journey import Part, Step
from lib.report_facts import changes, duration, large, percent, prompts, revisions, timings
from lib.row_display import shown_stretches


def test_times_are_those_of_all_jobs_of_a_stage(tmp_path):
    head = "s\th:m:s\tmax_rss\tmean_load\n"
    (tmp_path / "fetch_source").mkdir()
    for name, seconds, memory in (("a", 3.5, "10.5"), ("b", 4.0, "NA")):
        line = f"{seconds}\t0:00:03\t{memory}\t0\n"
        (tmp_path / "fetch_source" / f"{name}.tsv").write_text(head + line)
    (tmp_path / "merge_sources.tsv").write_text(head + "90.0\t0:01:30\t-\t0\n")
    (tmp_path / "train_drafter.tsv").write_text(head)
    (tmp_path / "report.tsv").write_text(head + "5\t0:00:05\t1\t0\n")
    found = [(one.stage, one.jobs, one.seconds, one.memory) for one in timings(tmp_path)]
    assert found == [("merge_sources", 1, 90.0, 0.0), ("fetch_source", 2, 7.5, 10.5)]
    assert list(timings(tmp_path / "missing")) == []


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(0.04, "0.0 s"), (59.94, "59.9 s"), (61, "1 min 01 s"), (3600, "1 h 00 min")],
)
def test_seconds(seconds, shown):
    assert duration(seconds) == shown


def test_shares_and_large_numbers():
    assert [percent(share) for share in (0, 0.004, 0.0994, 0.0996, 1)] == [
        *("0.0\xa0%", "0.4\xa0%", "9.9\xa0%", "10\xa0%", "100\xa0%")
    ]
    assert [large(number) for number in (0, 9_999_999, 10_000_000)] == [
        *("0", "9,999,999", "10\xa0M")
    ]


def test_each_change_says_which_sources_it_concerns():
    def journey(arrives, **lost):
        parts = tuple(Part(reason, amount, "", False) for reason, amount in lost.items())
        return (Step("stage", "rows", arrives, arrives - sum(lost.values()), (), parts),)

    sources = {"a": journey(10, short=2), "b": journey(5, short=1, long=1), "c": journey(3)}
    found = list(changes(journey(18, short=3, long=1), sources))
    assert [(one.part.reason, dict(one.sources)) for one in found] == [
        *(("short", {"a": 2, "b": 1}), ("long", {"b": 1}))
    ]
    assert found[0].share == pytest.approx(3 / 18)
    unknown = {"a": journey(10, failed=2), "b": journey(8, failed=1)}
    (only,) = changes(journey(18, refused=3), unknown)
    assert only.sources == {"a": 2, "b": 1}
    one, other = changes(journey(18, refused=2, empty=1), unknown)
    assert one.sources == other.sources == {}


def test_revisions_are_those_of_the_configuration():
    start = {"from": {"hub": {"repo": "a/drafter", "revision": "b" * 40}}}
    hub = {"hub": {"repo": "some/target", "revision": "a" * 40}, "name": "target"}
    assert dict(revisions({"target": hub, "train": start})) == {
        "target": f"some/target at {'a' * 40}",
        "training started from": f"a/drafter at {'b' * 40}",
    }
    assert dict(revisions({"target": {"build": "toy"}, "train": {}}))["target"]


def test_prompts_are_files_and_public_sets():
    hub = {"dataset": "openai/gsm8k", "revision": "c" * 40, "files": ["test.parquet"]}
    evaluate = {
        "prompts": ["a.jsonl", "b.jsonl"],
        "prompt_sets": [{"name": "gsm8k", "domain": "math", "hub": hub}],
    }
    assert list(prompts(evaluate)) == [
        ("files", "a.jsonl, b.jsonl"),
        ("gsm8k (math)", f"openai/gsm8k at {'c' * 12}"),
    ]
    assert list(prompts({"prompts": [], "prompt_sets": []})) == []


def decode(ids):
    return "".join(map(chr, ids))


def test_a_long_stretch_keeps_its_ends_and_says_what_is_missing():
    text = "a" * 3000 + "b" * 5000 + "c" * 10
    mask = [0] * 3000 + [1] * 5000 + [0] * 10
    shown = shown_stretches([ord(c) for c in text], mask, decode, 3000)
    assert [stretch.is_supervised for stretch in shown] == [False, True, False]
    for stretch, length in zip(shown, (3000, 5000, 10), strict=True):
        assert len(stretch.beginning) + stretch.left_out + len(stretch.end) == length
        assert len(stretch.beginning) + len(stretch.end) <= 1100
    assert shown[2].beginning == "c" * 10 and not shown[2].left_out


def test_characters_that_are_not_seen_but_act_are_shown():
    (shown,) = shown_stretches([ord(c) for c in "a\u202eb\x1b[2J\n\tc\0"], [1] * 10, decode, 500)
    assert shown.beginning == "a\\u202eb\\x1b[2J\n\tc"
