"""What the tests of the readers share."""

import subprocess
import sys
from pathlib import Path

import pyarrow
import pytest

from lib.readers import read_rows

needs_proc = pytest.mark.skipif(sys.platform != "linux", reason="only there /proc tells the peak")

PEAK_AFTER_EACH = """
import re, sys
from pathlib import Path
from lib.readers import read_rows

for path in map(Path, sys.argv[1:]):
    rows = sum(1 for _ in read_rows(path))
    peak = re.search("VmHWM: *\\t *([0-9]+)", Path("/proc/self/status").read_text())[1]
    print(rows, int(peak) >> 10)
"""


def zstd(data):
    packed = pyarrow.BufferOutputStream()
    with pyarrow.CompressedOutputStream(packed, "zstd") as stream:
        stream.write(data)
    return packed.getvalue().to_pybytes()


def rows_before_damage(path):
    """Read until the error that must come; return the rows and the message without the path."""
    rows = []
    with pytest.raises(ValueError) as caught:
        for row in read_rows(path):
            rows.append(row)
    name, message = str(caught.value).split(": ", 1)
    assert name == str(path)
    return rows, message


def rows_and_peaks(paths):
    """Read files one after another in a new process: rows of each, and its peak so far in MiB."""
    output = subprocess.run(
        [sys.executable, "-c", PEAK_AFTER_EACH, *map(str, paths)],
        cwd=Path(__file__).parents[2] / "scripts",
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    return zip(*(map(int, found.split()) for found in output.splitlines()), strict=True)
