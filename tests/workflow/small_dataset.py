"""A small data set out of a finished toy run: where a test asks a real server for each row."""

from itertools import chain, islice
from pathlib import Path

from lib.files import write_json
from lib.jsonl import jsonl_writer, read_jsonl
from lib.piece_rows import Job
from lib.stamp import sample_digest, tokenizer_files
from lib.token_rows import TokenizeSettings
from lib.tokenizing import tokenize_conversations
from workflow.project import Project


def target_of(finished: Project) -> Path:
    """Return the folder of the toy target."""
    (target,) = (finished.folder / "models").glob("toy@*")
    return target


def write_small_dataset(finished: Project, folder: Path, train: int, validation: int) -> None:
    """Write the rows of the first conversations to `tokenized`, and their stamp.

    Args:
        train, validation: number of conversations on each side.
    """
    target = target_of(finished)
    corpus = folder / "corpus.jsonl"
    records = list(read_jsonl(finished.folder / "results/toy/responses/sharegpt.jsonl"))
    sides = (
        islice((r for r in records if r["split"] == split), count)
        for split, count in (("train", train), ("validation", validation))
    )
    with jsonl_writer(corpus) as file:
        for record in chain.from_iterable(sides):
            file.write(record)
    tokenized = folder / "tokenized"
    settings = TokenizeSettings(thinking=False, preserve_thinking=False, seq_length=512)
    stats, _ = tokenize_conversations(
        Job(settings, target, folder / "cache"), corpus, tokenized, 1, 60.0, lambda steps: None
    )
    samples = {shard["name"]: sample_digest(tokenized / shard["name"]) for shard in stats["shards"]}
    stamp = {"shards": stats["shards"], "samples": samples, "tokenizer": tokenizer_files(target)}
    write_json(folder / "verified.json", stamp)
