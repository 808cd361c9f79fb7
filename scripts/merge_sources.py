"""Merge the records of all sources into one corpus."""

import argparse
from pathlib import Path

from lib.console import stage
from lib.merging import Merged, MergeSettings, merge_sources
from lib.settings import read_settings


def main() -> None:
    """Run the stage as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--settings", required=True, help="settings as JSON")
    parser.add_argument(
        "--records",
        type=Path,
        nargs="*",
        required=True,
        help="records of each source, in the order of the settings",
    )
    parser.add_argument(
        "--evaluation", type=Path, nargs="*", required=True, help="evaluation prompts to keep out"
    )
    parser.add_argument("--corpus", type=Path, required=True, help="records to write")
    parser.add_argument("--dropped", type=Path, required=True, help="dropped records to write")
    parser.add_argument("--stats", type=Path, required=True, help="counts to write")
    parser.add_argument("--workers", type=int, default=1, help="processes that read records")
    parser.add_argument("--log", type=Path, required=True, help="log file")
    args = parser.parse_args()
    with stage("merge_sources", args.log) as current:
        settings = read_settings(MergeSettings, args.settings)
        stats = merge_sources(
            settings,
            args.records,
            args.evaluation,
            Merged(args.corpus, args.dropped, args.stats),
            args.workers,
            current.progress,
        )
        current.result(
            f"{stats['records_in']} records, {stats['dropped']} dropped, "
            f"{stats['train']} to train, {stats['validation']} to validate"
        )


if __name__ == "__main__":
    main()
