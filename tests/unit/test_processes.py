"""Child processes never outlive their parent."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from lib.processes import guarded_process, in_workers

SCRIPTS = Path(__file__).parents[2] / "scripts"

FAMILY = """
import os, pathlib, signal, subprocess, sys, time
folder, ignoring = pathlib.Path(sys.argv[1]), "{ignoring}"
child = "import signal, sys, time, pathlib, os\\n"
if ignoring:
    child += "signal.signal(signal.SIGTERM, signal.SIG_IGN)\\n"
child += "pathlib.Path(sys.argv[1], f'grandchild.{{os.getpid()}}').touch()\\ntime.sleep(600)"
if ignoring == "both":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
subprocess.Popen([sys.executable, "-c", child, str(folder)])
pathlib.Path(folder, f"child.{{os.getpid()}}").touch()
print("started", flush=True)
time.sleep(600)
"""


def family(folder, ignoring=""):
    """Return a command that starts a child and a grandchild which leave their ids in a folder."""
    return [sys.executable, "-c", FAMILY.format(ignoring=ignoring), str(folder)]


def wait_for(condition, seconds=30):
    end = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < end, "nothing happened in time"
        time.sleep(0.02)
    return value


def started(folder):
    """Wait for child and grandchild and return their process ids."""

    def both():
        found = [*folder.glob("child.*"), *folder.glob("grandchild.*")]
        return found if len(found) == 2 else None

    return [int(path.suffix[1:]) for path in wait_for(both)]


def is_alive(process):
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"


@pytest.mark.parametrize("ignoring", ["", "grandchild", "both"])
def test_leaving_the_block_ends_the_whole_group(tmp_path, ignoring):
    with guarded_process(family(tmp_path, ignoring), tmp_path / "log", grace=0.2):
        processes = started(tmp_path)
        assert all(is_alive(process) for process in processes)
    wait_for(lambda: not any(is_alive(process) for process in processes))


def test_an_exception_inside_the_block_ends_the_group_too(tmp_path):
    with pytest.raises(RuntimeError), guarded_process(family(tmp_path), tmp_path / "log"):
        processes = started(tmp_path)
        raise RuntimeError
    wait_for(lambda: not any(is_alive(process) for process in processes))


TEMPORARY = """
import os, pathlib, signal, socket, sys, tempfile, time
folder = pathlib.Path(tempfile.gettempdir())
listener = socket.socket(socket.AF_UNIX)
listener.bind(str(folder / "a-name-as-long-as-that-of-a-uuid-is-36"))
note = pathlib.Path(sys.argv[1])
note.with_suffix(".partial").write_text(str(folder))
note.with_suffix(".partial").rename(note)
if sys.argv[2] == "killed":
    os.kill(os.getpid(), signal.SIGKILL)
if sys.argv[2] == "lives":
    time.sleep(600)
"""


PARENT = """
import sys, time
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from lib.processes import guarded_process, in_workers
with guarded_process(sys.argv[3:], Path(sys.argv[2]), grace=0.2):
    time.sleep(600)
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
@pytest.mark.parametrize("ignoring", ["", "grandchild", "both"])
def test_the_group_ends_when_its_parent_is_killed(tmp_path, ignoring, how):
    command = [sys.executable, "-c", PARENT, str(SCRIPTS), str(tmp_path / "log")]
    parent = subprocess.Popen([*command, *family(tmp_path, ignoring)])
    try:
        processes = started(tmp_path)
    finally:
        parent.send_signal(how)
        parent.wait()
    wait_for(lambda: not any(is_alive(process) for process in processes))


def test_temporary_files_go_when_the_parent_is_killed_too(tmp_path):
    note = tmp_path / "note"
    command = [sys.executable, "-c", PARENT, str(SCRIPTS), str(tmp_path / "log")]
    command += [sys.executable, "-c", TEMPORARY, str(note), "lives"]
    parent = subprocess.Popen(command)
    wait_for(note.exists)
    parent.kill()
    parent.wait()
    wait_for(lambda: not Path(note.read_text()).exists())


def test_a_child_that_ends_leaves_no_grandchild(tmp_path):
    with guarded_process(family(tmp_path), tmp_path / "log") as process:
        child, grandchild = started(tmp_path)
        os.kill(child, signal.SIGKILL)
        assert process.wait() == 128 + signal.SIGKILL
        wait_for(lambda: not is_alive(grandchild))


@pytest.mark.parametrize("end", ["ends", "killed", "lives"])
def test_temporary_files_of_a_command_go_with_it(tmp_path, end):
    """It ends by itself, is killed, or is ended with the block."""
    note = tmp_path / "note"
    command = [sys.executable, "-c", TEMPORARY, str(note), end]
    with guarded_process(command, tmp_path / "log") as process:
        wait_for(note.exists)
        if end != "lives":
            process.wait()
    folder = Path(note.read_text())
    assert folder != Path(tempfile.gettempdir())
    assert not folder.exists()


@pytest.mark.parametrize("code", [0, 3])
def test_exit_code_and_output_are_those_of_the_command(tmp_path, code):
    (tmp_path / "log").write_text("before\n")
    program = f"import os, sys; print(os.environ['GREETING']); sys.exit({code})"
    with guarded_process(
        [sys.executable, "-c", program], tmp_path / "log", {"GREETING": "hello"}
    ) as process:
        assert process.wait() == code
    assert (tmp_path / "log").read_text() == "before\nhello\n"


def test_a_command_that_does_not_exist_fails_and_says_so(tmp_path):
    with guarded_process([str(tmp_path / "nothing")], tmp_path / "log") as process:
        assert process.wait() != 0
    assert "nothing" in (tmp_path / "log").read_text()


def slow_square(number):
    time.sleep(0.05 * (number % 3))
    return number * number


def fail_at_five(number):
    if number == 5:
        raise ValueError("five is no number")
    return number


@pytest.mark.parametrize("workers", [1, 3])
def test_results_of_workers_come_in_the_order_of_the_items(workers):
    assert list(in_workers(slow_square, range(12), workers)) == [n * n for n in range(12)]


@pytest.mark.parametrize("workers", [1, 2])
def test_an_error_in_a_worker_arrives_after_the_results_before_it(workers):
    results = in_workers(fail_at_five, range(100), workers)
    assert [next(results) for _ in range(5)] == [0, 1, 2, 3, 4]
    with pytest.raises(ValueError, match="five is no number"):
        next(results)


def test_few_items_are_taken_before_their_results_are_wanted():
    taken = []
    results = in_workers(slow_square, (taken.append(n) or n for n in range(1000)), 2)
    assert next(results) == 0
    assert len(taken) < 10
    results.close()


def test_a_worker_that_gives_nothing_in_time_is_named_and_ended():
    start = time.monotonic()
    with pytest.raises(TimeoutError, match="no result within 2 s for 600"):
        list(in_workers(time.sleep, [0, 600, 0], 2, patience=2))
    assert time.monotonic() - start < 60


def kill_itself(number):
    if number == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def test_a_worker_that_is_killed_is_said():
    with pytest.raises(OSError, match="worker process was killed"):
        list(in_workers(kill_itself, range(10), 2))


POOL = """
import pathlib, sys, time
sys.path[:0] = [{scripts!r}, {tests!r}]
from lib.processes import in_workers
from test_processes import leave_id

if __name__ == "__main__":
    list(in_workers(leave_id, [pathlib.Path(sys.argv[1])] * 4, 2))
"""


def leave_id(folder):
    (folder / f"child.{os.getpid()}").touch()
    time.sleep(600)


def test_workers_end_when_their_parent_is_killed(tmp_path):
    script = tmp_path / "pool.py"
    script.write_text(POOL.format(scripts=str(SCRIPTS), tests=str(Path(__file__).parent)))
    parent = subprocess.Popen([sys.executable, str(script), str(tmp_path)], start_new_session=True)
    workers = wait_for(lambda: len(found := [*tmp_path.glob("child.*")]) == 2 and found)
    parent.kill()
    parent.wait()
    for path in workers:
        wait_for(lambda path=path: not is_alive(int(path.suffix[1:])))
