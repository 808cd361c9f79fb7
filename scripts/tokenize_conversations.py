"""Turn conversations into token rows with loss masks."""

import argparse
from pathlib import Path

from lib.console import stage
from lib.jsonl import count_lines
from lib.piece_rows import Job
from lib.settings import read_settings
from lib.token_rows import TokenizeSettings
from lib.tokenizing import tokenize_conversations


def main() -> None:
    """Run the stage as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--settings", required=True, help="settings as JSON")
    parser.add_argument("--corpus", type=Path, required=True, help="records to tokenize")
    parser.add_argument("--weights", type=Path, required=True, help="manifest of the target")
    parser.add_argument(
        "--stats", type=Path, required=True, help="counts to write; the data set goes beside them"
    )
    parser.add_argument("--cache", type=Path, required=True, help="folder of rows made before")
    parser.add_argument("--workers", type=int, default=1, help="processes that tokenize")
    parser.add_argument(
        "--patience", type=float, default=1800, help="seconds that 4 MB of records may take"
    )
    parser.add_argument("--log", type=Path, required=True, help="log file")
    args = parser.parse_args()
    with stage("tokenize_conversations", args.log) as current:
        settings = read_settings(TokenizeSettings, args.settings)
        job = Job(settings, args.weights.parent, args.cache)
        with current.progress("conversations", count_lines(args.corpus)) as progress:
            stats, reused = tokenize_conversations(
                job, args.corpus, args.stats.parent, args.workers, args.patience, progress.advance
            )
        current.result(
            f"{stats['rows']} rows, {stats['tokens']} tokens, "
            f"{stats['supervised_tokens']} supervised, {stats['turns_lost']} turns lost, "
            f"{reused} of {stats['conversations_in']} conversations as before"
        )


if __name__ == "__main__":
    main()
