"""Store the hidden states of the target for every token row."""

import argparse
from pathlib import Path

from lib.console import stage
from lib.files import read_json
from lib.hidden_states import HiddenStatesSettings, extract_hidden_states
from lib.settings import read_settings
from lib.stamp import require_stamp


def main() -> None:
    """Run the stage as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--settings", required=True, help="settings as JSON")
    parser.add_argument("--stamp", type=Path, required=True, help="stamp of the data set")
    parser.add_argument("--tokenized", type=Path, required=True, help="counts of the token rows")
    parser.add_argument("--weights", type=Path, required=True, help="manifest of the target")
    parser.add_argument(
        "--manifest", type=Path, required=True, help="manifest to write; the states go beside it"
    )
    parser.add_argument("--log", type=Path, required=True, help="log file")
    args = parser.parse_args()
    with stage("extract_hidden_states", args.log) as current:
        settings = read_settings(HiddenStatesSettings, args.settings)
        require_stamp(args.stamp, args.tokenized.parent, args.weights.parent)
        with current.progress("rows", read_json(args.stamp)["rows"]) as progress:
            manifest = extract_hidden_states(
                settings,
                args.tokenized.parent,
                args.weights.parent,
                args.manifest,
                progress.advance,
            )
        current.result(f"{manifest['rows_on_disk']} rows, {manifest['bytes'] / 1e6:.0f} MB")


if __name__ == "__main__":
    main()
