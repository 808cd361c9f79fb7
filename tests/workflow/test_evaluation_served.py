"""The toy drafter measured at work in a real vLLM server, and what the stage does with it."""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from published_drafters import edit_config, make_drafter
from targets.own_head import with_own_head

from lib.configuration import complete, load_schema, stage_settings
from lib.digest import canonical
from lib.evaluation_figures import FIGURES
from lib.served_acceptance import log_probability_gap
from lib.serving import Serving, kept_server
from workflow.project import ROOT, Project, environment

SERVING = {"startup_seconds": 300, "options": ["--max-num-seqs", "8"]}
PROMPTS = sorted((ROOT / "resources/evaluation").glob("*.jsonl"))


@pytest.fixture(autouse=True)
def small_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_CPU_KVCACHE_SPACE", "1")


def toy_target(finished: Project) -> Path:
    """Return the manifest of the toy target."""
    (weights,) = (finished.folder / "models").glob("toy@*/weights.json")
    return weights


def evaluate(
    weights: Path, drafter: Path, folder: Path, prompts: Sequence[Path] = PROMPTS, **settings: Any
) -> "subprocess.CompletedProcess[str]":
    """Run the stage on a drafter, with files of its own in a folder.

    Args:
        weights: manifest of the target.
        drafter: its folder.
    """
    values = {"thinking": False, "preserve_thinking": False, **settings}
    return subprocess.run(
        [
            *(sys.executable, str(ROOT / "scripts/evaluate_drafter.py")),
            *("--settings", json.dumps(values), "--serving", json.dumps(SERVING)),
            *("--drafter", str(drafter / "config.json")),
            *("--weights", str(weights), "--prompts", *map(str, prompts)),
            *("--result", str(folder / "evaluation.json")),
            *("--log", str(folder / "stage.log")),
        ],
        cwd=folder,
        env={**environment(), "OMP_WAIT_POLICY": "passive"},
        stderr=subprocess.PIPE,
        text=True,
        timeout=600,
    )


def report(finished: Project, folder: Path) -> str:
    """Return the run's page with the evaluation in a folder and its figures."""
    results = finished.folder / "results/toy"
    figures = [str(folder / f"{name}.svg") for name in FIGURES]
    evaluation = ("--evaluations", str(folder / "evaluation.json"))
    log = ("--log", str(folder / "report.log"))
    config = complete(
        yaml.safe_load((ROOT / "config/config.yaml").read_text()),
        load_schema(ROOT / "config/schema.yaml"),
        ROOT,
    )
    commands = [
        ["plot_evaluation.py", *evaluation, "--figures", *figures, *log],
        [
            *("report.py", "--settings", canonical(stage_settings(config, "report"))),
            *("--sources", *map(str, sorted((results / "sources").glob("*.stats.json")))),
            *("--merged", str(results / "merged/stats.json")),
            *("--responses", str(results / "responses/stats.json")),
            *("--rows", str(results / "tokenized/stats.json")),
            *("--samples", str(results / "verified_rows.json")),
            *("--stamp", str(results / "verified.json")),
            *("--training", str(results / "train.json")),
            *("--drafter", str(results / "drafter/config.json")),
            *(*evaluation, "--figures", *figures),
            *("--benchmarks", str(results / "benchmarks")),
            *("--templates", *map(str, sorted((ROOT / "resources/report").iterdir()))),
            *("--report", str(folder / "report.html"), *log),
        ],
    ]
    for script, *arguments in commands:
        subprocess.run([sys.executable, str(ROOT / "scripts" / script), *arguments], check=True)
    return (folder / "report.html").read_text()


def test_a_server_accepts_what_was_simulated_and_answers_as_without_a_drafter(
    finished: Project, tmp_path: Path
) -> None:
    drafter = finished.folder / "results/toy/drafter"
    outcome = evaluate(toy_target(finished), drafter, tmp_path, backend="vllm", concurrency=[1, 4])
    assert outcome.returncode == 0, outcome.stderr
    assert Project(tmp_path).processes() == []
    served = json.loads((tmp_path / "evaluation.json").read_text())
    simulated = json.loads((finished.folder / "results/toy/evaluation.json").read_text())
    assert served.keys() == simulated.keys()
    length = served["all"]["acceptance_length"]
    assert length == pytest.approx(simulated["all"]["acceptance_length"], rel=0.03)
    assert f"acceptance length {length:.2f} of {served['block_size']}" in outcome.stderr

    assert served["losslessness"]["compared"] == len(served["prompts"])
    assert served["losslessness"]["differences"] == []
    ids = [prompt["id"] for prompt in served["prompts"]]
    assert ids == [prompt["id"] for prompt in simulated["prompts"]]
    tokens = [prompt["output_tokens"] for prompt in served["prompts"]]
    assert tokens == [prompt["output_tokens"] for prompt in simulated["prompts"]]
    for prompt in served["prompts"]:
        # Each step gives its accepted tokens and one more; the prompt's step gives one.
        given = 1 + prompt["drafts"] + prompt["accepted"]
        assert 0 <= given - prompt["output_tokens"] < served["block_size"]

    for part in (served["all"], *served["domains"].values()):
        low, high = part["acceptance_length_interval"]
        assert 1 <= low <= part["acceptance_length"] <= high <= served["block_size"]
        assert part["acceptance_by_position"] == sorted(part["acceptance_by_position"])[::-1]
        assert [entry["concurrency"] for entry in part["speed"]] == [1, 4]
        for entry in part["speed"]:
            pair = entry["with_drafter"], entry["without_drafter"]
            assert pair[0]["output_tokens"] == pair[1]["output_tokens"] > 0
            rates = [timing["output_tokens_per_second"] for timing in pair]
            assert entry["ratio"]["output_tokens_per_second"] == pytest.approx(rates[0] / rates[1])
    assert sum(tokens) == served["all"]["speed"][0]["with_drafter"]["output_tokens"]

    page = report(finished, tmp_path)
    times = served["all"]["speed"][0]["ratio"]["output_tokens_per_second"]
    assert f"<b>{times:.2f}</b>" in page
    assert f"All {len(tokens)} answers are those without the drafter." in page


def test_the_head_of_a_target_and_the_other_mode_are_measured_like_the_drafter(
    finished: Project, tmp_path: Path
) -> None:
    weights = with_own_head(tmp_path / "target", toy_target(finished).parent)
    drafter = make_drafter(tmp_path / "drafter", weights.parent)
    # Without a GPU vLLM serves no drafter whose layers differ in this.
    edit_config(drafter, transformer_layer_config={"layer_types": ["sliding_attention"] * 2})
    outcome = evaluate(
        *(weights, drafter, tmp_path, PROMPTS[:1]),
        **{"backend": "vllm", "baseline": ["none", "mtp"], "other_thinking_mode": True},
        **{"max_tokens": 24, "concurrency": [1]},
    )
    assert outcome.returncode == 0, outcome.stderr
    found = json.loads((tmp_path / "evaluation.json").read_text())
    assert "method='mtp'" in (tmp_path / "stage.mtp.vllm.log").read_text()
    assert found["mtp"]["tokens"] == 2
    other = found["other_mode"]
    assert other["thinking"] is not found["thinking"]
    assert [one["id"] for one in other["prompts"]] == [one["id"] for one in found["prompts"]]
    for mode in (found, other):
        for losslessness in (mode["losslessness"], mode["mtp"]["losslessness"]):
            assert losslessness["compared"] == len(mode["prompts"])
            assert losslessness["differing_where_decided"] == 0
        head = mode["all"]["mtp"]
        assert 1.3 < head["acceptance_length"] < 3
        low, high = head["acceptance_length_interval"]
        assert low <= head["acceptance_length"] <= high
        assert len(head["acceptance_by_position"]) == 2
        assert head["drafts"] == sum(prompt["mtp"]["drafts"] for prompt in mode["prompts"])
        for prompt in mode["prompts"]:
            given = 1 + prompt["mtp"]["drafts"] + prompt["mtp"]["accepted"]
            assert 0 <= given - prompt["output_tokens"] < 3
        (speed,) = mode["all"]["speed"]
        assert speed["mtp"]["output_tokens"] == speed["without_drafter"]["output_tokens"]
        rates = [speed[key]["output_tokens_per_second"] for key in ("with_drafter", "mtp")]
        assert speed["mtp_ratio"]["output_tokens_per_second"] == pytest.approx(rates[0] / rates[1])
    prompts = [[one["mtp"] for one in mode["prompts"]] for mode in (found, other)]
    assert prompts[0] != prompts[1]


def test_a_server_says_how_sure_the_target_is_of_a_token(finished: Project, tmp_path: Path) -> None:
    target = toy_target(finished).parent
    options = ("--max-model-len", "256")
    with kept_server(target, Serving(), options, tmp_path / "vllm.log", print) as server:
        prompt = [5, 6, 7]
        body = {"prompt": prompt, "max_tokens": 1, "temperature": 0, "return_token_ids": True}
        (answer,) = server.post("/v1/completions", body)["choices"]
        (likeliest,) = answer["token_ids"]
        vocabulary = json.loads((target / "config.json").read_text())["vocab_size"]
        others = (token for token in range(vocabulary) if token != likeliest)
        gaps = [log_probability_gap(server, prompt, likeliest, next(others))]
        while gaps[-1] is None:
            gaps.append(log_probability_gap(server, prompt, likeliest, next(others)))
        assert gaps[-1] > 0
        assert log_probability_gap(server, prompt, likeliest, likeliest) == 0
        assert log_probability_gap(server, prompt, likeliest, vocabulary) is None


def test_a_drafter_below_what_is_wanted_leaves_no_result(finished: Project, tmp_path: Path) -> None:
    wanted = {"code": 1.0, "chat": 8.0}
    outcome = evaluate(
        *(toy_target(finished), finished.folder / "results/toy/drafter", tmp_path),
        **{"backend": "simulate", "minimum_acceptance_length": wanted},
    )
    assert outcome.returncode == 1
    assert "error: evaluate.minimum_acceptance_length.chat: the acceptance length" in outcome.stderr
    assert "minimum_acceptance_length.code" not in outcome.stderr
    assert not (tmp_path / "evaluation.json").exists()
    refused = json.loads((tmp_path / "stage.refused.json").read_text())
    simulated = json.loads((finished.folder / "results/toy/evaluation.json").read_text())
    assert refused == simulated
