"""Train the toy target."""

import argparse
from pathlib import Path

from lib.console import stage
from lib.settings import read_settings
from lib.target import TargetLocation, write_manifest
from lib.toy_target import STEPS, build_toy_target


def main() -> None:
    """Run the stage as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--settings", required=True, help="settings as JSON")
    parser.add_argument("--plan", type=Path, required=True, help="config.json of the plan folder")
    parser.add_argument(
        "--weights", type=Path, required=True, help="manifest to write; the model goes beside it"
    )
    parser.add_argument("--log", type=Path, required=True, help="log file")
    args = parser.parse_args()
    with stage("build_toy_target", args.log) as current:
        location = read_settings(TargetLocation, args.settings)
        folder = args.weights.parent
        with current.progress("steps", STEPS) as progress:
            build_toy_target(args.plan.parent, folder, progress.advance)
        names = write_manifest(location, folder, args.weights)
        current.result(f"{len(names)} files in {folder}")


if __name__ == "__main__":
    main()
