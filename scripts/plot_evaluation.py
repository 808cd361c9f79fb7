"""Draw what was measured of the drafter, so that another look of the figures measures nothing."""

import argparse
from functools import partial
from pathlib import Path

from lib.console import stage
from lib.evaluation_figures import draw_evaluation
from lib.figure_style import write_figure
from lib.files import read_json


def main() -> None:
    """Run the stage as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--evaluations",
        type=Path,
        nargs="+",
        required=True,
        help="result of the evaluation, then that of a published drafter, if there is one",
    )
    parser.add_argument(
        "--figures", type=Path, nargs="+", required=True, help="figures to write, by their names"
    )
    parser.add_argument("--log", type=Path, required=True, help="log file")
    args = parser.parse_args()
    with stage("plot_evaluation", args.log) as current:
        evaluation, published = [*map(read_json, args.evaluations), None][:2]
        for path in args.figures:
            write_figure(partial(draw_evaluation, path.stem, evaluation, published), path)
        current.result(f"{len(args.figures)} figures in {args.figures[0].parent}")


if __name__ == "__main__":
    main()
