"""Compare two drafters of one target by their `evaluation.json`, prompt by prompt.

python scripts/compare_drafters.py results/one results/other
python scripts/compare_drafters.py results/one/evaluation.json results/one/evaluation.published.json
"""

import argparse
import sys
from pathlib import Path
from typing import Any

from lib.comparison import compare_evaluations, comparison_text
from lib.files import read_json


def main() -> None:
    """Show what the second drafter changes."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("first", metavar="A", type=Path, help="run, or evaluation.json, of one")
    parser.add_argument("second", metavar="B", type=Path, help="the same of another")
    args = parser.parse_args()
    try:
        comparison = compare_evaluations(_read(args.first), _read(args.second))
    except (ValueError, OSError) as error:
        sys.exit(f"error: {error}")
    print(comparison_text(comparison), end="")


def _read(path: Path) -> dict[str, Any]:
    """Return the content of an evaluation.

    Raises:
        ValueError: the file is none of this version.
    """
    path = path / "evaluation.json" if path.is_dir() else path
    try:
        content = read_json(path)
    except ValueError as error:
        raise ValueError(f"{path} is no JSON ({error})") from error
    if not isinstance(content, dict) or not {"prompts", "thinking"} <= content.keys():
        raise ValueError(f"{path} is no evaluation of this version; run the stage again")
    return content


if __name__ == "__main__":
    main()
