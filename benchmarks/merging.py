"""Measure the merge on a generated corpus in which duplicates and near-duplicates are planted.

Usage: .venv/bin/python benchmarks/merging.py [--records 1000000] [--workers 2]

Four sources of generated records (1.2 kB each) are merged by the stage's own script, without and
with a look for near-duplicates at a threshold of 0.7. Printed is the wall time as a ratio to
reading the same records and writing them again through `json` line by line, in the same run; the
peak memory of all processes of the stage; the growth from a quarter of the records; and how many
of the planted records met the fate that they were made for.
"""

import argparse
import contextlib
import json
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import psutil

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "scripts"))

from lib.conversation import Conversation, Turn, stored_line  # noqa: E402
from lib.jsonl import jsonl_writer, read_jsonl  # noqa: E402

SOURCES = ("first", "second", "third", "fourth")
THRESHOLD = 0.7
DUPLICATES = 0.20
NEAR_DUPLICATES = 0.05
CHANGED_WORDS = (0.05, 0.15)
TURNS = (("human", (10, 60)), ("gpt", (30, 130)))
"""Who speaks, and how many words at least and at most."""
TIME_BOUNDS = {False: 6.0, True: 15.0}
"""Of a merge without and with a look for near-duplicates."""
MEMORY_BOUND = 4.0
GROWTH_BOUND = 4.4
RECALL_BOUND = 0.95


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--workers", default="2", help="processes of the merge")
    args = parser.parse_args()
    walls: dict[bool, list[float]] = {False: [], True: []}
    for count in (args.records // 4, args.records):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            planted = write_corpus(folder, count)
            size = sum(path.stat().st_size for path in files_of(folder))
            baseline = through_json(folder)
            print(f"\n{count} records, {size / 1e9:.2f} GB; json line by line: {baseline:.1f} s")
            for near, bound in TIME_BOUNDS.items():
                print("with near-duplicates" if near else "without near-duplicates")
                wall, memory = merge(folder, near, args.workers)
                walls[near].append(wall)
                show("  time, in times of json", wall / baseline, bound, f"{wall:.1f} s")
                show("  peak memory in GiB", memory, MEMORY_BOUND)
                judge(folder, planted, near)
    print("\ntime for four times as many records")
    for near, (small, large) in walls.items():
        what = "with near-duplicates" if near else "without near-duplicates"
        show(f"  {what}", large / small, GROWTH_BOUND)


def write_corpus(folder: Path, count: int) -> dict[str, str]:
    """Write the records of all sources; return the reason why each planted record must go.

    Every third record of a source, but the first source, is planted: it goes back to a record of
    the source before.
    """
    chance = random.Random(0)
    texts = conversations(np.random.default_rng(0), chance)
    reasons = {"duplicate": DUPLICATES, "near_duplicate": NEAR_DUPLICATES}
    planted: dict[str, str] = {}
    following: list[tuple[Conversation, str]] = []
    for name in SOURCES:
        inherited, following = following, []
        with jsonl_writer(folder / f"{name}.jsonl") as writer:
            for number in range(count // len(SOURCES)):
                if inherited and number % 3 == 0:
                    conversation, reason = inherited.pop()
                    identity, line = stored_line(conversation, name)
                    planted[identity] = reason
                else:
                    conversation = next(texts)
                    identity, line = stored_line(conversation, name)
                    if number % 3 == 1:
                        (reason,) = chance.choices(list(reasons), list(reasons.values()))
                        copy = (
                            conversation
                            if reason == "duplicate"
                            else reworded(conversation, chance)
                        )
                        following.append((copy, reason))
                writer.write_line(line)
    return planted


def conversations(generator: np.random.Generator, chance: random.Random) -> Iterator[Conversation]:
    """Yield chats of one to three questions; few words are frequent (Zipf and Mandelbrot's law)."""
    vocabulary = [f"{chance.getrandbits(20):x}" for _ in range(30_000)]
    frequencies = np.cumsum(1 / (np.arange(len(vocabulary)) + 2.7))
    while True:
        drawn = generator.random(1 << 20) * frequencies[-1]
        words = [vocabulary[place] for place in np.searchsorted(frequencies, drawn)]
        position = 0
        while position + 1000 < len(words):
            turns = []
            for _ in range(chance.choice((1, 1, 1, 2, 3))):
                for role, length in TURNS:
                    end = position + chance.randint(*length)
                    turns.append(Turn(role, " ".join(words[position:end])))
                    position = end
            yield Conversation(tuple(turns))


def reworded(conversation: Conversation, chance: random.Random) -> Conversation:
    """Return a conversation with some words of each question changed, and other answers."""
    turns = []
    for turn in conversation.turns:
        words = turn.text.split()
        if turn.role == "human":
            changed = int(len(words) * chance.uniform(*CHANGED_WORDS))
            for place in chance.sample(range(len(words)), changed):
                words[place] = f"other{chance.getrandbits(24):x}"
        else:
            chance.shuffle(words)
        turns.append(Turn(turn.role, " ".join(words)))
    return Conversation(tuple(turns))


def files_of(folder: Path) -> list[Path]:
    return [folder / f"{name}.jsonl" for name in SOURCES]


def through_json(folder: Path) -> float:
    """Return the seconds that the peer takes: each line read by `json` and written again."""
    start = time.perf_counter()
    with (folder / "json.jsonl").open("w", encoding="utf-8") as output:
        for path in files_of(folder):
            with path.open(encoding="utf-8") as lines:
                for line in lines:
                    output.write(json.dumps(json.loads(line), ensure_ascii=False) + "\n")
    (folder / "json.jsonl").unlink()
    return time.perf_counter() - start


def merge(folder: Path, near: bool, workers: str) -> tuple[float, float]:
    """Run the stage; return its seconds, and the peak memory of its processes in GiB."""
    settings = {
        "sources": [{"name": name} for name in SOURCES],
        "near_duplicates": {"threshold": THRESHOLD} if near else None,
    }
    evaluation = sorted((ROOT / "resources/evaluation").glob("*.jsonl"))
    command = [
        *(sys.executable, str(ROOT / "scripts/merge_sources.py")),
        *("--settings", json.dumps(settings), "--workers", workers),
        *("--records", *map(str, files_of(folder))),
        *("--evaluation", *map(str, evaluation)),
        *("--corpus", str(folder / "corpus.jsonl"), "--dropped", str(folder / "dropped.jsonl")),
        *("--stats", str(folder / "stats.json"), "--log", str(folder / "log")),
    ]
    start = time.perf_counter()
    process = psutil.Popen(command, stderr=subprocess.DEVNULL)
    peak = 0
    while process.poll() is None:
        peak = max(peak, memory_of(process))
        time.sleep(0.1)
    if process.returncode:
        sys.exit((folder / "log").read_text())
    return time.perf_counter() - start, peak / 2**30


def memory_of(process: psutil.Process) -> int:
    """Return the bytes that a process and its children hold now."""
    total = 0
    with contextlib.suppress(psutil.NoSuchProcess):
        for member in (process, *process.children(recursive=True)):
            total += member.memory_info().rss
    return total


def judge(folder: Path, planted: dict[str, str], near: bool) -> None:
    """Print how many planted records met their fate, and how many others were dropped."""
    met: Counter[str] = Counter()
    others = 0
    for entry in read_jsonl(folder / "dropped.jsonl"):
        if planted.get(entry["id"]) == entry["reason"]:
            met[entry["reason"]] += 1
        else:
            others += 1
    made = Counter(planted.values())
    found = met["duplicate"] / made["duplicate"]
    show("  planted duplicates found", found, 1.0, f"of {made['duplicate']}")
    if near:
        found = met["near_duplicate"] / made["near_duplicate"]
        count = f"of {made['near_duplicate']}"
        show("  planted near-duplicates found", found, RECALL_BOUND, count)
    print(f"  others dropped: {others} (bound 0)")


def show(what: str, value: float, bound: float, note: str = "") -> None:
    """Print one figure with its bound and their ratio."""
    print(f"{what:<40}{value:>8.3f} bound {bound:>6.2f}  ratio {value / bound:.2f}  {note}")


if __name__ == "__main__":
    main()
