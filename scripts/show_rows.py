"""Show token rows on the terminal: what is supervised in green, the rest in grey.

python scripts/show_rows.py results/toy models/toy@12345678 [--source NAME] [--count 5] [--row N]
"""

import argparse
import sys
from pathlib import Path

from lib.arrow_rows import read_token_rows
from lib.jsonl import read_jsonl
from lib.rendering import Renderer, ThinkingMode
from lib.row_display import coloured, marked


def main() -> None:
    """Show the rows that the command line asks for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("results", type=Path, help="folder of the run")
    parser.add_argument("target", type=Path, help="folder of the target")
    parser.add_argument("--source", help="only rows of this source")
    parser.add_argument("--row", type=int, help="only the row with this number, from 0")
    parser.add_argument("--count", type=int, default=5, help="most rows to show")
    args = parser.parse_args()
    tokenized = args.results / "tokenized"
    if not (tokenized / "state.json").is_file():
        sys.exit(f"{tokenized} holds no token rows")
    tokenizer = Renderer(args.target, ThinkingMode()).tokenizer
    show = coloured if sys.stdout.isatty() else marked
    shown = 0
    index = read_jsonl(tokenized / "rows.jsonl")
    for number, (entry, row) in enumerate(zip(index, read_token_rows(tokenized), strict=True)):
        source = entry["id"].rpartition("-")[0]
        if args.source not in (None, source) or args.row not in (None, number):
            continue
        ids, mask, length = row
        print(f"row {number}: {entry['id']}, {entry['split']}, {length} tokens, {sum(mask)} said")
        print(show(ids, mask, tokenizer.decode), end="\n\n")
        shown += 1
        if shown == args.count:
            break
    if not shown:
        sys.exit("no such row")


if __name__ == "__main__":
    main()
