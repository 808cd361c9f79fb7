"""Show the whole run on one page."""

import argparse
from pathlib import Path

from lib.console import stage
from lib.report import ReportSettings, write_report
from lib.settings import read_settings


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
    parser.add_argument("--rows", type=Path, required=True, help="counts of the token rows")
    parser.add_argument("--stamp", type=Path, required=True, help="stamp of the data set")
    parser.add_argument("--training", type=Path, required=True, help="result of the training")
    parser.add_argument("--evaluation", type=Path, required=True, help="result of the evaluation")
    parser.add_argument("--figure", type=Path, required=True, help="figure of the evaluation")
    parser.add_argument("--template", type=Path, required=True, help="template of the page")
    parser.add_argument("--report", type=Path, required=True, help="page to write")
    parser.add_argument("--log", type=Path, required=True, help="log file")
    args = parser.parse_args()
    with stage("report", args.log) as current:
        settings = read_settings(ReportSettings, args.settings)
        names = ("merged", "rows", "stamp", "training", "evaluation")
        files = {name: getattr(args, name) for name in names}
        if args.responses:
            files["responses"] = args.responses[0]
        write_report(settings, args.sources, files, args.figure, args.template, args.report)
        current.result(str(args.report))


if __name__ == "__main__":
    main()
