"""What an evaluation counts, when it fails, and how it is known that the drafter ran."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from lib.acceptance import Acceptance
from lib.evaluation import (
    EvaluateSettings,
    HeadMeasurement,
    Measurement,
    Question,
    evaluation,
    headline,
    read_questions,
    write_evaluation,
)
from lib.jsonl import jsonl_writer
from lib.losslessness import Losslessness, compare_answers
from lib.mtp_head import check_head
from lib.speculation import Speculation, check_log
from lib.speed import Timing
from lib.vllm_counters import Counters

QUESTIONS = [
    Question("chat-0", "chat", (1, 2)),
    Question("code-0", "code", (3,)),
    Question("chat-1", "chat", (4, 5)),
]
ACCEPTANCES = [Acceptance(10, (8, 4)), Acceptance(4, (4, 4)), Acceptance(6, (2, 0))]


def settings(**changes: Any) -> EvaluateSettings:
    values = {"thinking": False, "preserve_thinking": False, "backend": "vllm", **changes}
    return EvaluateSettings(**values)


def measured(**changes: Any) -> Measurement:
    return Measurement(ACCEPTANCES, [22, 12, 8], **changes)


def summary(chosen: EvaluateSettings | None = None, **changes: Any) -> dict[str, Any]:
    return evaluation(chosen or settings(), 2, QUESTIONS, measured(**changes))


def write(chosen: EvaluateSettings, folder: Path, **changes: Any) -> None:
    content = summary(chosen, **changes)
    names = ("evaluation.json", "refused.json")
    write_evaluation(chosen, content, *(folder / name for name in names))


def test_lengths_are_those_of_sums_by_domain_and_of_all():
    found = summary()
    assert found["all"]["acceptance_length"] == pytest.approx(1 + 22 / 20)
    assert found["domains"]["chat"]["acceptance_length"] == pytest.approx(1 + 14 / 16)
    assert found["domains"]["chat"]["acceptance_by_position"] == [10 / 16, 4 / 16]
    assert found["domains"]["code"]["acceptance_length_interval"] == [3, 3]
    assert [prompt["id"] for prompt in found["prompts"]] == ["chat-0", "code-0", "chat-1"]
    assert sum(prompt["accepted"] for prompt in found["prompts"]) == found["all"]["accepted"]


def test_both_backends_give_the_same_keys():
    timings = {1: {"chat": Timing(30, 3.0, (2.0, 1.0)), "code": Timing(12, 1.0, (1.0,))}}
    served = summary(
        with_drafter=timings, without_drafter=timings, losslessness=Losslessness(3, ())
    )
    simulated = summary(settings(backend="simulate"))
    assert served.keys() == simulated.keys()
    assert served["all"].keys() == simulated["all"].keys()
    assert simulated["all"]["speed"] == [] and simulated["losslessness"] is None
    json.dumps(served, allow_nan=False)


def test_speed_sums_domains_and_divides_by_that_without_the_drafter():
    drafted = {8: {"chat": Timing(30, 3.0, (2.0, 1.0)), "code": Timing(12, 1.0, (1.0,))}}
    plain = {8: {"chat": Timing(30, 6.0, (4.0, 2.0)), "code": Timing(12, 1.0, (1.0,))}}
    found = summary(with_drafter=drafted, without_drafter=plain)
    (entry,) = found["all"]["speed"]
    assert entry["concurrency"] == 8
    assert entry["with_drafter"]["output_tokens_per_second"] == pytest.approx(42 / 4)
    assert entry["with_drafter"]["mean_latency_seconds"] == pytest.approx(4 / 3)
    assert entry["without_drafter"]["median_latency_seconds"] == 2
    assert entry["ratio"]["output_tokens_per_second"] == pytest.approx(7 / 4)
    (code,) = found["domains"]["code"]["speed"]
    assert code["ratio"]["output_tokens_per_second"] == 1
    assert "1.75 times the tokens a second at 8" in headline(found)


def test_without_a_baseline_there_is_no_ratio():
    drafted = {1: {"chat": Timing(30, 3.0, (2.0, 1.0)), "code": Timing(12, 1.0, (1.0,))}}
    (entry,) = summary(with_drafter=drafted)["all"]["speed"]
    assert entry["without_drafter"] is None and entry["ratio"] is None
    assert entry["mtp"] is None and entry["mtp_ratio"] is None


def test_the_head_of_the_target_is_beside_the_drafter():
    drafted = {1: {"chat": Timing(30, 2.0, (1.0, 1.0)), "code": Timing(12, 1.0, (1.0,))}}
    timings = {1: {"chat": Timing(30, 5.0, (4.0, 1.0)), "code": Timing(12, 1.0, (1.0,))}}
    acceptances = [Acceptance(20, (10,)), Acceptance(6, (6,)), Acceptance(10, (2,))]
    head = HeadMeasurement(1, acceptances, timings, Losslessness(3, ()))
    found = summary(with_drafter=drafted, mtp=head)
    assert found["mtp"]["tokens"] == 1
    assert found["mtp"]["losslessness"]["differing"] == 0
    assert found["losslessness"] is None
    assert found["all"]["mtp"]["acceptance_length"] == pytest.approx(1 + 18 / 36)
    assert found["all"]["mtp"]["acceptance_by_position"] == [18 / 36]
    assert found["domains"]["chat"]["mtp"]["drafts"] == 30
    low, high = found["domains"]["code"]["mtp"]["acceptance_length_interval"]
    assert low == high == 2
    (entry,) = found["all"]["speed"]
    assert entry["mtp_ratio"]["output_tokens_per_second"] == pytest.approx(6 / 3)
    assert [prompt["mtp"]["accepted"] for prompt in found["prompts"]] == [10, 6, 2]
    assert "2.10 of 3" in headline(found) and "1.50 with the target's own head" in headline(found)
    without = summary(with_drafter=drafted)
    assert without["mtp"] is None and without["all"]["mtp"] is None
    assert all(prompt["mtp"] is None for prompt in without["prompts"])


def test_the_other_thinking_mode_has_the_same_keys():
    questions = [Question(one.id, one.domain, (9, *one.prompt)) for one in QUESTIONS]
    worse = Measurement([Acceptance(10, (1, 0))] * 3, [11] * 3)
    found = evaluation(settings(), 2, QUESTIONS, measured(), (questions, worse))
    assert found == {**summary(), "other_mode": found["other_mode"]}
    assert found["other_mode"]["thinking"] is not found["thinking"]
    assert found["other_mode"].keys() - {"thinking"} < found.keys()
    assert found["other_mode"]["all"].keys() == found["all"].keys()
    assert found["other_mode"]["all"]["acceptance_length"] == pytest.approx(1.1)
    assert "1.10 with thinking on" in headline(found)


def test_a_drafter_that_is_good_enough_is_written(tmp_path):
    (tmp_path / "refused.json").write_text("of an earlier run")
    write(settings(minimum_acceptance_length={"all": 2.0, "code": 3.0}), tmp_path)
    found = json.loads((tmp_path / "evaluation.json").read_text())
    assert found == json.loads(json.dumps(summary()))
    assert [path.name for path in tmp_path.iterdir()] == ["evaluation.json"]


def test_a_drafter_that_is_not_leaves_what_was_measured_aside(tmp_path):
    wanted = {"all": 2.0, "chat": 2.5, "code": 3.5}
    with pytest.raises(ValueError, match=r"chat: .*code: ") as error:
        write(settings(minimum_acceptance_length=wanted), tmp_path)
    assert "minimum_acceptance_length.chat: the acceptance length is 1.88" in str(error.value)
    assert "minimum_acceptance_length.code" in str(error.value)
    assert "minimum_acceptance_length.all" not in str(error.value)
    assert [path.name for path in tmp_path.iterdir()] == ["refused.json"]
    assert json.loads((tmp_path / "refused.json").read_text())["all"]["drafts"] == 20


def test_answers_that_change_where_the_target_was_sure_fail_the_stage(tmp_path):
    ids = [question.id for question in QUESTIONS]
    plain = [[7, 8, 9], [7, 8], [5, 6, 7]]
    drafted = [[7, 8, 9], [7, 3], [4, 6, 7]]
    gaps = {(1, 1, 3): 0.1, (2, 0, 4): 4.0}
    compared = compare_answers(ids, drafted, plain, lambda *where: gaps[where])
    first, second = compared.differences
    assert (first.id, first.position, first.with_drafter, first.without_drafter) == (
        *("code-0", 1),
        *(3, 8),
    )
    assert first.is_undecided and not second.is_undecided
    with pytest.raises(ValueError, match=r"maximum_differing_share: 1 of 3 answers \(33.3%\)"):
        write(settings(), tmp_path, losslessness=compared)
    write(settings(maximum_differing_share=0.5), tmp_path, losslessness=compared)
    found = json.loads((tmp_path / "evaluation.json").read_text())["losslessness"]
    assert (found["compared"], found["differing"]) == (3, 2)
    assert found["differences"][1]["log_probability_gap"] == 4.0


def test_an_answer_that_goes_on_longer_differs_at_its_end():
    compared = compare_answers(["a", "b"], [[1, 2], [1]], [[1], [1]], lambda *where: 0.0)
    (difference,) = compared.differences
    assert (difference.position, difference.with_drafter) == (1, 2)
    assert difference.without_drafter is None
    assert not difference.is_undecided


def prompts(folder: Path, *rows: tuple[str, str]) -> Path:
    with jsonl_writer(folder / "prompts.jsonl") as writer:
        for name, domain in rows:
            turns = [{"from": "human", "value": "What is it?"}]
            writer.write({"id": name, "domain": domain, "conversations": turns})
    return folder / "prompts.jsonl"


def test_prompts_are_rendered_up_to_the_answer(render, tmp_path):
    renderer = render()
    (question,) = read_questions([prompts(tmp_path, ("a", "chat"))], settings(), renderer)
    assert (question.id, question.domain) == ("a", "chat")
    asked, _, answer = renderer.decode(question.prompt).partition("What is it?")
    assert asked.endswith("<|im_start|>user\n")
    assert answer.startswith("<|im_end|>\n<|im_start|>assistant\n")


def test_of_each_file_the_same_prompts_are_measured(render, tmp_path):
    for name in "ab":
        (tmp_path / name).mkdir()
    one = prompts(tmp_path / "a", *((f"a{n}", "chat") for n in range(20)))
    other = prompts(tmp_path / "b", *((f"b{n}", "code") for n in range(3)))

    def measured(most: int | None) -> list[str]:
        found = read_questions([one, other], settings(max_prompts=most), render())
        return [question.id for question in found]

    few, more, everything = measured(5), measured(10), measured(None)
    assert len(few) == 5 + 3
    assert set(few) < set(more) < set(everything)
    assert few == [name for name in everything if name in few] == measured(5)


@pytest.mark.parametrize(
    ("rows", "wanted", "message"),
    [
        ([], {}, "hold no prompt"),
        ([("a", "chat"), ("a", "code")], {}, "2 prompts have the id 'a'"),
        ([("a", "all")], {}, "a domain is called 'all'"),
        ([("a", "chat")], {"poems": 2.0}, "the domain 'poems'; there are all, chat"),
    ],
)
def test_prompts_that_cannot_be_measured_are_refused_before(
    render, tmp_path, rows, wanted, message
):
    chosen = settings(minimum_acceptance_length=wanted)
    with pytest.raises(ValueError, match=message):
        read_questions([prompts(tmp_path, *rows)], chosen, render())


LOG = """\
(APIServer pid=7) INFO 11-30 18:00:00 [utils.py:233] non-default args: {{'port': 4}}
(EngineCore pid=9) INFO 11-30 18:00:09 [core.py:133] Initializing a V1 LLM engine (v0.32.0+cpu) \
with config: model='/models/toy', speculative_config={}, tokenizer='/models/toy', seed=0
"""
DRAFTER = Speculation("dflash", "/run/drafter", 7)
LOGGED = "SpeculativeConfig(method='dflash', model='/run/drafter', num_spec_tokens=7)"


def log(folder: Path, logged: str) -> Path:
    (folder / "vllm.log").write_text(LOG.format(logged))
    return folder / "vllm.log"


def test_a_log_proves_with_what_a_server_drafts(tmp_path):
    check_log(log(tmp_path, LOGGED), DRAFTER)
    check_log(log(tmp_path, "None"), None)


@pytest.mark.parametrize(
    ("logged", "wanted", "found"),
    [
        ("None", DRAFTER, "says: nothing"),
        (LOGGED, None, "says: dflash with /run/drafter, 7 tokens"),
        (LOGGED.replace("'dflash'", "'eagle3'"), DRAFTER, "says: eagle3"),
        (LOGGED.replace("/run/", "/other/"), DRAFTER, "says: dflash with /other/drafter"),
        (LOGGED.replace("=7", "=5"), DRAFTER, "5 tokens at a time"),
    ],
)
def test_a_server_that_drafts_otherwise_is_an_error(tmp_path, logged, wanted, found):
    with pytest.raises(ValueError, match=found):
        check_log(log(tmp_path, logged), wanted)


def test_a_log_that_does_not_say_is_an_error(tmp_path):
    (tmp_path / "vllm.log").write_text("WARNING nothing but warnings\n")
    with pytest.raises(ValueError, match="does not say what vLLM drafts with"):
        check_log(tmp_path / "vllm.log", DRAFTER)


@pytest.mark.parametrize(
    ("algorithm", "method"), [("dflash", "dflash"), ("dflash2", "dflash"), ("eagle3", "eagle3")]
)
def test_a_drafter_is_served_as_its_configuration_says(algorithm, method):
    proposals = [{"speculative_tokens": 7}]
    config = {"speculators_config": {"algorithm": algorithm, "proposal_methods": proposals}}
    option = json.loads(Speculation.of_drafter(config, "drafter").option())
    assert option == {"method": method, "model": "drafter", "num_speculative_tokens": 7}


def test_a_head_is_served_with_its_target_and_its_log_names_that(tmp_path):
    head = Speculation.of_head("/models/toy", 2)
    assert json.loads(head.option()) == {"method": "mtp", "num_speculative_tokens": 2}
    logged = "SpeculativeConfig(method='mtp', model='/models/toy', num_spec_tokens=2)"
    check_log(log(tmp_path, logged), head)
    with pytest.raises(ValueError, match="says: dflash with /run/drafter"):
        check_log(log(tmp_path, LOGGED), head)


def head_target(folder: Path, config: dict[str, Any], *tensors: str) -> Path:
    """Write what is read of a target to know whether it has a head."""
    sizes = {"num_hidden_layers": 2, "hidden_size": 4, "vocab_size": 8}
    (folder / "config.json").write_text(json.dumps({**sizes, **config}))
    weights = {name: np.zeros(1, np.float32) for name in ("model.layers.1.x.weight", *tensors)}
    save_file(weights, folder / "model.safetensors")
    return folder


@pytest.mark.parametrize(
    ("config", "tensor"),
    [
        ({"num_nextn_predict_layers": 1}, "model.layers.2.eh_proj.weight"),
        ({"mtp_num_hidden_layers": 1}, "mtp.fc.weight"),
        ({"model_type": "qwen3_next"}, "mtp.fc.weight"),
    ],
)
def test_a_head_is_in_the_weights_of_its_target(tmp_path, config, tensor):
    check_head(head_target(tmp_path, config, tensor), 2)
    with pytest.raises(ValueError, match=r"^evaluate.baseline: mtp .* have none"):
        check_head(head_target(tmp_path, config), 2)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({}, "evaluate.baseline: mtp is the target's own MTP head"),
        ({"num_nextn_predict_layers": 0}, "evaluate.baseline: mtp is"),
        ({"num_nextn_predict_layers": 2}, "evaluate.mtp_tokens: 3 must be a multiple of 2"),
    ],
)
def test_a_head_that_cannot_draft_so_is_an_error(tmp_path, config, message):
    with pytest.raises(ValueError, match=message):
        check_head(head_target(tmp_path, config, "mtp.fc.weight"), 3)


METRICS = """\
# HELP vllm:generation_tokens_total Number of generation tokens processed.
# TYPE vllm:generation_tokens_total counter
vllm:generation_tokens_total{{engine="0",model_name="/toy"}} {}
vllm:generation_tokens_total{{engine="1",model_name="/toy"}} 5.0
vllm:generation_tokens_created{{engine="0",model_name="/toy"}} 1.7e+09
vllm:spec_decode_num_drafts_total{{engine="0",model_name="/toy"}} {}
vllm:spec_decode_num_drafts_total{{engine="1",model_name="/toy"}} 1.0
vllm:spec_decode_num_accepted_tokens_total{{engine="0",model_name="/toy"}} 9.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{{engine="0",model_name="/toy",position="10"}} {}
vllm:spec_decode_num_accepted_tokens_per_pos_total{{engine="0",model_name="/toy",position="9"}} 4.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{{engine="1",model_name="/toy",position="9"}} 1.0
"""


def test_counters_of_all_engines_count_what_came_between():
    before = Counters.read(METRICS.format("1.0e+01", "2.0", "0.0"))
    after = Counters.read(METRICS.format("1.9e+01", "6.0", "3.0"))
    assert before.generated == 15
    assert before.drafted == Acceptance(3, (5, 0))
    assert after.since(before) == Counters(9, Acceptance(4, (0, 3)))


def test_a_server_that_does_not_draft_counts_no_drafts():
    text = 'vllm:generation_tokens_total{engine="0",model_name="/toy"} 3.0\n'
    assert Counters.read(text) == Counters(3, Acceptance(0, ()))
