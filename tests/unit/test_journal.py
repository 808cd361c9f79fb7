"""Values that are kept one by one survive a kill and are never mistaken for others."""

import subprocess
import sys
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from lib.journal import Journal

SCRIPTS = Path(__file__).parents[2] / "scripts"


def kept(folder, *keys):
    with Journal(folder) as journal:
        return [journal.find(key) for key in keys]


def test_later_runs_find_what_earlier_ones_added(tmp_path):
    with Journal(tmp_path / "deep") as journal:
        journal.add(1, b"one")
        journal.add(1 << 127, b"")
    with Journal(tmp_path / "deep") as journal:
        journal.add(3, b"three")
    assert kept(tmp_path / "deep", 1, 1 << 127, 3, 2) == [b"one", b"", b"three", None]


def test_two_at_once_keep_the_values_of_both(tmp_path):
    with Journal(tmp_path) as one, Journal(tmp_path) as two:
        for number in range(50):
            (one, two)[number % 2].add(number, b"%d" % number)
    assert kept(tmp_path, *range(50)) == [b"%d" % number for number in range(50)]


@settings(max_examples=40, derandomize=True, deadline=None)
@given(data=st.data())
def test_a_cut_at_any_byte_costs_only_what_was_cut(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("cut")
    values = [b"value %d" % number * number for number in range(4)]
    ends = []
    with Journal(folder) as journal:
        for key, value in enumerate(values):
            journal.add(key, value)
            (path,) = folder.glob("*.journal")
            ends.append(path.stat().st_size)
    cut = data.draw(st.integers(0, ends[-1]))
    path.write_bytes(path.read_bytes()[:cut])
    whole = sum(end <= cut for end in ends)
    assert kept(folder, *range(4)) == values[:whole] + [None] * (4 - whole)


def test_a_damaged_value_is_not_used(tmp_path):
    with Journal(tmp_path) as journal:
        journal.add(1, b"one")
        journal.add(2, b"two")
    (path,) = tmp_path.glob("*.journal")
    path.write_bytes(path.read_bytes().replace(b"one", b"oNe"))
    assert kept(tmp_path, 1, 2) == [None, b"two"]


def test_a_value_outlives_the_kill_of_its_process(tmp_path):
    code = (
        "import os, signal, sys\n"
        "from pathlib import Path\n"
        "from lib.journal import Journal\n"
        "with Journal(Path(sys.argv[1])) as journal:\n"
        "    journal.add(7, b'seven')\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], cwd=SCRIPTS, check=False)
    assert kept(tmp_path, 7) == [b"seven"]
