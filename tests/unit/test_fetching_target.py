"""A target comes from the hub whole: what it needs and no more, and its manifest last."""

import json
import os
import shutil
import struct
import threading
import time
from types import SimpleNamespace

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

from lib import target
from lib.files import read_json
from lib.target import TargetLocation
from lib.target_fetching import fetch_target

REPOSITORY, FOLDER = "some/model", "models--some--model"
INDEX = "model.safetensors.index.json"
ONE, TWO = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"


def shard(length):
    """Return a safetensors file with `length` bytes of data."""
    entry = {"dtype": "U8", "shape": [length], "data_offsets": [0, length]}
    header = json.dumps({"w": entry}).encode()
    return struct.pack("<Q", len(header)) + header + os.urandom(1 << 10) * (length >> 10)


def index_of(*names):
    return json.dumps({"weight_map": dict(enumerate(names))}).encode()


SMALL = {
    "config.json": b'{"num_hidden_layers": 2}',
    "tokenizer_config.json": b"{}",
    "tokenizer.json": b'{"model": {}}',
    "merges.txt": b"a b",
    "chat_template.jinja": b"{{ messages }}",
    INDEX: index_of(ONE, TWO),
}
SHARDS = {ONE: shard(1 << 14), TWO: shard(1 << 15)}
NEEDED = {**SMALL, **SHARDS}
UNNEEDED = {
    "README.md": b"# Model",
    ".gitattributes": b"",
    "weights.json": b"{}",
    "pytorch_model.bin": b"pickle",
    "model.safetensors": shard(1 << 14),
    "consolidated.safetensors": shard(1 << 14),
    "original/consolidated.safetensors": shard(1 << 14),
    "original/params.json": b"{}",
}


class ModelHub(Hub):
    """A hub with one model."""

    def __init__(self):
        super().__init__("model", REPOSITORY)

    def publish_model(self, files):
        """Offer the files of a model, large ones as such."""
        for name, content in files.items():
            (self.publish if name.endswith("safetensors") else self.publish_small)(name, content)

    def asked_for(self, command="GET"):
        """Return the names of the files that were asked for."""
        prefix = self.resolved("")
        return [path.removeprefix(prefix) for path in self.asked(command) if prefix in path]


@pytest.fixture
def hub():
    with ModelHub() as hub:
        yield hub


def check_manifest(manifest, files):
    """Check that the target beside a manifest holds `files`, and that the manifest says so."""
    assert {entry["name"]: entry for entry in read_json(manifest)["files"]} == {
        name: {"name": name, "size": len(content), "sha256": sha256(content)}
        for name, content in files.items()
    }
    for name, content in files.items():
        assert (manifest.parent / name).read_bytes() == content
    assert {path.name for path in manifest.parent.iterdir()} == {*files, manifest.name}


class TargetScript(Script):
    """The script with the settings of a target.

    Attributes:
        folder, manifest: what it writes.
    """

    def __init__(self, hub, root):
        super().__init__("fetch_target.py", hub, root)
        self.folder = root / "models/mine@aaaaaaaa"
        self.manifest = self.folder / "weights.json"

    def start(self):
        settings = {"name": "mine", "hub": {"repo": REPOSITORY, "revision": REVISION}}
        return self.launch("--settings", json.dumps(settings), "--weights", str(self.manifest))

    def run(self):
        outcome = self.finish(self.start(), self.manifest)
        if outcome.code:
            assert outcome.error.startswith("fetch_target: error: ")
            assert outcome.content is None
        return outcome


@pytest.fixture
def script(hub, tmp_path):
    return TargetScript(hub, tmp_path)


class Fetch:
    """The same without the script.

    Attributes:
        folder, manifest: what it writes.
        cache: where the hub's client keeps its files.
        stage: what the last call showed.
    """

    def __init__(self, root):
        self.folder, self.cache = root / "models/mine@aaaaaaaa", root / "cache"
        self.manifest = self.folder / "weights.json"

    def __call__(self, trust_remote_code=False):
        self.stage = Recorder()
        hub = {"repo": REPOSITORY, "revision": REVISION}
        location = TargetLocation("mine", hub=hub, trust_remote_code=trust_remote_code)
        names = fetch_target(location, self.manifest, self.stage)
        assert names == [entry["name"] for entry in read_json(self.manifest)["files"]]

    def refused(self, match):
        """Check that the call fails and that there is no manifest afterwards."""
        with pytest.raises(ValueError, match=match) as caught:
            self()
        assert not self.manifest.exists()
        return str(caught.value)

    def leave(self, name, content):
        """Leave what a killed run has downloaded of a file."""
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / f".{name}.download").write_bytes(content)


@pytest.fixture
def fetch(hub, tmp_path, monkeypatch):
    use_hub(monkeypatch, hub, tmp_path / "cache")
    return Fetch(tmp_path)


# What comes


def test_only_the_files_that_a_target_needs_are_asked_for_and_listed(hub, script):
    hub.publish_model({**NEEDED, **UNNEEDED})
    outcome = script.run()
    assert outcome.code == 0
    assert sorted(hub.asked_for("GET")) == sorted(NEEDED)
    assert sorted(hub.asked_for("HEAD")) == sorted(NEEDED)
    check_manifest(script.manifest, NEEDED)
    assert read_json(script.manifest)["known_as"] == REPOSITORY


@pytest.mark.parametrize("trusted", [False, True])
def test_code_of_the_model_comes_only_where_it_may_be_loaded(hub, fetch, trusted):
    code = {"modeling_mine.py": b"layers = 2"}
    hub.publish_model({**NEEDED, **code})
    fetch(trust_remote_code=trusted)
    check_manifest(fetch.manifest, {**NEEDED, **code} if trusted else NEEDED)


def test_weights_in_one_file_come_without_their_copies(hub, fetch):
    needed = {name: content for name, content in NEEDED.items() if name not in (INDEX, *SHARDS)}
    needed["model.safetensors"] = UNNEEDED["model.safetensors"]
    hub.publish_model({**UNNEEDED, **needed})
    fetch()
    check_manifest(fetch.manifest, needed)


def test_what_is_here_is_not_asked_for_again(hub, fetch):
    hub.publish_model(NEEDED)
    fetch()
    before = len(hub.requests)
    fetch.manifest.unlink()
    fetch()
    assert len(hub.requests) == before
    assert fetch.stage.said == [f"{REPOSITORY} at aaaaaaaa: 8 files, 0 B to download"]
    check_manifest(fetch.manifest, NEEDED)


def test_no_file_is_read_again_for_the_manifest(hub, fetch, monkeypatch):
    hub.publish_model(NEEDED)
    monkeypatch.setattr(target, "sha256_of_file", lambda path: pytest.fail(f"{path} is read"))
    fetch()
    check_manifest(fetch.manifest, NEEDED)


@pytest.mark.parametrize("name", [TWO, "config.json"])
def test_a_file_that_was_changed_later_is_fetched_again_and_no_other(hub, fetch, name):
    hub.publish_model(NEEDED)
    fetch()
    hub.requests.clear()
    fetch.manifest.unlink()
    (fetch.folder / name).write_bytes(NEEDED[name][::-1])
    fetch()
    check_manifest(fetch.manifest, NEEDED)
    assert hub.asked_for() == [name]


def test_a_shard_from_the_storage_that_the_hub_redirects_to(hub, script):
    hub.publish_model(NEEDED)
    script.environment |= {"HF_TOKEN": TOKEN, "HF_DEBUG": "1"}
    with Server() as storage:
        storage.files["/blob"] = SHARDS[TWO]
        hub.refuse(
            TWO,
            302,
            Location=f"{storage.address}/blob?signature=1",
            X_Repo_Commit=REVISION,
            X_Linked_Size=len(SHARDS[TWO]),
            X_Linked_ETag=f'"{sha256(SHARDS[TWO])}"',
        )
        outcome = script.run()
        assert [request.authorization for request in storage.requests] == [None]
    check_manifest(script.manifest, NEEDED)
    assert {request.authorization for request in hub.requests} == {f"Bearer {TOKEN}"}
    assert TOKEN not in outcome.terminal + outcome.log


# Interruptions


def test_a_download_that_was_killed_goes_on_where_it_stopped(hub, script):
    piece = constants.DOWNLOAD_CHUNK_SIZE
    model = {**NEEDED, TWO: shard(piece + (1 << 20))}
    hub.publish_model(model)
    hub.cut, hub.hold = piece + 1000, threading.Event()
    process = script.start()
    partial = script.folder / f".{TWO}.download"
    while not (partial.is_file() and partial.stat().st_size >= piece):
        assert process.poll() is None
        time.sleep(0.01)
    process.kill()
    process.communicate()
    assert (script.folder / ONE).is_file()
    assert not (script.folder / TWO).exists()
    assert not script.manifest.exists()
    hub.hold.set()
    hub.cut = None
    hub.requests.clear()
    assert script.run().code == 0
    check_manifest(script.manifest, model)
    (request,) = [request for request in hub.requests if request.command == "GET"]
    assert (request.path, request.range) == (hub.resolved(TWO), f"bytes={piece}-")


def test_a_finished_shard_is_not_fetched_again_after_its_record_was_lost(hub, fetch):
    hub.publish_model(NEEDED)
    fetch()
    fetch.manifest.unlink()
    (record,) = fetch.folder.parent.glob(".*.json")
    record.unlink()
    hub.requests.clear()
    fetch()
    check_manifest(fetch.manifest, NEEDED)
    assert not set(SHARDS) & set(hub.asked_for())


def test_a_connection_that_breaks_each_time_is_one_clear_line(hub, script):
    hub.publish_model(NEEDED)
    hub.cut = 4000
    error = script.run().error
    for words in (REPOSITORY, ONE, "check the connection", "run the same command again"):
        assert words in error
    hub.cut = None
    assert script.run().code == 0


# Wrong or missing content


def test_a_content_that_is_not_what_the_hub_states_is_refused(hub, fetch):
    hub.publish_model(NEEDED)
    other = sha256(b"other")
    hub.publish(TWO, SHARDS[TWO], stated=other)
    fetch.refused(f"{TWO} has the SHA-256 {sha256(SHARDS[TWO])} instead of {other}")
    assert not (fetch.folder / TWO).exists()
    assert hub.asked_for().count(ONE) == 1


def test_a_content_that_was_damaged_on_its_way_is_fetched_once_more(hub, fetch):
    hub.publish_model(NEEDED)
    hub.first[hub.resolved(TWO)] = SHARDS[TWO][::-1]
    fetch()
    check_manifest(fetch.manifest, NEEDED)


def test_a_shard_that_is_short_on_the_hub_is_refused_and_kept(hub, script):
    hub.publish_model({**NEEDED, TWO: SHARDS[TWO][:-5]})
    size = len(SHARDS[TWO])
    for _ in range(2):
        assert f"{TWO} has {size - 5} bytes instead of {size}" in script.run().error
    assert hub.asked_for().count(TWO) == 1


@pytest.mark.parametrize("missing", [TWO, "config.json", "tokenizer_config.json"])
def test_what_the_repository_lacks_is_noticed_before_a_shard_comes(hub, fetch, missing):
    hub.publish_model(NEEDED)
    hub.withdraw(missing)
    fetch.refused(f"{REPOSITORY} has no file {missing} at revision {REVISION}")
    assert not set(SHARDS) & set(hub.asked_for())


def test_a_repository_without_weights_that_a_target_can_use(hub, fetch):
    hub.publish_model({name: NEEDED[name] for name in NEEDED if name not in (INDEX, *SHARDS)})
    hub.publish("adapter_model.safetensors", SHARDS[ONE])
    hub.refuse("model.safetensors", 404, X_Error_Code="EntryNotFound")
    fetch.refused(f"{REPOSITORY} has no file model.safetensors")
    assert "adapter_model.safetensors" not in hub.asked_for()


@pytest.mark.parametrize("index", [b"<html>", b"{}", index_of("../a.safetensors")])
def test_an_index_that_is_none_is_refused(hub, fetch, index):
    hub.publish_model({**NEEDED, INDEX: index})
    assert INDEX in fetch.refused("shard")
    assert hub.asked_for() == [INDEX]


# The disk


@pytest.fixture
def free(monkeypatch):
    """Return a function that sets how many bytes are free on every disk."""

    def leave(number):
        monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=number))

    return leave


def size(files):
    return sum(map(len, files.values()))


def test_a_disk_that_is_too_small_is_noticed_before_the_download(hub, fetch, free):
    hub.publish_model(NEEDED)
    free(20_000)
    error = fetch.refused("run the same command again")
    assert f"{fetch.folder} needs 49.4 kB more, but its disk has 20.0 kB free" in error
    assert hub.asked_for() == [INDEX]
    free(size(NEEDED))
    fetch()


def test_only_what_is_still_missing_must_fit_on_the_disk(hub, fetch, free):
    hub.publish_model(NEEDED)
    fetch()
    fetch.manifest.unlink()
    (fetch.folder / TWO).unlink()
    fetch.leave(TWO, SHARDS[TWO][:10_000])
    left = len(SHARDS[TWO]) - 10_000
    free(left - 1)
    fetch.refused("needs 22.8 kB more")
    free(left)
    fetch()
    assert hub.requests[-1].range == "bytes=10000-"
    fetch.manifest.unlink()
    free(0)
    fetch()
    check_manifest(fetch.manifest, NEEDED)


def test_a_disk_that_fills_up_is_one_clear_line(hub, script):
    hub.publish_model(NEEDED)
    script.folder.mkdir(parents=True)
    (script.folder / f".{TWO}.download").symlink_to("/dev/full")
    assert f"no space left for {script.folder / TWO}: make room" in script.run().error


# The cache of the client


def test_sound_copies_in_the_cache_of_the_client_are_linked_and_need_no_space(hub, fetch, free):
    hub.publish_model(NEEDED)
    for name in SHARDS:
        fill_cache(fetch.cache, FOLDER, name, SHARDS[name], sha256(SHARDS[name]))
    free(size(SMALL))
    fetch()
    check_manifest(fetch.manifest, NEEDED)
    assert all((fetch.folder / name).is_symlink() for name in SHARDS)
    assert not set(SHARDS) & set(hub.asked_for())


def test_a_damaged_copy_in_the_cache_is_not_used(hub, fetch):
    hub.publish_model(NEEDED)
    fill_cache(fetch.cache, FOLDER, TWO, SHARDS[TWO][::-1], sha256(SHARDS[TWO]))
    fetch()
    check_manifest(fetch.manifest, NEEDED)
    assert any("damaged" in line for line in fetch.stage.said)


def test_a_model_in_the_cache_of_the_client_needs_no_network(hub, script):
    for name, content in NEEDED.items():
        fill_cache(script.cache, FOLDER, name, content, sha256(content))
    listed = {
        name: {"size": len(content), "blob_id": "0" * 40}
        for name, content in {**NEEDED, **UNNEEDED}.items()
    }
    (script.cache / FOLDER / "trees").mkdir()
    (script.cache / FOLDER / f"trees/{REVISION}.json").write_text(
        json.dumps({"format_version": 1, "files": listed})
    )
    script.environment["HF_HUB_OFFLINE"] = "1"
    assert script.run().code == 0
    check_manifest(script.manifest, NEEDED)
    assert hub.requests == []


# Offline and refusals


def test_offline_without_the_model_is_one_line_that_says_so(hub, script):
    script.environment["HF_HUB_OFFLINE"] = "1"
    error = script.run().error
    assert REPOSITORY in error
    assert "HF_HUB_OFFLINE" in error


def test_offline_with_the_model_here(hub, script):
    hub.publish_model(NEEDED)
    assert script.run().code == 0
    script.manifest.unlink()
    script.environment["HF_HUB_OFFLINE"] = "1"
    assert script.run().code == 0
    check_manifest(script.manifest, NEEDED)


@pytest.mark.parametrize(
    ("status", "headers", "words"),
    [
        (401, {"X_Error_Code": "GatedRepo"}, ["gated", "terms", "HF_TOKEN"]),
        (401, {"X_Error_Code": "RepoNotFound"}, ["not on the hub", "private", "HF_TOKEN"]),
        (404, {"X_Error_Code": "RevisionNotFound"}, ["no revision", REVISION, "history"]),
        (404, {}, ["404 Not Found", "HF_ENDPOINT"]),
        (503, {}, ["503 Service Unavailable", "wait", "run the same command again"]),
    ],
)
def test_a_refusal_of_the_list_is_one_line_that_says_what_to_do(
    hub, script, status, headers, words
):
    script.environment["HF_TOKEN"] = TOKEN
    hub.refuse_path(hub.listing, status, **headers)
    outcome = script.run()
    for word in [REPOSITORY, *words]:
        assert word in outcome.error
    assert TOKEN not in outcome.terminal + outcome.log


def test_a_gated_model_whose_list_is_open_is_one_clear_line(hub, script):
    hub.publish_model(NEEDED)
    for name in NEEDED:
        hub.refuse(name, 403, X_Error_Code="GatedRepo")
    error = script.run().error
    for words in (REPOSITORY, "gated", "terms", "HF_TOKEN"):
        assert words in error


def test_a_hub_that_is_busy_for_a_while_is_waited_for(hub, script):
    hub.publish_model(NEEDED)
    hub.failures[hub.listing] = [503] * 2
    assert script.run().code == 0


@pytest.mark.parametrize("answer", [b"<html>Log in</html>", b'{"error": "no"}', b'[{"a": 1}]'])
def test_a_server_that_is_not_the_hub_is_named_as_the_problem(hub, fetch, answer):
    hub.files[hub.listing] = answer
    fetch.refused("HF_ENDPOINT")


# Progress


def test_the_progress_counts_the_bytes_that_are_missing(hub, fetch):
    hub.publish_model(NEEDED)
    fetch.leave(TWO, SHARDS[TWO][:4000])
    fetch()
    left = len(SHARDS[TWO]) - 4000
    assert [f"bytes of {TWO}", left, left] in fetch.stage.progresses
    assert f"{REPOSITORY} at aaaaaaaa: 8 files, 45.4 kB to download" in fetch.stage.said
