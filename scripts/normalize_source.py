"""Convert the raw rows of one source to conversation records."""

import argparse
from pathlib import Path

from lib.console import stage
from lib.manifest import manifest_files
from lib.normalizing import NormalizeSettings, normalize_source
from lib.row_accounts import rejects_kept
from lib.settings import read_settings


def main() -> None:
    """Run the stage as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--settings", required=True, help="settings as JSON")
    parser.add_argument(
        "--manifest",
        type=Path,
        required=True,
        help="manifest of the raw files, which lie beside it",
    )
    parser.add_argument("--records", type=Path, required=True, help="records to write")
    parser.add_argument("--rejects", type=Path, required=True, help="rejected rows to write")
    parser.add_argument("--stats", type=Path, required=True, help="counts to write")
    parser.add_argument("--log", type=Path, required=True, help="log file")
    args = parser.parse_args()
    settings = read_settings(NormalizeSettings, args.settings)
    with stage(f"normalize_source {settings.name}", args.log) as current:
        paths = manifest_files(args.manifest, args.manifest.parent / settings.name)
        with current.progress("rows") as progress, rejects_kept(args.rejects, args.log):
            stats = normalize_source(
                settings, paths, args.records, args.rejects, args.stats, progress.advance
            )
        current.result(
            f"{stats['rows_in']} rows, {stats['rows_written']} written, "
            f"{stats['rows_rejected']} rejected"
        )


if __name__ == "__main__":
    main()
