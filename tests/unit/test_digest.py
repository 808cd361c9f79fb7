"""What decides that a rule is stale: its settings and its own code, and nothing else."""

import json
import re
import shutil
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lib import digest as digests
from lib.digest import canonical, code_digest, digest, imported_files

ROOT = Path(__file__).parents[2]
TREE = {
    "run.py": "from lib.direct import f\n",
    "lib/__init__.py": "",
    "lib/direct.py": "import json\nfrom lib import indirect\n",
    "lib/indirect.py": "def g():\n    from lib.package.inner import h\n",
    "lib/package/__init__.py": "import lib.of_package\n",
    "lib/package/inner.py": "import os.path\n",
    "lib/of_package.py": "import lib.direct\n",
    "lib/by_name.py": "from lib.only_by_name import i\n",
    "lib/only_by_name.py": "",
    "lib/unrelated.py": "import lib.direct\n",
    "other.py": "import lib.unrelated\n",
}
ENVIRONMENT = "# A comment\nchannels:\n  - conda-forge\n\ndependencies:\n  - tqdm==4.0  # a pin\n"


@pytest.fixture
def tree(tmp_path, monkeypatch):
    """A folder of scripts of its own, which the digests look at."""
    return use(tmp_path, monkeypatch)


def use(folder, monkeypatch):
    for name, text in TREE.items():
        path = folder / "scripts" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (folder / "envs").mkdir()
    (folder / "envs/data.yaml").write_text(ENVIRONMENT)
    monkeypatch.setattr(digests, "SCRIPTS", folder / "scripts")
    digests._imports_of.cache_clear()
    return folder


def current(*modules):
    digests._imports_of.cache_clear()
    return code_digest("run.py", *modules, environment="data.yaml")


def edit(path):
    path.write_text(path.read_text() + "\nx = 1\n")


@pytest.mark.parametrize(
    "name",
    [
        "run.py",
        "lib/__init__.py",
        "lib/direct.py",
        "lib/indirect.py",
        "lib/package/__init__.py",
        "lib/package/inner.py",
        "lib/of_package.py",
    ],
)
def test_an_edit_of_what_the_script_imports_changes_the_digest(tree, name):
    before = current()
    edit(tree / "scripts" / name)
    assert current() != before


@pytest.mark.parametrize(
    "name", ["lib/unrelated.py", "lib/by_name.py", "lib/only_by_name.py", "other.py"]
)
def test_an_edit_of_anything_else_does_not(tree, name):
    before = current()
    edit(tree / "scripts" / name)
    (tree / "scripts/lib/new.py").write_text("")
    assert current() == before


@pytest.mark.parametrize("name", ["lib/by_name.py", "lib/only_by_name.py"])
def test_a_module_that_is_loaded_by_name_counts_with_its_imports(tree, name):
    before = current("lib/by_name.py")
    assert before != current()
    edit(tree / "scripts" / name)
    assert current("lib/by_name.py") != before


def test_a_new_import_counts_at_once(tree):
    before = current()
    with (tree / "scripts/lib/indirect.py").open("a") as file:
        file.write("import lib.unrelated\n")
    changed = current()
    edit(tree / "scripts/lib/unrelated.py")
    assert len({before, changed, current()}) == 3


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("# A comment\n", ""),
        ("# A comment\n", "# Another comment\n    # and one more\n"),
        ("  # a pin", ""),
        ("\n\n", "\n"),
        ("4.0  #", "4.0 #"),
    ],
)
def test_comments_and_blank_lines_of_the_environment_do_not_count(tree, old, new):
    before = current()
    assert old in ENVIRONMENT
    (tree / "envs/data.yaml").write_text(ENVIRONMENT.replace(old, new))
    assert current() == before


def test_a_pin_of_the_environment_counts(tree):
    before = current()
    (tree / "envs/data.yaml").write_text(ENVIRONMENT.replace("4.0", "4.1"))
    assert current() != before


def test_neither_place_nor_time_counts(tmp_path, monkeypatch):
    found = []
    for name in ("here", "there"):
        use(tmp_path / name, monkeypatch)
        found.append(current())
    for path in (tmp_path / "there").rglob("*.py"):
        path.touch()
    found.append(current())
    assert len(set(found)) == 1


def test_of_the_real_rules_only_those_that_import_an_edited_helper_are_stale(monkeypatch, tmp_path):
    shutil.copytree(ROOT / "scripts", tmp_path / "scripts")
    shutil.copytree(ROOT / "envs", tmp_path / "envs")
    monkeypatch.setattr(digests, "SCRIPTS", tmp_path / "scripts")

    def both():
        digests._imports_of.cache_clear()
        return [
            code_digest("normalize_source.py", "lib/formats/sharegpt.py", environment="data.yaml"),
            code_digest("merge_sources.py", environment="data.yaml"),
        ]

    before = both()
    edit(tmp_path / "scripts/lib/html_markdown.py")
    edited = both()
    assert edited[0] != before[0]
    assert edited[1] == before[1]
    edit(tmp_path / "scripts/lib/jsonl.py")
    assert all(new != old for new, old in zip(both(), edited, strict=True))


def test_imported_files_are_sorted_and_without_repetition(tree):
    files = imported_files((tree / "scripts/run.py", tree / "scripts/run.py"))
    assert files == sorted(set(files))
    assert tree / "scripts/lib/of_package.py" in files


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=60, derandomize=True, deadline=None)
@given(first=VALUES, second=VALUES)
def test_digests_are_equal_where_the_json_is(first, second):
    assert json.loads(canonical(first)) == first
    assert (digest(first) == digest(second)) == (canonical(first) == canonical(second))
    assert re.fullmatch("[0-9a-f]{64}", digest(first))


@settings(max_examples=40, derandomize=True, deadline=None)
@given(pairs=st.dictionaries(st.text(), VALUES, min_size=2, max_size=4), data=st.data())
def test_the_order_of_keys_does_not_count(pairs, data):
    shuffled = dict(data.draw(st.permutations(list(pairs.items()))))
    assert canonical(shuffled) == canonical(pairs)


def test_types_count():
    values = [1, "1", [1], {"1": 1}, None, True, "null", 1.5]
    assert len({digest(value) for value in values}) == len(values)
    with pytest.raises(ValueError):
        digest(float("nan"))


def test_a_lone_surrogate_has_a_digest():
    assert digest("\ud83d") != digest("\ufffd")
