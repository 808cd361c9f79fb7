"""A stage that a batch system tells to end."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"

STAGE = """
import time
from pathlib import Path
from lib.console import stage
from lib.processes import guarded_process
trainer = "trap 'sleep 0.5; touch saved; exit' TERM; touch started; while true; do sleep 0.1; done"
with stage("training", Path("log")) as current, guarded_process(["sh", "-c", trainer], Path("log")):
    time.sleep(60)
"""


def test_a_stage_waits_until_what_it_started_has_saved_its_work(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(SCRIPTS)}
    process = subprocess.Popen(
        [sys.executable, "-c", STAGE],
        cwd=tmp_path,
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
    )
    while not (tmp_path / "started").exists():
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=30)
    assert (tmp_path / "saved").exists()
    assert said == "training: interrupted; the same command goes on from here\n"
    assert process.returncode == 130
