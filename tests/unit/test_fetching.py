"""Raw files come whole or not at all, and whoever must act is told what to do in one line."""

import json
import os
from pathlib import Path

import pytest
from fetching_doubles import Recorder, Server, sha256

from lib.fetching import Location, fetch_source
from lib.manifest import manifest_files

CONTENT = bytes(range(256)) * 40


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with Server() as server:
        yield server


@pytest.fixture
def fetch(tmp_path):
    """Return a function that fetches a location and returns its manifest and the files in it.

    Its `stage` has what the last call showed.
    """
    folder, manifest = tmp_path / "raw/source", tmp_path / "raw/source.manifest.json"

    def run(**location):
        run.stage = Recorder()
        names = fetch_source(Location(**location), folder, manifest, run.stage)
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
    fetch_source(Location(files=("a.json",)), Path("results/source"), manifest, Recorder())
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


def change(path):
    path.write_bytes(path.read_bytes()[::-1])


@pytest.mark.parametrize(
    ("spoil", "problem"),
    [
        (lambda path: os.truncate(path, 5), f"has 5 bytes instead of {len(CONTENT)}"),
        (lambda path: path.unlink(), "is missing"),
        (change, "has another content"),
    ],
    ids=["shortened", "removed", "changed"],
)
def test_a_file_that_was_spoilt_later_is_noticed_and_fetched_again(server, fetch, spoil, problem):
    server.files["/a.jsonl"] = CONTENT
    _, (path,) = fetch(urls=urls(server, "/a.jsonl"))
    spoil(path)
    with pytest.raises(ValueError, match=rf"a\.jsonl {problem}; delete .*source\.manifest\.json"):
        manifest_files(fetch.manifest, fetch.folder)
    fetch.manifest.unlink()
    _, (path,) = fetch(urls=urls(server, "/a.jsonl"))
    assert path.read_bytes() == CONTENT


def test_a_file_that_was_only_touched_is_still_good(tmp_path, fetch):
    source = tmp_path / "a.json"
    source.write_bytes(CONTENT)
    _, paths = fetch(files=(str(source),))
    source.touch()
    assert manifest_files(fetch.manifest, fetch.folder) == paths


# Addresses


def urls(server, path, digest=None):
    return ({"url": server.address + path, "sha256": digest or sha256(CONTENT)},)


def test_a_file_at_an_address_is_fetched_once(server, fetch):
    server.files["/data/a.jsonl"] = CONTENT
    for _ in range(2):
        entries, (path,) = fetch(urls=urls(server, "/data/a.jsonl?download=true/yes#top"))
        assert entries == [{"name": "a.jsonl", "size": len(CONTENT), "sha256": sha256(CONTENT)}]
        assert path.read_bytes() == CONTENT
    assert [request.path for request in server.requests] == ["/data/a.jsonl"]
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
    assert server.requests[-1].range == "bytes=4000-"


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


@pytest.mark.parametrize("length", [5, 2 * len(CONTENT)])
def test_a_partial_download_of_another_content_is_given_up(server, fetch, interrupted, length):
    interrupted.write_bytes(b"x" * length)
    _, (path,) = fetch(urls=urls(server, "/a.jsonl"))
    assert path.read_bytes() == CONTENT


def test_a_wrong_sha256_shows_both_and_leaves_nothing(server, fetch):
    server.files["/a.jsonl"] = CONTENT
    expected = "0" * 64
    with pytest.raises(ValueError, match=f"{sha256(CONTENT)}.*{expected}"):
        fetch(urls=urls(server, "/a.jsonl", digest=expected))
    assert list(fetch.folder.iterdir()) == []
    assert not fetch.manifest.exists()


def test_a_content_that_was_damaged_on_its_way_is_fetched_once_more(server, fetch):
    server.files["/a.jsonl"], server.first["/a.jsonl"] = CONTENT, CONTENT[::-1]
    _, (path,) = fetch(urls=urls(server, "/a.jsonl"))
    assert path.read_bytes() == CONTENT
    assert any(sha256(CONTENT[::-1]) in line for line in fetch.stage.said)


def test_a_missing_page_and_a_dead_server_name_the_address(server, fetch):
    with pytest.raises(ValueError, match=rf"{server.address}/absent\.jsonl.*404"):
        fetch(urls=urls(server, "/absent.jsonl"))
    server.close()
    with pytest.raises(ValueError, match=rf"{server.address}/a\.jsonl"):
        fetch(urls=urls(server, "/a.jsonl"))


def test_the_progress_counts_the_bytes_of_this_run(server, fetch):
    server.files["/a.jsonl"] = CONTENT
    server.cut = 4000
    with pytest.raises(ValueError):
        fetch(urls=urls(server, "/a.jsonl"))
    assert ["bytes of a.jsonl", len(CONTENT), 4000] in fetch.stage.progresses
    server.cut = None
    fetch(urls=urls(server, "/a.jsonl"))
    left = len(CONTENT) - 4000
    assert ["bytes of a.jsonl", left, left] in fetch.stage.progresses


def test_what_an_address_keeps_secret_is_not_shown(server, fetch):
    server.files["/a.jsonl"] = CONTENT
    fetch(urls=urls(server, "/a.jsonl?signature=secret"))
    assert fetch.stage.said == [f"{server.address}/a.jsonl"]
    with pytest.raises(ValueError, match=r"/b\.jsonl: .*404") as caught:
        fetch(urls=urls(server, "/b.jsonl?signature=secret"))
    assert "secret" not in str(caught.value)
    address = server.address.replace("//", "//me:secret@")
    with pytest.raises(ValueError, match=r"a\.jsonl holds a password") as caught:
        fetch(urls=({"url": f"{address}/a.jsonl", "sha256": sha256(CONTENT)},))
    assert "secret" not in str(caught.value)


def test_a_full_disk_is_one_clear_line(server, fetch):
    server.files["/a.jsonl"] = CONTENT
    fetch.folder.mkdir(parents=True)
    (fetch.folder / ".a.jsonl.download").symlink_to("/dev/full")
    with pytest.raises(ValueError, match=r"no space left for .*/a\.jsonl: make room"):
        fetch(urls=urls(server, "/a.jsonl"))
    assert not fetch.manifest.exists()


# Names


@pytest.mark.parametrize("name", ["..", ".", ""])
def test_an_address_without_a_name_is_refused(server, fetch, name):
    with pytest.raises(ValueError, match="cannot be the name of a file"):
        fetch(urls=urls(server, f"/data/{name}"))
    assert server.requests == []


@pytest.mark.parametrize("name", ["../a", "/a", "a/../../b", "a/./b", "a//b", "a/"])
def test_a_name_inside_a_repository_cannot_leave_the_folder(fetch, name):
    with pytest.raises(ValueError, match="cannot be the name of a file"):
        fetch(hub={"dataset": "some/data", "revision": "a" * 40, "files": [name]})
