"""Write, or only compare, the pages that follow from the project itself."""

import argparse
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import yaml

from lib.configuration import (
    complete,
    evaluation_files,
    load_schema,
    source_entry,
    source_names,
    stage_settings,
)
from lib.conversation import CHOICES, REASONS, REPAIRS
from lib.digest import canonical
from lib.documentation import (
    configuration_page,
    counts_table,
    fill,
    matrix_table,
    meanings_table,
    stage_picture,
)
from lib.drop_reasons import DROP_REASONS
from lib.merging import Merged, MergeSettings, merge_sources, unwatched
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
    parser.add_argument("--corpus-page", type=Path, required=True, help="page on the merge")
    parser.add_argument("--check", action="store_true", help="write nothing; fail if out of step")
    args = parser.parse_args()
    schema = load_schema(args.schema)
    raw = yaml.safe_load(args.configuration.read_text(encoding="utf-8"))
    config = complete(raw, schema, Path.cwd())
    with TemporaryDirectory() as folder:
        sources = [_normalize(config, name, Path(folder)) for name in source_names(config)]
        merged = _merge(config, Path(folder))
    pages = {
        args.configuration_page: configuration_page(schema),
        args.readme: fill(
            args.readme.read_text(encoding="utf-8"),
            "stages",
            stage_picture(args.rule_graph.read_text(encoding="utf-8")),
        ),
        args.sources_page: _filled(
            args.sources_page,
            counts=counts_table(sources),
            reasons=_meanings("reason", {k: v for k, v in REASONS.items() if k not in CHOICES}),
            choices=_meanings("reason", {k: v for k, v in REASONS.items() if k in CHOICES}),
            repairs=_meanings("repair", REPAIRS),
        ),
        args.corpus_page: _filled(
            args.corpus_page,
            drops=meanings_table("reason", DROP_REASONS),
            fates=matrix_table(merged["sources"], ["train", "validation", *DROP_REASONS]),
            lost_to=matrix_table(merged["lost_to"], source_names(config)),
            overlap=matrix_table(merged["overlap"], source_names(config)),
        ),
    }
    for path, text in pages.items():
        if args.check and (not path.exists() or path.read_text(encoding="utf-8") != text):
            sys.exit(f"{path} is out of step; run `make docs`")
        if not args.check:
            path.write_text(text, encoding="utf-8")


def _filled(path: Path, **contents: str) -> str:
    page = path.read_text(encoding="utf-8")
    for name, content in contents.items():
        page = fill(page, name, content)
    return page


def _meanings(what: str, meanings: dict[str, str]) -> str:
    return meanings_table(what, dict(sorted(meanings.items())))


def _normalize(config: dict[str, Any], name: str, folder: Path) -> dict[str, Any]:
    """Normalise the local files of a source and return what became of their rows."""
    settings = stage_settings(config, "normalize_source", name)
    return normalize_source(
        read_settings(NormalizeSettings, canonical(settings)),
        [Path(file) for file in source_entry(config, name)["files"]],
        folder / f"{name}.jsonl",
        folder / "rejects",
        folder / "stats",
        advance=lambda rows: None,
    )


def _merge(config: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Merge the normalised sources and return what became of the records."""
    return merge_sources(
        read_settings(MergeSettings, canonical(stage_settings(config, "merge_sources"))),
        [folder / f"{name}.jsonl" for name in source_names(config)],
        [Path(path) for path in evaluation_files(config, Path.cwd())],
        Merged(folder / "corpus", folder / "dropped", folder / "stats"),
        workers=1,
        watch=unwatched,
    )


if __name__ == "__main__":
    main()
