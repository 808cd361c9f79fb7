from collections.abc import Iterator
from pathlib import Path

import pytest

from workflow.project import Project, copy_project


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A project in which the toy run has ended; tests leave it as it is."""
    project = copy_project(tmp_path_factory.mktemp("finished") / "draftmill")
    result = project.snakemake("--cores", "all", "all")
    (project.folder / "run.log").write_text(result.stdout)
    assert result.returncode == 0, result.stdout
    return project


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    """A fresh copy of the project, where nothing has run."""
    yield copy_project(tmp_path / "draftmill")
