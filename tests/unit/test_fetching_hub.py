"""Files of the hub come through its own client, which talks to a server on this machine."""

import json
import os
import pty
import threading
import time

import pytest
from fetching_doubles import (
    REVISION,
    TOKEN,
    Hub,
    Recorder,
    Script,
    Server,
    fill_cache,
    sha256,
    use_hub,
)
from huggingface_hub import constants

from lib.fetching import Location, fetch_source
from lib.files import sha256_of_file
from lib.manifest import manifest_files

CONTENT = bytes(range(256)) * 40
OTHER = CONTENT[::-1]
REPOSITORY, FOLDER = "some/data", "datasets--some--data"
NAME = "data/train-00000.parquet"


class SourceScript(Script):
    """The script with the settings of a source.

    Attributes:
        folder, manifest: what it writes.
    """

    def __init__(self, hub, root):
        super().__init__("fetch_source.py", hub, root)
        self.folder, self.manifest = root / "raw/source", root / "raw/source.manifest.json"

    def start(self, *names, location=None, **options):
        hub = {"dataset": REPOSITORY, "revision": REVISION, "files": names or [NAME]}
        return self.launch(
            *("--source", "source", "--settings", json.dumps(location or {"hub": hub})),
            *("--manifest", str(self.manifest)),
            **options,
        )

    def run(self, *names, location=None):
        path = self.folder / (names[0] if names else NAME)
        outcome = self.finish(self.start(*names, location=location), path)
        if outcome.code == 0:
            manifest_files(self.manifest, self.folder)
        else:
            assert outcome.error.startswith("fetch_source source: error: ")
            assert not self.manifest.exists()
        return outcome

    def hidden(self):
        return [path.name for path in self.folder.rglob(".*")]


@pytest.fixture
def hub():
    with Hub("dataset", REPOSITORY) as hub:
        yield hub


@pytest.fixture
def script(hub, tmp_path):
    return SourceScript(hub, tmp_path)


class Fetch:
    """The same without the script.

    Attributes:
        folder, manifest: what it writes.
        partial: where it downloads to.
        stage: what the last call showed.
    """

    def __init__(self, root):
        self.folder, self.manifest = root / "raw/source", root / "raw/source.manifest.json"
        self.partial = self.folder / "data/.train-00000.parquet.download"

    def __call__(self, revision=REVISION):
        self.stage = Recorder()
        hub = {"dataset": REPOSITORY, "revision": revision, "files": [NAME]}
        fetch_source(Location(hub=hub), self.folder, self.manifest, self.stage)
        (path,) = manifest_files(self.manifest, self.folder)
        assert not self.partial.exists()
        return path.read_bytes()

    def leave(self, content):
        """Leave what a killed run has downloaded."""
        self.partial.parent.mkdir(parents=True)
        self.partial.write_bytes(content)


@pytest.fixture
def fetch(hub, tmp_path, monkeypatch):
    use_hub(monkeypatch, hub, tmp_path / "cache")
    return Fetch(tmp_path)


# What comes


def test_only_the_files_named_are_asked_for_and_listed(hub, script):
    contents = {NAME: CONTENT, "a.json": b"[]", "other.json": b"{}"}
    for name, content in contents.items():
        hub.publish(name, content)
    names = [NAME, "a.json"]
    assert script.run(*names).code == 0
    assert hub.asked("GET") == hub.asked("HEAD") == [hub.resolved(name) for name in names]
    assert json.loads(script.manifest.read_text())["files"] == [
        {"name": name, "size": len(contents[name]), "sha256": sha256(contents[name])}
        for name in names
    ]
    for name in names:
        assert (script.folder / name).read_bytes() == contents[name]
    assert script.hidden() == []


@pytest.mark.parametrize("publish", [Hub.publish, Hub.publish_small])
def test_what_is_here_is_not_asked_for_again(hub, fetch, publish):
    publish(hub, NAME, CONTENT)
    fetch()
    before = len(hub.requests)
    fetch.manifest.unlink()
    assert fetch() == CONTENT
    assert len(hub.requests) == before


def test_a_new_revision_asks_and_takes_over_what_did_not_change(hub, fetch):
    hub.publish(NAME, CONTENT)
    fetch()
    revision = "b" * 40
    path = hub.resolved(NAME).replace(REVISION, revision)
    hub.files[path] = CONTENT
    hub.headers[path] = {**hub.headers[hub.resolved(NAME)], "X-Repo-Commit": revision}
    assert fetch(revision) == CONTENT
    assert hub.asked("HEAD") == [hub.resolved(NAME), path]
    assert hub.asked("GET") == [hub.resolved(NAME)]


def test_a_new_revision_fetches_what_changed(hub, fetch):
    hub.publish(NAME, CONTENT)
    fetch()
    revision = "b" * 40
    path = hub.resolved(NAME).replace(REVISION, revision)
    hub.files[path] = OTHER
    stated = {"X-Repo-Commit": revision, "X-Linked-ETag": f'"{sha256(OTHER)}"'}
    hub.headers[path] = hub.headers[hub.resolved(NAME)] | stated
    assert fetch(revision) == OTHER


def test_a_file_from_the_storage_that_the_hub_redirects_to(hub, script):
    script.environment["HF_TOKEN"] = TOKEN
    with Server() as storage:
        storage.files["/blob"] = CONTENT
        hub.refuse(
            NAME,
            302,
            Location=f"{storage.address}/blob?signature=1",
            X_Repo_Commit=REVISION,
            X_Linked_Size=len(CONTENT),
            X_Linked_ETag=f'"{sha256(CONTENT)}"',
            X_Xet_Hash="c" * 64,
            ETag='"of the redirection"',
        )
        assert script.run().content == CONTENT
        assert [request.authorization for request in storage.requests] == [None]
    assert {request.authorization for request in hub.requests} == {f"Bearer {TOKEN}"}


# Interruptions


def test_a_download_that_was_killed_goes_on_where_it_stopped(hub, script):
    piece = constants.DOWNLOAD_CHUNK_SIZE
    content = os.urandom(1 << 10) * (piece // (1 << 10) + 1000)
    hub.publish(NAME, content)
    hub.cut, hub.hold = piece + 1000, threading.Event()
    process = script.start()
    partial = script.folder / "data/.train-00000.parquet.download"
    while not (partial.is_file() and partial.stat().st_size >= piece):
        assert process.poll() is None
        time.sleep(0.01)
    process.kill()
    process.communicate()
    assert not script.manifest.exists()
    assert not (script.folder / NAME).exists()
    hub.hold.set()
    hub.cut = None
    assert script.run().content == content
    assert hub.requests[-1].range == f"bytes={piece}-"
    assert script.hidden() == []


def test_a_connection_that_breaks_each_time_is_one_clear_line(hub, script):
    hub.publish(NAME, CONTENT)
    hub.cut = 4000
    outcome = script.run()
    for words in (REPOSITORY, NAME, "check the connection", "run the same command again"):
        assert words in outcome.error
    assert outcome.content is None
    hub.cut = None
    assert script.run().content == CONTENT


@pytest.mark.parametrize(
    "partial",
    [b"", CONTENT[:4000], CONTENT, OTHER[:9], OTHER, 2 * CONTENT],
    ids=["empty", "begun", "complete", "other begun", "other", "too long"],
)
@pytest.mark.parametrize("publish", [Hub.publish, Hub.publish_small])
def test_whatever_a_killed_run_left_the_content_is_right(hub, fetch, publish, partial):
    publish(hub, NAME, CONTENT)
    fetch.leave(partial)
    assert fetch() == CONTENT


def test_a_hub_without_ranges_sends_all_again(hub, fetch):
    hub.publish(NAME, CONTENT)
    hub.ranges = False
    fetch.leave(CONTENT[:4000])
    assert fetch() == CONTENT
    assert hub.asked("GET") == [hub.resolved(NAME)]


def test_a_file_that_came_just_before_the_run_was_killed_is_kept(hub, fetch):
    hub.publish(NAME, CONTENT)
    fetch()
    for path in fetch.manifest.parent.glob("*.json"):
        path.unlink()
    assert fetch() == CONTENT
    assert hub.asked("GET") == [hub.resolved(NAME)]


# Wrong content


def test_a_content_that_was_damaged_on_its_way_is_fetched_once_more(hub, fetch):
    hub.publish(NAME, CONTENT)
    hub.first[hub.resolved(NAME)] = OTHER
    assert fetch() == CONTENT
    assert hub.asked("GET") == [hub.resolved(NAME)] * 2


def test_a_content_that_is_not_what_the_hub_states_is_refused(hub, script):
    hub.publish(NAME, CONTENT, stated=sha256(OTHER))
    outcome = script.run()
    assert NAME in outcome.error
    assert sha256(CONTENT) in outcome.error
    assert sha256(OTHER) in outcome.error
    assert hub.asked("GET") == [hub.resolved(NAME)] * 2
    assert [path for path in script.folder.rglob("*") if path.is_file()] == []


@pytest.mark.parametrize("publish", [Hub.publish, Hub.publish_small])
def test_a_file_that_was_changed_later_is_fetched_again(hub, fetch, publish):
    publish(hub, NAME, CONTENT)
    fetch()
    (fetch.folder / NAME).write_bytes(OTHER)
    assert fetch() == CONTENT


def test_a_server_that_is_not_the_hub_is_named_as_the_problem(hub, script):
    hub.publish(NAME, b"<html>Log in</html>")
    hub.headers.clear()
    assert "HF_ENDPOINT" in script.run().error


# The cache of the client


@pytest.mark.parametrize("blob", [sha256(CONTENT), "0" * 40], ids=["large", "small"])
def test_a_file_in_the_cache_of_the_client_is_linked_without_network(hub, script, blob):
    fill_cache(script.cache, FOLDER, NAME, CONTENT, blob)
    script.environment["HF_HUB_OFFLINE"] = "1"
    assert script.run().content == CONTENT
    assert (script.folder / NAME).is_symlink()


def test_a_blob_whose_content_is_not_its_name_is_not_used(hub, script):
    hub.publish(NAME, CONTENT)
    blob = fill_cache(script.cache, FOLDER, NAME, OTHER, sha256(CONTENT))
    outcome = script.run()
    assert outcome.content == CONTENT
    assert "damaged" in outcome.terminal
    assert sha256_of_file(blob) == sha256(OTHER), "the user's cache was touched"


def test_a_damaged_blob_is_not_used_offline_either(script):
    fill_cache(script.cache, FOLDER, NAME, OTHER, sha256(CONTENT))
    script.environment["HF_HUB_OFFLINE"] = "1"
    outcome = script.run()
    assert "HF_HUB_OFFLINE" in outcome.error
    assert outcome.content is None


# Offline


def test_offline_with_the_files_here(hub, script):
    hub.publish(NAME, CONTENT)
    assert script.run().code == 0
    script.manifest.unlink()
    script.environment["HF_HUB_OFFLINE"] = "1"
    assert script.run().content == CONTENT


@pytest.mark.parametrize("left", [None, CONTENT[:-1], OTHER], ids=["none", "short", "changed"])
def test_offline_without_a_sound_file_is_one_line_that_says_so(hub, script, left):
    hub.publish(NAME, CONTENT)
    if left is not None:
        assert script.run().code == 0
        script.manifest.unlink()
        (script.folder / NAME).write_bytes(left)
    before = len(hub.requests)
    script.environment["HF_HUB_OFFLINE"] = "1"
    error = script.run().error
    for words in (REPOSITORY, NAME, "HF_HUB_OFFLINE"):
        assert words in error
    assert len(hub.requests) == before


def test_offline_mode_of_the_hub_is_not_about_plain_addresses(hub, script):
    hub.files["/a.jsonl"] = CONTENT
    script.environment["HF_HUB_OFFLINE"] = "1"
    url = {"url": f"{hub.address}/a.jsonl", "sha256": sha256(CONTENT)}
    assert script.run("a.jsonl", location={"urls": [url]}).content == CONTENT


# Refusals


@pytest.mark.parametrize(
    ("status", "headers", "words"),
    [
        (401, {"X_Error_Code": "GatedRepo"}, ["gated", "terms", "HF_TOKEN"]),
        (403, {"X_Error_Code": "GatedRepo"}, ["gated", "terms", "HF_TOKEN"]),
        (401, {"X_Error_Code": "RepoNotFound"}, ["not on the hub", "private", "HF_TOKEN"]),
        (404, {"X_Error_Code": "RepoNotFound"}, ["not on the hub", "private", "HF_TOKEN"]),
        (404, {"X_Error_Code": "EntryNotFound"}, [f"no file {NAME}", REVISION, "configuration"]),
        (404, {"X_Error_Code": "RevisionNotFound"}, ["no revision", REVISION, "history"]),
        (403, {"X_Error_Message": "Access to this resource is disabled."}, ["disabled"]),
        (
            401,
            {"X_Error_Message": "Invalid credentials in Authorization header"},
            [NAME, "refuses the token", "HF_TOKEN"],
        ),
        (403, {}, [NAME, "refuses the token", "HF_TOKEN"]),
        (404, {}, [NAME, "404 Not Found", "HF_ENDPOINT"]),
        (429, {}, [NAME, "429 Too Many Requests", "wait", "run the same command again"]),
        (503, {}, [NAME, "503 Service Unavailable", "wait", "run the same command again"]),
    ],
)
def test_a_refusal_is_one_line_that_says_what_to_do(hub, script, status, headers, words):
    script.environment["HF_TOKEN"] = TOKEN
    hub.refuse(NAME, status, **headers)
    outcome = script.run()
    for word in [REPOSITORY, *words]:
        assert word in outcome.error
    assert TOKEN not in outcome.terminal + outcome.log


@pytest.mark.parametrize("status", [429, 503])
def test_a_hub_that_is_busy_for_a_while_is_waited_for(hub, script, status):
    hub.publish(NAME, CONTENT)
    hub.failures[hub.resolved(NAME)] = [status] * 2
    assert script.run().content == CONTENT


def test_a_hub_that_cannot_be_reached_is_one_clear_line(hub, script):
    hub.close()
    error = script.run().error
    for words in (REPOSITORY, NAME, "check the connection"):
        assert words in error


def test_a_full_disk_is_one_clear_line(hub, script):
    hub.publish(NAME, CONTENT)
    (script.folder / "data").mkdir(parents=True)
    (script.folder / "data/.train-00000.parquet.download").symlink_to("/dev/full")
    assert f"no space left for {script.folder / NAME}: make room" in script.run().error


def test_a_problem_of_this_machine_is_not_taken_for_the_network(hub, script):
    hub.publish(NAME, CONTENT)
    (script.folder / NAME).mkdir(parents=True)
    error = script.run().error
    assert str(script.folder / NAME) in error
    assert "connection" not in error


# The token


def test_the_token_goes_to_the_hub_and_is_shown_nowhere(hub, script):
    hub.publish(NAME, CONTENT)
    script.environment |= {"HF_TOKEN": TOKEN, "HF_DEBUG": "1"}
    outcome = script.run()
    assert {request.authorization for request in hub.requests} == {f"Bearer {TOKEN}"}
    assert TOKEN not in outcome.terminal + outcome.log


def test_the_token_does_not_go_to_a_plain_address(hub, script):
    hub.files["/a.jsonl"] = CONTENT
    script.environment["HF_TOKEN"] = TOKEN
    url = {"url": f"{hub.address}/a.jsonl", "sha256": sha256(CONTENT)}
    outcome = script.run("a.jsonl", location={"urls": [url]})
    assert outcome.content == CONTENT
    assert [request.authorization for request in hub.requests] == [None]
    assert TOKEN not in outcome.terminal + outcome.log


@pytest.mark.parametrize("character", ["\x01", "…"])
def test_a_token_that_cannot_be_sent_is_not_shown_either(hub, script, character):
    hub.publish(NAME, CONTENT)
    script.environment["HF_TOKEN"] = TOKEN + character
    outcome = script.run()
    assert "HF_TOKEN" in outcome.error
    assert TOKEN not in outcome.terminal + outcome.log


# Progress


def test_a_terminal_has_a_bar_and_the_log_has_none(hub, script, tmp_path):
    hub.publish(NAME, CONTENT)
    main, terminal = pty.openpty()
    process = script.start(stderr=terminal)
    assert process.wait() == 0
    os.close(terminal)
    shown = os.read(main, 1 << 16).decode()
    os.close(main)
    assert "bytes of train-00000.parquet" in shown
    assert (tmp_path / "log").read_text() == ""


def test_the_progress_counts_the_bytes_of_this_run(hub, fetch):
    hub.publish(NAME, CONTENT)
    fetch.leave(CONTENT[:4000])
    fetch()
    left = len(CONTENT) - 4000
    assert ["bytes of train-00000.parquet", left, left] in fetch.stage.progresses
