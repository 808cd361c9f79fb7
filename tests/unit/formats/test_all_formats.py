"""What holds for every raw format: no row is lost, whatever it looks like."""

import json
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from unit.formats.harness import SAMPLES, outcomes

from lib.cleaning import clean
from lib.conversation import REASONS, REPAIRS, Conversation, Rejected, from_record, to_record
from lib.formats import format_names, load_format
from lib.jsonl import jsonl_writer, read_jsonl
from lib.normalizing import NormalizeSettings, normalize_source


def test_every_format_has_samples_in_its_true_shape():
    assert format_names() == sorted(SAMPLES)
    for name, rows in SAMPLES.items():
        found = outcomes(name, rows)
        good = [outcome for _, outcome in found if isinstance(outcome, Conversation)]
        bad = {outcome.reason for _, outcome in found if isinstance(outcome, Rejected)}
        assert len(good) > 10, name
        assert bad, f"{name}: samples show what is rejected, too"
        assert sorted(n for positions, _ in found for n in positions) == list(range(len(rows)))


def test_an_unknown_format_is_named_with_the_known_ones():
    with pytest.raises(ValueError, match=r"'nonsense'.*codealpaca.*ultrachat"):
        load_format("nonsense")


CALL = """<functioncall> {"name": "get_weather", "arguments": '{}'}"""
TEXTS = [
    *("<|im_end|>", "<think>", "\ud83d", "\0", "", " ", "\n" * 20_000, "x" * 50_000),
    *("<div>" * 3000, "<![x[", "<p>" + "\u2028" * 9, "{", "[" * 3000),
    *("USER: ", "\n\nASSISTANT: ", CALL),
]
OTHERS = [None, 0, 1.5, float("nan"), True, [], {}, ["a"], {"a": None}, [[]], [None], 10**400]


def places(value, path=()):
    """Yield the path of every value inside a row."""
    if path:
        yield path
    if isinstance(value, dict):
        items = value.items()
    else:
        items = enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield from places(item, (*path, key))


def changed(value, path, change):
    """Return a copy in which `change` has been at what lies at the path."""
    if not path:
        return change(value)
    copy = value.copy()
    copy[path[0]] = changed(value[path[0]], path[1:], change)
    return copy


def without(path):
    def change(holder):
        copy = holder.copy()
        del copy[path[-1]]
        return copy

    return path[:-1], change


@st.composite
def mutated(draw, name):
    row = draw(st.sampled_from(SAMPLES[name]))
    for _ in range(draw(st.integers(1, 2))):
        if not isinstance(row, dict) or not row:
            break
        path = draw(st.sampled_from(list(places(row))))
        kind = draw(st.sampled_from(["drop", "replace", "insert", "swap", "row"]))
        if kind == "drop":
            row = changed(row, *without(path))
        elif kind == "replace":
            value = draw(st.sampled_from([*TEXTS, *OTHERS]))
            row = changed(row, path, lambda _, value=value: value)
        elif kind == "insert":
            text = draw(st.sampled_from(TEXTS))
            at = draw(st.floats(0, 1))
            row = changed(row, path, lambda old, text=text, at=at: inserted(old, text, at))
        elif kind == "swap":
            row = changed(row, path, lambda old: old[::-1] if isinstance(old, list) else old)
        elif draw(st.integers(0, 9)) == 0:
            row = draw(st.sampled_from(OTHERS))
    return row


def inserted(old, text, at):
    if not isinstance(old, str):
        return text
    place = int(at * len(old))
    return old[:place] + text + old[place:]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("mutated")


@pytest.mark.parametrize("name", sorted(SAMPLES))
def test_every_mutated_row_is_written_or_rejected_with_a_reason(folder, name):
    seen = Counter()

    @settings(max_examples=96, derandomize=True, deadline=None)
    @given(rows=st.lists(mutated(name), min_size=8, max_size=16))
    def check(rows):
        raw = folder / f"{name}.jsonl"
        raw.write_text("".join(json.dumps(row) + "\n" for row in rows))
        kept, lost = folder / f"{name}.kept.jsonl", folder / f"{name}.lost.jsonl"
        stats = normalize_source(
            NormalizeSettings(name=name, format=name, max_reject_rate=1.0),
            [raw],
            kept,
            lost,
            folder / "stats.json",
            lambda _: None,
        )
        records, rejects = list(read_jsonl(kept)), list(read_jsonl(lost))
        assert stats["conversations"] == len(records) <= stats["rows_written"]
        assert stats["rows_rejected"] == len(rejects)
        assert stats["rows_in"] == stats["rows_written"] + stats["rows_rejected"] == len(rows)
        assert {entry["reason"] for entry in rejects} <= set(REASONS)
        assert set(stats["repaired"]) <= set(REPAIRS)
        rows_lost = [entry["row"] for entry in rejects]
        assert len(rows_lost) == len(set(rows_lost))
        assert set(rows_lost) <= set(range(len(rows)))
        for record in records:
            conversation = from_record(record)
            assert to_record(conversation) == record
            assert clean(conversation).turns == conversation.turns
        seen.update(rows=len(rows), written=len(records), rejected=len(rejects))

    check()
    assert min(seen["written"], seen["rejected"]) > 10, "the mutations must hit both outcomes"
    assert seen["rows"] * len(SAMPLES) > 10_000


@pytest.mark.parametrize("name", sorted(SAMPLES))
def test_the_strict_template_renders_every_record(render, name):
    for _, found in outcomes(name, SAMPLES[name]):
        if not isinstance(found, Conversation):
            continue
        text = render(thinking=True, preserve_thinking=True).conversation(found.turns, found.tools)
        for turn in found.turns:
            assert turn.text.strip() in text
            assert turn.reasoning.strip() in text
            assert all(f"<function={call.name}>" in text for call in turn.tool_calls)
        assert text.count("<tools>") == bool(found.tools)


@pytest.mark.parametrize("name", sorted(SAMPLES))
def test_sample_records_survive_the_way_to_the_disk_and_back(folder, name):
    conversations = [
        found.of_source(name)
        for _, found in outcomes(name, SAMPLES[name])
        if isinstance(found, Conversation)
    ]
    path = folder / f"{name}.records.jsonl"
    with jsonl_writer(path) as writer:
        for conversation in conversations:
            writer.write(to_record(conversation))
    for before, after in zip(conversations, map(from_record, read_jsonl(path)), strict=True):
        assert (after.turns, after.tools, after.id) == (before.turns, before.tools, before.id)
        assert after.of_source(name).id == before.id
