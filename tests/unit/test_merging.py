"""The corpus: nothing is lost without a name, and nothing depends on chance or order."""

import json
import random
from contextlib import contextmanager

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lib.conversation import Conversation, ToolCall, Turn, from_record, to_record
from lib.drop_reasons import DROP_REASONS
from lib.jsonl import jsonl_writer, read_jsonl
from lib.merging import (
    Merged,
    MergeSettings,
    NearDuplicates,
    SourceShare,
    merge_sources,
    unwatched,
)

RUN = " ".join(f"word{n}" for n in range(13))
TOPICS = (
    *("harbour", "violin", "glacier", "saddle", "quarry", "lantern", "orchard", "compass"),
    *("pepper", "turbine", "meadow", "anchor", "pulley", "velvet", "walnut", "ferry"),
)


def talk(question, answer="Yes.", *more, tools=()):
    """A conversation of questions and answers in turn."""
    texts = (question, answer, *more)
    turns = tuple(Turn("gpt" if n % 2 else "human", text) for n, text in enumerate(texts))
    offer = [{"type": "function", "function": {"name": name}} for name in tools]
    return Conversation(turns, tools=json.dumps(offer) if tools else "")


def questions(count, label="question"):
    return [talk(f"{label} {n}") for n in range(count)]


def wordy(seed, words=30):
    """A question of words that hardly any other seed gives."""
    return [f"{topic}{seed}" for topic in random.Random(seed).choices(TOPICS, k=4)] + [
        f"w{seed}x{n}" for n in range(words - 4)
    ]


class Merge:
    """One merge of `{source: conversations}`; the outputs as lists and maps."""

    def __init__(self, folder, sources, evaluation=(), workers=1, shares=None, **keys):
        folder.mkdir(exist_ok=True)
        paths = []
        for name, conversations in sources.items():
            paths.append(folder / f"{name}.jsonl")
            with jsonl_writer(paths[-1]) as writer:
                for conversation in conversations:
                    writer.write(to_record(conversation.of_source(name)))
        prompts = folder / "prompts.jsonl"
        with jsonl_writer(prompts) as writer:
            for number, text in enumerate(evaluation):
                domain, question = text if isinstance(text, tuple) else ("chat", text)
                turns = [{"from": "human", "value": question}]
                writer.write({"id": f"e{number}", "domain": domain, "conversations": turns})
        outputs = [folder / name for name in ("corpus.jsonl", "dropped.jsonl", "stats.json")]
        self.steps = {}
        self.stats = merge_sources(
            MergeSettings(
                tuple(SourceShare(name, **(shares or {}).get(name, {})) for name in sources), **keys
            ),
            paths,
            [prompts],
            Merged(*outputs),
            workers,
            self.watch,
        )
        self.bytes = b"".join(path.read_bytes() for path in outputs)
        assert self.stats == json.loads(outputs[2].read_text())
        self.corpus = list(read_jsonl(outputs[0]))
        self.dropped = list(read_jsonl(outputs[1]))
        self.split = {record["id"]: record["split"] for record in self.corpus}
        self.reason = {entry["id"]: entry["reason"] for entry in self.dropped}
        self.winner = {entry["id"]: entry["winner"] for entry in self.dropped}

    @contextmanager
    def watch(self, what, total):
        self.steps[what] = 0
        merge = self

        class Steps:
            def advance(self, steps=1):
                merge.steps[what] += steps

        yield Steps()

    def kept(self, source):
        return {record["id"] for record in self.corpus if record["source"] == source}


def identity(source, conversation):
    return conversation.of_source(source).id


def identities(source, conversations):
    return {identity(source, conversation) for conversation in conversations}


def test_records_in_are_kept_and_dropped(tmp_path):
    conversations = questions(20)
    merge = Merge(
        tmp_path,
        {"a": [*conversations, talk("long", "1", "2", "3")], "b": conversations[:5]},
        evaluation=["question 7"],
        max_samples=15,
    )
    stats = merge.stats
    assert stats["records_in"] == 26 == merge.steps["records"]
    assert stats["kept"] == len(merge.corpus) == 15 == merge.steps["lines"]
    assert stats["dropped"] == len(merge.dropped) == 11
    assert stats["train"] + stats["validation"] == stats["kept"]
    assert sum(sum(counts.values()) for counts in stats["sources"].values()) == 26
    assert stats["sources"]["b"] == {"duplicate": 5}
    assert stats["sources"]["a"]["contaminated"] == 1


def test_kept_records_change_in_nothing_but_the_split(tmp_path):
    call = ToolCall("call_0", "f", '{"a": "é\\u2028"}')
    conversations = [
        talk("Café \u2028 – 数据 \x7f", tools=["f"]),
        Conversation((Turn("human", "Why?"), Turn("gpt", "", "Hm, ]}", (call,)))),
    ]
    merge = Merge(tmp_path, {"a": conversations})
    for record in merge.corpus:
        assert list(record)[-1] == "split"
        assert record["split"] in ("train", "validation")
    stored = {from_record(record).turns for record in merge.corpus}
    assert stored == {conversation.turns for conversation in conversations}
    assert {from_record(record).tools for record in merge.corpus} == {"", conversations[0].tools}
    assert set(merge.split) == identities("a", conversations)


def test_the_corpus_is_in_the_order_of_the_sources_and_then_of_the_hashes(tmp_path):
    merge = Merge(tmp_path, {"b": questions(9, "b"), "a": questions(9, "a")})
    assert [record["source"] for record in merge.corpus] == ["b"] * 9 + ["a"] * 9
    ids = [record["id"] for record in merge.corpus]
    assert ids == sorted(ids[:9]) + sorted(ids[9:])


def test_an_empty_source_and_an_empty_corpus_are_no_trouble(tmp_path):
    keys = {"near_duplicates": NearDuplicates(0.7), "max_samples": 3}
    assert Merge(tmp_path, {"a": [], "b": []}, **keys).stats["kept"] == 0
    assert Merge(tmp_path, {"a": [], "b": questions(2)}, **keys).stats["kept"] == 2


MESSY = {
    "a": [*questions(30), *questions(3), talk(RUN), talk("question 4", "Yes.", "And?", "No.")],
    "b": [
        *questions(8),
        talk("question 9", "Maybe."),
        *(talk(" ".join(wordy(n)), str(n)) for n in range(20)),
    ],
    "c": [talk(" ".join([*wordy(n)[:-2], "other", "thing"]), f"c{n}") for n in range(20)],
}
EVERYTHING = {
    "near_duplicates": NearDuplicates(0.7),
    "max_samples": 40,
    "validation_share": 0.3,
    "shares": {"a": {"quota": 25}},
}


def test_the_order_of_lines_in_a_source_changes_no_byte(tmp_path):
    outputs = set()
    for seed in range(4):
        shuffled = {
            name: random.Random(seed).sample(conversations, len(conversations))
            for name, conversations in MESSY.items()
        }
        outputs.add(Merge(tmp_path / str(seed), shuffled, [RUN], **EVERYTHING).bytes)
    assert len(outputs) == 1


def test_the_number_of_workers_changes_no_byte(tmp_path, monkeypatch):
    """Pieces of a few lines each, so that each worker gets several."""
    monkeypatch.setattr("lib.pieces.PIECE_BYTES", 600)
    outputs = {
        Merge(tmp_path / str(workers), MESSY, [RUN], workers=workers, **EVERYTHING).bytes
        for workers in (1, 2, 5)
    }
    assert len(outputs) == 1


def test_every_reason_can_be_met_and_is_explained(tmp_path):
    merge = Merge(tmp_path / "one", MESSY, [RUN], **EVERYTHING)
    prompts = Merge(tmp_path / "two", MESSY, deduplicate="prompt")
    assert set(merge.reason.values()) | set(prompts.reason.values()) == set(DROP_REASONS)


def test_a_line_that_is_no_record_stops_the_merge_and_is_named(tmp_path):
    path = tmp_path / "a.jsonl"
    good = json.dumps(to_record(talk("fine").of_source("a")))
    for bad in ('{"id": 1}', "{", '"text"'):
        path.write_text(f"{good}\n{bad}\n")
        outputs = Merged(*(tmp_path / name for name in ("c", "d", "s")))
        with pytest.raises(ValueError, match=rf"a\.jsonl: the line at byte {len(good) + 1}: "):
            merge_sources(
                MergeSettings((SourceShare("a"),)),
                [path],
                [],
                outputs,
                1,
                unwatched,
            )
        assert not outputs.corpus.exists()


# --- duplicates


def test_a_duplicate_names_its_winner_in_the_first_source(tmp_path):
    same = talk("the same")
    merge = Merge(tmp_path, {"a": [talk("other"), same], "b": [same], "c": [same, same]})
    winner = identity("a", same)
    assert winner in merge.split
    assert [(entry["source"], entry["reason"], entry["winner"]) for entry in merge.dropped] == [
        ("b", "duplicate", winner),
        ("c", "duplicate", winner),
        ("c", "duplicate", winner),
    ]


def test_another_answer_or_other_tools_make_another_conversation(tmp_path):
    question = "Same?"
    conversations = [talk(question), talk(question, "No."), talk(question, tools=["f"])]
    assert len(Merge(tmp_path, {"a": conversations}).corpus) == 3


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
    now = after.split | after.reason
    for record, fate in (before.split | before.reason).items():
        if now[record] != fate:
            assert now[record] == "duplicate"
            assert after.winner[record] in identities("new", added)


def test_a_conversation_that_goes_on_wins_over_its_beginnings(tmp_path):
    whole = talk("one", "two", "three", "four", tools=["f"])
    beginnings = [Conversation(whole.turns[:n], tools=whole.tools) for n in (1, 2, 3)]
    others = [
        talk("one", "two", "three"),  # offers no tool
        talk("one", "TWO", "three", tools=["f"]),
    ]
    merge = Merge(tmp_path, {"a": [*beginnings, whole, *others]})
    assert merge.reason == dict.fromkeys(identities("a", beginnings), "beginning")
    assert set(merge.winner.values()) == {identity("a", whole)}


def test_a_beginning_in_another_source_stays(tmp_path):
    merge = Merge(tmp_path, {"a": [talk("one", "two", "three", "four")], "b": [talk("one", "two")]})
    assert not merge.dropped


def test_a_beginning_names_the_one_that_won_over_its_winner(tmp_path):
    whole, beginning = talk("one", "two", "three", "four"), talk("one", "two")
    merge = Merge(tmp_path, {"a": [whole], "b": [beginning, whole]})
    assert merge.reason == {
        identity("b", beginning): "beginning",
        identity("b", whole): "duplicate",
    }
    assert set(merge.winner.values()) == {identity("a", whole)}


def test_a_prompt_is_the_first_question_and_the_names_of_the_tools(tmp_path):
    first = talk("Caf\u00e9  or\ntea?", "Tea.", tools=["f", "g"])
    same = [
        talk(" Cafe\u0301 or tea? ", "Café.", tools=["g", "f"]),
        talk("Caf\u00e9 or tea?", "Both.", "Sure?", "Yes.", tools=["f", "g"]),
    ]
    others = [talk("Caf\u00e9 or tea?", tools=["f"]), talk("CAF\u00c9 or tea?", tools=["f", "g"])]
    merge = Merge(tmp_path, {"a": [first], "b": [*same, *others]}, deduplicate="prompt")
    assert merge.reason == dict.fromkeys(identities("b", same), "duplicate_prompt")
    assert set(merge.winner.values()) == {identity("a", first)}


def test_of_the_same_prompts_in_one_source_the_longest_stays(tmp_path):
    short, long = talk("hello", "1"), talk("hello", "2", "3", "4")
    for order in ([short, long], [long, short]):
        merge = Merge(tmp_path, {"a": order}, deduplicate="prompt")
        assert set(merge.split) == {identity("a", long)}


# --- near-duplicates


def reworded(words, changed, chance):
    """Other words in some places."""
    words = list(words)
    for place in chance.sample(range(len(words)), changed):
        words[place] = f"new{chance.getrandbits(30)}"
    return words


def jaccard(one, two):
    return len({*one} & {*two}) / len({*one} | {*two})


@pytest.mark.parametrize("threshold", [0.6, 0.7, 0.85, 1.0])
def test_planted_near_duplicates_go_and_nothing_else_does(tmp_path, threshold):
    """300 questions of 40 words, each reworded by nothing to a third, in another source."""
    chance = random.Random(0)
    asked = [wordy(n, 40) for n in range(300)]
    again = [reworded(words, n % 14, chance) for n, words in enumerate(asked)]
    merge = Merge(
        tmp_path,
        {
            "a": [talk(" ".join(words), f"a{n}") for n, words in enumerate(asked)],
            "b": [talk(" ".join(words).upper(), f"b{n}") for n, words in enumerate(again)],
        },
        near_duplicates=NearDuplicates(threshold),
    )
    pairs = list(zip(asked, again, strict=True))
    planted = {
        identity("b", talk(" ".join(words).upper(), f"b{n}")): identity(
            "a", talk(" ".join(asked[n]), f"a{n}")
        )
        for n, words in enumerate(again)
        if jaccard(asked[n], words) >= threshold
    }
    assert 0 < len(planted) < len(pairs)
    assert set(merge.reason.values()) == {"near_duplicate"}
    assert merge.winner.items() <= planted.items()
    assert len(merge.winner) >= 0.95 * len(planted)
    for entry in merge.dropped:
        assert float(entry["detail"].removeprefix("similarity ")) >= threshold


def test_questions_below_the_threshold_stay_although_they_are_candidates(tmp_path):
    """Half of the words in common: at a threshold of 0.51 nearly all pairs are candidates."""
    common = [f"common{n}" for n in range(20)]
    made = [
        talk(" ".join([*common, *(f"own{n}x{k}" for k in range(20))]), str(n)) for n in range(60)
    ]
    assert not Merge(tmp_path, {"a": made}, near_duplicates=NearDuplicates(0.5)).dropped


def test_later_questions_and_tools_count_in_a_near_duplicate(tmp_path):
    words = " ".join(wordy(1))
    first = talk(words, "a", tools=["f", "g", "h"])
    others = [
        talk(words, "b", " ".join(wordy(2)), "c", tools=["f", "g", "h"]),
        talk(words, "b", tools=["f"]),
        talk(words, "b"),
    ]
    merge = Merge(tmp_path, {"a": [first, *others]}, near_duplicates=NearDuplicates(0.7))
    assert not merge.dropped
    again = [first, talk(words, "d", tools=["f", "h", "g"])]
    merge = Merge(tmp_path, {"a": again}, near_duplicates=NearDuplicates(0.7))
    assert list(merge.reason.values()) == ["near_duplicate"]


def test_what_is_only_near_to_a_dropped_record_stays(tmp_path):
    """One is near to two and two to three, but one is not near to three."""
    words = wordy(0, 40)
    chain = [words[n : n + 30] for n in (0, 3, 6)]
    assert jaccard(chain[0], chain[1]) > 0.8 > jaccard(chain[0], chain[2])
    made = {name: [talk(" ".join(c))] for name, c in zip("abc", chain, strict=True)}
    merge = Merge(tmp_path, made, near_duplicates=NearDuplicates(0.8))
    assert [record["source"] for record in merge.corpus] == ["a", "c"]


@pytest.mark.parametrize("text", ["???", "🙂 🙂", "…!"])
def test_questions_without_words_are_compared_by_their_marks(tmp_path, text):
    made = [talk(text, "1"), talk(f"{text}  ", "2"), talk("!?", "3"), talk("=", "4")]
    merge = Merge(tmp_path, {"a": made}, near_duplicates=NearDuplicates(0.5))
    assert len(merge.dropped) == 1
    assert {record["conversations"][0]["value"] for record in merge.corpus} >= {"!?", "="}


def test_languages_without_spaces_are_compared_by_characters(tmp_path):
    one = "请用中文解释一下为什么天空是蓝色的以及日落时为什么会变成红色"
    near = one.replace("一下", "清楚")
    other = "我想知道怎样才能在家里做出好吃的面包需要哪些材料和工具呢谢谢"
    merge = Merge(
        tmp_path, {"a": [talk(one), talk(near), talk(other)]}, near_duplicates=NearDuplicates(0.8)
    )
    assert len(merge.dropped) == 1
    assert identity("a", talk(other)) in merge.split


# --- evaluation prompts


def test_a_planted_evaluation_prompt_is_dropped_and_named(tmp_path):
    call = ToolCall("call_0", "f", json.dumps({"task": RUN}))
    planted = [
        talk(f"Please answer: {RUN.upper()}!"),
        talk("Count.", f"Well,\n{RUN.replace(' ', ', ')} and so on."),
        Conversation((Turn("system", f"x {RUN}"), Turn("human", "Hi there, friend."))),
        Conversation((Turn("human", "Think."), Turn("gpt", "Yes.", f"They ask {RUN}."))),
        Conversation((Turn("human", "Call."), Turn("gpt", "", "", (call,)))),
    ]
    short = talk("What is 2 + 2?")
    harmless = [talk(f"{RUN.rpartition(' ')[0]} and more"), talk("What is 2 + 3?"), talk("...")]
    merge = Merge(
        tmp_path,
        {"a": [*planted, short, *harmless]},
        evaluation=[f"{RUN} word13", "what is 2 + 2", "", "?!"],
    )
    assert merge.reason == dict.fromkeys(identities("a", [*planted, short]), "contaminated")
    assert {merge.winner[record] for record in identities("a", planted)} == {"e0"}
    assert merge.winner[identity("a", short)] == "e1"
    assert {e["detail"] for e in merge.dropped} == {RUN, "what is 2 2"}
    assert set(merge.split) == identities("a", harmless)


@settings(max_examples=40, derandomize=True, deadline=None)
@given(
    words=st.lists(st.sampled_from([*"abcde", "é", "ﬁ"]), min_size=13, max_size=30), data=st.data()
)
def test_any_run_of_words_of_a_prompt_is_found_inside_any_text(tmp_path_factory, words, data):
    folder = tmp_path_factory.getbasetemp() / "runs"
    start = data.draw(st.integers(0, len(words) - 13))
    run = words[start : start + 13]
    inside = talk(f"before {'  '.join(run).title()}, after")
    assert Merge(folder, {"a": [inside]}, [" ".join(words)]).stats["dropped"] == 1
    broken = talk(" ".join([*run[:6], "gap", *run[6:]]))
    assert Merge(folder, {"a": [broken]}, [" ".join(run)]).stats["dropped"] == 0


MATRIX = "m = [[1,2],[3,4],[5,6]]; print(m[0][1])"


def test_code_is_compared_by_its_tokens_where_it_has_few_words(tmp_path):
    copied = talk(f"What does this print?\n\n    {MATRIX.replace('=', ' = ')}")
    other = talk(f"What does this print? {MATRIX.replace('[1]', '(1)')}")
    prompt = f"Explain: {MATRIX}"
    both = {"a": [copied, other]}
    merge = Merge(tmp_path, both, [("code", prompt)], shared_words=40, shared_code_tokens=32)
    assert set(merge.reason) == {identity("a", copied)}
    merge = Merge(tmp_path, both, [("chat", prompt)], shared_words=40, shared_code_tokens=32)
    assert not merge.dropped


def test_runs_of_marks_alone_are_no_contamination(tmp_path):
    border = "+---+---+---+---+---+---+---+---+"
    made = [talk(f"Draw {border} twice.")]
    assert not Merge(tmp_path, {"a": made}, [("code", f"a b {border}")]).dropped


def test_a_contaminated_record_is_no_winner(tmp_path):
    merge = Merge(
        tmp_path,
        {"a": [talk(RUN), talk("one", "two", RUN, "four")], "b": [talk(RUN), talk("fine")]},
        evaluation=[RUN],
    )
    assert [entry["reason"] for entry in merge.dropped] == ["contaminated"] * 3
    made = {"a": [talk("one", "two"), talk("one", "two", RUN, "four")]}
    assert set(Merge(tmp_path, made, [RUN]).split) == identities("a", made["a"][:1])


def test_a_broken_evaluation_file_is_named(tmp_path):
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text('{"id": "e", "text": "no conversations"}\n')
    (tmp_path / "a.jsonl").write_text("")
    outputs = Merged(*(tmp_path / name for name in ("c", "d", "s")))
    with pytest.raises(ValueError, match=r"prompts\.jsonl: prompt 0 needs id and conversations"):
        merge_sources(
            *(MergeSettings((SourceShare("a"),)), [tmp_path / "a.jsonl"], [prompts]),
            *(outputs, 1, unwatched),
        )


# --- mixing


def test_the_limit_is_filled_exactly_by_hash(tmp_path):
    merge = Merge(tmp_path, {"a": questions(300, "a"), "b": questions(300, "b")}, max_samples=200)
    assert merge.stats["kept"] == 200
    assert set(merge.reason.values()) == {"over_max_samples"}
    assert 60 < len(merge.kept("a")) < 140


def test_the_limit_is_fair_to_a_source_that_was_chosen_by_hash_before(tmp_path):
    """`max_samples` of a source keeps its smallest hashes; the limit must not do so once more."""
    chosen = sorted(questions(2000, "a"), key=lambda conversation: conversation.fingerprint())[:200]
    merge = Merge(tmp_path, {"a": chosen, "b": questions(200, "b")}, max_samples=100)
    assert 25 < len(merge.kept("a")) < 75


def test_a_quota_counts_what_is_left_after_duplicates(tmp_path):
    made = {"a": questions(30), "b": [*questions(30), *questions(20, "b")]}
    merge = Merge(tmp_path, made, shares={"a": {"quota": 10}, "b": {"quota": 15}})
    assert merge.stats["sources"]["b"]["duplicate"] == 30
    assert (len(merge.kept("a")), len(merge.kept("b"))) == (10, 15)
    assert merge.stats["sources"]["a"]["over_quota"] == 20


@pytest.mark.parametrize(
    ("weights", "limit", "expected"),
    [
        ((1, 1, 2), 80, (20, 20, 40)),
        ((0.5, 0.25, 0.25), 200, (100, 50, 50)),
        ((8, 1, 1), 200, (100, 50, 50)),  # the first has only 100
        ((0, 1, 1), 50, (0, 25, 25)),
        ((0, 1, 1), 1000, (0, 100, 100)),
        ((1, 1, 1), 10, (4, 3, 3)),
    ],
)
def test_weights_share_the_limit_out(tmp_path, weights, limit, expected):
    made = {name: questions(100, name) for name in "abc"}
    shares = {name: {"weight": weight} for name, weight in zip("abc", weights, strict=True)}
    merge = Merge(tmp_path, made, shares=shares, max_samples=limit)
    assert tuple(len(merge.kept(name)) for name in "abc") == expected


def test_the_seed_decides_what_is_over_the_limit(tmp_path):
    first, second = (
        set(Merge(tmp_path, {"a": questions(100)}, seed=seed, max_samples=50).split)
        for seed in (0, 10**30)
    )
    assert first != second


@settings(max_examples=25, derandomize=True, deadline=None)
@given(
    added=st.integers(0, 20),
    limit=st.integers(1, 25),
    quota=st.integers(1, 20),
    weighted=st.booleans(),
)
def test_added_records_disturb_a_choice_no_more_than_they_must(
    tmp_path_factory, added, limit, quota, weighted
):
    """What stays of the old records was chosen before, too, whether source or record is new."""
    folder = tmp_path_factory.getbasetemp() / "limit"
    keys = {"max_samples": limit, "shares": {"a": {"quota": quota}}}
    if weighted:
        keys["shares"] = {"a": {"quota": quota, "weight": 2}, "b": {"weight": 1}}
    old, new = questions(15), questions(added, "new")
    before = Merge(folder, {"a": old, "b": []}, **keys).kept("a")
    longer = Merge(folder, {"a": [*new, *old], "b": []}, **keys)
    wider = Merge(folder, {"b": new, "a": old}, **keys)
    assert longer.kept("a") & identities("a", old) <= before
    assert wider.kept("a") <= before
    assert len(longer.corpus) == min(limit, quota, 15 + added)


# --- the split


def side_of(merge, key):
    """The sides on which the records with the same key are."""
    sides = {}
    for record in merge.corpus:
        sides.setdefault(key(record["conversations"][0]["value"]), set()).add(record["split"])
    return sides


def test_the_same_first_question_is_on_one_side_of_the_split(tmp_path):
    spellings = ["Why is the sky blue {}?", "why  is the sky\nBLUE, {}"]
    sources = {
        "a": [talk(spellings[0].format(n), f"{answer}") for n in range(40) for answer in (1, 2)],
        "b": [talk(spellings[1].format(n), "3", tools=["f"]) for n in range(40)],
    }
    merge = Merge(tmp_path, sources, validation_share=0.4)
    sides = side_of(merge, lambda question: question.rstrip("?").rpartition(" ")[2])
    assert len(sides) == 40
    assert all(len(side) == 1 for side in sides.values())
    assert {next(iter(side)) for side in sides.values()} == {"train", "validation"}


def test_a_chain_of_nearly_same_first_questions_is_on_one_side(tmp_path):
    """Families of five; all go on differently, so that none is a near-duplicate."""
    made = []
    for family in range(40):
        words = [f"f{family}", *wordy(family, 59)]
        made += [
            talk(" ".join(words[:1] + words[3 * n : 3 * n + 30]), "a", " ".join(wordy(1000 + n)))
            for n in range(5)
        ]
    merge = Merge(
        *(tmp_path, {"a": made}), near_duplicates=NearDuplicates(0.75), validation_share=0.5
    )
    assert len(merge.corpus) == 200
    sides = side_of(merge, lambda question: question.split()[0])
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
    limited = Merge(
        tmp_path,
        {"a": questions(100), "b": questions(9, "b")},
        max_samples=60,
        validation_share=0.5,
    )
    assert limited.split.items() & splits[0].items() == {
        (record, side) for record, side in limited.split.items() if record in splits[0]
    }


# --- the tables


def test_the_tables_say_which_sources_overlap_and_who_won(tmp_path):
    merge = Merge(
        tmp_path,
        {
            "a": [*questions(6), talk("question 0", "Other.")],
            "b": [*questions(4), talk("QUESTION 5", "Other."), *questions(3, "b")],
            "c": [talk("alone")],
        },
    )
    assert merge.stats["overlap"] == {"a": {"a": 6, "b": 5}, "b": {"a": 5, "b": 8}, "c": {"c": 1}}
    assert merge.stats["lost_to"] == {"a": {}, "b": {"a": 4}, "c": {}}
