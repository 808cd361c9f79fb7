"""Export the best checkpoint as a drafter for a server."""

import argparse
from pathlib import Path

from lib.console import stage
from lib.drafter import ExportSettings, Records, export_drafter
from lib.settings import read_settings


def main() -> None:
    """Run the stage as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--settings", required=True, help="settings as JSON")
    parser.add_argument("--result", type=Path, required=True, help="result of the training")
    parser.add_argument("--weights", type=Path, required=True, help="manifest of the target")
    parser.add_argument("--tokenized", type=Path, required=True, help="counts of the token rows")
    parser.add_argument(
        "--hidden-states",
        type=Path,
        nargs="*",
        required=True,
        help="manifest of the hidden states, if they are stored",
    )
    parser.add_argument(
        "--config",
        type=Path,
        required=True,
        help="config.json to write; the drafter goes beside it",
    )
    parser.add_argument("--log", type=Path, required=True, help="log file")
    args = parser.parse_args()
    with stage("export_drafter", args.log) as current:
        settings = read_settings(ExportSettings, args.settings)
        stored = args.hidden_states[0] if args.hidden_states else None
        records = Records(args.result, args.weights, args.tokenized, stored)
        export_drafter(settings, records, args.config.parent, current.say)
        current.result(f"{args.config.parent}/")


if __name__ == "__main__":
    main()
