"""Which state of the project's code made something, where that is known."""

import subprocess

from lib.digest import SCRIPTS


def code_version() -> str:
    """Return the commit of the project, `-dirty` after it if files were changed; "" if unknown."""
    project = SCRIPTS.parent
    if not (project / ".git").exists():
        return ""
    try:
        found = subprocess.run(
            ["git", "describe", "--always", "--dirty", "--abbrev=12"],
            cwd=project,
            capture_output=True,
            text=True,
            timeout=20,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return found.stdout.strip() if found.returncode == 0 else ""
