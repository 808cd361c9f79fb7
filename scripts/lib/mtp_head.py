"""The head with which some targets draft by themselves: multi-token prediction."""

from collections.abc import Iterator
from pathlib import Path

from safetensors import safe_open

from lib.target import INDEX, indexed_shards
from lib.target_facts import head_problem, read_facts


def check_head(target: Path, tokens: int) -> None:
    """Check that a target can draft by itself, and that its folder has the weights for it.

    Weights that others have made of a target often lack its head, while the configuration still
    names it.

    Raises:
        ValueError: it cannot; names the key of the configuration.
    """
    facts = read_facts(target)
    if problem := head_problem(facts, tokens):
        raise ValueError(problem)
    # A family calls its head so, or counts it as layers behind those of the target.
    marks = ("mtp", *(f".layers.{facts.layers + number}." for number in range(facts.mtp_layers)))
    if not any(mark in name for name in _tensor_names(target) for mark in marks):
        raise ValueError(
            "evaluate.baseline: mtp is the target's own MTP head, but the weights in "
            f"{target} have none, though its configuration names it; take it out"
        )


def _tensor_names(folder: Path) -> Iterator[str]:
    """Yield the names of all tensors, from the headers of the files."""
    has_index = (folder / INDEX).is_file()
    shards = indexed_shards(folder) if has_index else (p.name for p in folder.glob("*.safetensors"))
    for shard in shards:
        with safe_open(folder / shard, framework="np") as file:
            yield from file.offset_keys()
