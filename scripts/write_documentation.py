"""Write, or only compare, the pages that follow from the project itself."""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import yaml

from lib.configuration import complete, load_schema, stage_settings
from lib.conversation import CHOICES, REASONS, REPAIRS
from lib.digest import canonical
from lib.documentation import (
    configuration_page,
    counts_table,
    fill,
    meanings_table,
    stage_picture,
)
from lib.normalizing import NormalizeSettings, normalize_source
from lib.settings import read_settings


def main() -> None:
    """Write the pages; with --check only compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--schema", type=Path, required=True, help="schema of the configuration")
    parser.add_argument("--configuration", type=Path, required=True, help="of the toy run")
    parser.add_argument("--rule-graph", type=Path, required=True, help="output of --rulegraph")
    parser.add_argument("--configuration-page", type=Path, required=True, help="page to write")
    parser.add_argument("--readme", type=Path, required=True, help="README with the picture")
    parser.add_argument("--sources-page", type=Path, required=True, help="page with the counts")
    parser.add_argument("--check", action="store_true", help="write nothing; fail if out of step")
    args = parser.parse_args()
    schema = load_schema(args.schema)
    raw = yaml.safe_load(args.configuration.read_text(encoding="utf-8"))
    pages = {
        args.configuration_page: configuration_page(schema),
        args.readme: fill(
            args.readme.read_text(encoding="utf-8"),
            "stages",
            stage_picture(args.rule_graph.read_text(encoding="utf-8")),
        ),
        args.sources_page: _sources_page(
            args.sources_page.read_text(encoding="utf-8"),
            complete(raw, schema, Path.cwd()),
        ),
    }
    for path, text in pages.items():
        if args.check and (not path.exists() or path.read_text(encoding="utf-8") != text):
            sys.exit(f"{path} is out of step; run `make docs`")
        if not args.check:
            path.write_text(text, encoding="utf-8")


def _sources_page(page: str, config: dict[str, Any]) -> str:
    contents = {
        "counts": counts_table(_stats(config)),
        "reasons": meanings_table("reason", {k: v for k, v in REASONS.items() if k not in CHOICES}),
        "choices": meanings_table("reason", {k: v for k, v in REASONS.items() if k in CHOICES}),
        "repairs": meanings_table("repair", REPAIRS),
    }
    for name, content in contents.items():
        page = fill(page, name, content)
    return page


def _stats(config: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Normalise the local files of each source and yield what became of their rows."""
    with TemporaryDirectory() as name:
        outputs = [Path(name, output) for output in ("records", "rejects", "stats")]
        for source in config["sources"]:
            settings = stage_settings(config, "normalize_source", source["name"])
            yield normalize_source(
                read_settings(NormalizeSettings, canonical(settings)),
                [Path(file) for file in source["files"]],
                *outputs,
                advance=lambda rows: None,
            )


if __name__ == "__main__":
    main()
