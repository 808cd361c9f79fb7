"""Bring the target from the hub, or link a local one."""

import argparse
from pathlib import Path

from lib.console import stage
from lib.settings import read_settings
from lib.target import TargetLocation, fetch_target, write_manifest


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
        folder = args.weights.parent
        fetch_target(location, folder, current.say)
        names = write_manifest(location, folder, args.weights)
        current.result(f"{len(names)} files in {folder}")


if __name__ == "__main__":
    main()
