"""The proof of a data set: every damage is found and named, and then there is no stamp."""

import json
import shutil
from contextlib import nullcontext

import pyarrow as pa
import pytest
import torch
from rows import tokenize_into

from lib.arrow_rows import content_digest, describe_shard, shard_names
from lib.files import read_json, write_json
from lib.jsonl import jsonl_writer, read_jsonl
from lib.merging import Merged, MergeSettings, SourceShare, merge_sources
from lib.normalizing import NormalizeSettings, normalize_source
from lib.stamp import require_stamp
from lib.verification import (
    DatasetNotVerified,
    Stages,
    VerifySettings,
    verify_dataset,
)

EVALUATION = "Please tell me in a few words what makes a good loaf of bread rise well"


def ignore(steps):
    """Take progress and do nothing with it."""


class Ignored:
    """Takes progress and does nothing with it."""

    def advance(self, steps=1):
        """Do nothing."""


class Run:
    """The files of one run below a folder."""

    def __init__(self, folder, target):
        self.folder = folder
        self.target = target
        self.stamp = folder / "verified.json"
        self.stages = Stages(
            sources=[folder / "sources" / f"{name}.stats.json" for name in ("one", "two")],
            merged=folder / "merged",
            responses=None,
            corpus=folder / "merged" / "sharegpt.jsonl",
            tokenized=folder / "tokenized",
            target=target,
            evaluation=[folder / "evaluation.jsonl"],
        )

    def verify(self, render, settings=None):
        return verify_dataset(
            settings or VerifySettings(),
            self.stages,
            render(),
            self.stamp,
            self.folder / "verification.md",
            ignore,
        )

    def change(self, name, change):
        """Change a JSON file with a function of its value."""
        path = self.folder / name
        value = read_json(path)
        change(value)
        write_json(path, value)

    def shard(self):
        """The shard of the training rows; that of the validation rows follows."""
        return self.stages.tokenized / shard_names(self.stages.tokenized)[0]

    def reseal(self):
        """Record the shards as they are now, as if they had been written like that."""
        names = shard_names(self.stages.tokenized)
        shards = [describe_shard(self.stages.tokenized / name) for name in names]
        self.change(
            "tokenized/stats.json",
            lambda stats: stats.update(shards=shards, content=content_digest(shards)),
        )

    def change_rows(self, change, reseal=True):
        """Change the columns of the shard, a dictionary of lists."""
        with self.shard().open("rb") as file:
            table = pa.ipc.open_stream(file).read_all()
        columns = table.to_pydict()
        change(columns)
        with pa.ipc.new_stream(str(self.shard()), table.schema) as stream:
            stream.write_table(pa.table(columns, schema=table.schema))
        if reseal:
            self.reseal()

    def change_records(self, name, change):
        """Change a JSON-lines file with a function of its list of values."""
        records = list(read_jsonl(self.folder / name))
        change(records)
        with jsonl_writer(self.folder / name) as writer:
            for record in records:
                writer.write(record)


@pytest.fixture(scope="module")
def good(tmp_path_factory, target, render):
    """Make a valid data set with the functions of the stages."""
    folder = tmp_path_factory.mktemp("good")
    for source, things in (("one", ["peas", "rye"]), ("two", ["cats", "dogs", "cows"])):
        rows = [
            {
                "conversations": [
                    {"from": "human", "value": f"Tell me fact {n} about {thing}."},
                    {"from": "gpt", "value": f"I know that {thing} are {'very ' * n}good."},
                    {"from": "human", "value": "Is that so?"},
                    {"from": "gpt", "value": "It is."},
                ]
            }
            for n in range(6)
            for thing in things
        ]
        (folder / f"{source}.json").write_text(json.dumps([*rows, {"conversations": []}]))
        normalize_source(
            NormalizeSettings(source, "sharegpt"),
            [folder / f"{source}.json"],
            folder / "sources" / f"{source}.jsonl",
            folder / "sources" / f"{source}.rejects.jsonl",
            folder / "sources" / f"{source}.stats.json",
            ignore,
        )
    run = Run(folder, target)
    with jsonl_writer(folder / "evaluation.jsonl") as writer:
        turns = [{"from": "human", "value": EVALUATION}]
        writer.write({"id": "bread", "domain": "chat", "conversations": turns})
    merge_sources(
        MergeSettings((SourceShare("one"), SourceShare("two")), validation_share=0.3),
        [folder / "sources" / "one.jsonl", folder / "sources" / "two.jsonl"],
        run.stages.evaluation,
        Merged(
            run.stages.corpus, *(run.stages.merged / n for n in ("dropped.jsonl", "stats.json"))
        ),
        workers=1,
        watch=lambda what, total: nullcontext(Ignored()),
    )
    tokenize_into(run.stages.tokenized, run.stages.corpus, target, seq_length=128)
    return run


@pytest.fixture
def run(good, tmp_path):
    """Give a copy of the valid data set to damage."""
    shutil.copytree(good.folder, tmp_path / "run")
    return Run(tmp_path / "run", good.target)


def test_a_valid_data_set_gets_its_stamp(run, render):
    stamp = run.verify(render)
    assert stamp == read_json(run.stamp)
    stats = read_json(run.stages.tokenized / "stats.json")
    assert {key: stamp[key] for key in stamp if key != "checks"}.items() <= stats.items()
    assert stamp["rows"] == len(list(read_jsonl(run.stages.tokenized / "rows.jsonl")))


def test_the_stamp_has_the_same_bytes_each_time_and_everywhere(run, render, tmp_path):
    shutil.copytree(run.folder, tmp_path / "elsewhere")
    contents = []
    for one in (run, run, Run(tmp_path / "elsewhere", run.target)):
        one.verify(render)
        contents.append(one.stamp.read_bytes())
    assert contents[0] == contents[1] == contents[2]


def test_a_stamp_does_not_outlive_the_data_set_that_it_stands_for(run, render):
    run.verify(render)
    truncate(run)
    with pytest.raises(DatasetNotVerified):
        run.verify(render)
    assert not run.stamp.exists()


def test_the_report_marks_what_is_supervised(run, render):
    run.verify(render)
    report = (run.folder / "verification.md").read_text()
    for source in ("one", "two"):
        assert f"## {source}-" in report
    assert "good.<|im_end|>⟧" in report or "⟦It is.<|im_end|>⟧" in report
    assert "⟦<|im_start|>" not in report


def test_require_stamp_accepts_what_was_verified_and_notices_a_missing_shard(run, render):
    run.verify(render)
    require_stamp(run.stamp, run.stages.tokenized)
    run.shard().unlink()
    with pytest.raises(ValueError, match="not as it was verified"):
        require_stamp(run.stamp, run.stages.tokenized)


def test_require_stamp_notices_a_shard_of_another_size(run, render):
    run.verify(render)
    run.shard().write_bytes(run.shard().read_bytes()[:-8])
    with pytest.raises(ValueError, match="not as it was verified"):
        require_stamp(run.stamp, run.stages.tokenized)


def truncate(run):
    run.shard().write_bytes(run.shard().read_bytes()[:-400])


def flip_a_mask_value(columns):
    columns["loss_mask"][0][0] = 1


def copy_a_shard(run):
    shutil.copy(run.shard(), run.stages.tokenized / "data-00002-of-00003.arrow")


def supervise(row, value):
    def change(columns):
        columns["loss_mask"][row] = [value] * len(columns["loss_mask"][row])

    return lambda run: run.change_rows(change)


def set_in_row(column, position, value):
    def change(columns):
        columns[column][0][position] = value

    return lambda run: run.change_rows(change)


def wrong_length(columns):
    columns["seq_len"][1] += 1


def short_mask(columns):
    columns["loss_mask"][1].pop()


def drop_last_row(columns):
    for values in columns.values():
        values.pop()


def change_frequencies(run):
    path = run.stages.tokenized / "token_freq.pt"
    frequencies = torch.load(path, weights_only=True)
    frequencies[min(frequencies)] += 1
    torch.save(frequencies, path)


def on_the_other_side(run):
    """Add a train record to the validation side too, as a new conversation on one question."""

    def change(records):
        twin = next(dict(record) for record in records if record["split"] == "train")
        records.append(twin | {"split": "validation", "id": "two-twin"})

    run.change_records("merged/sharegpt.jsonl", change)


def row_on_the_other_side(run):
    def change(rows):
        rows[-1]["id"] = rows[0]["id"]

    run.change_records("tokenized/rows.jsonl", change)


def mix_the_sides(run):
    run.change_records("tokenized/rows.jsonl", lambda rows: rows.reverse())


def ask_an_evaluation_prompt(run):
    def change(records):
        records[0]["conversations"][0]["value"] = f"Well. {EVALUATION}, will you?"

    run.change_records("merged/sharegpt.jsonl", change)


def lose_the_end_of_the_index(run):
    run.change_records("tokenized/rows.jsonl", lambda rows: rows.pop())


SHARDS = "every shard is there"
SHAPE = "every row is well formed"
COUNTS = "counts and token frequencies"
CHAIN = "counts chain"
SPLIT = "both sides of the split"


@pytest.mark.parametrize(
    ("damage", "check", "detail"),
    [
        (lambda run: run.shard().unlink(), SHARDS, "data-00000-of-00002.arrow cannot be read"),
        (truncate, SHARDS, "data-00000-of-00002.arrow"),
        (copy_a_shard, SHARDS, "data-00002-of-00003.arrow"),
        (lambda run: run.change_rows(flip_a_mask_value, reseal=False), SHARDS, "sha256"),
        (lambda run: run.change_rows(flip_a_mask_value), COUNTS, "supervised_tokens"),
        (set_in_row("loss_mask", 0, 2), SHAPE, "mask values"),
        (set_in_row("loss_mask", 0, 255), SHAPE, "mask values"),
        (supervise(1, 0), SHAPE, "row 1: all or none"),
        (supervise(1, 1), SHAPE, "row 1: all or none"),
        (set_in_row("input_ids", -1, 1024), SHAPE, "row 0: an id outside the vocabulary"),
        (set_in_row("input_ids", -1, -1), SHAPE, "row 0: an id outside the vocabulary"),
        (lambda run: run.change_rows(wrong_length), SHAPE, "seq_len"),
        (lambda run: run.change_rows(short_mask), SHAPE, "mask bits"),
        (lambda run: run.change_rows(drop_last_row), COUNTS, "rows"),
        (change_frequencies, COUNTS, "token_freq.pt"),
        (lose_the_end_of_the_index, CHAIN, "rows.jsonl"),
        (on_the_other_side, SPLIT, "two-twin or its question"),
        (row_on_the_other_side, SPLIT, "not on the side of its conversation"),
        (mix_the_sides, SPLIT, "mixed"),
        (ask_an_evaluation_prompt, "no evaluation prompt", "with evaluation prompt bread"),
    ],
)
def test_damage_is_found_and_named_and_no_stamp_is_written(run, render, damage, check, detail):
    damage(run)
    with pytest.raises(DatasetNotVerified) as caught:
        run.verify(render)
    assert any(check in line and detail in line for line in str(caught.value).splitlines())
    assert not run.stamp.exists()


@pytest.mark.parametrize(
    ("name", "key"),
    [
        *(("sources/two.stats.json", key) for key in ("rows_in", "rows_written", "rows_rejected")),
        *(("merged/stats.json", key) for key in ("records_in", "kept", "dropped")),
        *(
            ("tokenized/stats.json", key)
            for key in (
                "conversations_in",
                "turns_in",
                "turns_supervised",
                "turns_lost",
                "rows",
                "train_rows",
                "validation_rows",
                "train_data_ratio",
                "tokens",
                "supervised_tokens",
            )
        ),
    ],
)
def test_a_changed_count_is_found_wherever_it_stands(run, render, name, key):
    run.change(name, lambda stats: stats.update({key: stats[key] + 1}))
    with pytest.raises(DatasetNotVerified):
        run.verify(render)
    assert not run.stamp.exists()


@pytest.mark.parametrize("key", ["rows", "tokens", "supervised_tokens"])
def test_a_changed_count_of_one_source_is_found(run, render, key):
    def change(stats):
        stats["sources"]["one"]["train"][key] += 1

    run.change("tokenized/stats.json", change)
    with pytest.raises(DatasetNotVerified, match=f"{key}: .* in all sources"):
        run.verify(render)


def test_the_content_digest_has_to_follow_from_the_shards(run, render):
    run.change("tokenized/stats.json", lambda stats: stats.update(content="0" * 16))
    with pytest.raises(DatasetNotVerified, match="content digest"):
        run.verify(render)


@pytest.mark.parametrize("limits", [{"minimum": 0.9}, {"maximum": 0.1}])
def test_shares_of_supervised_tokens_outside_the_limits_are_named_by_source(run, render, limits):
    settings = VerifySettings(**{f"{key}_supervised_share": n for key, n in limits.items()})
    with pytest.raises(DatasetNotVerified, match=r"one: [\d.]+% of the tokens are supervised"):
        run.verify(render, settings)
    assert not run.stamp.exists()


def test_too_many_conversations_without_a_row_are_found(run, render):
    answers = [record["conversations"][1]["value"] for record in read_jsonl(run.stages.corpus)]
    lengths = [len(render().encode(answer)) + 1 for answer in answers]
    minimum = sorted(lengths)[len(lengths) // 2]
    lost = sum(length < minimum for length in lengths)
    assert lost
    keys = {"seq_length": 128, "minimum_supervised_tokens": minimum}
    tokenize_into(run.stages.tokenized, run.stages.corpus, run.target, **keys)
    share = lost / len(answers)
    run.verify(render, VerifySettings(maximum_lost_share=share + 0.01))
    with pytest.raises(DatasetNotVerified, match=f"{lost} of {len(answers)} conversations"):
        run.verify(render, VerifySettings(maximum_lost_share=share - 0.01))
    assert not run.stamp.exists()


def test_counts_of_regenerated_responses_are_followed(run, render):
    kept = read_json(run.stages.merged / "stats.json")["kept"]
    path = run.folder / "responses.json"
    run.stages = Stages(**{**vars(run.stages), "responses": path})
    write_json(path, {"conversations_in": kept, "answered": kept, "failed": 0})
    run.verify(render)
    write_json(path, {"conversations_in": kept, "answered": kept - 1, "failed": 1})
    with pytest.raises(DatasetNotVerified, match="conversations tokenized"):
        run.verify(render)
    write_json(path, {"conversations_in": kept, "answered": kept, "failed": 1})
    with pytest.raises(DatasetNotVerified, match=r"answered \+ failed"):
        run.verify(render)
    assert not run.stamp.exists()
