"""Draw the curves of the training, so that another look of them trains nothing."""

import argparse
from pathlib import Path

from lib.console import stage
from lib.files import read_json
from lib.training_figures import curves_of, draw_curves


def main() -> None:
    """Run the stage as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--training", type=Path, required=True, help="result of the training")
    parser.add_argument("--figures", type=Path, nargs="+", required=True, help="files to write")
    parser.add_argument("--log", type=Path, required=True, help="log file")
    args = parser.parse_args()
    with stage("plot_training", args.log) as current:
        training = read_json(args.training)
        for path in args.figures:
            draw_curves(curves_of(training), path, training["settings"]["block_size"])
        current.result(", ".join(map(str, args.figures)))


if __name__ == "__main__":
    main()
