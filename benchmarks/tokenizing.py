"""Measure how fast conversations become token rows, and whether the rows are the right ones.

Usage: .venv/bin/python benchmarks/tokenizing.py [--conversations 16000] [--workers 2] [--scale 0]

With the tokenizer and template of Qwen3.6, thinking off, on generated conversations. Printed are

* the rate against bare `tokenizers.encode_batch_fast` on all cores over the same rendered texts,
  and against `speculators prepare-data` with a server that renders, start-up taken off for all;
* how many rows equal, id for id, what vLLM's renderer gives, and how the masks compare;
* the tokens of agent trajectories as a share of those of one row a turn, and whether the same next
  tokens are supervised after the same contexts;
* with `--scale 913786`, memory, time, and what 5 % more conversations cost.
"""

import argparse
import contextlib
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import Any

import psutil
from xxhash import xxh3_128_intdigest

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "scripts"), str(ROOT / "tests")]

from generated import chat, conversations, trajectory  # noqa: E402
from targets.families import qwen3_6  # noqa: E402

from lib.conversation import Conversation, stored_line  # noqa: E402
from lib.encoding import TokenizerEncoder  # noqa: E402
from lib.files import describe_files, read_json, write_json  # noqa: E402
from lib.jsonl import jsonl_writer  # noqa: E402
from lib.rendering import Renderer, ThinkingMode  # noqa: E402
from lib.token_rows import RowLimits, TokenRow  # noqa: E402
from lib.turn_rows import RowMaker  # noqa: E402
from lib.vllm_server import Server, vllm_server  # noqa: E402

SEQ_LENGTH = 32768
ENCODE_BOUND = 1.5
PREPARE_BOUND = 40.0
TRAJECTORY_BOUND = 0.1
MEMORY_BOUND = 2.0
MINUTES_BOUND = 8.0
ADDED_BOUND = 0.12


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--conversations", type=int, default=16000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--scale", type=int, default=0, help="conversations of the large corpus")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        target = target_in(folder / "qwen3_6")
        renderer = Renderer(target, ThinkingMode())
        limits = RowLimits(SEQ_LENGTH)
        maker = RowMaker(renderer, TokenizerEncoder(renderer.tokenizer), limits)
        made = list(islice(conversations(random.Random(0)), args.conversations))
        trajectories(maker)
        rate = ours(folder, target, made, args.workers)
        encode_batch(renderer, made, rate)
        with render_server(folder, target) as server:
            compare_with_renderer(server, renderer, made[:2000])
            prepare_data(folder, target, server, made[:1000], args.workers, rate)
        if args.scale:
            scale(folder, target, args.scale, args.workers)


def target_in(folder: Path) -> Path:
    """Write the target with a configuration that vLLM's renderer starts with on a CPU."""
    qwen3_6(folder)
    config = {
        "model_type": "qwen3",
        "architectures": ["Qwen3ForCausalLM"],
        **{"hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 2, "head_dim": 16},
        **{"num_attention_heads": 4, "num_key_value_heads": 4, "vocab_size": 248320},
        **{"max_position_embeddings": 262144, "torch_dtype": "float32"},
    }
    write_json(folder / "config.json", config)
    tokenizer = read_json(folder / "tokenizer_config.json")
    write_json(
        folder / "tokenizer_config.json",
        {**tokenizer, "tokenizer_class": "PreTrainedTokenizerFast"},
    )
    names = sorted(path.name for path in folder.iterdir())
    write_json(folder / "weights.json", {"files": describe_files(folder, names)})
    return folder


def write_records(path: Path, made: Sequence[Conversation], source: str = "s") -> None:
    with jsonl_writer(path) as writer:
        for number, conversation in enumerate(made):
            _, line = stored_line(conversation, source)
            split = b"train" if number % 50 else b"validation"
            writer.write_line(line[:-2] + b',"split":"' + split + b'"}\n')


def run_stage(
    folder: Path, target: Path, corpus: Path, workers: int, cache: str
) -> tuple[float, float, dict[str, Any]]:
    """Run the stage; return its seconds, the peak memory of its processes in GiB, its counts.

    Memory that processes share (libraries) is counted once.
    """
    output = folder / "tokenized"
    settings = {"thinking": False, "preserve_thinking": False, "seq_length": SEQ_LENGTH}
    command = [
        *(sys.executable, str(ROOT / "scripts/tokenize_conversations.py")),
        *("--settings", json.dumps(settings), "--corpus", str(corpus)),
        *("--weights", str(target / "weights.json"), "--stats", str(output / "stats.json")),
        *("--cache", str(folder / cache), "--workers", str(workers), "--log", str(folder / "log")),
    ]
    start = time.perf_counter()
    process = psutil.Popen(command, stderr=subprocess.DEVNULL)
    peak = 0
    while process.poll() is None:
        with contextlib.suppress(psutil.NoSuchProcess):
            family = (process, *process.children(recursive=True))
            peak = max(peak, sum(member.memory_full_info().pss for member in family))
        time.sleep(0.3)
    if process.returncode:
        sys.exit((folder / "log").read_text())
    return time.perf_counter() - start, peak / 2**30, read_json(output / "stats.json")


def ours(folder: Path, target: Path, made: Sequence[Conversation], workers: int) -> float:
    """Return the turns a second that the stage makes into rows, without its start-up."""
    write_records(folder / "all.jsonl", made)
    write_records(folder / "some.jsonl", made[: len(made) // 4])
    start, _, few = run_stage(folder, target, folder / "some.jsonl", workers, "cache-some")
    wall, _, stats = run_stage(folder, target, folder / "all.jsonl", workers, "cache-all")
    turns = stats["turns_supervised"]
    rate = float((turns - few["turns_supervised"]) / (wall - start))
    print(f"{len(made)} conversations, {turns} turns, {stats['rows']} rows, {stats['encoder']}")
    print(f"Draftmill, {workers} processes: {rate:.0f} turns/s; all of it {wall:.1f} s")
    return rate


def encode_batch(renderer: Renderer, made: Sequence[Conversation], rate: float) -> None:
    texts = [
        renderer.conversation(conversation.turns[: position + 1], conversation.tools)
        for conversation in made
        for position in answers(conversation)
    ]
    backend = renderer.tokenizer.backend_tokenizer
    start = time.perf_counter()
    backend.encode_batch_fast(texts, add_special_tokens=False)
    theirs = len(texts) / (time.perf_counter() - start)
    show(f"to encode_batch_fast, {theirs:.0f} texts/s", rate / theirs, ENCODE_BOUND)


@contextlib.contextmanager
def render_server(folder: Path, target: Path) -> Iterator[Server]:
    """Start the server of vLLM that only renders."""
    log = folder / "render.log"
    options = ("--enable-auto-tool-choice", "--tool-call-parser", "hermes")
    with vllm_server(target, "target", options, log, command=("launch", "render")) as server:
        yield server


def compare_with_renderer(server: Server, renderer: Renderer, made: Sequence[Conversation]) -> None:
    """Count the turns whose ids and masks are those that speculators would get."""
    found: Counter[str] = Counter()

    def compare(conversation: Conversation) -> Counter[str]:
        counts: Counter[str] = Counter()
        for position in answers(conversation):
            turns, tools = conversation.turns, conversation.tools
            own_prompt = renderer.encode(renderer.prompt(turns[:position], tools))
            own = renderer.encode(renderer.conversation(turns[: position + 1], tools))
            prompt = rendered(server, renderer, conversation, position, True)
            full = rendered(server, renderer, conversation, position + 1, False)
            counts["turns"] += 1
            counts["ids equal"] += (own_prompt, own) == (prompt, full)
            common = next(
                (n for n, (a, b) in enumerate(zip(prompt, full, strict=False)) if a != b),
                min(len(prompt), len(full)),
            )
            ends = [n for n in range(common, len(full)) if full[n] in renderer.end_of_turn_ids]
            if common != len(prompt):
                counts["mask differs: the think block is supervised by the stock rule"] += 1
            elif ends and ends[0] + 1 < len(full):
                counts["mask differs only in the text after the end of the turn"] += 1
            else:
                counts["mask equal"] += 1
        return counts

    with ThreadPoolExecutor(8) as pool:
        for counts in pool.map(compare, made):
            found.update(counts)
    print(f"against vLLM's renderer, {len(made)} conversations: {dict(found)}")


def answers(conversation: Conversation) -> list[int]:
    """Return the positions of the turns of the target."""
    return [n for n, turn in enumerate(conversation.turns) if turn.role == "gpt"]


def rendered(
    server: Server, renderer: Renderer, conversation: Conversation, end: int, prompt: bool
) -> list[int]:
    messages = renderer.messages(conversation.turns[:end])
    for message in messages:
        for call in message.get("tool_calls", ()):
            call["function"]["arguments"] = json.dumps(call["function"]["arguments"])
    body = {
        "model": server.model,
        "messages": messages,
        "add_generation_prompt": prompt,
        "chat_template_kwargs": {"enable_thinking": False},
        **({"tools": json.loads(conversation.tools)} if conversation.tools else {}),
    }
    answer = server.post("/v1/chat/completions/render", body)
    ids: list[int] = (answer[0] if isinstance(answer, list) else answer)["token_ids"]
    return ids


def prepare_data(
    folder: Path,
    target: Path,
    server: Server,
    made: Sequence[Conversation],
    workers: int,
    rate: float,
) -> None:
    """Run speculators' own command on some and on one of the conversations."""

    def seconds(some: Sequence[Conversation]) -> tuple[float, int]:
        data = folder / "peer.jsonl"
        with jsonl_writer(data) as writer:
            for conversation in some:
                _, line = stored_line(conversation, "s")
                writer.write_line(line)
        output = folder / "peer"
        shutil.rmtree(output, ignore_errors=True)
        command = [
            *(str(Path(sys.executable).with_name("speculators")), "prepare-data"),
            *("--model", str(target), "--data", str(data), "--output", str(output)),
            *("--seq-length", str(SEQ_LENGTH), "--render-endpoint", server.url),
            *("--num-preprocessing-workers", str(workers)),
        ]
        environment = {**os.environ, "HF_HOME": str(folder / "home"), "HF_HUB_OFFLINE": "1"}
        start = time.perf_counter()
        result = subprocess.run(command, capture_output=True, text=True, env=environment)
        wall = time.perf_counter() - start
        if result.returncode:
            sys.exit(result.stdout + result.stderr)
        import datasets

        return wall, len(datasets.load_from_disk(str(output)))

    start, few = seconds(made[: len(made) // 10])
    wall, rows = seconds(made)
    theirs = (rows - few) / (wall - start)
    show(f"to prepare-data, {theirs:.0f} rows/s", rate / theirs, PREPARE_BOUND)


def trajectories(maker: RowMaker) -> None:
    """Compare rows of agent trajectories with one row a turn."""
    chance = random.Random(1)
    merged = apart = 0
    same = True
    for _ in range(20):
        conversation = trajectory(chance, 30)
        rows = maker.rows(conversation).rows
        single = list(rows_apart(maker, conversation))
        merged += sum(len(row.ids) for row in rows)
        apart += sum(len(row.ids) for row in single)
        same &= supervised_pairs(rows) == supervised_pairs(single)
    show("tokens of trajectories, of one row a turn", merged / apart, TRAJECTORY_BOUND)
    print(f"  the same next tokens after the same contexts: {'yes' if same else 'NO'}")


def rows_apart(maker: RowMaker, conversation: Conversation) -> Iterator[TokenRow]:
    """Yield one row for each turn of the target."""
    for position, turn in enumerate(conversation.turns):
        if turn.role == "gpt":
            through = Conversation(conversation.turns[: position + 1], conversation.tools)
            row = maker.rows(through).rows[-1]
            yield TokenRow(row.ids, row.spans[-1:], row.turns[-1:])


def supervised_pairs(rows: Sequence[TokenRow]) -> set[int]:
    """Return a hash for each context with the token that is supervised after it."""
    pairs = set()
    for row in rows:
        raw = b"".join(token.to_bytes(4, "little") for token in row.ids)
        for start, end in row.spans:
            pairs |= {xxh3_128_intdigest(raw[: 4 * (place + 1)]) for place in range(start, end)}
    return pairs


def scale(folder: Path, target: Path, count: int, workers: int) -> None:
    """Tokenize a large corpus, then the same with 5 % more conversations."""
    chance = random.Random(2)

    def write(path: Path, number: int, mode: str) -> None:
        with path.open(mode) as file:
            for position in range(number):
                _, line = stored_line(short_chat(chance), "s")
                split = b"train" if position % 50 else b"validation"
                file.write(line[:-2] + b',"split":"' + split + b'"}\n')

    corpus = folder / "large.jsonl"
    write(corpus, count, "wb")
    size = corpus.stat().st_size / 1e9
    wall, memory, stats = run_stage(folder, target, corpus, workers, "cache-large")
    print(f"{count} conversations, {size:.2f} GB, {stats['tokens'] / 1e6:.0f} million tokens")
    show("minutes", wall / 60, MINUTES_BOUND)
    show("peak memory in GiB", memory, MEMORY_BOUND)
    write(corpus, count // 20, "ab")
    again, _, _ = run_stage(folder, target, corpus, workers, "cache-large")
    show("time of a run with 5 % more, of the full run", again / wall, ADDED_BOUND)


def short_chat(chance: random.Random) -> Conversation:
    """Return a chat of about 1.3 kB."""
    while True:
        conversation = chat(chance)
        if len(conversation.turns) <= 3:
            return conversation


def show(what: str, value: float, bound: float) -> None:
    """Print one figure with its bound and their ratio."""
    print(f"{what:<48}{value:>8.2f} bound {bound:>6.2f}  ratio {value / bound:.2f}", flush=True)


if __name__ == "__main__":
    main()
