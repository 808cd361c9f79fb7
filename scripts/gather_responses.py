"""Join the responses of all shards."""

import argparse
from pathlib import Path

from lib.console import stage
from lib.gathering import gather_responses
from lib.response_totals import Outputs


def main() -> None:
    """Run the stage as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name, what in (
        ("responses", "records"),
        ("failures", "unanswered conversations"),
        ("stats", "counts"),
    ):
        parser.add_argument(
            f"--shard-{name}", type=Path, nargs="+", required=True, help=f"{what} of each shard"
        )
        parser.add_argument(f"--{name}", type=Path, required=True, help=f"{what} to write")
    parser.add_argument("--log", type=Path, required=True, help="log file")
    args = parser.parse_args()
    with stage("gather_responses", args.log) as current:
        shards = zip(args.shard_responses, args.shard_failures, args.shard_stats, strict=True)
        stats = gather_responses(
            [Outputs(*files) for files in shards],
            Outputs(args.responses, args.failures, args.stats),
        )
        current.result(
            f"{stats['answered']} conversations answered, {stats['failed']} failed, "
            f"{stats['records']} records"
        )


if __name__ == "__main__":
    main()
