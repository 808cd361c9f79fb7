"""One source to records: every row is accounted for, and samples are chosen by content."""

import json
import random
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lib.digest import SCRIPTS
from lib.jsonl import read_jsonl
from lib.manifest import write_manifest
from lib.normalizing import NormalizeSettings, normalize_source
from lib.row_accounts import EXAMPLES, UnusableSource


def good(n):
    return {"id": n, "instruction": f"Add 1 to {n}.", "input": "", "output": f"{n + 1}"}


BAD = {"id": "bad", "instruction": "Nothing.", "input": "", "output": ""}


class Run:
    """One run over raw rows, a list a file; its outputs are read when they are asked for."""

    def __init__(self, folder, *files, **keys):
        folder.mkdir(exist_ok=True)
        self.files = []
        for n, rows in enumerate(files):
            path = folder / f"raw{n}.jsonl"
            path.write_text("".join(json.dumps(row) + "\n" for row in rows))
            self.files.append(path)
        self.records_path, self.rejects_path = folder / "records.jsonl", folder / "rejects.jsonl"
        self.stats_path = folder / "stats.json"
        self.steps = []
        self.settings = NormalizeSettings(name="source", format="codealpaca", **keys)

    def go(self):
        self.stats = normalize_source(
            self.settings,
            self.files,
            self.records_path,
            self.rejects_path,
            self.stats_path,
            self.steps.append,
        )
        return self

    @property
    def records(self):
        return list(read_jsonl(self.records_path))

    @property
    def rejects(self):
        return list(read_jsonl(self.rejects_path))

    @property
    def ids(self):
        return [record["id"] for record in self.records]


def test_rows_in_are_rows_written_and_rejected(tmp_path):
    run = Run(tmp_path, [good(0), BAD], [BAD, good(1), good(2), 42]).go()
    assert run.stats == json.loads(run.stats_path.read_text())
    assert run.stats["rows_in"] == 6 == sum(run.steps)
    assert run.stats["rows_written"] == len(run.records) == 3
    assert run.stats["rows_rejected"] == len(run.rejects) == 3
    assert run.stats["rejected_by_reason"] == {"empty_turn": 2, "malformed_row": 1}


def test_a_rejected_row_is_named_by_position_identity_and_reason(tmp_path):
    files = [good(0), BAD], [{**BAD, "id": 0}, good(1), {"instruction": "\ud83d"}]
    rejects = Run(tmp_path, *files, max_reject_rate=1).go().rejects
    assert [list(entry) for entry in rejects] == [["source", "row", "id", "reason", "detail"]] * 3
    assert [entry["row"] for entry in rejects] == [1, 2, 4]
    assert [entry["id"] for entry in rejects] == ["bad", "0", ""]
    assert {entry["source"] for entry in rejects} == {"source"}


def test_the_identity_of_a_rejected_row_may_hold_anything(tmp_path):
    rows = [{**BAD, "id": identity} for identity in ("\ud83d", [1], None, 10**30)]
    rejects = Run(tmp_path, rows, max_reject_rate=1).go().rejects
    assert [entry["id"] for entry in rejects][1:] == ["[1]", "", str(10**30)]


def test_repairs_are_counted_once_a_conversation(tmp_path):
    rows = [{**good(0), "instruction": "\0", "output": "\0"}, {**good(1), "output": "\0"}, good(2)]
    assert Run(tmp_path, rows).go().stats["repaired"] == {"nul_replaced": 2}


def test_records_keep_the_order_of_the_rows(tmp_path):
    run = Run(tmp_path, [good(3), good(1)], [good(2)]).go()
    assert [record["conversations"][1]["value"] for record in run.records] == ["4", "2", "3"]


@pytest.mark.parametrize("max_samples", [None, 7])
def test_identities_and_choice_do_not_depend_on_the_order_of_the_rows(tmp_path, max_samples):
    rows = [good(n) for n in range(30)]
    shuffled = random.Random(0).sample(rows, len(rows))
    first = Run(tmp_path / "a", rows, max_samples=max_samples, max_reject_rate=0).go()
    second = Run(
        tmp_path / "b", shuffled[:10], shuffled[10:], max_samples=max_samples, max_reject_rate=0
    ).go()
    assert sorted(first.ids) == sorted(second.ids)
    assert len(set(first.ids)) == (max_samples or len(rows))


def test_a_quota_is_filled_exactly_and_the_rest_is_named(tmp_path):
    run = Run(tmp_path, [good(n) for n in range(20)] + [BAD], max_samples=8).go()
    assert len(run.records) == 8
    assert run.stats["rejected_by_reason"] == {"empty_turn": 1, "over_quota": 12}
    whole = Run(tmp_path, [good(n) for n in range(5)], max_samples=8).go()
    assert len(whole.records) == 5


def test_repeated_rows_share_the_quota(tmp_path):
    run = Run(tmp_path, [good(0)] * 5 + [good(1)] * 5, max_samples=7).go()
    assert len(run.records) == 7
    assert run.stats["rows_rejected"] == 3


def test_a_choice_is_no_matter_of_position(tmp_path):
    rows = [good(n) for n in range(200)]
    run = Run(tmp_path, rows, max_samples=40).go()
    answers = [int(record["conversations"][1]["value"]) for record in run.records]
    assert 60 < sum(answers) / len(answers) < 140
    assert answers != list(range(1, 41))


@settings(max_examples=25, derandomize=True, deadline=None)
@given(first=st.integers(0, 30), added=st.integers(0, 30), quota=st.integers(1, 12))
def test_added_rows_disturb_the_choice_no_more_than_they_must(
    tmp_path_factory, first, added, quota
):
    folder = tmp_path_factory.getbasetemp() / "added"
    old = [good(n) for n in range(first)]
    new = [good(1000 + n) for n in range(added)]
    before = set(Run(folder, old, max_samples=quota).go().ids)
    after = set(Run(folder, new + old, max_samples=quota).go().ids)
    identities_of_old = set(Run(folder, old).go().ids)
    assert after & identities_of_old <= before
    assert len(after) == min(quota, first + added)


def test_too_many_rejected_rows_stop_the_run_with_reasons_and_examples(tmp_path):
    rows = [good(0), *[BAD] * 3, {"instruction": "no output"}]
    run = Run(tmp_path, rows, max_reject_rate=0.5)
    with pytest.raises(UnusableSource) as caught:
        run.go()
    message = str(caught.value)
    assert "4 of 5" in message
    assert "max_reject_rate 0.5" in message
    assert "empty_turn 3, malformed_row 1" in message
    examples = message.splitlines()[2:]
    assert len(examples) == EXAMPLES
    assert examples[0].strip().startswith("row 1: empty_turn")
    assert not run.records_path.exists()
    assert len(run.rejects) == 4
    assert json.loads(run.stats_path.read_text())["rows_rejected"] == 4


def test_the_limit_itself_is_allowed(tmp_path):
    assert len(Run(tmp_path, [good(0), BAD], max_reject_rate=0.5).go().records) == 1
    with pytest.raises(UnusableSource):
        Run(tmp_path, [good(0), BAD], max_reject_rate=0.49).go()


def test_rows_over_the_quota_are_no_bad_rows(tmp_path):
    run = Run(tmp_path, [good(n) for n in range(10)], max_samples=1, max_reject_rate=0).go()
    assert run.stats["rows_written"] == 1


def test_a_source_without_rows_is_no_error_here(tmp_path):
    assert Run(tmp_path, []).go().stats["rows_in"] == 0


def test_damage_is_named_with_the_account_of_the_rows_before_it(tmp_path):
    run = Run(tmp_path, [good(0), BAD], [BAD, good(1), good(2)], [good(3)])
    whole = run.files[1].read_bytes()
    run.files[1].write_bytes(whole[:-5])
    with pytest.raises(UnusableSource) as caught:
        run.go()
    first, counts, *examples = str(caught.value).splitlines()
    last_row = len(b"".join(whole.splitlines(keepends=True)[:-1]))
    assert "raw1.jsonl" in first
    assert f"byte {last_row}" in first
    assert "2 written, 2 rejected: empty_turn 2" in counts
    assert [line.split(":")[0].strip() for line in examples] == ["row 1", "row 2"]
    assert not run.records_path.exists()
    assert [entry["row"] for entry in run.rejects] == [1, 2]
    assert json.loads(run.stats_path.read_text())["rows_in"] == 4


@pytest.mark.parametrize("damaged", [False, True])
def test_the_command_keeps_the_rejects_of_a_source_that_cannot_be_used(tmp_path, damaged):
    raw = tmp_path / "raw" / "source" / "raw.jsonl"
    raw.parent.mkdir(parents=True)
    lines = [json.dumps(row) for row in (good(0), BAD, BAD)]
    raw.write_text("\n".join([*lines, "{"]) if damaged else "\n".join(lines))
    manifest = tmp_path / "raw" / "source.manifest.json"
    write_manifest(manifest, raw.parent, [raw.name])
    outputs = {name: tmp_path / f"{name}.jsonl" for name in ("records", "rejects", "stats")}
    log = tmp_path / "logs" / "source.log"
    command = [sys.executable, SCRIPTS / "normalize_source.py", "--manifest", manifest]
    command += ["--settings", json.dumps({"name": "source", "format": "codealpaca"})]
    command += [part for name, path in outputs.items() for part in (f"--{name}", path)]
    result = subprocess.run([*command, "--log", log], capture_output=True, text=True, check=False)
    assert result.returncode == 1
    kept = log.with_suffix(".rejects.jsonl")
    assert str(kept) in result.stderr
    assert [entry["row"] for entry in read_jsonl(kept)] == [1, 2]
    assert not outputs["records"].exists()


def test_an_unknown_format_is_named(tmp_path):
    run = Run(tmp_path, [good(0)])
    run.settings = NormalizeSettings(name="source", format="unknown")
    with pytest.raises(ValueError, match="unknown"):
        run.go()
