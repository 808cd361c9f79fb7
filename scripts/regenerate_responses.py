"""Have the target answer every conversation of the corpus."""

import argparse
from pathlib import Path

from lib.cache import open_cache
from lib.console import stage
from lib.files import read_json
from lib.generation import TransformersTarget
from lib.jsonl import count_lines
from lib.rendering import Renderer, ThinkingMode
from lib.responding import ResponseSettings, regenerate_responses
from lib.settings import read_settings


def main() -> None:
    """Run the stage as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--settings", required=True, help="settings as JSON")
    parser.add_argument("--corpus", type=Path, required=True, help="records to answer")
    parser.add_argument("--weights", type=Path, required=True, help="manifest of the target")
    parser.add_argument("--responses", type=Path, required=True, help="records to write")
    parser.add_argument(
        "--failures", type=Path, required=True, help="unanswered conversations to write"
    )
    parser.add_argument("--stats", type=Path, required=True, help="counts to write")
    parser.add_argument(
        "--cache", type=Path, required=True, help="folder of answers that are reused between runs"
    )
    parser.add_argument("--log", type=Path, required=True, help="log file")
    args = parser.parse_args()
    with stage("regenerate_responses", args.log) as current:
        settings = read_settings(ResponseSettings, args.settings)
        mode = ThinkingMode(settings.thinking, settings.preserve_thinking)
        renderer = Renderer(args.weights.parent, mode, settings.trust_remote_code)
        target = TransformersTarget(
            renderer.target, renderer.end_of_turn_ids, settings.trust_remote_code
        )
        sampling = settings.sampling()
        with (
            open_cache(args.cache, read_json(args.weights), vars(sampling)) as cache,
            current.progress("conversations", count_lines(args.corpus)) as progress,
        ):
            stats = regenerate_responses(
                args.corpus,
                renderer,
                target,
                sampling,
                cache,
                args.responses,
                args.failures,
                args.stats,
                progress.advance,
            )
        current.result(f"{stats['answered']} conversations answered, {stats['failed']} failed")


if __name__ == "__main__":
    main()
