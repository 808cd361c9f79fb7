"""Measure how fast and in how much memory raw rows become conversation records.

Usage: .venv/bin/python benchmarks/normalizing.py [--rows 100000] [--large-megabytes 1000]

The same generated rows are normalised and, as the peer, read with `datasets.load_dataset` and
iterated, each in a process of its own with a fresh cache, in turns. Printed is the rate of each
and the ratio of the two (median of the turns, imports not counted): 1.0 or better for JSON, 0.8
or better for Parquet. Then the peak memory for a file of a quarter of the large size and one of
the large size, as a ratio to its bound of 400 MiB, and the growth between the two (1.1 or less).
"""

import argparse
import json
import multiprocessing
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "scripts"))

TURNS = 5
MEMORY_BOUND = 400.0
GROWTH_BOUND = 1.1
WORDS = (
    *("the", "a", "list", "of", "numbers", "returns", "value", "function", "when", "key", "file"),
    *("line", "error", "city", "time", "model", "train", "token", "draft", "answer", "question"),
    *("because", "loop", "index", "result", "small", "large", "number", "string", "where", "under"),
    *("every", "other", "first", "last", "between", "over"),
)
FOREIGN = ("Café “Zürich” – naïve", "数据和文字", "вопрос", "émoji 🙂")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=100_000, help="rows of the speed comparison")
    parser.add_argument(
        "--large-megabytes", type=int, default=1000, help="size of the large file for the memory"
    )
    args = parser.parse_args()
    print(f"{'speed, one process':<34}{'Draftmill':>12}{'datasets':>12}{'ratio':>8}{'bound':>7}")
    for name, (kind, bound) in KINDS.items():
        with tempfile.TemporaryDirectory() as folder:
            path = write(name, args.rows, Path(folder))
            ours, theirs = [], []
            for _ in range(TURNS):
                ours.append(in_a_process(normalize, path, kind)[0])
                theirs.append(in_a_process(load_and_iterate, path, kind)[0])
            fast, slow = (args.rows / statistics.median(times) for times in (ours, theirs))
            label = f"{name} ({path.stat().st_size / args.rows:.0f} bytes a row)"
            print(f"{label:<34}{fast:>10.0f}/s{slow:>10.0f}/s{fast / slow:>8.2f}{bound:>7.1f}")
    print(f"\n{'peak memory':<34}{'small file':>12}{'large file':>12}{'ratio':>8}{'growth':>8}")
    for name, (kind, _) in KINDS.items():
        peaks = []
        for megabytes in (args.large_megabytes / 4, args.large_megabytes):
            with tempfile.TemporaryDirectory() as folder:
                path = write(name, 2000, Path(folder))
                rows = int(2000 * megabytes * 1e6 / path.stat().st_size)
                path = write(name, rows, Path(folder))
                peaks.append(in_a_process(normalize, path, kind)[1])
        small, large = peaks
        print(
            f"{name:<34}{small:>8.0f} MiB{large:>8.0f} MiB{large / MEMORY_BOUND:>8.2f}"
            f"{large / small:>8.2f}  (bounds 1.0, {GROWTH_BOUND})"
        )


def normalize(path: Path, kind: str, scratch: Path) -> Callable[[], Any]:
    """Prepare what Draftmill does: raw rows in, records and rejects out."""
    from lib.normalizing import NormalizeSettings, normalize_source

    settings = NormalizeSettings(name="benchmark", format=kind)
    outputs = [scratch / name for name in ("records.jsonl", "rejects.jsonl", "stats.json")]
    return lambda: normalize_source(settings, [path], *outputs, lambda rows: None)


def load_and_iterate(path: Path, kind: str, scratch: Path) -> Callable[[], Any]:
    """Prepare the peer: load the same file and look at every row."""
    import datasets

    datasets.disable_progress_bars()
    builder = "parquet" if path.suffix == ".parquet" else "json"

    def run() -> int:
        rows = datasets.load_dataset(
            builder, data_files=str(path), split="train", cache_dir=str(scratch)
        )
        return sum(1 for _ in rows)

    return run


def in_a_process(prepare: Callable[..., Callable[[], Any]], path: Path, kind: str) -> list[float]:
    """Return the seconds that the work takes in a new process, and its peak memory in MiB."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as executor:
        return executor.submit(measured, prepare, path, kind).result()


def measured(prepare: Callable[..., Callable[[], Any]], path: Path, kind: str) -> list[float]:
    with tempfile.TemporaryDirectory(dir=path.parent) as scratch:
        work = prepare(path, kind, Path(scratch))
        start = time.perf_counter()
        work()
        seconds = time.perf_counter() - start
    return [seconds, peak_memory()]


def peak_memory() -> float:
    """Return the peak memory of this process in MiB, without that of the one that started it."""
    status = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) / 1024


def write(name: str, rows: int, folder: Path) -> Path:
    """Write a file of generated rows."""
    import pyarrow
    import pyarrow.parquet

    path = folder / name
    generated = ROWS[name](random.Random(0), rows)
    if path.suffix == ".parquet":
        schema = pyarrow.Table.from_pylist([next(ROWS[name](random.Random(0), 1))]).schema
        with pyarrow.parquet.ParquetWriter(path, schema) as writer:
            while batch := [row for row, _ in zip(generated, range(20_000), strict=False)]:
                writer.write_table(pyarrow.Table.from_pylist(batch, schema=schema))
        return path
    with path.open("w", encoding="utf-8") as file:
        array = path.suffix == ".json"
        file.write("[" * array)
        for number, row in enumerate(generated):
            file.write(",\n" if array and number else "")
            file.write(json.dumps(row, ensure_ascii=False) + "\n" * (not array))
        file.write("]" * array)
    return path


def text(source: random.Random, words: int) -> str:
    """Return text with a code block or other than English characters now and then."""
    body = " ".join(source.choices(WORDS, k=words))
    if source.random() < 0.2:
        body = f"{source.choice(FOREIGN)} {body}"
    if source.random() < 0.3:
        body += f"\n\n```python\ndef f(x):\n    return x + {source.random()}\n```\n"
    return body


def instructions(source: random.Random, rows: int) -> Iterator[dict[str, Any]]:
    """Yield rows as Evol-CodeAlpaca has them."""
    for _ in range(rows):
        yield {
            "instruction": text(source, source.randint(20, 120)),
            "output": text(source, source.randint(60, 500)),
        }


def chats(source: random.Random, rows: int) -> Iterator[dict[str, Any]]:
    """Yield rows as UltraChat has them."""
    for number in range(rows):
        messages = [
            {"content": text(source, source.randint(10, 140)), "role": role}
            for _ in range(source.randint(1, 4))
            for role in ("user", "assistant")
        ]
        yield {
            "prompt": messages[0]["content"],
            "prompt_id": f"{number:064x}",
            "messages": messages,
        }


def shared_chats(source: random.Random, rows: int) -> Iterator[dict[str, Any]]:
    """Yield rows as ShareGPT files in Markdown have them."""
    names = {"user": "human", "assistant": "gpt"}
    for number, row in enumerate(chats(source, rows)):
        turns = [{"from": names[m["role"]], "value": m["content"]} for m in row["messages"]]
        yield {"id": f"{number:x}", "conversations": turns}


ROWS = {
    "rows.jsonl": instructions,
    "array.json": shared_chats,
    "rows.parquet": chats,
}
KINDS = {
    "rows.jsonl": ("evol_codealpaca", 1.0),
    "array.json": ("sharegpt", 1.0),
    "rows.parquet": ("ultrachat", 0.8),
}


if __name__ == "__main__":
    main()
