"""Measure the acceptance length of the drafter on held-out prompts."""

import argparse
from pathlib import Path

from lib.console import stage
from lib.evaluation import EvaluateSettings, evaluate_drafter
from lib.jsonl import count_lines
from lib.rendering import Renderer, ThinkingMode
from lib.settings import read_settings


def main() -> None:
    """Run the stage as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--settings", required=True, help="settings as JSON")
    parser.add_argument("--drafter", type=Path, required=True, help="config.json of the drafter")
    parser.add_argument("--weights", type=Path, required=True, help="manifest of the target")
    parser.add_argument(
        "--prompts", type=Path, nargs="*", required=True, help="files of held-out prompts"
    )
    parser.add_argument("--result", type=Path, required=True, help="result to write")
    parser.add_argument("--figure", type=Path, required=True, help="figure to write")
    parser.add_argument("--log", type=Path, required=True, help="log file")
    args = parser.parse_args()
    with stage("evaluate_drafter", args.log) as current:
        settings = read_settings(EvaluateSettings, args.settings)
        mode = ThinkingMode(settings.thinking, settings.preserve_thinking)
        renderer = Renderer(args.weights.parent, mode, settings.trust_remote_code)
        total = sum(count_lines(path) for path in args.prompts)
        with current.progress("prompts", total) as progress:
            summary = evaluate_drafter(
                settings,
                args.prompts,
                args.drafter.parent,
                renderer,
                args.result,
                args.figure,
                progress.advance,
            )
        length = summary["all"]["acceptance_length"]
        current.result(f"acceptance length {length:.2f} of {summary['block_size']}")


if __name__ == "__main__":
    main()
