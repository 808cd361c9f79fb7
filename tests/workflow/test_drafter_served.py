"""A drafter that knows one conversation by heart, in a real server.

It can be right at every position, so nearly whole blocks are accepted: unless what it learned for a
position is served at another one, or the server runs it in another way than the trainer.
"""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import yaml

from lib.configuration import complete, load_schema, stage_settings
from lib.console import Stage
from lib.conversation import Conversation, Turn, to_record
from lib.drafter import ExportSettings, Records, export_drafter
from lib.files import read_json, write_json
from lib.generation import TransformersTarget
from lib.hidden_states import HiddenStatesSettings, extract_hidden_states
from lib.jsonl import jsonl_writer, read_jsonl
from lib.piece_rows import Job
from lib.rendering import Renderer, ThinkingMode
from lib.sampling import Sampling
from lib.settings import read_settings
from lib.stamp import sample_digest, tokenizer_files
from lib.token_rows import TokenizeSettings
from lib.tokenizing import tokenize_conversations
from lib.transformers_states import TransformersStates
from lib.vllm_server import Server, vllm_server
from workflow.project import ROOT, Project, environment

COPIES = 6
ROOM = 360
"""Tokens of the conversation, so that no row of it is too long."""

OPTIONS = ("--enforce-eager", "--dtype", "float32", "--max-model-len", "1024")


BY_HEART = {"epochs": 3, "optimizer": "muon"}
"""Learns by heart in few steps."""


def settings_of(stage: str, **train: Any) -> dict[str, Any]:
    """Return the toy run's settings of a stage, with changes to section `train`."""
    raw = yaml.safe_load((ROOT / "config/config.yaml").read_text())
    raw["train"] = {key: value for key, value in {**raw["train"], **train}.items() if value != ""}
    return stage_settings(complete(raw, load_schema(ROOT / "config/schema.yaml"), ROOT), stage)


def own_words(target: Path) -> tuple[Conversation, list[tuple[list[int], int]]]:
    """Ask one question after the other, as long as there is room.

    An answer that the target spells in other tokens than its tokenizer would is not kept.

    Returns:
        The conversation, and for each answer its prompt (token ids) and its length in tokens.
    """
    renderer = Renderer(target, ThinkingMode())
    model = TransformersTarget(target, renderer.end_of_turn_ids, trust_remote_code=False)
    turns: tuple[Turn, ...] = ()
    answers = []
    for question in read_jsonl(ROOT / "resources/evaluation/code.jsonl"):
        asked = (*turns, Turn("human", question["conversations"][0]["value"]))
        prompt = renderer.encode(renderer.prompt(asked, ""))
        (answer,) = model.answer([prompt], Sampling(128))
        answered = (*asked, Turn("gpt", renderer.decode(answer.ids)))
        row = renderer.encode(renderer.conversation(answered, ""))
        said = [*prompt, *answer.ids, answer.end_id]
        if row[: len(said)] == said and len(row) <= ROOM:
            turns = answered
            answers.append((prompt, len(answer.ids) + 1))
    return Conversation(turns), answers


def tokenize(conversation: Conversation, target: Path, folder: Path) -> None:
    """Make a data set of one conversation, many times over, and its stamp."""
    with jsonl_writer(folder / "corpus.jsonl") as corpus:
        for split in [*["train"] * COPIES, "validation"]:
            corpus.write({**to_record(conversation.of_source("own")), "split": split})
    tokenized = folder / "tokenized"
    settings = read_settings(TokenizeSettings, json.dumps(settings_of("tokenize_conversations")))
    stats, _ = tokenize_conversations(
        Job(settings, target, folder / "cache"),
        *(folder / "corpus.jsonl", tokenized, 1, 60.0, lambda steps: None),
    )
    samples = {shard["name"]: sample_digest(tokenized / shard["name"]) for shard in stats["shards"]}
    stamp = {"shards": stats["shards"], "samples": samples, "tokenizer": tokenizer_files(target)}
    write_json(folder / "verified.json", stamp)


def train(target: Path, folder: Path, **changes: Any) -> None:
    """Train and export a drafter on the data set of a folder."""
    settings = settings_of("extract_hidden_states", **changes)
    extract_hidden_states(
        read_settings(HiddenStatesSettings, json.dumps(settings)),
        *(folder / "tokenized", target, folder / "hidden_states.json"),
        TransformersStates(target, settings["layer_ids"], settings["dtype"]),
        Stage("extract_hidden_states", StringIO()),
    )
    outcome = subprocess.run(
        [
            *(sys.executable, str(ROOT / "scripts/train_drafter.py")),
            *("--settings", json.dumps(settings_of("train_drafter", **changes))),
            *("--stamp", str(folder / "verified.json")),
            *("--tokenized", str(folder / "tokenized/stats.json")),
            *("--hidden-states", str(folder / "hidden_states.json")),
            *("--weights", str(target / "weights.json")),
            *("--result", str(folder / "train.json"), "--log", str(folder / "train.log")),
        ],
        cwd=folder,
        env={**environment(), "OMP_WAIT_POLICY": "passive"},
        stderr=subprocess.PIPE,
        text=True,
        timeout=600,
    )
    assert outcome.returncode == 0, outcome.stderr
    records = Records(
        training=folder / "train.json",
        weights=target / "weights.json",
        rows=folder / "tokenized/stats.json",
        hidden_states=folder / "hidden_states.json",
    )
    export = read_settings(ExportSettings, json.dumps(settings_of("export_drafter", **changes)))
    export_drafter(export, records, folder / "drafter", print)


@contextmanager
def served(target: Path, folder: Path) -> Iterator[Server]:
    """Serve a target with the drafter of a folder, as its card says."""
    card = (folder / "drafter/README.md").read_text()
    line = re.search(r"--speculative-config '(.*?)'", card)
    assert line is not None
    speculative = json.loads(line[1]) | {"model": str(folder / "drafter")}
    options = (*OPTIONS, "--speculative-config", json.dumps(speculative))
    with vllm_server(target, "toy", options, folder / "server.log") as server:
        yield server


def drafted(
    target: Path, folder: Path, answers: list[tuple[list[int], int]], block_size: int = 1
) -> tuple[float, float]:
    """Have whole blocks of answers given by a target with the drafter of a folder.

    Args:
        answers: the prompt of each, and its length in tokens.

    Returns:
        Drafts and acceptance length.
    """
    with served(target, folder) as server:
        for prompt, length in answers:
            # Whole blocks after the first token, which no block is needed for.
            whole = 1 + (length - 1) // block_size * block_size
            body = {"model": server.model, "prompt": prompt, "max_tokens": whole}
            server.post("/v1/completions", {**body, "temperature": 0})
        metrics = server.text("/metrics")
    drafts = counter(metrics, "spec_decode_num_drafts")
    return drafts, 1 + counter(metrics, "spec_decode_num_accepted_tokens") / drafts


def counter(metrics: str, name: str) -> float:
    match = re.search(rf"^vllm:{name}_total\{{.*\}} (\S+)$", metrics, re.M)
    assert match is not None
    return float(match[1])


def test_nearly_whole_blocks_of_a_conversation_known_by_heart_are_accepted(
    finished: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (target,) = (finished.folder / "models").glob("toy@*")
    conversation, answers = own_words(target)
    tokenize(conversation, target, tmp_path)
    train(target, tmp_path, **BY_HEART)
    block_size = read_json(tmp_path / "drafter/config.json")["block_size"]
    monkeypatch.setenv("VLLM_CPU_KVCACHE_SPACE", "1")
    drafts, acceptance_length = drafted(target, tmp_path, answers, block_size)
    assert drafts >= 20
    assert acceptance_length >= 0.8 * block_size


def test_a_drafter_without_blocks_drafts_in_a_server(
    finished: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (target,) = (finished.folder / "models").glob("toy@*")
    conversation, answers = own_words(target)
    tokenize(conversation, target, tmp_path)
    eagle = {"algorithm": "eagle3", "layers": 1, "mask_token": "", "block_size": ""}
    train(target, tmp_path, **eagle, epochs=6, learning_rate=0.004, optimizer="muon")
    monkeypatch.setenv("VLLM_CPU_KVCACHE_SPACE", "1")
    _, acceptance_length = drafted(target, tmp_path, answers)
    assert acceptance_length >= 2
