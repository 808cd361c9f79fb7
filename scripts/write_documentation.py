"""Write, or only compare, the pages that follow from the schema and the rule graph."""

import argparse
import sys
from pathlib import Path

from lib.configuration import load_schema
from lib.documentation import PICTURE, configuration_page, stage_picture


def main() -> None:
    """Write config/README.md and the picture in README.md; with --check only compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--schema", type=Path, required=True, help="schema of the configuration")
    parser.add_argument("--rule-graph", type=Path, required=True, help="output of --rulegraph")
    parser.add_argument("--configuration-page", type=Path, required=True, help="page to write")
    parser.add_argument("--readme", type=Path, required=True, help="README with the picture")
    parser.add_argument("--check", action="store_true", help="write nothing; fail if out of step")
    args = parser.parse_args()
    picture = stage_picture(args.rule_graph.read_text(encoding="utf-8"))
    readme = args.readme.read_text(encoding="utf-8")
    pages = {
        args.configuration_page: configuration_page(load_schema(args.schema)),
        args.readme: PICTURE.sub(lambda match: match[1] + picture + match[2], readme),
    }
    for path, text in pages.items():
        if args.check and (not path.exists() or path.read_text(encoding="utf-8") != text):
            sys.exit(f"{path} is out of step; run `make docs`")
        if not args.check:
            path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
