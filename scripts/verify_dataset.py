"""Check the whole data set and write the stamp."""

import argparse
from pathlib import Path

from lib.console import stage
from lib.files import read_json
from lib.rendering import Renderer, ThinkingMode
from lib.settings import read_settings
from lib.verification import Stages, VerifySettings, verify_dataset


def main() -> None:
    """Run the stage as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--settings", required=True, help="settings as JSON")
    parser.add_argument(
        "--sources", type=Path, nargs="*", required=True, help="counts of each source"
    )
    parser.add_argument("--merged", type=Path, required=True, help="counts of the merge")
    parser.add_argument(
        "--responses",
        type=Path,
        nargs="*",
        required=True,
        help="counts of the responses, if there are any",
    )
    parser.add_argument("--corpus", type=Path, required=True, help="records that were tokenized")
    parser.add_argument("--tokenized", type=Path, required=True, help="counts of the token rows")
    parser.add_argument("--weights", type=Path, required=True, help="manifest of the target")
    parser.add_argument(
        "--evaluation", type=Path, nargs="*", required=True, help="evaluation prompts"
    )
    parser.add_argument("--stamp", type=Path, required=True, help="stamp to write")
    parser.add_argument("--report", type=Path, required=True, help="page for people to write")
    parser.add_argument(
        "--samples", type=Path, required=True, help="rows with their text to write, for people"
    )
    parser.add_argument("--workers", type=int, default=1, help="processes that read the records")
    parser.add_argument("--log", type=Path, required=True, help="log file")
    args = parser.parse_args()
    with stage("verify_dataset", args.log) as current:
        settings = read_settings(VerifySettings, args.settings)
        target = args.weights.parent
        stages = Stages(
            sources=args.sources,
            merged=args.merged.parent,
            responses=args.responses[0] if args.responses else None,
            corpus=args.corpus,
            tokenized=args.tokenized.parent,
            target=target,
            evaluation=args.evaluation,
        )
        mode = ThinkingMode(settings.thinking, settings.preserve_thinking)
        renderer = Renderer(target, mode, settings.trust_remote_code)
        with current.progress("rows", read_json(args.tokenized)["rows"]) as progress:
            stamp = verify_dataset(
                *(settings, stages, renderer, args.stamp, args.report),
                *(args.samples, args.workers),
                progress.advance,
            )
        current.result(f"{len(stamp['checks'])} checks hold for {stamp['rows']} rows")


if __name__ == "__main__":
    main()
