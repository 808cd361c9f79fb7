"""The corpus: nothing is lost without a name, and nothing depends on chance or order."""

import json
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lib.conversation import Conversation, Turn, from_record, to_record
from lib.jsonl import jsonl_writer, read_jsonl
from lib.merging import (
    DROP_REASONS,
    SHARED_WORDS,
    MergeSettings,
    fold,
    forbidden_runs,
    hash_share,
    merge_sources,
    shares_words,
)

WORDS = [f"word{n}" for n in range(14)]
RUN = " ".join(WORDS[:SHARED_WORDS])


def talk(question, answer="Yes."):
    return Conversation((Turn("human", question), Turn("gpt", answer)))


def questions(count, label="question"):
    return [talk(f"{label} {n}") for n in range(count)]


class Merge:
    """One merge of `{source: conversations}`; the outputs as lists and maps."""

    def __init__(self, folder, sources, evaluation=(), **keys):
        folder.mkdir(exist_ok=True)
        paths = []
        for name, conversations in sources.items():
            paths.append(folder / f"{name}.jsonl")
            with jsonl_writer(paths[-1]) as writer:
                for conversation in conversations:
                    writer.write(to_record(conversation.of_source(name)))
        prompts = folder / "prompts.jsonl"
        with jsonl_writer(prompts) as writer:
            for text in evaluation:
                writer.write({"id": "e", "conversations": [{"from": "human", "value": text}]})
        self.corpus_path, self.dropped_path = folder / "corpus.jsonl", folder / "dropped.jsonl"
        self.steps = []
        self.stats = merge_sources(
            MergeSettings(sources=list(sources), **keys),
            paths,
            [prompts],
            self.corpus_path,
            self.dropped_path,
            folder / "stats.json",
            self.steps.append,
        )
        self.corpus = list(read_jsonl(self.corpus_path))
        self.dropped = list(read_jsonl(self.dropped_path))
        self.split = {record["id"]: record["split"] for record in self.corpus}
        self.fate = self.split | {entry["id"]: entry["reason"] for entry in self.dropped}


def identities(source, conversations):
    return {conversation.of_source(source).id for conversation in conversations}


def test_records_in_are_kept_and_dropped(tmp_path):
    conversations = questions(20)
    merge = Merge(
        tmp_path,
        {"a": [*conversations, conversations[0]], "b": [*conversations[:5], talk(RUN)]},
        evaluation=[RUN],
        max_samples=15,
    )
    stats = merge.stats
    assert stats == json.loads((tmp_path / "stats.json").read_text())
    assert stats["records_in"] == 27 == sum(merge.steps)
    assert stats["kept"] == len(merge.corpus) == 15
    assert stats["dropped"] == len(merge.dropped) == 12
    assert stats["train"] + stats["validation"] == stats["kept"]
    assert sum(sum(counts.values()) for counts in stats["sources"].values()) == 27
    assert {entry["reason"] for entry in merge.dropped} == set(DROP_REASONS)
    assert stats["sources"]["b"] == {"contaminated": 1, "duplicate": 5}


def test_kept_records_change_in_nothing_but_the_split(tmp_path):
    conversations = [talk("odd \u2028\u0085 😀 text"), talk("2024-05-01", "null")]
    merge = Merge(tmp_path, {"a": conversations})
    for record in merge.corpus:
        assert list(record) == ["id", "source", "conversations", "split"]
    stored = {from_record(record).turns for record in merge.corpus}
    assert stored == {conversation.turns for conversation in conversations}
    assert set(merge.split) == identities("a", conversations)


def test_the_corpus_is_in_the_order_of_the_sources(tmp_path):
    merge = Merge(tmp_path, {"b": questions(5, "b"), "a": questions(5, "a")})
    assert [record["source"] for record in merge.corpus] == ["b"] * 5 + ["a"] * 5


@pytest.mark.parametrize("max_samples", [None, 12])
def test_the_order_of_lines_in_a_source_changes_no_byte(tmp_path, max_samples):
    conversations = [*questions(20), *questions(3), talk(RUN)]
    outputs = []
    for seed in range(3):
        shuffled = random.Random(seed).sample(conversations, len(conversations))
        merge = Merge(
            tmp_path / str(seed),
            {"a": shuffled, "b": shuffled[:4]},
            evaluation=[RUN],
            max_samples=max_samples,
        )
        outputs.append(merge.corpus_path.read_bytes() + json.dumps(merge.stats).encode())
    assert len(set(outputs)) == 1


def test_a_duplicate_names_its_winner_in_the_first_source(tmp_path):
    same = talk("the same")
    merge = Merge(tmp_path, {"a": [talk("other"), same], "b": [same], "c": [same, same]})
    winner = same.of_source("a").id
    assert winner in merge.split
    assert [(entry["source"], entry["reason"], entry["winner"]) for entry in merge.dropped] == [
        ("b", "duplicate", winner),
        ("c", "duplicate", winner),
        ("c", "duplicate", winner),
    ]


def test_another_answer_or_other_tools_make_another_conversation(tmp_path):
    question = "Same?"
    with_tools = Conversation(talk(question).turns, tools='[{"function": {"name": "f"}}]')
    merge = Merge(tmp_path, {"a": [talk(question), talk(question, "No."), with_tools]})
    assert len(merge.corpus) == 3


@settings(max_examples=25, derandomize=True, deadline=None)
@given(
    first=st.lists(st.integers(0, 20)),
    second=st.lists(st.integers(0, 20)),
    third=st.lists(st.integers(0, 20)),
    where=st.integers(0, 2),
)
def test_an_added_source_leaves_all_fates_as_they_were_but_duplicates(
    tmp_path_factory, first, second, third, where
):
    folder = tmp_path_factory.getbasetemp() / "added"
    sources = [("a", first), ("b", second)]
    made = {name: [talk(f"question {n}") for n in numbers] for name, numbers in sources}
    before = Merge(folder, made, evaluation=["question 7"], validation_share=0.3)
    added = [talk(f"question {n}") for n in third]
    items = list(made.items())
    items.insert(where, ("new", added))
    after = Merge(folder, dict(items), evaluation=["question 7"], validation_share=0.3)
    winners = {entry["id"]: entry["winner"] for entry in after.dropped}
    for identity, fate in before.fate.items():
        if after.fate[identity] != fate:
            assert after.fate[identity] == "duplicate"
            assert winners[identity] in identities("new", added)


def test_the_same_first_question_is_on_one_side_of_the_split(tmp_path):
    spellings = ["Why is the sky blue {}?", "why  is the sky\nBLUE {}?"]
    sources = {
        "a": [talk(spellings[0].format(n), f"{answer}") for n in range(40) for answer in (1, 2)],
        "b": [talk(spellings[1].format(n), "3") for n in range(40)],
    }
    merge = Merge(tmp_path, sources, validation_share=0.4)
    sides = {}
    for record in merge.corpus:
        question = fold(record["conversations"][0]["value"])
        sides.setdefault(question, set()).add(record["split"])
    assert len(sides) == 40
    assert all(len(side) == 1 for side in sides.values())
    assert {next(iter(side)) for side in sides.values()} == {"train", "validation"}


@pytest.mark.parametrize("share", [0.02, 0.1, 0.5])
def test_the_validation_share_is_roughly_kept(tmp_path, share):
    merge = Merge(tmp_path, {"a": questions(1500)}, validation_share=share)
    expected = share * 1500
    deviation = (expected * (1 - share)) ** 0.5
    assert abs(merge.stats["validation"] - expected) < 4 * deviation
    assert merge.stats["validation"] == list(merge.split.values()).count("validation")


def test_the_seed_changes_the_split_and_nothing_else_does(tmp_path):
    splits = [
        Merge(tmp_path, {"a": questions(100)}, seed=seed, validation_share=0.5).split
        for seed in (0, 1, 0)
    ]
    assert splits[0] == splits[2]
    assert splits[0] != splits[1]
    assert set(splits[0]) == set(splits[1])


def test_a_planted_evaluation_prompt_is_dropped_and_named(tmp_path):
    planted = [
        talk(f"Please answer: {RUN.upper()}!"),
        talk("Count.", f"Well,\n{RUN.replace(' ', ', ')} and so on."),
        Conversation((Turn("system", f"x {RUN}"), Turn("human", "Hi there, friend."))),
        talk("What is 2 + 2?"),
    ]
    harmless = [talk(" ".join(WORDS[: SHARED_WORDS - 1]) + " and more"), talk("What is 2 + 3?")]
    merge = Merge(
        tmp_path, {"a": [*planted, *harmless]}, evaluation=[" ".join(WORDS), "what is 2 + 2"]
    )
    contaminated = {entry["id"] for entry in merge.dropped if entry["reason"] == "contaminated"}
    assert contaminated == identities("a", planted)
    assert set(merge.split) == identities("a", harmless)


def test_a_contaminated_record_is_no_winner(tmp_path):
    merge = Merge(tmp_path, {"a": [talk(RUN)], "b": [talk(RUN), talk("fine")]}, evaluation=[RUN])
    assert [entry["reason"] for entry in merge.dropped] == ["contaminated"] * 2


@settings(max_examples=60, derandomize=True, deadline=None)
@given(
    words=st.lists(st.sampled_from(WORDS), min_size=SHARED_WORDS, max_size=30),
    data=st.data(),
)
def test_any_run_of_words_of_a_prompt_is_found_inside_any_text(words, data):
    start = data.draw(st.integers(0, len(words) - SHARED_WORDS))
    run = words[start : start + SHARED_WORDS]
    forbidden = forbidden_runs([" ".join(words)])
    assert shares_words(f"before {'  '.join(run).title()}, after", forbidden)
    assert not shares_words(" ".join([*run[:6], "gap", *run[6:]]), forbidden_runs([" ".join(run)]))


def test_text_without_words_is_never_contaminated():
    forbidden = forbidden_runs(["", "?!", " \n"])
    assert not shares_words("", forbidden)
    assert not shares_words("...", forbidden)


def test_the_limit_is_filled_exactly_by_hash(tmp_path):
    merge = Merge(tmp_path, {"a": questions(300, "a"), "b": questions(300, "b")}, max_samples=200)
    assert merge.stats["kept"] == 200
    assert {entry["reason"] for entry in merge.dropped} == {"over_max_samples"}
    kept_of_a = sum(record["source"] == "a" for record in merge.corpus)
    assert 60 < kept_of_a < 140


def test_the_limit_is_fair_to_a_source_that_has_a_quota(tmp_path):
    """A quota keeps the smallest hashes of a source; the limit must not do so once more."""
    quota = sorted(questions(2000, "a"), key=lambda conversation: conversation.fingerprint())[:200]
    merge = Merge(tmp_path, {"a": quota, "b": questions(200, "b")}, max_samples=100)
    kept_of_a = sum(record["source"] == "a" for record in merge.corpus)
    assert 25 < kept_of_a < 75


def test_the_seed_decides_what_is_over_the_limit(tmp_path):
    first, second = (
        set(Merge(tmp_path, {"a": questions(100)}, seed=seed, max_samples=50).split)
        for seed in (0, 1)
    )
    assert first != second


@settings(max_examples=25, derandomize=True, deadline=None)
@given(added=st.integers(0, 20), limit=st.integers(1, 25))
def test_added_records_disturb_the_limit_no_more_than_they_must(tmp_path_factory, added, limit):
    folder = tmp_path_factory.getbasetemp() / "limit"
    old = questions(15)
    before = set(Merge(folder, {"a": old}, max_samples=limit).split)
    new = questions(added, "new")
    after = set(Merge(folder, {"a": [*new, *old]}, max_samples=limit).split)
    assert after & identities("a", old) <= before
    assert len(after) == min(limit, 15 + added)


@settings(max_examples=50, derandomize=True)
@given(text=st.text(), seed=st.integers())
def test_a_hash_share_is_a_share(text, seed):
    if any("\ud800" <= character <= "\udfff" for character in text):
        return
    assert 0 <= hash_share(text, seed) < 1
    assert hash_share(text, seed) == hash_share(text, seed)


def test_folding_ignores_case_white_space_and_unicode_form():
    assert fold("  Cafe\u0301\n STRASSE ") == fold("CAFÉ straße")
    assert fold("cafe") != fold("café")
