"""Convert the raw rows of one public set to held-out prompts."""

import argparse
from pathlib import Path

from lib.console import stage
from lib.manifest import manifest_files
from lib.prompt_sets import PromptSettings, prepare_prompts
from lib.row_accounts import Accounts, rejects_kept
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
    parser.add_argument("--prompts", type=Path, required=True, help="prompts to write")
    parser.add_argument("--rejects", type=Path, required=True, help="rejected rows to write")
    parser.add_argument("--stats", type=Path, required=True, help="counts to write")
    parser.add_argument("--log", type=Path, required=True, help="log file")
    args = parser.parse_args()
    settings = read_settings(PromptSettings, args.settings)
    with stage(f"prepare_prompts {settings.name}", args.log) as current:
        paths = manifest_files(args.manifest, args.manifest.parent / settings.name)
        accounts = Accounts(args.prompts, args.rejects, args.stats)
        with current.progress("rows") as progress, rejects_kept(args.rejects, args.log):
            counts = prepare_prompts(settings, paths, accounts, progress.advance)
        current.result(
            f"{counts['rows_in']} rows, {counts['rows_written']} prompts, "
            f"{counts['rows_rejected']} left out"
        )


if __name__ == "__main__":
    main()
