"""Work that is kept between runs survives a kill and is never taken for other work."""

import json
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lib.cache import open_cache

SCRIPTS = Path(__file__).parents[2] / "scripts"


def file_of(folder):
    (path,) = folder.glob("*.jsonl")
    return path


def test_a_second_opening_sees_earlier_values(tmp_path):
    with open_cache(tmp_path, "answers", 1) as cache:
        cache.put({"prompt": "a"}, {"text": "é\u2028\u0085\n😀", "n": None})
        cache.put(["b"], [1, 2])
    with open_cache(tmp_path, "answers", 1) as cache:
        assert cache.get({"prompt": "a"}) == {"text": "é\u2028\u0085\n😀", "n": None}
        assert cache.get(["b"]) == [1, 2]
        assert cache.get(["c"]) is None


def test_a_value_is_there_at_once_and_the_last_one_counts(tmp_path):
    with open_cache(tmp_path, "a") as cache:
        cache.put("key", 1)
        assert cache.get("key") == 1
        cache.put("key", 2)
        assert cache.get("key") == 2
    with open_cache(tmp_path, "a") as cache:
        assert cache.get("key") == 2


def test_keys_are_compared_by_content(tmp_path):
    with open_cache(tmp_path, "a") as cache:
        cache.put({"x": 1, "y": [2]}, "value")
        assert cache.get({"y": [2], "x": 1}) == "value"
        assert cache.get({"x": 1, "y": ["2"]}) is None


def test_another_identity_is_another_file(tmp_path):
    identities = [("a",), ("b",), ("a", 1), ("a", "1"), ()]
    for number, identity in enumerate(identities):
        with open_cache(tmp_path / "deep", *identity) as cache:
            assert cache.get("key") is None
            cache.put("key", number)
    assert len(list((tmp_path / "deep").glob("*.jsonl"))) == len(identities)
    for number, identity in enumerate(identities):
        with open_cache(tmp_path / "deep", *identity) as cache:
            assert cache.get("key") == number


@settings(max_examples=40, derandomize=True, deadline=None)
@given(data=st.data())
def test_a_cut_at_any_byte_costs_only_what_was_cut(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("cut")
    values = {f"key {n}": f"välue {n}" for n in range(4)}
    with open_cache(folder, "a") as cache:
        for key, value in values.items():
            cache.put(key, value)
    content = file_of(folder).read_bytes()
    cut = data.draw(st.integers(0, len(content)))
    file_of(folder).write_bytes(content[:cut])
    whole = content[:cut].count(b"\n")
    with open_cache(folder, "a") as cache:
        found = [cache.get(key) for key in values]
        assert found == [*values.values()][:whole] + [None] * (len(values) - whole)
        for key, value in values.items():
            if cache.get(key) is None:
                cache.put(key, value)
    assert file_of(folder).read_bytes() == content


def test_values_put_after_a_cut_line_are_found_later(tmp_path):
    with open_cache(tmp_path, "a") as cache:
        cache.put("old", 1)
    with file_of(tmp_path).open("ab") as file:
        file.write(b'["half of a li')
    with open_cache(tmp_path, "a") as cache:
        cache.put("new", 2)
    with open_cache(tmp_path, "a") as cache:
        assert (cache.get("old"), cache.get("new")) == (1, 2)
    assert len([json.loads(line) for line in file_of(tmp_path).read_bytes().splitlines()]) == 2


CHILD = """
import sys, time
from pathlib import Path
from lib.cache import open_cache
with open_cache(Path(sys.argv[1]), "a") as cache:
    cache.put("of the child", 1)
    print("open", flush=True)
    {then}
"""


@pytest.fixture
def child(tmp_path):
    """Start a process that opens the cache, puts a value, says so and then does something."""
    processes = []

    def start(then):
        process = subprocess.Popen(
            [sys.executable, "-c", CHILD.format(then=then), str(tmp_path)],
            cwd=SCRIPTS,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        processes.append(process)
        assert process.stdout.readline() == b"open\n"
        return process

    yield start
    for process in processes:
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()


def test_a_value_outlives_the_kill_of_its_process(tmp_path, child):
    process = child("time.sleep(600)")
    process.kill()
    process.wait()
    with open_cache(tmp_path, "a") as cache:
        assert cache.get("of the child") == 1


def test_a_second_process_waits_for_the_first(tmp_path, child):
    process = child("sys.stdin.read(); cache.put('last', 2)")
    started = []

    def open_it():
        with open_cache(tmp_path, "a") as cache:
            started.append(cache.get("last"))

    thread = threading.Thread(target=open_it)
    thread.start()
    time.sleep(0.2)
    assert started == []
    process.stdin.close()
    thread.join(60)
    assert started == [2]
