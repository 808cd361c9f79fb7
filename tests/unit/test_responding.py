"""Answers given anew: turn by turn, every conversation accounted for, nothing asked twice."""

import json
import shutil

import pytest
from safetensors.torch import load_file, save_file

from lib.cache import open_cache
from lib.conversation import Conversation, ToolCall, Turn, from_record, to_record
from lib.files import read_json
from lib.generation import Answer, Sampling, TransformersTarget
from lib.jsonl import jsonl_writer, read_jsonl
from lib.responding import BATCH, FAILURES, regenerate_responses

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


class TargetOfRules:
    """Answers a prompt by the first rule whose mark stands in its last message."""

    def __init__(self, renderer, rules, context_length=2048):
        self.renderer = renderer
        self.rules = rules
        self.context_length = context_length
        self.asked = []

    def answer(self, prompts, sampling):
        return [self._answer(tuple(prompt)) for prompt in prompts]

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

    def __init__(self, folder, conversations, target, max_tokens=64):
        folder.mkdir(exist_ok=True)
        self.advanced = []
        with jsonl_writer(folder / "corpus.jsonl") as corpus:
            for number, conversation in enumerate(conversations):
                corpus.write({**to_record(conversation), "id": f"s-{number}", "source": "s"})
        with open_cache(folder / "cache", "these answers") as cache:
            regenerate_responses(
                folder / "corpus.jsonl",
                target.renderer,
                target,
                Sampling(max_tokens),
                cache,
                folder / "responses.jsonl",
                folder / "failures.jsonl",
                folder / "stats.json",
                self.advanced.append,
            )
        self.records = list(read_jsonl(folder / "responses.jsonl"))
        self.answered = [from_record(record) for record in self.records]
        self.failures = list(read_jsonl(folder / "failures.jsonl"))
        self.stats = read_json(folder / "stats.json")


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
    assert run.stats["ended_early_by_reason"] == {"other_calls_than_recorded": 1}
    assert len(target.asked) == 1


def test_a_call_where_none_is_recorded_ends_the_conversation(tmp_path, render):
    target = TargetOfRules(render(), [("One?", written_call(at="here"))])
    conversation = Conversation(chat("One?", "x", "Two?", "y").turns, TOOLS)
    run = Run(tmp_path, [conversation], target)
    assert [turn.role for turn in run.answered[0].turns] == ["human", "gpt"]
    assert run.answered[0].turns[-1].tool_calls == (call({"at": "here"}),)


def test_the_order_of_arguments_does_not_matter_but_their_type_does(tmp_path, render):
    rules = [("Search it", written_call(sure="true", at="here")), ("a cat", "A cat.")]
    corpus = [
        recorded_search({"at": "here", "sure": True}),
        recorded_search({"at": "here", "sure": 1}),
    ]
    run = Run(tmp_path, corpus, TargetOfRules(render(), rules))
    assert [len(c.turns) for c in run.answered] == [4, 2]


def test_an_answer_that_was_cut_ends_the_conversation_before_it(tmp_path, render):
    target = TargetOfRules(render(), [("One?", "First."), ("Two?", CUT)])
    run = Run(tmp_path, [chat("One?", "x", "Two?", "y", "Three?", "z")], target)
    assert [turn.text for turn in run.answered[0].turns] == ["One?", "First."]
    assert run.stats["ended_early_by_reason"] == {"cut_by_length": 1}


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
    count = 2 * BATCH + 3
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
    real.renderer = render()
    run = Run(tmp_path, [chat(text, "recorded") for text in PROMPTS], real, max_tokens=8)
    assert run.stats["conversations_in"] == len(run.records) + len(run.failures) == len(PROMPTS)
