"""Bring a published drafter, from the hub or a local folder, to train on from it or measure it."""

import argparse
from pathlib import Path

from lib.console import stage
from lib.published_drafter import PublishedDrafterSettings, fetch_drafter
from lib.settings import read_settings


def main() -> None:
    """Run the stage as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--settings", required=True, help="settings as JSON")
    parser.add_argument("--weights", type=Path, required=True, help="manifest of the target")
    parser.add_argument(
        "--manifest", type=Path, required=True, help="manifest to write; the drafter goes beside it"
    )
    parser.add_argument("--log", type=Path, required=True, help="log file")
    args = parser.parse_args()
    with stage("fetch_drafter", args.log) as current:
        settings = read_settings(PublishedDrafterSettings, args.settings)
        found = fetch_drafter(settings, args.weights.parent, args.manifest, current)
        current.result(
            f"{found['known_as']}, {found['algorithm']} in the format of {found['format']}"
        )


if __name__ == "__main__":
    main()
