"""What a stage says when it fails, and when it ends by itself."""

import os
import subprocess
import sys
import time
from pathlib import Path

SCRIPTS = Path(__file__).parents[2] / "scripts"

STAGE = """
import errno, os, sys, time
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from lib.console import stage
with stage("a_stage", Path(sys.argv[2])):
    exec(sys.argv[3])
"""


def run(log: Path, work: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a stage that does some work; its terminal is the standard error of the result."""
    environment = {key: value for key, value in os.environ.items() if "DRAFTMILL" not in key}
    return subprocess.run(
        [sys.executable, "-c", STAGE, str(SCRIPTS), str(log), work],
        env={**environment, **variables},
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_bad_input_is_one_line_and_its_traceback_is_in_the_log(tmp_path):
    result = run(tmp_path / "log", "raise ValueError('row 3 is empty')")
    assert result.returncode == 1
    assert result.stderr == "a_stage: error: row 3 is empty\n"
    assert "Traceback" in (tmp_path / "log").read_text()


def test_a_full_disk_is_said_with_what_to_do(tmp_path):
    work = "raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), 'rows.arrow')"
    result = run(tmp_path / "log", work)
    assert result.returncode == 1
    (line,) = result.stderr.splitlines()
    assert "rows.arrow" in line
    assert line.endswith("the disk is full: make room, and give the same command again")


def test_a_log_that_cannot_be_written_hides_no_error(tmp_path):
    (tmp_path / "log").symlink_to("/dev/full")
    result = run(tmp_path / "log", "raise ValueError('row 3 is empty')")
    assert result.returncode == 1
    assert "a_stage: error: row 3 is empty" in result.stderr


def test_a_stage_ends_if_its_run_had_ended_before_it_began(tmp_path):
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    start = time.monotonic()
    result = run(tmp_path / "log", "time.sleep(50)", DRAFTMILL_MAIN_PROCESS=str(gone.pid))
    assert result.returncode == 143
    assert time.monotonic() - start < 30
