"""Measure what the stages that run the target cost beside the target itself.

Usage: .venv/bin/python benchmarks/target.py [--prompts 300] [--concurrency 32] [--rows 200]

On a small model with random weights, on the processor. Printed are

* answers: output tokens a second of `VllmAnswers`, as a ratio to `vllm bench serve` on the same
  server with as many requests under way, prompts and answers of the same length;
* hidden states: the time of bare forward passes over the rows, as a share of that of the stage,
  which captures the layers, checks them and writes the files; the loading of the model is left out.
"""

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import StringIO
from pathlib import Path

import numpy as np
import torch

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "scripts"), str(ROOT / "tests")]

from tokenizing import show  # noqa: E402
from transformers import Qwen3Config, Qwen3ForCausalLM  # noqa: E402

from lib import toy_target  # noqa: E402
from lib.arrow_rows import ArrowWriter, RowBatch, content_digest  # noqa: E402
from lib.console import Stage  # noqa: E402
from lib.files import write_json  # noqa: E402
from lib.generation import load_target  # noqa: E402
from lib.hidden_states import HiddenStatesSettings, extract_hidden_states  # noqa: E402
from lib.sampling import Sampling  # noqa: E402
from lib.serving import Serving, kept_server  # noqa: E402
from lib.state_files import WriteStates, write_states  # noqa: E402
from lib.target import TargetLocation, write_manifest  # noqa: E402
from lib.token_rows import TokenRow  # noqa: E402
from lib.transformers_states import Capture  # noqa: E402
from lib.vllm_answers import OPTIONS, VllmAnswers  # noqa: E402
from lib.vllm_server import LAUNCHER  # noqa: E402

PROMPT_TOKENS = 128
ANSWER_TOKENS = 64
ROW_TOKENS = 512
LAYER_IDS = [1, 4, 7]
ANSWERS_BOUND = 0.95
STATES_BOUND = 0.9


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--prompts", type=int, default=300)
    parser.add_argument("--concurrency", type=int, default=32)
    parser.add_argument("--rows", type=int, default=200)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        target = small_target(Path(name) / "target")
        states(Path(name), target, args.rows)
        answers(Path(name), target, args.prompts, args.concurrency)


def small_target(folder: Path) -> Path:
    """Write a model of 8 layers with the toy target's tokenizer and random weights."""
    toy_target.STEPS, toy_target.SEQUENCES_A_STEP, toy_target.SEQUENCE_LENGTH = 1, 1, 64
    toy_target.build_toy_target(ROOT / "resources" / "toy_target", folder, lambda steps: None)
    vocabulary = json.loads((folder / "config.json").read_text())["vocab_size"]
    torch.manual_seed(0)
    config = Qwen3Config(
        **{"vocab_size": vocabulary, "hidden_size": 256, "intermediate_size": 768},
        **{"num_hidden_layers": 8, "num_attention_heads": 8, "num_key_value_heads": 4},
        **{"head_dim": 32, "max_position_embeddings": 2048, "tie_word_embeddings": True},
    )
    Qwen3ForCausalLM(config).save_pretrained(folder)
    write_manifest(TargetLocation("small", build="toy"), folder, folder / "weights.json")
    return folder


def random_ids(chance: random.Random, length: int) -> tuple[int, ...]:
    return tuple(chance.randrange(300, 900) for _ in range(length))


def states(folder: Path, target: Path, count: int) -> None:
    """Compare the stage with bare forward passes, alternating so that both see the same machine."""
    chance = random.Random(0)
    rows = [random_ids(chance, ROW_TOKENS) for _ in range(count)]
    model = load_target(target, False, "float32")
    capture = Capture(model, LAYER_IDS)

    class Loaded:
        width = 1

        @contextmanager
        def started(self, unchecked: Path, longest: int) -> Iterator[WriteStates]:
            def write(ids: Sequence[int], path: Path) -> None:
                write_states(path, capture.states(ids), ids, "bfloat16")

            yield write

    bare = stage = 0.0
    settings = HiddenStatesSettings("offline", "transformers", LAYER_IDS)
    for part in range(4):
        some = rows[part::4]
        tokenized = folder / f"rows{part}"
        tokenized.mkdir()
        with ArrowWriter(tokenized, ("train",)) as writer:
            made = [TokenRow(ids, ((1, len(ids)),), (1,)) for ids in some]
            writer.write("train", RowBatch.of(made))
        write_json(tokenized / "stats.json", {"content": content_digest(writer.shards)})
        start = time.perf_counter()
        with torch.inference_mode():
            for ids in some:
                model.get_decoder()(torch.tensor([ids]), use_cache=False)
        bare += time.perf_counter() - start
        start = time.perf_counter()
        shown = Stage("extract_hidden_states", StringIO())
        manifest = tokenized / "hidden_states.json"
        extract_hidden_states(settings, tokenized, target, manifest, Loaded(), shown)
        stage += time.perf_counter() - start
    print(f"{count} rows of {ROW_TOKENS} tokens: bare {bare:.1f} s, stage {stage:.1f} s")
    show("hidden states, share of the bare passes", bare / stage, STATES_BOUND)


def answers(folder: Path, target: Path, count: int, concurrency: int) -> None:
    """Compare answers with vLLM's own benchmark, in turns, so that both see the same machine."""
    serving = Serving(concurrency=concurrency, options=("--max-num-seqs", str(concurrency)))
    options = (*OPTIONS, "--max-model-len", "512", "--no-enable-prefix-caching")
    with kept_server(target, serving, options, folder / "vllm.log", print) as server:
        url = server.url
        ours(server, count // 4, concurrency, 1)  # so that neither finds a cold server
        rates = [
            (
                ours(server, count, concurrency, 2 + turn),
                bench_serve(folder, target, url, count, concurrency),
            )
            for turn in range(3)
        ]
    mean, theirs = (sum(column) / len(rates) for column in zip(*rates, strict=True))
    print(f"output tokens a second: {mean:.0f}, vllm bench serve {theirs:.0f}")
    show("answers, of vllm bench serve", mean / theirs, ANSWERS_BOUND)


def ours(server, count: int, concurrency: int, seed: int) -> float:  # type: ignore[no-untyped-def]
    """Return the output tokens a second."""
    chance = random.Random(seed)
    target = VllmAnswers(server, frozenset(), Sampling(ANSWER_TOKENS), concurrency)
    prompts = [random_ids(chance, PROMPT_TOKENS) for _ in range(count)]
    tokens = under_way = 0
    start = time.perf_counter()
    while prompts or under_way:
        while prompts and under_way < concurrency:
            target.start(prompts.pop())
            under_way += 1
        done = target.finished()
        under_way -= len(done)
        tokens += sum(len(answer.ids) for _, answer in done)
    wall = time.perf_counter() - start
    target.close()
    return tokens / wall


def bench_serve(folder: Path, target: Path, url: str, count: int, concurrency: int) -> float:
    """Return the output tokens a second that `vllm bench serve` reaches."""
    result = subprocess.run(
        [
            *(sys.executable, str(LAUNCHER), "bench", "serve", "--backend", "openai"),
            *("--base-url", url, "--endpoint", "/v1/completions", "--model", str(target)),
            *("--tokenizer", str(target), "--dataset-name", "random", "--seed", "7"),
            *("--random-input-len", str(PROMPT_TOKENS), "--random-range-ratio", "0"),
            *("--random-output-len", str(ANSWER_TOKENS), "--num-prompts", str(count)),
            *("--max-concurrency", str(concurrency), "--temperature", "0", "--ignore-eos"),
            *("--save-result", "--result-dir", str(folder), "--result-filename", "bench.json"),
        ],
        capture_output=True,
        text=True,
    )
    if result.returncode:
        sys.exit(result.stdout[-3000:] + result.stderr[-3000:])
    rate = json.loads((folder / "bench.json").read_text())["output_throughput"]
    return float(np.float64(rate))


if __name__ == "__main__":
    main()
