"""A published drafter is measured as the run's own is."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

from published_drafters import as_z_lab

from workflow.project import ROOT, Project


def test_the_own_drafter_as_others_publish_it_is_worth_the_same(
    finished: Project, project: Project, tmp_path: Path
) -> None:
    own = finished.folder / "results/toy"
    (target,) = (finished.folder / "models").glob("toy@*")
    shutil.copytree(finished.folder / ".snakemake", project.folder / ".snakemake")
    shutil.copytree(finished.folder / "models", project.folder / "models")
    published = as_z_lab(own / "drafter", tmp_path / "published", target)
    limits = {"minimum_acceptance_length": {"all": 8.0}}
    project.configure(lambda c: c["evaluate"].update(published={"path": str(published)}, **limits))
    planned = project.snakemake("-n", "evaluate").stdout
    assert "evaluate_published_drafter" in planned and "export_drafter" in planned
    written = project.folder / "results/toy/evaluation.published.json"
    outcome = project.snakemake("--cores", "all", str(written.relative_to(project.folder)))
    assert outcome.returncode == 0, outcome.stdout
    assert "train_drafter" not in outcome.stdout
    evaluation = json.loads((own / "evaluation.json").read_text())
    found = json.loads(written.read_text())
    known = {"known_as": str(published), "revision": None}
    assert found["published"] == {**known, "format": "z-lab", "algorithm": "dflash"}
    assert found == {**evaluation, "published": found["published"]}

    compared = subprocess.run(
        [sys.executable, str(ROOT / "scripts/compare_drafters.py"), str(own), str(written)],
        capture_output=True,
        text=True,
    )
    assert compared.returncode == 0, compared.stderr
    assert "+0.00" in compared.stdout and "Measured differently" not in compared.stdout
