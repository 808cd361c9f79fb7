"""Measure how fast a data set is verified.

Usage: .venv/bin/python benchmarks/verifying.py [--conversations 40000]

Generated conversations go through the stages: normalized, merged, tokenized with the tokenizer and
template of Qwen3.6. Then all checks but the audit read everything (shards, corpus, index) on one
core; printed are the bytes a second of the token rows, and of the records.
"""

import argparse
import os
import random
import resource
import sys
import tempfile
from itertools import islice
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "scripts"), str(ROOT / "tests")]

from generated import conversations  # noqa: E402
from tokenizing import SEQ_LENGTH, show, target_in  # noqa: E402

from lib import verification  # noqa: E402
from lib.conversation import to_record  # noqa: E402
from lib.corpus_facts import CorpusFacts, read_corpus  # noqa: E402
from lib.jsonl import jsonl_writer  # noqa: E402
from lib.merging import Merged, MergeSettings, SourceShare, merge_sources, unwatched  # noqa: E402
from lib.normalizing import NormalizeSettings, normalize_source  # noqa: E402
from lib.piece_rows import Job  # noqa: E402
from lib.rendering import Renderer, ThinkingMode  # noqa: E402
from lib.token_rows import TokenizeSettings  # noqa: E402
from lib.tokenizing import tokenize_conversations  # noqa: E402
from lib.verification import Stages, VerifySettings  # noqa: E402

BYTES_BOUND = 200e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--conversations", type=int, default=40000)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        stages = make(Path(name), args.conversations)
        measure(Path(name), stages)


def make(folder: Path, count: int) -> Stages:
    """Run the stages up to the token rows."""
    made = islice(conversations(random.Random(0)), count)
    with jsonl_writer(folder / "raw.jsonl") as writer:
        for conversation in made:
            writer.write(to_record(conversation.of_source("raw")))
    records, rejects, counts = (folder / f"s.{end}" for end in ("jsonl", "rejects", "json"))
    settings = NormalizeSettings("s", "sharegpt")
    normalize_source(settings, [folder / "raw.jsonl"], records, rejects, counts, lambda rows: None)
    evaluation = sorted((ROOT / "resources" / "evaluation").glob("*.jsonl"))
    corpus = folder / "merged" / "sharegpt.jsonl"
    merged = Merged(corpus, corpus.with_name("dropped.jsonl"), corpus.with_name("stats.json"))
    shares = MergeSettings((SourceShare("s"),), validation_share=0.05)
    merge_sources(shares, [records], evaluation, merged, 1, unwatched)
    target = target_in(folder / "target")
    job = Job(TokenizeSettings(False, False, seq_length=SEQ_LENGTH), target, folder / "cache")
    workers = os.cpu_count() or 1
    tokenize_conversations(job, corpus, folder / "rows", workers, 600, lambda rows: None)
    return Stages([counts], corpus.parent, None, corpus, folder / "rows", target, evaluation)


def measure(folder: Path, stages: Stages) -> None:
    """Verify with next to no audit, and print the figures."""
    rows = sum(path.stat().st_size for path in stages.tokenized.iterdir())
    records = stages.corpus.stat().st_size
    renderer = Renderer(stages.target, ThinkingMode())
    renderer.tokenizer  # noqa: B018  (loaded before the clock starts)
    settings = VerifySettings(seq_length=SEQ_LENGTH, audited_rows=1)
    seconds: list[float] = []

    def timed(*arguments: Any) -> CorpusFacts:
        start = cpu_seconds()
        facts = read_corpus(*arguments)
        seconds.append(cpu_seconds() - start)
        return facts

    verification.read_corpus = timed  # type: ignore[attr-defined]
    start = cpu_seconds()
    stamp = verification.verify_dataset(
        *(settings, stages, renderer, folder / "stamp", folder / "page", folder / "rows.json", 1),
        lambda rows: None,
    )
    cpu = cpu_seconds() - start
    corpus = sum(seconds)
    print(f"{stamp['rows']} rows, {rows / 1e6:.0f} MB; {records / 1e6:.0f} MB of records")
    print(f"all checks: {cpu:.1f} s")
    show("token rows, MB a second on one core", rows / (cpu - corpus) / 1e6, BYTES_BOUND / 1e6)
    print(f"records and evaluation prompts: {records / corpus / 1e6:.1f} MB a second and core")


def cpu_seconds() -> float:
    """Return the seconds of processor that this process has used."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()
