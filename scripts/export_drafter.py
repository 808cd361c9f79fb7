"""Export the best checkpoint as a drafter for a server."""

import argparse
from pathlib import Path

from lib.console import stage
from lib.drafter import ExportSettings, export_drafter
from lib.settings import read_settings


def main() -> None:
    """Run the stage as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--settings", required=True, help="settings as JSON")
    parser.add_argument("--result", type=Path, required=True, help="result of the training")
    parser.add_argument("--weights", type=Path, required=True, help="manifest of the target")
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
        export_drafter(settings, args.result, args.weights, args.config.parent)
        current.result(f"{args.config.parent}/")


if __name__ == "__main__":
    main()
