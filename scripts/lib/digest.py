"""Digests that decide what is stale: of settings and of the code that a rule runs.

Snakemake compares parameters as text, so each rule hands it two strings: `canonical` text of
its configuration section and `code_digest` of its script with all that the script imports from
`scripts/lib`. Content decides, never a path or a time stamp.
"""

import ast
import hashlib
import json
from functools import cache
from pathlib import Path
from typing import Any

SCRIPTS = Path(__file__).resolve().parent.parent


def canonical(value: Any) -> str:
    """Return the one JSON text of a value: sorted keys, no spaces, same value same text."""
    return json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )


def digest(value: Any) -> str:
    """Return the SHA-256 of a value's canonical text as 64 hexadecimal digits."""
    return hashlib.sha256(canonical(value).encode("utf-8", "surrogatepass")).hexdigest()


def code_digest(script: str, *modules: str, environment: str) -> str:
    """Return a digest of all the code that a rule runs.

    Args:
        script: file name below `scripts/`.
        modules: files below `scripts/` that the script loads by name, so no import shows them.
        environment: file name below `envs/`; its comments and blank lines do not count.

    Returns:
        16 hexadecimal digits over the script, the `lib` modules that it imports directly or not,
        and the environment.
    """
    files = imported_files(tuple(SCRIPTS / name for name in (script, *modules)))
    contents = {
        str(path.relative_to(SCRIPTS)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in files
    }
    contents["environment"] = hashlib.sha256(
        _without_comments(SCRIPTS.parent / "envs" / environment).encode()
    ).hexdigest()
    return digest(contents)[:16]


def imported_files(scripts: tuple[Path, ...]) -> list[Path]:
    """Return the scripts and every `lib` module that they import, directly or not, sorted."""
    seen: set[Path] = set()
    waiting = list(scripts)
    while waiting:
        path = waiting.pop()
        if path not in seen:
            seen.add(path)
            waiting.extend(_imports_of(path))
    return sorted(seen)


@cache
def _imports_of(path: Path) -> tuple[Path, ...]:
    found: list[Path] = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                found += _module_files(alias.name)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found += _module_files(node.module)
            for alias in node.names:
                found += _module_files(f"{node.module}.{alias.name}")
    return tuple(found)


def _module_files(name: str) -> list[Path]:
    """Return the files that importing `name` runs: the module and the packages that hold it."""
    parts = name.split(".")
    if parts[0] != "lib":
        return []
    packages = [SCRIPTS.joinpath(*parts[:n], "__init__.py") for n in range(1, len(parts) + 1)]
    module = SCRIPTS.joinpath(*parts).with_suffix(".py")
    return [path for path in (*packages, module) if path.is_file()]


def _without_comments(path: Path) -> str:
    lines = (line.partition(" #")[0].rstrip() for line in path.read_text("utf-8").splitlines())
    return "\n".join(line for line in lines if line and not line.lstrip().startswith("#"))
