"""The toy drafter measured at work in a real vLLM server, and what the stage does with it."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

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


def evaluate(
    finished: Project, folder: Path, **settings: Any
) -> "subprocess.CompletedProcess[str]":
    """Run the stage on the toy drafter, with files of its own in a folder."""
    (weights,) = (finished.folder / "models").glob("toy@*/weights.json")
    values = {"thinking": False, "preserve_thinking": False, **settings}
    return subprocess.run(
        [
            *(sys.executable, str(ROOT / "scripts/evaluate_drafter.py")),
            *("--settings", json.dumps(values), "--serving", json.dumps(SERVING)),
            *("--drafter", str(finished.folder / "results/toy/drafter/config.json")),
            *("--weights", str(weights), "--prompts", *map(str, PROMPTS)),
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
    outcome = evaluate(finished, tmp_path, backend="vllm", concurrency=[1, 4])
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


def test_a_server_says_how_sure_the_target_is_of_a_token(finished: Project, tmp_path: Path) -> None:
    (target,) = (finished.folder / "models").glob("toy@*")
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
    outcome = evaluate(finished, tmp_path, backend="simulate", minimum_acceptance_length=wanted)
    assert outcome.returncode == 1
    assert "error: evaluate.minimum_acceptance_length.chat: the acceptance length" in outcome.stderr
    assert "minimum_acceptance_length.code" not in outcome.stderr
    assert not (tmp_path / "evaluation.json").exists()
    refused = json.loads((tmp_path / "stage.refused.json").read_text())
    simulated = json.loads((finished.folder / "results/toy/evaluation.json").read_text())
    assert refused == simulated
