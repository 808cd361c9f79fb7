"""Answers given anew: turn by turn, every conversation accounted for, nothing asked twice."""

import json
import shutil
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from lib.conversation import Conversation, ToolCall, Turn, from_record, to_record
from lib.files import read_json
from lib.gathering import gather_responses
from lib.generation import TransformersAnswers, TransformersTarget
from lib.journal import Journal
from lib.jsonl import jsonl_writer, read_jsonl
from lib.responding import Asking, regenerate_responses
from lib.response_totals import FAILURES, Outputs
from lib.sampling import Answer, Sampling, recommended_sampling
from lib.shards import Shard, read_lines, shard_names

TOOLS = json.dumps(
    [
        {
            "type": "function",
            "function": {
                "name": "look",
                "parameters": {
                    "properties": {"at": {"type": "string"}, "sure": {"type": "boolean"}}
                },
            },
        }
    ]
)
CUT = object()
WIDTH = 5


class TargetOfRules:
    """Answers a prompt by the first rule whose mark stands in its last message."""

    def __init__(self, renderer, rules, context_length=2048, width=WIDTH):
        self.renderer = renderer
        self.rules = rules
        self.context_length = context_length
        self.width = width
        self.waiting = []
        self.asked = []

    def start(self, prompt):
        self.waiting.append(prompt)
        assert len(self.waiting) <= self.width

    def finished(self):
        prompt = self.waiting.pop()  # the last one first: answers come in any order
        return [(prompt, self._answer(prompt))]

    def _answer(self, prompt):
        text = self.renderer.tokenizer.decode(prompt)
        self.asked.append(text)
        last = text.rpartition("<|im_start|>user\n")[2]
        said = next(said for mark, said in self.rules if mark in last)
        if said is CUT:
            return Answer(tuple(self.renderer.encode("and so on")), None)
        end = self.renderer.tokenizer.eos_token_id
        return Answer(tuple(self.renderer.encode(said)), end)


class Run:
    """One run over conversations; its files as values."""

    def __init__(self, folder, conversations, target, max_tokens=64, on_mismatch="stop", shards=1):
        folder.mkdir(exist_ok=True)
        self.advanced = []
        corpus = folder / "corpus.jsonl"
        with jsonl_writer(corpus) as writer:
            for number, conversation in enumerate(conversations):
                writer.write({**to_record(conversation), "id": f"s-{number}", "source": "s"})
        parts = []
        for name in shard_names(shards):
            parts.append(outputs(folder / name))
            with Journal(folder / "cache") as journal:
                asking = Asking(target.renderer, target, max_tokens, on_mismatch, journal)
                lines = Shard.parse(name).lines(corpus)
                regenerate_responses(
                    read_lines(corpus, lines), asking, parts[-1], self.advanced.append
                )
        gather_responses(parts, outputs(folder))
        self.records = list(read_jsonl(folder / "responses.jsonl"))
        self.answered = [from_record(record) for record in self.records]
        self.failures = list(read_jsonl(folder / "failures.jsonl"))
        self.stats = read_json(folder / "stats.json")


def outputs(folder):
    return Outputs(*(folder / name for name in ("responses.jsonl", "failures.jsonl", "stats.json")))


def chat(*texts):
    roles = ("human", "gpt")
    return Conversation(tuple(Turn(roles[n % 2], text) for n, text in enumerate(texts)))


def call(arguments, number=0, name="look"):
    return ToolCall(f"call_{number}", name, json.dumps(arguments))


def written_call(**values):
    inside = "".join(f"<parameter={k}>\n{v}\n</parameter>\n" for k, v in values.items())
    return f"<tool_call>\n<function=look>\n{inside}</function>\n</tool_call>"


def recorded_search(arguments, *after):
    turns = (
        Turn("human", "Search it"),
        Turn("gpt", "recorded", tool_calls=(ToolCall("call_r", "look", json.dumps(arguments)),)),
        Turn("tool", "a cat", tool_call_id="call_r"),
        Turn("gpt", "recorded answer"),
    )
    return Conversation(turns + after, TOOLS)


def test_each_answer_is_given_anew_on_the_targets_own_history(tmp_path, render):
    target = TargetOfRules(render(), [("One?", "My first."), ("Two?", "My second.")])
    run = Run(tmp_path, [chat("One?", "recorded first", "Two?", "recorded second")], target)
    assert [turn.text for turn in run.answered[0].turns] == [
        "One?",
        "My first.",
        "Two?",
        "My second.",
    ]
    assert "My first." in target.asked[1]
    assert not any("recorded" in prompt for prompt in target.asked)


def test_a_question_without_an_answer_is_answered(tmp_path, render):
    target = TargetOfRules(render(), [("One?", "First."), ("Two?", "Second.")])
    run = Run(tmp_path, [chat("One?"), chat("One?", "x", "Two?")], target)
    assert [c.turns[-1].text for c in run.answered] == ["First.", "Second."]
    assert [len(c.turns) for c in run.answered] == [2, 4]


def test_a_system_turn_and_everything_else_of_the_record_stays(tmp_path, render):
    conversation = Conversation(
        (Turn("system", "Be kind."), Turn("human", "One?"), Turn("gpt", "x")),
        TOOLS,
        "",
        "",
        "train",
    )
    target = TargetOfRules(render(), [("One?", "First.")])
    record = Run(tmp_path, [conversation], target).records[0]
    assert record["conversations"][0] == {"from": "system", "value": "Be kind."}
    assert (record["id"], record["source"], record["split"]) == ("s-0", "s", "train")
    assert record["tools"] == TOOLS
    assert "Be kind." in target.asked[0]


def test_reasoning_of_the_target_is_recorded_when_thinking_is_on(tmp_path, render):
    target = TargetOfRules(render(thinking=True), [("One?", "a thought\n</think>\n\nFirst.")])
    run = Run(tmp_path, [chat("One?", "x")], target)
    assert run.answered[0].turns[-1] == Turn("gpt", "First.", "a thought")


def test_recorded_results_follow_the_recorded_call(tmp_path, render):
    rules = [("Search it", written_call(at="here")), ("a cat", "It is a cat.")]
    run = Run(tmp_path, [recorded_search({"at": "here"})], TargetOfRules(render(), rules))
    assert run.answered[0].turns == (
        Turn("human", "Search it"),
        Turn("gpt", "", tool_calls=(ToolCall("call_r", "look", '{"at": "here"}'),)),
        Turn("tool", "a cat", tool_call_id="call_r"),
        Turn("gpt", "It is a cat."),
    )


@pytest.mark.parametrize(
    "said",
    [
        written_call(at="there"),
        written_call(at="here") + "\n" + written_call(at="here"),
        written_call(at="here", sure="true"),
        "I would rather not.",
    ],
    ids=["other arguments", "more calls", "more arguments", "no call"],
)
def test_another_call_than_recorded_is_kept_and_ends_the_conversation(tmp_path, render, said):
    target = TargetOfRules(render(), [("Search it", said)])
    run = Run(tmp_path, [recorded_search({"at": "here"})], target)
    turns = run.answered[0].turns
    assert [turn.role for turn in turns] == ["human", "gpt"]
    assert "recorded" not in turns[-1].text
    assert run.stats["answers"] == {"other_calls_than_recorded": 1}
    assert len(target.asked) == 1


def test_a_call_where_none_is_recorded_ends_the_conversation(tmp_path, render):
    target = TargetOfRules(render(), [("One?", written_call(at="here"))])
    conversation = Conversation(chat("One?", "x", "Two?", "y").turns, TOOLS)
    run = Run(tmp_path, [conversation], target)
    assert [turn.role for turn in run.answered[0].turns] == ["human", "gpt"]
    assert run.answered[0].turns[-1].tool_calls == (call({"at": "here"}),)


@pytest.mark.parametrize(("value", "rewritten"), [("true", 0), (" true", 1), ("True", 0)])
def test_an_answer_that_the_template_writes_otherwise_is_counted(
    tmp_path, render, value, rewritten
):
    target = TargetOfRules(render(), [("Search it", written_call(sure=value))])
    run = Run(tmp_path, [recorded_search({"at": "here"})], target)
    assert run.stats["rewritten"] == rewritten


def test_the_order_of_arguments_does_not_matter_but_their_type_does(tmp_path, render):
    rules = [("Search it", written_call(sure="true", at="here")), ("a cat", "A cat.")]
    corpus = [
        recorded_search({"at": "here", "sure": True}),
        recorded_search({"at": "here", "sure": 1}),
    ]
    run = Run(tmp_path, corpus, TargetOfRules(render(), rules))
    assert [len(c.turns) for c in run.answered] == [4, 2]


def test_another_call_is_a_branch_and_the_conversation_goes_on_as_recorded(tmp_path, render):
    rules = [("Search it", written_call(at="there")), ("a cat", "It is a cat.")]
    target = TargetOfRules(render(), rules)
    run = Run(tmp_path, [recorded_search({"at": "here"})], target, on_mismatch="recorded")
    whole, branch = run.answered
    assert [turn.recorded for turn in whole.turns] == [False, True, False, False]
    assert whole.turns[1].tool_calls[0].arguments == '{"at": "here"}'
    assert whole.turns[3] == Turn("gpt", "It is a cat.")
    assert (whole.id, branch.source) == ("s-0", "s")
    assert branch.turns == (
        Turn("human", "Search it"),
        Turn("gpt", "", tool_calls=(call({"at": "there"}),)),
    )
    assert branch.id == branch.of_source("s").id
    assert "recorded" in target.asked[1]
    assert run.stats["answers"] == {"kept": 1, "other_calls_than_recorded": 1}
    assert (run.stats["answered"], run.stats["records"], run.stats["branches"]) == (1, 2, 1)
    assert run.stats["sources"] == {
        "s": {"conversations_in": 1, "answered": 1, "failed": 0, "records": 2}
    }


@pytest.mark.parametrize("said", [CUT, "", "A stray </think> tag"])
def test_the_recorded_turn_stands_for_an_answer_that_cannot_be_used(tmp_path, render, said):
    target = TargetOfRules(render(), [("One?", said), ("Two?", "Second.")])
    run = Run(tmp_path, [chat("One?", "x", "Two?", "y")], target, on_mismatch="recorded")
    assert run.answered[0].turns == (
        Turn("human", "One?"),
        Turn("gpt", "x", recorded=True),
        Turn("human", "Two?"),
        Turn("gpt", "Second."),
    )
    assert run.failures == []


def test_recorded_turns_behind_the_last_answer_go(tmp_path, render):
    target = TargetOfRules(render(), [("One?", "First."), ("Two?", CUT)])
    run = Run(tmp_path, [chat("One?", "x", "Two?", "y")], target, on_mismatch="recorded")
    assert run.answered[0].turns == (Turn("human", "One?"), Turn("gpt", "First."))


def test_a_conversation_of_recorded_answers_alone_fails(tmp_path, render):
    target = TargetOfRules(render(), [("One?", CUT), ("Two?", "")])
    run = Run(tmp_path, [chat("One?", "x", "Two?", "y")], target, on_mismatch="recorded")
    assert run.records == []
    assert [failure["reason"] for failure in run.failures] == ["cut_by_length"]


texts = st.text(
    st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12
) | st.sampled_from(
    ["2024-05-01", "42", "null", "true", '{"a": 1}', "[1,2]", " x ", "a\r\nb", "\u2028"]
)


@settings(max_examples=60, derandomize=True, deadline=None)
@given(st.lists(st.lists(texts, min_size=1, max_size=5), min_size=1, max_size=8), st.booleans())
def test_no_text_of_the_corpus_changes(tmp_path_factory, render, corpus, stop):
    """What people said stays to the character; answers are the target's or marked as recorded."""
    target = TargetOfRules(render(), [("a", CUT), ("1", ""), ("", "Fine.")], 100_000)
    conversations = [chat(*said) for said in corpus]
    on_mismatch = "stop" if stop else "recorded"
    run = Run(tmp_path_factory.mktemp("run"), conversations, target, on_mismatch=on_mismatch)
    given_ids = [one.id for one in run.answered] + [one["id"] for one in run.failures]
    assert sorted(given_ids) == sorted(f"s-{n}" for n in range(len(corpus)))
    assert run.stats["answered"] + run.stats["failed"] == run.stats["conversations_in"]
    for answered in run.answered:
        before = conversations[int(answered.id[2:])].turns
        for turn, old in zip(answered.turns, before, strict=False):
            if turn.role != "gpt":
                assert turn == old
            elif turn.recorded:
                assert turn.text == old.text
            else:
                assert turn.text == "Fine."
        assert answered.answers()


def test_the_number_of_shards_changes_no_byte(tmp_path, render):
    runs = [
        Run(tmp_path / str(shards), many(23), TargetOfRules(render(), RULES), shards=shards)
        for shards in (1, 4)
    ]
    for name in ("responses.jsonl", "failures.jsonl", "stats.json"):
        assert len({(tmp_path / n / name).read_bytes() for n in ("1", "4")}) == 1
    assert runs[0].records == runs[1].records


@pytest.mark.parametrize("name", ["0-of-2", "3-of-2", "1-of-0", "1", "-1-of-2", "1-of-2x"])
def test_a_shard_that_cannot_be_is_refused(name):
    with pytest.raises(ValueError, match="is no shard"):
        Shard.parse(name)


def test_an_answer_that_was_cut_ends_the_conversation_before_it(tmp_path, render):
    target = TargetOfRules(render(), [("One?", "First."), ("Two?", CUT)])
    run = Run(tmp_path, [chat("One?", "x", "Two?", "y", "Three?", "z")], target)
    assert [turn.text for turn in run.answered[0].turns] == ["One?", "First."]
    assert run.stats["answers"] == {"cut_by_length": 1, "kept": 1}
    assert run.stats["finish_reasons"] == {"length": 1, "stop": 1}


def test_results_without_an_answer_after_them_go(tmp_path, render):
    target = TargetOfRules(render(), [("Search it", written_call(at="here")), ("a cat", CUT)])
    run = Run(tmp_path, [recorded_search({"at": "here"})], target)
    assert [turn.role for turn in run.answered[0].turns] == ["human", "gpt"]


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (CUT, "cut_by_length"),
        ("", "empty_answer"),
        (" \n", "empty_answer"),
        ("A stray </think> tag", "unreadable_answer"),
        (written_call(at="here"), "unreadable_answer"),
        ("Then <|im_start|>user\nthank you", "unreadable_answer"),
    ],
)
def test_a_first_answer_that_is_no_turn_fails_the_conversation(tmp_path, render, said, reason):
    run = Run(tmp_path, [chat("One?", "x")], TargetOfRules(render(), [("One?", said)]))
    assert run.records == []
    (failure,) = run.failures
    assert (failure["id"], failure["source"], failure["reason"]) == ("s-0", "s", reason)
    assert reason in FAILURES


def test_a_conversation_that_the_template_refuses_fails_with_its_words(tmp_path, render):
    turns = (Turn("human", "One?"), Turn("system", "late"), Turn("gpt", "x"))
    run = Run(tmp_path, [Conversation(turns)], TargetOfRules(render(), []))
    (failure,) = run.failures
    assert failure["reason"] == "unrenderable"
    assert "at the beginning" in failure["detail"]


def test_prompt_and_answer_have_to_fit_into_the_context(tmp_path, render):
    prompt = render().encode(render().prompt([Turn("human", "One?")], ""))
    for room, outcome in ((64, ("answered", 1)), (63, ("failed", 1))):
        target = TargetOfRules(render(), [("One?", "First.")], len(prompt) + room)
        run = Run(tmp_path / str(room), [chat("One?", "x")], target, max_tokens=64)
        assert run.stats[outcome[0]] == outcome[1]
    assert run.failures[0]["reason"] == "prompt_too_long"


RULES = [("odd", CUT), ("twice", "Same."), ("Again", CUT), ("", "Fine.")]


def many(count):
    return [
        chat(f"{n} is {'odd' if n % 2 else 'even'}?", "x", "Again?" if n % 3 else "More?", "y")
        for n in range(count)
    ]


def test_every_conversation_is_answered_or_failed_in_the_order_of_the_corpus(tmp_path, render):
    count = 67
    run = Run(tmp_path, many(count), TargetOfRules(render(), RULES))
    answered = [record["id"] for record in run.records]
    failed = [failure["id"] for failure in run.failures]
    assert answered == [f"s-{n}" for n in range(0, count, 2)]
    assert failed == [f"s-{n}" for n in range(1, count, 2)]
    assert run.stats["conversations_in"] == count == sum(run.advanced)
    assert (run.stats["answered"], run.stats["failed"]) == (len(answered), len(failed))
    assert sum(run.stats["failed_by_reason"].values()) == len(failed)


def test_a_second_run_asks_nothing_and_gives_the_same_bytes(tmp_path, render):
    target = TargetOfRules(render(), RULES)
    Run(tmp_path, many(60), target)
    names = ("responses.jsonl", "failures.jsonl", "stats.json")
    first = [(tmp_path / name).read_bytes() for name in names]
    silent = TargetOfRules(render(), [])
    Run(tmp_path, many(60), silent)
    assert target.asked and not silent.asked
    assert [(tmp_path / name).read_bytes() for name in names] == first


class Killed(BaseException):
    """What a kill is to a run: nothing after it happens."""


class TargetThatDies(TargetOfRules):
    """Answers some prompts, and ends the run instead of the next one."""

    def __init__(self, renderer, rules, answers):
        super().__init__(renderer, rules)
        self.left = answers

    def finished(self):
        if not self.left:
            raise Killed
        self.left -= 1
        return super().finished()


@settings(max_examples=20, derandomize=True, deadline=None)
@given(st.lists(st.integers(0, 30), max_size=4))
def test_however_often_it_is_killed_nothing_is_asked_twice(tmp_path_factory, render, kills):
    folder = tmp_path_factory.mktemp("killed")
    asked = []
    for answers in kills:
        target = TargetThatDies(render(), RULES, answers)
        with suppress(Killed):
            Run(folder, many(20), target)
        asked += target.asked
    last = TargetOfRules(render(), RULES)
    run = Run(folder, many(20), last)
    whole = TargetOfRules(render(), RULES)
    assert run.records == Run(folder / "whole", many(20), whole).records
    assert sorted(asked + last.asked) == sorted(whole.asked)


def test_a_longer_corpus_asks_only_what_is_new(tmp_path, render):
    Run(tmp_path, many(4), TargetOfRules(render(), RULES))
    target = TargetOfRules(render(), RULES)
    Run(tmp_path, many(5), target)
    assert len(target.asked) == 2
    assert all("4 is even?" in prompt for prompt in target.asked)


def test_one_prompt_of_several_conversations_is_asked_once(tmp_path, render):
    target = TargetOfRules(render(), RULES)
    run = Run(tmp_path, [chat("twice?", "x"), chat("twice?", "y", "More?", "z")], target)
    assert sum("More?" not in prompt for prompt in target.asked) == 1
    assert [c.turns[1].text for c in run.answered] == ["Same.", "Same."]


PROMPTS = ["Hi", "Tell me how to grow peas, and how often I should water them.", "Is 3 odd?"]


@pytest.fixture(scope="module")
def lively(target, tmp_path_factory):
    """Copy the target with larger weights, so that each token before matters to what it says."""
    copy = tmp_path_factory.mktemp("lively") / "target"
    shutil.copytree(target, copy)
    weights = load_file(copy / "model.safetensors")
    for name, weight in weights.items():
        weight.mul_(8 if "layers" in name and weight.ndim == 2 else 1)
    save_file(weights, copy / "model.safetensors", {"format": "pt"})
    return copy


@pytest.fixture(scope="module")
def real(lively, render):
    return TransformersTarget(lively, render().end_of_turn_ids, False)


def encoded(renderer):
    return [renderer.encode(renderer.prompt([Turn("human", text)], "")) for text in PROMPTS]


def test_a_batch_answers_as_one_prompt_at_a_time(real, render):
    prompts = encoded(render())
    assert len({len(prompt) for prompt in prompts}) > 1
    together = real.answer(prompts, Sampling(12))
    assert len({answer.ids[:1] for answer in together}) > 1
    assert together == [real.answer([prompt], Sampling(12))[0] for prompt in prompts]
    for answer in together:
        assert len(answer.ids) <= 12
        assert (answer.end_id is None) == (len(answer.ids) == 12)
        assert not set(answer.ids) & render().end_of_turn_ids


def test_a_sampled_answer_does_not_depend_on_the_other_prompts(real, render):
    prompts = encoded(render())
    sampling = Sampling(12, temperature=0.8, top_p=0.95, top_k=40, seed=3)
    together = real.answer(prompts, sampling)
    assert together == [real.answer([prompt], sampling)[0] for prompt in prompts]
    assert together != real.answer(prompts, Sampling(12))


def test_a_top_k_of_one_is_greedy(real, render):
    prompts = encoded(render())
    one = Sampling(12, temperature=1.0, top_k=1)
    assert real.answer(prompts, one) == real.answer(prompts, Sampling(12))


def test_what_is_not_configured_is_sampled_as_the_target_recommends(tmp_path):
    assert recommended_sampling(tmp_path, 8) == Sampling(8)
    own = {"do_sample": True, "temperature": 0.7, "top_p": 0.8, "top_k": 20}
    (tmp_path / "generation_config.json").write_text(json.dumps(own))
    assert recommended_sampling(tmp_path, 8, seed=1) == Sampling(8, 0.7, 0.8, 20, 1)
    assert recommended_sampling(tmp_path, 8, 0.0, 1.0, 0) == Sampling(8)
    (tmp_path / "generation_config.json").write_text(json.dumps({**own, "do_sample": False}))
    assert recommended_sampling(tmp_path, 8).temperature == 0


def test_sampling_follows_its_seed(real, render):
    prompts = encoded(render())
    one, same, other = (
        real.answer(prompts, Sampling(16, temperature=1.0, seed=seed)) for seed in (1, 1, 2)
    )
    assert one == same != other


def test_greedy_is_greedy_whatever_the_target_recommends(lively, real, render, tmp_path):
    copy = tmp_path / "target"
    shutil.copytree(lively, copy)
    recommended = read_json(copy / "generation_config.json")
    recommended |= {"repetition_penalty": 5.0, "do_sample": True, "temperature": 2.0}
    (copy / "generation_config.json").write_text(json.dumps(recommended))
    changed = TransformersTarget(copy, render().end_of_turn_ids, False)
    assert changed.answer(encoded(render()), Sampling(12)) == real.answer(
        encoded(render()), Sampling(12)
    )


def test_the_real_target_answers_a_corpus(tmp_path, real, render):
    answers = TransformersAnswers(real, Sampling(8))
    answers.renderer = render()
    run = Run(tmp_path, [chat(text, "recorded") for text in PROMPTS], answers, max_tokens=8)
    assert run.stats["conversations_in"] == len(run.records) + len(run.failures) == len(PROMPTS)
