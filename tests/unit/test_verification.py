"""The proof of a data set: every damage is found and named, and then there is no stamp."""

import json
import shutil
from collections import Counter

import pyarrow as pa
import pytest
import torch
from rows import tokenize_into

from lib.arrow_rows import content_digest, describe_shard, read_token_rows, shard_names
from lib.conversation import Conversation, ToolCall, Turn, to_record
from lib.files import read_json, write_json
from lib.jsonl import jsonl_writer, read_jsonl
from lib.merging import Merged, MergeSettings, SourceShare, merge_sources, unwatched
from lib.normalizing import NormalizeSettings, normalize_source
from lib.rendering import Renderer, ThinkingMode
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


SOURCES = ("one", "two", "three")
SEQ_LENGTH = 256


class Run:
    """The files of one run below a folder."""

    def __init__(self, folder, target):
        self.folder = folder
        self.target = target
        self.stamp = folder / "verified.json"
        self.stages = Stages(
            sources=[folder / "sources" / f"{name}.stats.json" for name in SOURCES],
            merged=folder / "merged",
            responses=None,
            corpus=folder / "merged" / "sharegpt.jsonl",
            tokenized=folder / "tokenized",
            target=target,
            evaluation=[folder / "evaluation.jsonl"],
        )

    def verify(self, render, settings=None):
        return verify_dataset(
            settings or VerifySettings(seq_length=SEQ_LENGTH),
            self.stages,
            render(),
            self.stamp,
            self.folder / "verification.md",
            self.folder / "verified_rows.json",
            1,
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


def trajectory(number):
    """A question about a thing that the target looks at before it answers."""
    call = ToolCall("call_0", "look", json.dumps({"at": f"place {number}", "times": number}))
    turns = (
        Turn("system", "You look at things."),
        Turn("human", f"What is at place {number}?"),
        Turn("gpt", "I look.", "", (call,)),
        Turn("tool", f"There is a cat with {number} kittens.", tool_call_id="call_0"),
        Turn("gpt", f"A cat and {number} kittens are there."),
    )
    tools = [{"type": "function", "function": {"name": "look"}}]
    return Conversation(turns, json.dumps(tools))


@pytest.fixture(scope="module")
def good(tmp_path_factory, target, render):
    """Make a valid data set with the functions of the stages."""
    folder = tmp_path_factory.mktemp("good")
    raw = {}
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
        raw[source] = [*rows, {"conversations": []}]
    raw["three"] = [to_record(trajectory(n).of_source("raw")) for n in range(8)]
    for source, rows in raw.items():
        (folder / f"{source}.json").write_text(json.dumps(rows))
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
        MergeSettings(tuple(map(SourceShare, SOURCES)), validation_share=0.3),
        [folder / "sources" / f"{source}.jsonl" for source in SOURCES],
        run.stages.evaluation,
        Merged(
            run.stages.corpus, *(run.stages.merged / n for n in ("dropped.jsonl", "stats.json"))
        ),
        workers=1,
        watch=unwatched,
    )
    tokenize_into(run.stages.tokenized, run.stages.corpus, target, seq_length=SEQ_LENGTH)
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
    assert all(stamp[key] == stats[key] for key in stamp.keys() & stats.keys())
    assert stamp["audited_rows"] == stamp["rows"] > 40
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


def lines_of_sources(report):
    """Return the lines of the table of token rows, without the heads."""
    table = report.partition("## Token rows")[2].partition("## Rows")[0].strip()
    return table.splitlines()[2:]


def test_the_report_marks_what_is_supervised(run, render):
    run.verify(render)
    report = (run.folder / "verification.md").read_text()
    for source in SOURCES:
        assert f" of {source}-" in report
    assert "| one | 13 | 1 | 12 |" in report
    stats = read_json(run.stages.tokenized / "stats.json")
    lengths = [length for _, _, length in read_token_rows(run.stages.tokenized)]
    assert max(lengths) == max(int(line.split(" | ")[4]) for line in lines_of_sources(report))
    assert stats["rows"] == sum(int(line.split(" | ")[1]) for line in lines_of_sources(report))
    assert "good.<|im_end|>⟧" in report or "⟦It is.<|im_end|>⟧" in report
    assert "⟦<|im_start|>" not in report


def test_a_row_of_each_source_is_kept_with_its_text(run, render):
    run.verify(render)
    stored = [(ids, mask) for ids, mask, _ in read_token_rows(run.stages.tokenized)]
    train_rows = read_json(run.stages.tokenized / "stats.json")["train_rows"]
    samples = read_json(run.folder / "verified_rows.json")
    assert {sample["source"] for sample in samples} == set(SOURCES)
    assert len(samples) == len(SOURCES)
    for sample in samples:
        ids, mask = stored[sample["row"]]
        assert sample["tokens"] == len(ids) and sample["supervised_tokens"] == sum(mask)
        assert sample["split"] == ("train" if sample["row"] < train_rows else "validation")
        said = [part["beginning"] for part in sample["text"] if part["is_supervised"]]
        assert all(text.endswith("<|im_end|>") for text in said)
        whole = "".join(part["beginning"] + part["end"] for part in sample["text"])
        assert whole == render().decode(ids)


def test_require_stamp_accepts_what_was_verified_and_notices_a_missing_shard(run, render):
    run.verify(render)
    require_stamp(run.stamp, run.stages.tokenized, run.target)
    run.shard().unlink()
    with pytest.raises(ValueError, match="not as it was verified"):
        require_stamp(run.stamp, run.stages.tokenized, run.target)


def test_require_stamp_notices_a_shard_of_another_size(run, render):
    run.verify(render)
    run.shard().write_bytes(run.shard().read_bytes()[:-8])
    with pytest.raises(ValueError, match="not as it was verified"):
        require_stamp(run.stamp, run.stages.tokenized, run.target)


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
        (row_on_the_other_side, SPLIT, "are on both sides"),
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
    shares = {f"{key}_supervised_share": n for key, n in limits.items()}
    settings = VerifySettings(seq_length=SEQ_LENGTH, **shares)
    with pytest.raises(DatasetNotVerified, match=r"one: [\d.]+% of the tokens are supervised"):
        run.verify(render, settings)
    assert not run.stamp.exists()


def test_too_many_conversations_without_a_row_are_found(run, render):
    answers = [record["conversations"][1]["value"] for record in read_jsonl(run.stages.corpus)]
    lengths = sorted(len(render().encode(answer)) + 1 for answer in answers if "good" in answer)
    minimum = lengths[len(lengths) // 2]
    keys = {"seq_length": SEQ_LENGTH, "minimum_supervised_tokens": minimum}
    tokenize_into(run.stages.tokenized, run.stages.corpus, run.target, **keys)
    records = {record["id"] for record in read_jsonl(run.stages.corpus)}
    lost = len(records - {row["id"] for row in read_jsonl(run.stages.tokenized / "rows.jsonl")})
    assert 0 < lost < len(records)
    share = lost / len(records)
    run.verify(render, VerifySettings(**keys, maximum_lost_share=share + 0.01))
    with pytest.raises(DatasetNotVerified, match=f"{lost} of {len(records)} conversations"):
        run.verify(render, VerifySettings(**keys, maximum_lost_share=share - 0.01))
    assert not run.stamp.exists()


def test_counts_of_regenerated_responses_are_followed(run, render):
    merged = read_json(run.stages.merged / "stats.json")
    path = run.folder / "responses.json"
    run.stages = Stages(**{**vars(run.stages), "responses": path})

    def respond(failed=0, lost=0):
        sources = {
            name: {"conversations_in": kept, "answered": kept, "failed": 0, "records": kept}
            for name, counts in merged["sources"].items()
            if (kept := counts.get("train", 0) + counts.get("validation", 0))
        }
        sources["one"]["records"] -= lost
        counts = {"conversations_in": merged["kept"], "answered": merged["kept"] - failed}
        records = merged["kept"] - lost
        write_json(path, {**counts, "failed": failed, "records": records, "sources": sources})

    respond()
    run.verify(render)
    respond(lost=1)
    with pytest.raises(DatasetNotVerified, match=r"(?s)one: records.*conversations tokenized"):
        run.verify(render)
    respond()
    run.change("responses.json", lambda stats: stats.update(failed=1))
    with pytest.raises(DatasetNotVerified, match=r"answered \+ failed"):
        run.verify(render)
    assert not run.stamp.exists()


# --- damage that leaves every count and hash in step, so that only the rows themselves tell


class Rows:
    """The rows of the training shard, to change; everything that follows from them is redone."""

    def __init__(self, run, render):
        self.run = run
        self.tokenizer = render().tokenizer
        self.index = list(read_jsonl(run.stages.tokenized / "rows.jsonl"))
        self.columns = None

    def number(self, source, turns=None):
        """The first training row of a source, with as many supervised turns."""
        return next(
            n
            for n, entry in enumerate(self.index)
            if entry["id"].startswith(f"{source}-")
            and entry["split"] == "train"
            and turns in (None, len(entry["turns"]))
        )

    def where(self, row, text, value):
        """First and one past the last token of a text in a row, where the mask is another."""
        ids, mask = (self.columns[name][row] for name in ("input_ids", "loss_mask"))
        for start in range(len(ids)):
            for end in range(start + 1, len(ids) + 1):
                if value in mask[start:end]:
                    break
                if self.tokenizer.decode(ids[start:end]).strip() == text:
                    return start, end
        raise AssertionError(text)

    def redo(self):
        """Count again what stats.json and token_freq.pt say."""
        run = self.run
        rows = list(read_token_rows(run.stages.tokenized))
        frequencies, per = Counter(), {}
        for entry, (ids, mask, _) in zip(self.index, rows, strict=True):
            said = [token for token, bit in zip(ids, mask, strict=False) if bit]
            frequencies.update(said)
            key = (entry["id"].rpartition("-")[0], entry["split"])
            per.setdefault(key, Counter()).update(tokens=len(ids), supervised_tokens=len(said))
        torch.save(dict(sorted(frequencies.items())), run.stages.tokenized / "token_freq.pt")

        def change(stats):
            for (source, split), counts in per.items():
                stats["sources"][source][split].update(counts)
            for key in ("tokens", "supervised_tokens"):
                stats[key] = sum(counts[key] for counts in per.values())

        run.change("tokenized/stats.json", change)
        run.reseal()

    def damage(self, change):
        def on_columns(columns):
            self.columns = columns
            change(self, columns)
            columns["seq_len"] = [len(ids) for ids in columns["input_ids"]]

        self.run.change_rows(on_columns)
        self.redo()


def set_mask(source, text, value, turns=None):
    """Set the mask of a text in a row of a source."""

    def change(rows, columns):
        row = rows.number(source, turns)
        start, end = rows.where(row, text, value)
        columns["loss_mask"][row][start:end] = [value] * (end - start)

    return change


def one_bit(offset, value):
    """Set one bit of the mask, so far from the start of what is supervised."""

    def change(rows, columns):
        mask = columns["loss_mask"][rows.number("one")]
        mask[mask.index(1) + offset] = value

    return change


def shift(by):
    def change(rows, columns):
        mask = columns["loss_mask"][rows.number("two")]
        mask[:] = mask[-by:] + mask[:-by]

    return change


def last_of_the_answer(value, offset):
    """Set the bit at, or behind, the end-of-turn token."""

    def change(rows, columns):
        mask = columns["loss_mask"][rows.number("one")]
        mask[len(mask) - 1 - mask[::-1].index(1) + offset] = value

    return change


def other_ids(place):
    """Put another token at a place of a row: of the prompt, of the answer, or a mark."""

    def change(rows, columns):
        row = rows.number("two")
        ids, mask = columns["input_ids"][row], columns["loss_mask"][row]
        at = {
            "prompt": mask.index(1) // 2,
            "answer": mask.index(1) + 1,
            "mark": 0,
            "end": len(mask) - 1 - mask[::-1].index(1),
            "behind": len(ids) - 1,
        }[place]
        ids[at] = next(n for n in (70, 71) if n != ids[at])

    return change


def swap(columns_to_swap):
    """Swap what two rows hold."""

    def change(rows, columns):
        for name in columns_to_swap:
            values = columns[name]
            values[0], values[1] = values[1], values[0]

    return change


def cut(rows, columns):
    row = rows.number("one")
    for name in ("input_ids", "loss_mask"):
        columns[name][row] = columns[name][row][:-3]


def cut_the_front(rows, columns):
    row = rows.number("one")
    for name in ("input_ids", "loss_mask"):
        columns[name][row] = columns[name][row][3:]


def double(rows, columns):
    columns["input_ids"][0] += columns["input_ids"][1]
    columns["loss_mask"][0] += columns["loss_mask"][1]


def repeat_a_row(rows, columns):
    for values in (columns["input_ids"], columns["loss_mask"]):
        values[1] = list(values[0])


def nothing_but_the_end(rows, columns):
    mask = columns["loss_mask"][rows.number("one")]
    last = len(mask) - 1 - mask[::-1].index(1)
    mask[:last] = [0] * last


def upside_down(rows, columns):
    row = rows.number("two")
    columns["loss_mask"][row] = [1 - bit for bit in columns["loss_mask"][row]]


DEEP = {
    "a bit before the answer": one_bit(-1, 1),
    "the first bit of the answer": one_bit(0, 0),
    "a bit inside the answer": one_bit(1, 0),
    "the mask one to the right": shift(1),
    "the mask one to the left": shift(-1),
    "no end of turn": last_of_the_answer(0, 0),
    "what follows the end of turn": last_of_the_answer(1, 1),
    "the tool's result supervised": set_mask("three", "There is a cat with", 1, 2),
    "the system text supervised": set_mask("three", "You look at things.", 1),
    "the question supervised": set_mask("two", "Tell me fact", 1),
    "the call not supervised": set_mask("three", "<tool_call>", 0),
    "an argument not supervised": set_mask("three", "place", 0),
    "the empty think block supervised": set_mask("one", "<think>", 1),
    "only the end of turn supervised": nothing_but_the_end,
    "the mask upside down": upside_down,
    "another id in the prompt": other_ids("prompt"),
    "another id in the answer": other_ids("answer"),
    "another mark at the start": other_ids("mark"),
    "another end of turn": other_ids("end"),
    "another id behind the end": other_ids("behind"),
    "two rows swapped": swap(["input_ids", "loss_mask"]),
    "a row cut short": cut,
    "a row without its start": cut_the_front,
    "two rows in one": double,
    "a row in place of another": repeat_a_row,
}


@pytest.mark.parametrize("kind", DEEP)
def test_damage_that_no_count_shows_is_found_in_the_rows(run, render, kind):
    Rows(run, render).damage(DEEP[kind])
    with pytest.raises(DatasetNotVerified) as caught:
        run.verify(render)
    assert "sample of each source" in str(caught.value)
    assert not run.stamp.exists()


def test_redoing_the_counts_is_no_damage(run, render):
    Rows(run, render).damage(lambda rows, columns: None)
    run.verify(render)


def test_a_wrong_row_is_shown_with_its_mask(run, render):
    Rows(run, render).damage(DEEP["the tool's result supervised"])
    with pytest.raises(DatasetNotVerified, match=r"(?s)three-.*⟦.*There is a cat with.*⟧"):
        run.verify(render)


def test_swapped_shards_are_found(run, render):
    names = shard_names(run.stages.tokenized)
    paths = [run.stages.tokenized / name for name in names]
    contents = [path.read_bytes() for path in paths]
    for path, content in zip(paths, reversed(contents), strict=True):
        path.write_bytes(content)
    with pytest.raises(DatasetNotVerified, match="every shard is there"):
        run.verify(render)
    run.reseal()
    with pytest.raises(DatasetNotVerified):
        run.verify(render)


@pytest.mark.parametrize("change", ["template", "thinking"])
def test_rows_of_another_template_or_mode_are_found(run, render, tmp_path, change):
    copy = tmp_path / "target"
    shutil.copytree(run.target, copy)
    if change == "template":
        path = copy / "chat_template.jinja"
        path.write_text(path.read_text().replace("user", "person"))
    renderer = Renderer(copy, ThinkingMode(change == "thinking"))
    with pytest.raises(DatasetNotVerified, match="sample of each source"):
        verify_dataset(
            *(VerifySettings(seq_length=SEQ_LENGTH), run.stages, renderer, run.stamp),
            *(run.folder / "verification.md", run.folder / "verified_rows.json", 1, ignore),
        )


def test_dataset_info_has_to_agree(run, render):
    def change(info):
        info["features"]["seq_len"]["dtype"] = "int64"

    run.change("tokenized/dataset_info.json", change)
    with pytest.raises(DatasetNotVerified, match="dataset_info"):
        run.verify(render)


@pytest.mark.parametrize(
    ("limits", "what"),
    [
        ({"minimum_rows": 12}, r"three: \d+ rows"),
        ({"maximum_truncated_share": 0.01}, r"two: \d+ of \d+ turns are too long"),
        ({"maximum_rejected_share": 0.06}, "one: 1 of 13 raw rows are rejected"),
        ({"limits": {"three": {"minimum_rows": 12}}}, r"three: \d+ rows"),
    ],
)
def test_a_breach_of_a_limit_shows_a_table(run, render, limits, what):
    if "maximum_truncated_share" in limits:

        def change(stats):
            stats["sources"]["two"]["turns_lost_by_reason"] = {"context_too_long": 3}

        run.change("tokenized/stats.json", change)
    with pytest.raises(DatasetNotVerified, match=f"(?s){what}.*\\| source \\| rows"):
        run.verify(render, VerifySettings(seq_length=SEQ_LENGTH, **limits))


def test_a_source_may_have_limits_of_its_own(run, render):
    limits = {source: {"minimum_rows": 1} for source in SOURCES}
    run.verify(render, VerifySettings(seq_length=SEQ_LENGTH, minimum_rows=1000, limits=limits))


def test_a_source_without_any_row_is_below_its_least_rows(run, render):
    run.stages.sources.append(run.folder / "sources" / "four.stats.json")
    counts = {"source": "four", "conversations": 0, "rows_in": 1, "rows_written": 0}
    reasons = {"rows_rejected": 1, "rejected_by_reason": {"over_quota": 1}}
    write_json(run.stages.sources[-1], {**counts, **reasons})
    run.change("merged/stats.json", lambda stats: stats["sources"].update(four={}))
    with pytest.raises(DatasetNotVerified, match="four: 0 rows"):
        run.verify(render)
    settings = VerifySettings(seq_length=SEQ_LENGTH, limits={"four": {"minimum_rows": 0}})
    run.verify(render, settings)


def test_the_stamp_notices_swapped_and_touched_shards_and_another_tokenizer(run, render, tmp_path):
    run.verify(render)
    tokenized = run.stages.tokenized
    require_stamp(run.stamp, tokenized, run.target)
    content = bytearray(run.shard().read_bytes())
    content[len(content) // 2] ^= 1
    run.shard().write_bytes(content)
    with pytest.raises(ValueError, match="not as it was verified"):
        require_stamp(run.stamp, tokenized, run.target)
    content[len(content) // 2] ^= 1
    run.shard().write_bytes(content)
    copy = tmp_path / "target"
    shutil.copytree(run.target, copy)
    require_stamp(run.stamp, tokenized, copy)
    (copy / "tokenizer.json").write_text((copy / "tokenizer.json").read_text() + " ")
    with pytest.raises(ValueError, match=r"tokenizer\.json changed since"):
        require_stamp(run.stamp, tokenized, copy)
