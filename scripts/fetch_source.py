"""Bring the raw files of one source and list them in a manifest."""

import argparse
from pathlib import Path

from lib.console import stage
from lib.fetching import Location, fetch_source
from lib.settings import read_settings


def main() -> None:
    """Run the stage as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--source", required=True, help="name of the source")
    parser.add_argument("--settings", required=True, help="settings as JSON")
    parser.add_argument(
        "--manifest", type=Path, required=True, help="manifest to write; the files go beside it"
    )
    parser.add_argument("--log", type=Path, required=True, help="log file")
    args = parser.parse_args()
    with stage(f"fetch_source {args.source}", args.log) as current:
        location = read_settings(Location, args.settings)
        folder = args.manifest.parent / args.source
        names = fetch_source(location, folder, args.manifest, current)
        current.result(f"{len(names)} files")


if __name__ == "__main__":
    main()
