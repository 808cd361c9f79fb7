"""Runs in one folder know of each other, and clear only what killed ones left."""

import subprocess
import sys
from pathlib import Path

import pytest

from lib.locks import enter

RUN = """
import sys, time
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from lib.locks import enter
presence = enter(Path(sys.argv[2]), sys.argv[3])
print("entered", flush=True)
time.sleep(600)
"""


@pytest.fixture
def run(tmp_path):
    """Start another process that enters the folder."""
    scripts, started = str(Path(__file__).parents[2] / "scripts"), []

    def start(who):
        command = [sys.executable, "-c", RUN, scripts, str(tmp_path), who]
        started.append(subprocess.Popen(command, stdout=subprocess.PIPE))
        assert started[-1].stdout.readline() == b"entered\n"
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.wait()


def lock(folder):
    (folder / "locks").mkdir(exist_ok=True)
    path = folder / "locks/0.output.lock"
    path.touch()
    return path


def test_the_lock_of_a_killed_run_is_cleared_and_that_is_said(tmp_path, run):
    held = lock(tmp_path)
    first = run("the first")
    assert not held.exists()
    held = lock(tmp_path)
    first.kill()
    first.wait()
    presence = enter(tmp_path, "me")
    assert not held.exists()
    assert presence.cleared == 1
    assert any("killed" in line for line in presence.lines())


def test_a_lock_stays_while_any_run_is_alive_whoever_came_first(tmp_path, run):
    first = run("the first")
    run("the second")
    held = lock(tmp_path)
    first.kill()
    first.wait()
    presence = enter(tmp_path, "me")
    assert held.exists()
    assert presence.others == ("the second",)
    assert any("the second" in line for line in presence.lines())


def test_alone_there_is_nothing_to_say(tmp_path):
    assert enter(tmp_path / "new", "me").lines() == []
