"""The target's answers from a real vLLM server: those of the model in this process."""

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from lib.jsonl import read_jsonl
from lib.serving import Serving, kept_server
from lib.vllm_server import RequestRefused, ServerEnded
from workflow.project import ROOT, Project

NAMES = ("responses.jsonl", "failures.jsonl", "stats.json")
SERVING = {"concurrency": 8, "startup_seconds": 300, "options": ["--max-num-seqs", "8"]}


@pytest.fixture(autouse=True)
def small_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_CPU_KVCACHE_SPACE", "1")


def stage(folder: Path, corpus: Path, weights: Path, **settings: Any) -> "subprocess.Popen[bytes]":
    """Start the stage on a corpus, with files of its own in a folder."""
    keys = {"thinking": False, "preserve_thinking": False, "max_tokens": 48, **settings}
    folder.mkdir(exist_ok=True)
    return subprocess.Popen(
        [
            *(sys.executable, str(ROOT / "scripts/regenerate_responses.py")),
            *("--settings", json.dumps({**keys, "context_length": 1024})),
            *("--serving", json.dumps(SERVING)),
            *("--corpus", str(corpus), "--weights", str(weights)),
            *("--responses", str(folder / NAMES[0]), "--failures", str(folder / NAMES[1])),
            *("--stats", str(folder / NAMES[2]), "--cache", str(folder / "cache")),
            *("--log", str(folder / "stage.log")),
        ],
        cwd=folder,
    )


def journal_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in (folder / "cache").glob("*/*.journal"))


def kill_engine(owner: psutil.Process) -> None:
    """Kill the process that computes, of the server that a process started."""
    engines = [one for one in owner.children(recursive=True) if "EngineCore" in one.name()]
    assert engines
    for engine in engines:
        engine.kill()


def test_both_backends_give_the_same_bytes_even_if_the_server_dies(
    finished: Project, tmp_path: Path
) -> None:
    (weights,) = (finished.folder / "models").glob("toy@*/weights.json")
    merged = finished.folder / "results/toy/merged/sharegpt.jsonl"
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_bytes(b"".join(merged.read_bytes().splitlines(keepends=True)[:150]))
    here = stage(tmp_path / "here", corpus, weights, backend="transformers")
    assert here.wait(600) == 0

    served = stage(tmp_path / "served", corpus, weights, backend="vllm")
    try:
        end = time.monotonic() + 300
        while not journal_bytes(tmp_path / "served") and time.monotonic() < end:
            time.sleep(0.05)
        kill_engine(psutil.Process(served.pid))
        assert served.wait(600) == 0
    finally:
        served.kill()
    assert (tmp_path / "served/stage.vllm.1.log").is_file()
    for name in NAMES:
        assert (tmp_path / "served" / name).read_bytes() == (tmp_path / "here" / name).read_bytes()
    stats = json.loads((tmp_path / "served/stats.json").read_text())
    assert stats["conversations_in"] == 150 == stats["answered"] + stats["failed"]
    assert stats["records"] == len(list(read_jsonl(tmp_path / "served/responses.jsonl")))
    assert Project(tmp_path / "served").processes() == []


def test_a_wrong_request_is_refused_and_a_server_that_ends_too_often_is_an_error(
    finished: Project, tmp_path: Path
) -> None:
    (target,) = (finished.folder / "models").glob("toy@*")
    said: list[str] = []
    serving = Serving(restarts=0)
    options = ("--max-model-len", "256")
    with kept_server(target, serving, options, tmp_path / "vllm.log", said.append) as server:
        body = {"prompt": [5, 6, 7], "max_tokens": 2, "return_token_ids": True}
        (choice,) = server.post("/v1/completions", body)["choices"]
        assert len(choice["token_ids"]) <= 2
        with pytest.raises(RequestRefused):
            server.post("/v1/completions", {**body, "prompt": [5] * 300})
        kill_engine(psutil.Process())
        with pytest.raises(ServerEnded, match="exit code"):
            server.post("/v1/completions", body)
    assert said == []
