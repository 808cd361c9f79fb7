"""The house is in order: pages in step, one script a rule, environments that fit."""

import ast
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from environments import pins, pip_lines

from lib.configuration import complete, load_schema, stage_settings
from lib.digest import canonical, imported_files
from lib.drafter import ExportSettings
from lib.evaluation import EvaluateSettings
from lib.fetching import Location
from lib.hidden_states import HiddenStatesSettings
from lib.merging import MergeSettings
from lib.normalizing import NormalizeSettings
from lib.prompt_sets import PromptSettings
from lib.published_drafter import PublishedDrafterSettings
from lib.report import ReportSettings
from lib.responding import ResponseSettings
from lib.settings import read_settings
from lib.target import TargetLocation
from lib.token_rows import TokenizeSettings
from lib.train_settings import TrainSettings
from lib.verification import VerifySettings
from workflow.project import ROOT, Project

SETTINGS = {
    "fetch_source": Location,
    "normalize_source": NormalizeSettings,
    "prepare_prompts": PromptSettings,
    "merge_sources": MergeSettings,
    "build_toy_target": TargetLocation,
    "fetch_target": TargetLocation,
    "regenerate_responses": ResponseSettings,
    "tokenize_conversations": TokenizeSettings,
    "verify_dataset": VerifySettings,
    "extract_hidden_states": HiddenStatesSettings,
    "fetch_drafter": PublishedDrafterSettings,
    "train_drafter": TrainSettings,
    "export_drafter": ExportSettings,
    "evaluate_drafter": EvaluateSettings,
    "evaluate_published_drafter": EvaluateSettings,
    "report": ReportSettings,
}
WITHOUT_SETTINGS = {"gather_responses", "plot_evaluation", "plot_training"}


def rules() -> dict[str, str]:
    """Return the text of each rule that has a shell command, by name."""
    text = "\n".join(path.read_text() for path in sorted((ROOT / "rules").glob("*.smk")))
    parts = re.split(r"^\s*rule (\w+):$", text, flags=re.M)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def test_configuration_page_and_stage_picture_are_in_step(project: Project) -> None:
    graph = project.folder / "rule_graph.txt"
    result = subprocess.run(
        [sys.executable, "-m", "snakemake", "--rulegraph", "mermaid-js", "all"],
        cwd=project.folder,
        capture_output=True,
        text=True,
        check=True,
    )
    graph.write_text(result.stdout)
    check = subprocess.run(
        [
            *(sys.executable, "scripts/write_documentation.py", "--check"),
            *("--schema", "config/schema.yaml", "--configuration", "config/config.yaml"),
            *("--rule-graph", str(graph), "--configuration-page", "config/README.md"),
            *("--readme", str(ROOT / "README.md")),
            *("--sources-page", str(ROOT / "docs/sources.md")),
            *("--corpus-page", str(ROOT / "docs/corpus.md")),
        ],
        cwd=project.folder,
        capture_output=True,
        text=True,
    )
    assert check.returncode == 0, check.stderr


def test_every_key_of_the_schema_is_described_and_closed() -> None:
    schema = load_schema(ROOT / "config/schema.yaml")

    def visit(node: dict[str, Any], where: str) -> None:
        if "$ref" in node:
            assert node["description"], where
            return
        assert node.get("description"), where
        if "object" in node.get("type", ""):
            others = node["additionalProperties"]
            assert others is False or others["description"], where
        for name, child in node.get("properties", {}).items():
            visit(child, f"{where}.{name}")
        if "items" in node:
            visit(node["items"], f"{where}[]")

    visit(schema, "")
    for name, definition in schema["$defs"].items():
        visit({"description": "given where it is used", **definition}, name)


def test_every_yaml_in_config_is_a_valid_configuration() -> None:
    schema = load_schema(ROOT / "config/schema.yaml")
    for path in sorted((ROOT / "config").glob("*.yaml")):
        if path.name != "schema.yaml":
            assert complete(yaml.safe_load(path.read_text()), schema, ROOT)["run"]


@pytest.mark.parametrize("stage", SETTINGS)
def test_settings_of_a_stage_are_what_its_script_reads(stage: str) -> None:
    schema = load_schema(ROOT / "config/schema.yaml")
    raw = yaml.safe_load((ROOT / "config/config.yaml").read_text())
    file = raw["evaluate"]["prompts"][0]
    asked = {"name": "asked", "format": "prompts", "domain": "chat", "files": [file]}
    raw["evaluate"]["prompt_sets"] = [asked]
    config = complete(raw, schema, ROOT)
    name = "asked" if stage == "prepare_prompts" else raw["sources"][0]["name"]
    settings = stage_settings(config, stage, name)
    read_settings(SETTINGS[stage], canonical(settings))


def test_every_rule_has_its_script_log_and_benchmark_under_its_own_name() -> None:
    found = rules()
    assert set(found) == set(SETTINGS) | WITHOUT_SETTINGS
    for name, text in found.items():
        assert f"python scripts/{name}.py" in text, name
        assert (ROOT / f"scripts/{name}.py").is_file()
        assert re.search(rf'log:\s+"<logs>/{name}[./]', text), name
        assert re.search(rf'benchmark:\s+"<benchmarks>/{name}[./]', text), name
        assert text.strip().startswith('"""'), name
        has_settings = f'settings=lambda w: settings("{name}"' in text
        assert has_settings == (name not in WITHOUT_SETTINGS), name
        assert re.search(rf'code_digest\(\s*"{name}.py"', text), name


def test_files_stay_small() -> None:
    assert len((ROOT / "Snakefile").read_text().splitlines()) <= 80
    for path in (ROOT / "rules").glob("*.smk"):
        assert len(path.read_text().splitlines()) < 150, path


def test_lib_knows_neither_argparse_nor_snakemake() -> None:
    for path in (ROOT / "scripts/lib").rglob("*.py"):
        assert not third_party(path) & {"argparse", "snakemake"}, path


def third_party(path: Path) -> set[str]:
    """Return the top-level names of all modules that a file imports."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module.partition(".")[0])
    return names


PACKAGE_OF = {
    "PIL": "pillow",
    "hs_connectors": "hs-connectors",
    "huggingface_hub": "huggingface-hub",
    "yaml": "pyyaml",
}


def test_environment_of_a_rule_holds_what_its_code_imports() -> None:
    page = (ROOT / "docs/environments.md").read_text()
    for name, text in rules().items():
        environment = re.search(r'conda:\s+"\.\./envs/(\w+\.yaml)"', text)
        assert environment is not None, name
        assert f'environment="{environment[1]}"' in text, name
        row = rf"^\| \[{environment[1].removesuffix('.yaml')}\].*`{name}`"
        assert re.search(row, page, re.M), name
        loaded_by_name = re.findall(r'"(lib/\w+\.py)"', text)
        scripts = [ROOT / "scripts" / path for path in (f"{name}.py", *loaded_by_name)]
        if name == "normalize_source":
            scripts += (ROOT / "scripts/lib/formats").glob("*.py")
        imported = set().union(*(third_party(path) for path in imported_files(tuple(scripts))))
        packages = {PACKAGE_OF.get(module, module) for module in imported - {"lib"}}
        outside = {p for p in packages if p not in sys.stdlib_module_names}
        assert outside <= set(pins(pip_lines(environment[1]))), name
