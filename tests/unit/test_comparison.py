"""Two drafters side by side, through the command line."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from lib.acceptance import Acceptance
from lib.evaluation import EvaluateSettings, Measurement, Question, evaluation

SCRIPT = Path(__file__).parents[2] / "scripts/compare_drafters.py"


def result(path: Path, rates: dict[str, int], backend: str = "vllm") -> Path:
    """Write the evaluation of a drafter that has so many tokens accepted in 20 drafts a prompt."""
    settings = EvaluateSettings(thinking=False, preserve_thinking=False, backend=backend)
    questions = [Question(name, name.partition("-")[0], (1,)) for name in rates]
    measured = Measurement(
        [Acceptance(20, (count,)) for count in rates.values()], [30] * len(rates)
    )
    path.write_text(json.dumps(evaluation(settings, 1, questions, measured)))
    return path


def compare(*paths: Path) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, str(SCRIPT), *map(str, paths)]
    return subprocess.run(command, capture_output=True, text=True)


def cells(output: str, domain: str) -> list[float]:
    (line,) = [line for line in output.splitlines() if line.startswith(f"{domain} ")]
    return [float(number) for number in re.findall(r"[-+]?\d+\.?\d*", line)]


def rates(**changes: Any) -> dict[str, int]:
    chat = {f"chat-{n}": n for n in range(10)}
    code = {f"code-{n}": 10 + n % 3 for n in range(10)}
    return {**chat, **code, **changes}


def test_a_gain_on_every_prompt_is_shown_by_domain_with_its_interval(tmp_path):
    better = {name: count + 4 * name.startswith("code") for name, count in rates().items()}
    outcome = compare(result(tmp_path / "a", rates()), result(tmp_path / "b", better))
    assert outcome.returncode == 0, outcome.stderr
    prompts, old, new, gain, low, high, ratio, *_ = cells(outcome.stdout, "code")
    assert prompts == 10
    assert gain == low == high == 0.2
    assert new - old == pytest.approx(gain, abs=0.011)  # both are rounded
    assert ratio > 1
    assert cells(outcome.stdout, "chat")[3:] == [0, 0, 0, 1, 1, 1]
    low, high = cells(outcome.stdout, "all")[4:6]
    assert 0 < low < 0.1 < high < 0.2
    assert "Only in" not in outcome.stdout and "Measured differently" not in outcome.stdout


def test_runs_are_compared_by_their_folders(tmp_path):
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        result(tmp_path / name / "evaluation.json", rates())
    outcome = compare(tmp_path / "one", tmp_path / "other")
    assert outcome.returncode == 0, outcome.stderr
    assert cells(outcome.stdout, "all")[3:] == [0, 0, 0, 1, 1, 1]


def test_prompts_of_one_side_are_named_and_left_out(tmp_path):
    first = result(tmp_path / "a", rates(**{"chat-old": 20}))
    second = result(tmp_path / "b", rates(**{"poem-new": 20}), backend="simulate")
    outcome = compare(first, second)
    assert outcome.returncode == 0, outcome.stderr
    assert "Only in A: chat-old\nOnly in B: poem-new\n" in outcome.stdout
    assert "backend is vllm in A and simulate in B" in outcome.stdout
    assert cells(outcome.stdout, "all")[:4] == [20, *cells(outcome.stdout, "all")[1:3], 0]
    assert "poem " not in outcome.stdout


def test_what_cannot_be_compared_is_one_line(tmp_path):
    first = result(tmp_path / "a", {"chat-0": 1})
    other = result(tmp_path / "b", {"chat-1": 1})
    (tmp_path / "old").write_text('{"prompts": [{"id": "chat-0"}]}')
    for paths, message in (
        ((first, other), "error: no prompt is in both evaluations"),
        ((first, tmp_path / "old"), "is no evaluation of this version"),
        ((first, tmp_path / "nowhere"), "No such file"),
    ):
        outcome = compare(*paths)
        assert outcome.returncode == 1
        assert message in outcome.stderr and outcome.stderr.count("\n") == 1
