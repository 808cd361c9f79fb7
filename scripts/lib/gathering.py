"""The responses of all shards as one corpus."""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from lib.files import atomic_path, read_json, write_json
from lib.response_totals import Outputs, ResponseTotals


def gather_responses(shards: Sequence[Outputs], outputs: Outputs) -> dict[str, Any]:
    """Join the files of the shards in their order, and add up their counts.

    Returns:
        The content of `outputs.stats`.
    """
    _join([shard.responses for shard in shards], outputs.responses)
    _join([shard.failures for shard in shards], outputs.failures)
    totals = ResponseTotals()
    for shard in shards:
        totals.add(msgspec.convert(read_json(shard.stats), ResponseTotals))
    stats = totals.stats()
    write_json(outputs.stats, stats)
    return stats


def _join(parts: Sequence[Path], whole: Path) -> None:
    with atomic_path(whole) as partial, partial.open("wb") as target:
        for part in parts:
            with part.open("rb") as source:
                shutil.copyfileobj(source, target, 1 << 20)
