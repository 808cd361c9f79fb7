"""Turn conversations into token rows with loss masks."""

import argparse
from pathlib import Path

from lib.console import stage
from lib.jsonl import count_lines
from lib.rendering import Renderer, ThinkingMode
from lib.settings import read_settings
from lib.tokenizing import TokenizeSettings, tokenize_conversations


def main() -> None:
    """Run the stage as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--settings", required=True, help="settings as JSON")
    parser.add_argument("--corpus", type=Path, required=True, help="records to tokenize")
    parser.add_argument("--weights", type=Path, required=True, help="manifest of the target")
    parser.add_argument(
        "--stats", type=Path, required=True, help="counts to write; the data set goes beside them"
    )
    parser.add_argument("--log", type=Path, required=True, help="log file")
    args = parser.parse_args()
    with stage("tokenize_conversations", args.log) as current:
        settings = read_settings(TokenizeSettings, args.settings)
        mode = ThinkingMode(settings.thinking, settings.preserve_thinking)
        renderer = Renderer(args.weights.parent, mode, settings.trust_remote_code)
        with current.progress("conversations", count_lines(args.corpus)) as progress:
            stats = tokenize_conversations(
                settings, args.corpus, renderer, args.stats.parent, progress.advance
            )
        current.result(
            f"{stats['rows']} rows, {stats['tokens']} tokens, "
            f"{stats['supervised_tokens']} supervised, {stats['turns_lost']} turns lost"
        )


if __name__ == "__main__":
    main()
