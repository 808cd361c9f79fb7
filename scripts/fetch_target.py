"""Bring the target from the hub, or link a local one."""

import argparse
from pathlib import Path

from lib.console import stage
from lib.settings import read_settings
from lib.target import TargetLocation
from lib.target_fetching import fetch_target


def main() -> None:
    """Run the stage as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--settings", required=True, help="settings as JSON")
    parser.add_argument(
        "--weights", type=Path, required=True, help="manifest to write; the model goes beside it"
    )
    parser.add_argument("--log", type=Path, required=True, help="log file")
    args = parser.parse_args()
    with stage("fetch_target", args.log) as current:
        location = read_settings(TargetLocation, args.settings)
        names = fetch_target(location, args.weights, current)
        current.result(f"{len(names)} files in {args.weights.parent}")


if __name__ == "__main__":
    main()
