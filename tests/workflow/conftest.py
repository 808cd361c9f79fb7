import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from workflow.dry_runs import CONDA
from workflow.interruptions import Finished, finish, make_small
from workflow.project import Project, copy_project
from workflow.staleness import Bases, prepare_bases


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A project in which the toy run has ended; tests leave it as it is.

    Its folder has a name with spaces and letters that are not ASCII, for every stage to meet them.
    """
    project = copy_project(tmp_path_factory.mktemp("finished") / "draft mill – Entwürfe 草稿")
    result = project.snakemake("--cores", "all", "all")
    (project.folder / "run.log").write_text(result.stdout)
    assert result.returncode == 0, result.stdout
    return project


@pytest.fixture(scope="session")
def small(finished: Project, tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """A small run that has ended; its target is that of the toy run."""
    project = copy_project(tmp_path_factory.mktemp("small") / "draftmill")
    shutil.copytree(finished.folder / "models", project.folder / "models")
    for weights in project.folder.glob("models/*/weights.json"):
        weights.touch()  # newer than what it was built from, which was copied just now
    project.configure(make_small)
    return finish(project)


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    """A fresh copy of the project, where nothing has run."""
    yield copy_project(tmp_path / "draftmill")


@pytest.fixture(scope="session")
def bases(finished: Project, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bases]:
    """Finished runs of three configurations; tests put back what they change."""
    folder = tmp_path_factory.mktemp("staleness")
    (folder / "conda").write_text(CONDA)
    (folder / "conda").chmod(0o755)
    shutil.copytree(finished.folder, folder / "draftmill", symlinks=True)
    bases = prepare_bases(Project(folder / "draftmill"), str(folder))
    yield bases
    bases.dry_runs.close()
