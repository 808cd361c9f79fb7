"""OpenAssistant messages and trees."""

import itertools
import json
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from unit.formats.harness import SAMPLES, accepted, outcomes, reason, sample_oddities, texts

from lib.conversation import CHOICES, Conversation, Rejected
from lib.formats import load_format
from lib.jsonl import read_jsonl
from lib.normalizing import NormalizeSettings, normalize_source

READY = {
    "lang": "en",
    "review_count": 3,
    "review_result": True,
    "deleted": False,
    "synthetic": False,
    "message_tree_id": "root",
    "tree_state": "ready_for_export",
}


def message(name, parent=None, rank=None, **changes):
    """Return a message; the role follows from the first letter of its name unless it is given."""
    role = "assistant" if name.startswith("a") else "prompter"
    row = {"message_id": name, "parent_id": parent, "text": f"text of {name}", "role": role}
    return {**row, "rank": rank, **READY, **changes}


def fates(rows):
    """Return the names of the messages of the conversation, and why each other one is rejected."""
    found = outcomes("oasst", rows)
    positions = [n for members, _ in found for n in members]
    assert sorted(positions) == list(range(len(rows)))
    [path] = [members for members, each in found if isinstance(each, Conversation)] or [()]
    for members, each in found:
        if isinstance(each, Conversation):
            assert len(members) == len(each.turns)
    rejected = {
        rows[n]["message_id"]: each.reason
        for members, each in found
        if isinstance(each, Rejected)
        for n in members
    }
    return [rows[n]["message_id"] for n in path], rejected


BRANCHING = [
    message("root"),
    message("a-best", "root", 0),
    message("a-worse", "root", 1),
    message("q-after-worse", "a-worse"),
    message("q-after-best", "a-best"),
    message("a-last", "q-after-best"),
]


def test_oasst_takes_the_best_path_in_any_order_of_rows():
    for rows in itertools.permutations(BRANCHING):
        path, rejected = fates(rows)
        assert path == ["root", "a-best", "q-after-best", "a-last"]
        assert rejected == dict.fromkeys(("a-worse", "q-after-worse"), "not_on_best_path")


def test_oasst_turns_have_the_texts_and_roles_of_the_path():
    rows = [message("root", text=" Hi\n"), message("a", "root", text="2024-05-01")]
    [(positions, conversation)] = outcomes("oasst", rows)
    assert positions == (0, 1)
    assert texts(conversation) == [("human", " Hi\n"), ("gpt", "2024-05-01")]


def test_oasst_names_the_sibling_that_was_taken():
    [details] = [
        {each.detail for _, each in outcomes("oasst", BRANCHING) if isinstance(each, Rejected)}
    ]
    assert len(details) == 1
    assert "a-best" in details.pop()


@pytest.mark.parametrize(
    ("siblings", "best"),
    [
        ([("a1", 1), ("a2", 0)], "a2"),
        ([("a1", None), ("a2", 5)], "a2"),
        ([("a1", None), ("a2", None)], "a1"),
        ([("a1", 2), ("a2", 1), ("a3", None)], "a2"),
        ([("a1", 0), ("a2", 0)], "a1"),
    ],
)
def test_oasst_prefers_rank_then_the_smaller_name(siblings, best):
    rows = [message("root"), *(message(name, "root", rank) for name, rank in siblings)]
    assert fates(rows)[0] == ["root", best]
    assert fates(rows[::-1])[0] == ["root", best]


def test_oasst_prefers_among_unranked_replies_one_that_was_replied_to():
    rows = [message("root"), message("a1", "root"), message("a2", "root"), message("q", "a2")]
    assert fates(rows)[0] == ["root", "a2", "q"]
    rows[3] |= {"deleted": True}
    assert fates(rows)[0] == ["root", "a1"]
    ranked = [*rows[:3], message("q", "a2"), message("a3", "root", 4)]
    assert fates(ranked)[0] == ["root", "a3"]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"deleted": True}, "deleted_message"),
        ({"review_result": False}, "failed_review"),
        ({"review_result": None}, "not_reviewed"),
        ({"tree_state": "aborted_low_grade"}, "unfinished_tree"),
        ({"tree_state": None}, "malformed_row"),
        ({"text": None}, "malformed_row"),
        ({"text": " "}, "empty_turn"),
        ({"text": "Yes.<|endoftext|>"}, "control_token"),
        ({"text": "It ends.</think>"}, "stray_think_tag"),
        ({"role": "critic"}, "unknown_role"),
        ({"role": None}, "unknown_role"),
        ({"role": "tool"}, "unmatched_result"),
        ({"role": "system"}, "misplaced_system"),
        ({"rank": "0"}, "malformed_row"),
        ({"rank": True}, "malformed_row"),
        ({"rank": 0.0}, "malformed_row"),
        ({"deleted": "no"}, "malformed_row"),
        ({"review_result": 1}, "malformed_row"),
    ],
)
def test_oasst_leaves_one_bad_message_out_and_takes_the_next_best(change, expected):
    rows = [*BRANCHING]
    rows[1] = {**rows[1], **change}
    path, rejected = fates(rows)
    assert path == ["root", "a-worse", "q-after-worse"]
    orphans = dict.fromkeys(("q-after-best", "a-last"), "orphan_message")
    assert rejected == {"a-best": expected, **orphans}


@pytest.mark.parametrize("column", ["review_result", "tree_state", "text", "role", "message_id"])
def test_oasst_rejects_a_message_without_a_column_alone(column):
    rows = [*BRANCHING, message("a-other", "root", 2)]
    del rows[-1][column]
    found = outcomes("oasst", rows)
    [bad] = [each for members, each in found if members == (len(rows) - 1,)]
    named = {"review_result": "not_reviewed", "role": "unknown_role"}
    assert bad.reason == named.get(column, "malformed_row")
    assert any(isinstance(each, Conversation) for _, each in found)


def test_oasst_reads_rows_without_the_columns_that_say_nothing():
    rows = [message("root"), message("a", "root")]
    for row in rows:
        del row["rank"], row["deleted"]
    del rows[0]["parent_id"]
    assert fates(rows) == (["root", "a"], {})


def test_oasst_tree_without_a_root_that_may_be_used_is_left_out():
    assert fates(BRANCHING[1:]) == (
        [],
        {row["message_id"]: "orphan_message" for row in BRANCHING[1:]},
    )
    path, rejected = fates([{**BRANCHING[0], "deleted": True}, *BRANCHING[1:]])
    assert (path, rejected.pop("root")) == ([], "deleted_message")
    assert set(rejected.values()) == {"orphan_message"}


def test_oasst_answer_without_a_question_is_no_root():
    path, rejected = fates([message("a1"), message("q", "a1")])
    assert (path, rejected) == ([], dict.fromkeys(("a1", "q"), "orphan_message"))


def test_oasst_question_alone_is_a_conversation():
    assert texts(accepted("oasst", message("root", lang="ru", text="Кто ты?"))) == [
        ("human", "Кто ты?")
    ]


def test_oasst_takes_one_of_several_roots():
    rows = [message("q2"), message("a", "q2"), message("q1"), message("q3", rank=3)]
    path, rejected = fates(rows)
    assert path == ["q3"]
    assert rejected == dict.fromkeys(("q2", "a", "q1"), "not_on_best_path")
    assert fates(rows[:3])[0] == ["q2", "a"]


def test_oasst_circles_are_orphans():
    circle = [message("q1", "a1"), message("a1", "q1"), message("a2", "a2")]
    path, rejected = fates([message("root"), *circle])
    assert path == ["root"]
    assert rejected == dict.fromkeys(("q1", "a1", "a2"), "orphan_message")


def test_oasst_takes_a_message_that_stands_in_several_rows_once():
    copy = {**BRANCHING[1], "labels": {}, "user_id": "somebody"}
    found = outcomes("oasst", [*BRANCHING, copy])
    assert [each.reason for members, each in found if members == (6,)] == ["repeated_message"]
    assert "repeated_message" in CHOICES
    assert fates(BRANCHING)[0] == ["root", "a-best", "q-after-best", "a-last"]
    [path] = [members for members, each in found if isinstance(each, Conversation)]
    assert path == (0, 1, 4, 5)


@pytest.mark.parametrize(
    "change", [{"text": "other"}, {"rank": 3}, {"parent_id": "a-worse"}, {"deleted": True}]
)
def test_oasst_trusts_none_of_the_rows_that_contradict_each_other(change):
    rows = [*BRANCHING, BRANCHING[1], {**BRANCHING[1], **change}]
    for order in (rows, rows[::-1]):
        path, rejected = fates(order)
        assert path == ["root", "a-worse", "q-after-worse"]
        assert rejected["a-best"] == "malformed_row"
        assert rejected["q-after-best"] == "orphan_message"


def nested(rows, name, keys=("message_id", "text", "role", "review_result", "deleted", "rank")):
    """Return a message with its replies inside, as in an export of trees."""
    [row] = [row for row in rows if row["message_id"] == name]
    kept = {key: row[key] for key in keys if row.get(key) is not None}
    replies = [
        nested(rows, child["message_id"], keys) for child in rows if child.get("parent_id") == name
    ]
    return {**kept, "replies": replies}


def tree(rows, **changes):
    made = {"message_tree_id": "root", "tree_state": rows[0]["tree_state"]}
    return {**made, "prompt": nested(rows, rows[0]["message_id"]), **changes}


def test_oasst_tree_in_a_row_is_one_conversation_and_says_what_it_leaves_out():
    conversation = accepted("oasst", tree(BRANCHING))
    assert [text for _, text in texts(conversation)] == [
        f"text of {name}" for name in ("root", "a-best", "q-after-best", "a-last")
    ]
    assert conversation.repairs == ("side_branches_left_out",)
    assert accepted("oasst", tree([BRANCHING[0], BRANCHING[1]])).repairs == ()


def test_oasst_tree_needs_no_more_than_the_necessary_columns():
    row = tree(BRANCHING)
    row["prompt"] = nested(BRANCHING, "root", ("message_id", "text", "role", "rank"))
    assert accepted("oasst", row) == accepted("oasst", tree(BRANCHING))
    del row["prompt"]["replies"]
    assert texts(accepted("oasst", row)) == [("human", "text of root")]
    row["prompt"]["replies"] = None
    assert texts(accepted("oasst", row)) == [("human", "text of root")]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"deleted": True}, "deleted_message"),
        ({"review_result": False}, "failed_review"),
        ({"review_result": None}, "not_reviewed"),
        ({"role": "assistant"}, "orphan_message"),
        ({"role": "critic"}, "unknown_role"),
        ({"text": ""}, "empty_turn"),
        ({"text": None}, "malformed_row"),
        ({"message_id": None}, "malformed_row"),
        ({"replies": "a"}, "malformed_row"),
        ({"replies": ["a"]}, "malformed_row"),
        ({"replies": {"a": 1}}, "malformed_row"),
        ({"replies": {}}, "malformed_row"),
    ],
)
def test_oasst_tree_falls_with_its_root(change, expected):
    row = tree(BRANCHING)
    row["prompt"] |= change
    assert reason("oasst", row) == expected


def test_oasst_tree_with_counts_of_reviews_has_unreviewed_messages():
    row = tree(BRANCHING)
    best = row["prompt"]["replies"][0]
    assert best.pop("review_result")
    best["review_count"] = 1
    assert [text for _, text in texts(accepted("oasst", row))] == [
        f"text of {name}" for name in ("root", "a-worse", "q-after-worse")
    ]


def test_oasst_tree_of_another_state_or_shape_is_rejected():
    assert reason("oasst", tree(BRANCHING, tree_state="halted_by_moderator")) == "unfinished_tree"
    assert reason("oasst", tree(BRANCHING, tree_state=None)) == "malformed_row"
    assert reason("oasst", tree(BRANCHING, prompt=None)) == "malformed_row"
    assert load_format("oasst").combine([{"prompt": tree(BRANCHING)["prompt"]}])[0][1].reason == (
        "malformed_row"
    )
    assert reason("oasst", tree(BRANCHING, prompt="Hi")) == "malformed_row"
    row = tree(BRANCHING)
    row["prompt"]["replies"][0]["replies"][0]["message_id"] = "a-worse"
    assert reason("oasst", row) == "malformed_row", "two messages of one id"


def test_oasst_tree_says_what_holds_for_its_messages():
    row = tree(BRANCHING)
    row["prompt"] |= {"tree_state": None, "message_tree_id": 3, "parent_id": "elsewhere"}
    assert accepted("oasst", row) == accepted("oasst", tree(BRANCHING))


def test_oasst_tree_and_messages_of_one_group_are_told_apart():
    found = outcomes("oasst", [*BRANCHING, tree(BRANCHING)])
    conversations = [(n, each) for n, each in found if isinstance(each, Conversation)]
    assert sorted(n for n, _ in conversations) == [(0, 1, 4, 5), (6,)]
    assert len({each.turns for _, each in conversations}) == 1


DEPTH = 5000


def chain(length):
    replies = []
    for n in reversed(range(length)):
        role = ("prompter", "assistant")[n % 2]
        replies = [{"message_id": str(n), "text": f"text {n}", "role": role, "replies": replies}]
    return {"message_tree_id": "0", "tree_state": "ready_for_export", "prompt": replies[0]}


def test_oasst_follows_replies_beyond_the_depth_of_recursion():
    assert len(accepted("oasst", chain(DEPTH)).turns) == DEPTH
    rows = [message("q0")]
    rows += [message(f"{'qa'[n % 2]}{n}", f"{'aq'[n % 2]}{n - 1}") for n in range(1, DEPTH)]
    random.Random(0).shuffle(rows)
    assert len(fates(rows)[0]) == DEPTH


def normalized(folder, rows):
    raw, kept, lost = (folder / name for name in ("raw.jsonl", "kept.jsonl", "lost.jsonl"))
    raw.write_text("".join(json.dumps(row) + "\n" for row in rows))
    stats = normalize_source(
        NormalizeSettings("oasst", "oasst", max_reject_rate=1.0),
        [raw],
        kept,
        lost,
        folder / "stats.json",
        lambda _: None,
    )
    return stats, list(read_jsonl(kept)), list(read_jsonl(lost))


def test_oasst_trees_as_deep_as_can_be_read_are_written(tmp_path):
    stats, [record], _ = normalized(tmp_path, [chain(450)])
    assert stats["rows_written"] == 1
    assert len(record["conversations"]) == 450


def test_oasst_rows_without_a_tree_are_rejected_alone(tmp_path):
    odd = [
        *(message(f"q{n}", message_tree_id=None) for n in range(2)),
        {key: value for key, value in message("q3").items() if key != "message_tree_id"},
        ["no", "message"],
        "text",
        None,
    ]
    stats, [record], rejects = normalized(tmp_path, [*odd, *BRANCHING])
    assert len(record["conversations"]) == 4
    found = {entry["row"]: entry["reason"] for entry in rejects}
    for row in range(len(odd)):
        assert found[row] == "malformed_row"
    assert stats["rows_in"] == stats["rows_written"] + stats["rows_rejected"]


@st.composite
def random_trees(draw):
    """Draw a tree of messages, some of which have flaws, and rows that hang on nothing."""
    count = draw(st.integers(1, 14))
    rows = []
    for n in range(count):
        parent = None if n == 0 else draw(st.integers(0, n - 1))
        depth = 0 if parent is None else rows[parent]["depth"] + 1
        flaw = draw(
            st.sampled_from(
                [{}] * 5
                + [{"deleted": True}, {"review_result": False}, {"review_result": None}]
                + [{"text": "<|im_end|>"}, {"parent_id": "nothing"}]
            )
        )
        rank = draw(st.sampled_from([None, None, 0, 1, 2]))
        row = {"rank": rank, "role": ("prompter", "assistant")[depth % 2], "depth": depth}
        rows.append(message(f"m{n}", None if parent is None else f"m{parent}") | row | flaw)
    return rows


FLAWED = {"deleted_message", "failed_review", "not_reviewed", "control_token"}


@settings(deadline=None, max_examples=200)
@given(random_trees(), st.randoms(use_true_random=False))
def test_oasst_law_of_the_best_path(rows, dice):
    path, rejected = fates(rows)
    by_name = {row["message_id"]: row for row in rows}
    good = [name for name in by_name if rejected.get(name) not in FLAWED]

    def answers(name):
        return [each for each in good if by_name[each]["parent_id"] == name]

    assert set(path) | set(rejected) == set(by_name)
    assert answers(path[-1] if path else None) == [], "the path goes on as long as it can"
    for parent, chosen in itertools.pairwise([None, *path]):
        for other in set(answers(parent)) - {chosen}:
            ranks = [by_name[name]["rank"] for name in (chosen, other)]
            assert ranks[1] is None or (ranks[0] is not None and ranks[0] <= ranks[1])
            if ranks == [None, None]:
                assert answers(chosen) or not answers(other)

    reached = [None]
    for name in reached:
        reached += answers(name)
    for name in set(good) - set(path):
        expected = "not_on_best_path" if name in reached else "orphan_message"
        assert rejected[name] == expected

    shuffled = dice.sample(rows, len(rows))
    assert fates(shuffled) == (path, rejected)


@settings(deadline=None, max_examples=100)
@given(random_trees())
def test_oasst_messages_and_trees_give_the_same_conversation(rows):
    for row in rows:  # in a tree every message hangs on one, and null is a key that is missing
        if row["parent_id"] == "nothing":
            row["parent_id"] = "m0" if row["message_id"] != "m0" else None
        row["deleted"] = row["deleted"] or row["review_result"] is None
    [flat] = [each for _, each in outcomes("oasst", rows) if isinstance(each, Conversation)] or [
        None
    ]
    [(_, whole)] = outcomes("oasst", [tree(rows)])
    if flat is None:
        assert isinstance(whole, Rejected)
    else:
        assert texts(whole) == texts(flat)
        assert bool(whole.repairs) == (len(flat.turns) < len(rows))


def test_oasst_groups_rows_by_tree():
    form = load_format("oasst")
    names = {form.group(row) for row in SAMPLES["oasst"]}
    assert len(names) < len(SAMPLES["oasst"])
    assert form.group(tree(BRANCHING)) == form.group(BRANCHING[0])


def test_oasst_samples_show_what_is_rejected_and_repaired():
    assert sample_oddities("oasst") == (
        {
            "control_token",
            "deleted_message",
            "failed_review",
            "malformed_row",
            "not_on_best_path",
            "not_reviewed",
            "orphan_message",
            "repeated_message",
            "unfinished_tree",
        },
        {"surrogate_replaced"},
    )
