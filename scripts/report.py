"""Show the whole run on one page."""

import argparse
import json
from pathlib import Path

from lib.console import stage
from lib.report import ReportSettings, RunFiles, write_report
from lib.settings import read_settings


def main() -> None:
    """Run the stage as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--settings", required=True, help="settings as JSON")
    parser.add_argument("--running", default="{}", help="how the stages run, as JSON")
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
    parser.add_argument("--rows", type=Path, required=True, help="counts of the token rows")
    parser.add_argument("--samples", type=Path, required=True, help="rows with their text")
    parser.add_argument("--stamp", type=Path, required=True, help="stamp of the data set")
    parser.add_argument("--training", type=Path, required=True, help="result of the training")
    parser.add_argument("--drafter", type=Path, required=True, help="config.json of the drafter")
    parser.add_argument(
        "--evaluations",
        type=Path,
        nargs="+",
        required=True,
        help="result of the evaluation, then that of a published drafter, if there is one",
    )
    parser.add_argument(
        "--figures", type=Path, nargs="+", required=True, help="figures of the evaluation"
    )
    parser.add_argument("--benchmarks", type=Path, required=True, help="folder of the benchmarks")
    parser.add_argument(
        "--templates", type=Path, nargs="+", required=True, help="the page's template and its parts"
    )
    parser.add_argument("--report", type=Path, required=True, help="page to write")
    parser.add_argument("--log", type=Path, required=True, help="log file")
    args = parser.parse_args()
    with stage("report", args.log) as current:
        evaluation, published = [*args.evaluations, None][:2]
        files = RunFiles(
            sources=args.sources,
            merged=args.merged,
            responses=args.responses[0] if args.responses else None,
            rows=args.rows,
            samples=args.samples,
            stamp=args.stamp,
            training=args.training,
            drafter=args.drafter,
            evaluation=evaluation,
            published=published,
            figures=args.figures,
            benchmarks=args.benchmarks,
        )
        settings = read_settings(ReportSettings, args.settings)
        write_report(
            settings, json.loads(args.running), files, args.templates[0].parent, args.report
        )
        current.result(str(args.report))


if __name__ == "__main__":
    main()
