"""Raw files come whole or not at all, and whoever must act is told what to do in one line."""

import hashlib
import json
import os
import re
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from lib.fetching import Location, fetch_source
from lib.manifest import manifest_files

SCRIPT = Path(__file__).parents[2] / "scripts/fetch_source.py"
CONTENT = bytes(range(256)) * 40
REVISION = "a" * 40


def sha256(content):
    return hashlib.sha256(content).hexdigest()


class Server:
    """A file server on this machine that knows ranges, fails on demand and notes requests.

    Attributes:
        files: content by path.
        errors: status and headers by path, instead of the content.
        cut: how many bytes of an answer are sent before the connection breaks; all if None.
    """

    def __init__(self):
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def do_HEAD(self):
                server._answer(self)

            def do_GET(self):
                server._answer(self)

        self.files, self.errors, self.cut, self.requests = {}, {}, None, []
        self.ranges = True
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.address = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def close(self):
        self._server.shutdown()
        self._server.server_close()

    def _answer(self, handler):
        path = handler.path.partition("?")[0]
        asked = handler.headers.get("Range")
        self.requests.append((handler.command, path, asked))
        content = self.files.get(path, b"")
        status, headers = self.errors.get(path, (200 if path in self.files else 404, {}))
        if status == 200:
            headers = {"ETag": f'"{sha256(content)}"', "X-Repo-Commit": REVISION}
            start = int(re.fullmatch(r"bytes=(\d+)-", asked)[1]) if asked and self.ranges else 0
            if start:
                status = 206 if start < len(content) else 416
                content = content[start:]
        handler.send_response(status)
        for name, value in {**headers, "Content-Length": len(content)}.items():
            handler.send_header(name, str(value))
        handler.end_headers()
        if handler.command == "GET":
            handler.wfile.write(content[: self.cut])
            if self.cut is not None and self.cut < len(content):
                handler.close_connection = True


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    server = Server()
    yield server
    server.close()


@pytest.fixture
def fetch(tmp_path):
    """Return a function that fetches a location and returns its manifest and the files in it."""
    folder, manifest = tmp_path / "raw/source", tmp_path / "raw/source.manifest.json"

    def run(**location):
        names = fetch_source(Location(**location), folder, manifest, lambda _: None)
        entries = json.loads(manifest.read_text())["files"]
        assert names == [entry["name"] for entry in entries]
        return entries, manifest_files(manifest, folder)

    run.folder, run.manifest = folder, manifest
    return run


# Local files


def test_local_files_are_linked_and_listed(tmp_path, fetch):
    contents = {"b.jsonl": CONTENT, "a.json": b"[]"}
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    entries, paths = fetch(files=tuple(str(tmp_path / name) for name in contents))
    for entry, path, (name, content) in zip(entries, paths, contents.items(), strict=True):
        assert entry == {"name": name, "size": len(content), "sha256": sha256(content)}
        assert path.is_symlink()
        assert path.read_bytes() == content


def test_links_survive_a_move_of_the_whole_project(tmp_path, monkeypatch, fetch):
    project = tmp_path / "project"
    project.mkdir()
    (project / "a.json").write_bytes(CONTENT)
    monkeypatch.chdir(project)
    manifest = Path("results/source.manifest.json")
    fetch_source(Location(files=("a.json",)), Path("results/source"), manifest, print)
    monkeypatch.chdir(tmp_path)
    project.rename("moved")
    (path,) = manifest_files(Path("moved") / manifest, Path("moved/results/source"))
    assert path.read_bytes() == CONTENT


def test_a_link_follows_the_configuration(tmp_path, fetch):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.json").write_text(name)
        _, (path,) = fetch(files=(str(tmp_path / name / "a.json"),))
        assert path.read_text() == name


def test_a_missing_file_is_named_and_no_manifest_is_written(tmp_path, fetch):
    with pytest.raises(ValueError, match=r"absent\.json"):
        fetch(files=(str(tmp_path / "absent.json"),))
    assert not fetch.manifest.exists()


def test_two_files_of_one_name_are_refused(tmp_path, fetch):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.json").write_text(name)
    with pytest.raises(ValueError, match="same name"):
        fetch(files=tuple(str(tmp_path / name / "a.json") for name in ("one", "two")))


def test_a_file_that_was_shortened_or_removed_later_is_noticed(tmp_path, fetch):
    source = tmp_path / "a.json"
    source.write_bytes(CONTENT)
    fetch(files=(str(source),))
    source.write_bytes(CONTENT[:-1])
    with pytest.raises(ValueError, match=rf"a\.json.*{len(CONTENT) - 1}.*{len(CONTENT)}"):
        manifest_files(fetch.manifest, fetch.folder)
    source.unlink()
    with pytest.raises(ValueError, match=r"a\.json is missing.*source\.manifest\.json"):
        manifest_files(fetch.manifest, fetch.folder)


# Addresses


def urls(server, path, digest=None):
    return ({"url": server.address + path, "sha256": digest or sha256(CONTENT)},)


def test_a_file_at_an_address_is_fetched_once(server, fetch):
    server.files["/data/a.jsonl"] = CONTENT
    for _ in range(2):
        entries, (path,) = fetch(urls=urls(server, "/data/a.jsonl?download=true/yes#top"))
        assert entries == [{"name": "a.jsonl", "size": len(CONTENT), "sha256": sha256(CONTENT)}]
        assert path.read_bytes() == CONTENT
    assert len(server.requests) == 1
    assert [entry.name for entry in fetch.folder.iterdir()] == ["a.jsonl"]


def test_a_file_of_another_content_is_fetched_again(server, fetch):
    server.files["/a.jsonl"] = CONTENT
    fetch.folder.mkdir(parents=True)
    (fetch.folder / "a.jsonl").write_bytes(b"old")
    _, (path,) = fetch(urls=urls(server, "/a.jsonl"))
    assert path.read_bytes() == CONTENT


def test_a_broken_download_goes_on_where_it_stopped(server, fetch):
    server.files["/a.jsonl"] = CONTENT
    server.cut = 4000
    with pytest.raises(ValueError, match=r"a\.jsonl.*broke.*6240 bytes"):
        fetch(urls=urls(server, "/a.jsonl"))
    assert not fetch.manifest.exists()
    assert not (fetch.folder / "a.jsonl").exists()
    server.cut = None
    _, (path,) = fetch(urls=urls(server, "/a.jsonl"))
    assert path.read_bytes() == CONTENT
    assert server.requests[-1] == ("GET", "/a.jsonl", "bytes=4000-")


def test_a_server_without_ranges_sends_all_again(server, fetch):
    server.files["/a.jsonl"] = CONTENT
    server.cut = 4000
    with pytest.raises(ValueError):
        fetch(urls=urls(server, "/a.jsonl"))
    server.cut, server.ranges = None, False
    _, (path,) = fetch(urls=urls(server, "/a.jsonl"))
    assert path.read_bytes() == CONTENT


@pytest.fixture
def interrupted(server, fetch):
    """Leave what a process leaves that is killed between the last byte and the new name."""
    server.files["/a.jsonl"] = CONTENT
    server.cut = len(CONTENT) - 1
    with pytest.raises(ValueError):
        fetch(urls=urls(server, "/a.jsonl"))
    server.cut = None
    (partial,) = fetch.folder.iterdir()
    with partial.open("ab") as file:
        file.write(CONTENT[-1:])
    return partial


def test_a_download_that_was_complete_before_its_end_is_kept(server, fetch, interrupted):
    _, (path,) = fetch(urls=urls(server, "/a.jsonl"))
    assert path.read_bytes() == CONTENT
    assert not interrupted.exists()


def test_a_partial_download_of_another_file_does_not_block_for_ever(server, fetch, interrupted):
    interrupted.write_bytes(b"x" * len(CONTENT) * 2)
    with pytest.raises(ValueError, match="SHA-256"):
        fetch(urls=urls(server, "/a.jsonl"))
    _, (path,) = fetch(urls=urls(server, "/a.jsonl"))
    assert path.read_bytes() == CONTENT


def test_a_wrong_sha256_shows_both_and_leaves_nothing(server, fetch):
    server.files["/a.jsonl"] = CONTENT
    expected = "0" * 64
    with pytest.raises(ValueError, match=f"{sha256(CONTENT)}.*{expected}"):
        fetch(urls=urls(server, "/a.jsonl", digest=expected))
    assert list(fetch.folder.iterdir()) == []
    assert not fetch.manifest.exists()


def test_a_missing_page_and_a_dead_server_name_the_address(server, fetch):
    with pytest.raises(ValueError, match=rf"{server.address}/absent\.jsonl.*404"):
        fetch(urls=urls(server, "/absent.jsonl"))
    server.close()
    with pytest.raises(ValueError, match=rf"{server.address}/a\.jsonl"):
        fetch(urls=urls(server, "/a.jsonl"))


# The hub, through its own client and the command line


@pytest.fixture
def fetch_from_hub(server, tmp_path):
    """Run the script against the server as the hub; return its exit code and its last line."""
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("HF_")},
        "HF_ENDPOINT": server.address,
        "HF_HOME": str(tmp_path / "home"),
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "HF_HUB_DISABLE_XET": "1",
    }

    def run(name):
        hub = {"dataset": "some/data", "revision": REVISION, "files": [name]}
        result = subprocess.run(
            [
                *(sys.executable, str(SCRIPT), "--source", "source"),
                *("--settings", json.dumps({"hub": hub})),
                *("--manifest", str(tmp_path / "raw/source.manifest.json")),
                *("--log", str(tmp_path / "log")),
            ],
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
        )
        return result.returncode, result.stderr.splitlines()[-1]

    return run


def resolved(name):
    return f"/datasets/some/data/resolve/{REVISION}/{name}"


def test_a_file_of_the_hub_is_fetched_at_its_revision(server, tmp_path, fetch_from_hub):
    name = "data/train-00000.parquet"
    server.files[resolved(name)] = CONTENT
    code, _ = fetch_from_hub(name)
    assert code == 0
    (path,) = manifest_files(tmp_path / "raw/source.manifest.json", tmp_path / "raw/source")
    assert path == tmp_path / "raw/source" / name
    assert path.read_bytes() == CONTENT
    assert fetch_from_hub(name)[0] == 0
    assert [command for command, *_ in server.requests].count("GET") == 1


@pytest.mark.parametrize(
    ("status", "code", "words"),
    [
        (403, "GatedRepo", ["some/data", "gated", "terms", "HF_TOKEN"]),
        (404, "RepoNotFound", ["some/data", "not on the hub", "HF_TOKEN"]),
        (404, "EntryNotFound", ["some/data", "a.parquet", REVISION]),
        (404, "RevisionNotFound", ["some/data", "no revision", REVISION]),
    ],
)
def test_a_refusal_of_the_hub_is_one_clear_line(
    server, tmp_path, fetch_from_hub, status, code, words
):
    server.errors[resolved("a.parquet")] = (status, {"X-Error-Code": code})
    exit_code, line = fetch_from_hub("a.parquet")
    assert exit_code == 1
    assert line.startswith("fetch_source source: error: ")
    for word in words:
        assert word in line
    assert "Traceback" not in line
    assert not (tmp_path / "raw/source.manifest.json").exists()
