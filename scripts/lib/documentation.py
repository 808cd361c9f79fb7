"""Pages that follow from the project itself: keys, stage picture, and what becomes of rows."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import networkx as nx

_NODE = re.compile(r"^\s*(\w+)\[(\w+)\]$", re.MULTILINE)
_EDGE = re.compile(r"^\s*(\w+) --> (\w+)$", re.MULTILINE)


def fill(page: str, name: str, content: str) -> str:
    """Return a page with `content` between its marks `<!-- name -->` and `<!-- /name -->`."""
    place = re.compile(rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)", re.DOTALL)
    return place.sub(lambda match: match[1] + content + match[2], page)


def configuration_page(schema: Mapping[str, Any]) -> str:
    """Return config/README.md: a table of every key with its type, default and meaning."""
    lines = [
        "# Configuration",
        "",
        "Made by `make docs` from [schema.yaml](schema.yaml). [config.yaml](config.yaml) is the",
        "toy run. Give your own with `snakemake train --cores all --configfile my.yaml`: it stands",
        "alone, and a key that it leaves out has the default that is given here. Several files",
        "after `--configfile` are laid over each other: the later one wins, and lists are replaced",
        "whole.",
    ]
    definitions = schema["$defs"]
    for name, section in schema["properties"].items():
        section = _resolve(section, definitions)
        required = ", required" if name in schema["required"] else ""
        lines += ["", f"## `{name}`", "", f"{section['description']}"]
        if rows := list(_rows(section, "", definitions)):
            lines += ["", "| key | type | default | meaning |", "|---|---|---|---|", *rows]
        else:
            lines += ["", f"Type: {_type(section)}{required}."]
    return "\n".join(lines) + "\n"


def _rows(schema: Mapping[str, Any], prefix: str, definitions: Mapping[str, Any]) -> Iterator[str]:
    if schema.get("type") == "array":
        yield from _rows(_resolve(schema["items"], definitions), prefix, definitions)
        return
    for name, raw in schema.get("properties", {}).items():
        key = _resolve(raw, definitions)
        required = name in schema.get("required", ())
        default = "required" if required else _shown(key["default"]) if "default" in key else "–"
        yield f"| `{prefix}{name}` | {_type(key)} | {default} | {key['description']} |"
        inner = f"{prefix}{name}[]." if key.get("type") == "array" else f"{prefix}{name}."
        yield from _rows(key, inner, definitions)


def _resolve(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> dict[str, Any]:
    if "$ref" not in schema:
        return dict(schema)
    return {**definitions[schema["$ref"].rpartition("/")[2]], **schema}


def _type(schema: Mapping[str, Any]) -> str:
    if "enum" in schema:
        return " or ".join(f"`{value}`" for value in schema["enum"])
    kinds = schema.get("type", "any")
    return kinds if isinstance(kinds, str) else " or ".join(kinds)


def _shown(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if value == {}:
        return "–"
    return f"`{value}`"


def stage_picture(rule_graph: str) -> str:
    """Return a small Mermaid picture of the stages.

    Args:
        rule_graph: what `snakemake --rulegraph mermaid-js` prints.

    Returns:
        The same graph by rule names, without target rules and without arrows that others imply.
    """
    names = dict(_NODE.findall(rule_graph))
    graph = nx.DiGraph((names[one], names[other]) for one, other in _EDGE.findall(rule_graph))
    graph.remove_nodes_from([name for name in ("all",) if name in graph])
    reduced = nx.transitive_reduction(graph)
    order = {name: n for n, name in enumerate(nx.lexicographical_topological_sort(graph))}
    arrows = sorted(reduced.edges, key=lambda edge: (order[edge[0]], order[edge[1]]))
    lines = ["```mermaid", "flowchart TD", *(f"    {one} --> {two}" for one, two in arrows), "```"]
    return "\n".join(lines) + "\n"


def counts_table(stats: Iterable[Mapping[str, Any]]) -> str:
    """Return a table of what became of the rows of each source, from their `.stats.json`."""
    lines = [
        "| source | rows | written | conversations | rejected | repaired |",
        "|---|--:|--:|--:|---|---|",
    ]
    for source in stats:
        rejected, repaired = (
            ", ".join(f"{name} {count}" for name, count in source[key].items()) or "–"
            for key in ("rejected_by_reason", "repaired")
        )
        counts = " | ".join(
            str(source[key]) for key in ("rows_in", "rows_written", "conversations")
        )
        lines.append(f"| `{source['source']}` | {counts} | {rejected} | {repaired} |")
    return "\n".join(lines) + "\n"


def matrix_table(matrix: Mapping[str, Mapping[str, int]], columns: Sequence[str]) -> str:
    """Return a table of the numbers of each source, with empty cells for those that are not there.

    Columns that are empty for all sources are left out.
    """
    shown = [name for name in columns if any(name in row for row in matrix.values())]
    lines = [f"| | {' | '.join(shown)} |", f"|---|{'--:|' * len(shown)}"]
    for name, row in matrix.items():
        lines.append(f"| `{name}` | {' | '.join(str(row.get(other, '')) for other in shown)} |")
    return "\n".join(lines) + "\n"


def meanings_table(what: str, meanings: Mapping[str, str]) -> str:
    """Return a table of names and their meanings, in the order given."""
    shown = ((name, meanings[name].replace("|", r"\|")) for name in meanings)
    rows = (f"| `{name}` | {meaning} |" for name, meaning in shown)
    return "\n".join([f"| {what} | meaning |", "|---|---|", *rows]) + "\n"
