"""What stands for the world when files are fetched: a hub here, a stage that records."""

import hashlib
import json
import os
import re
import subprocess
import sys
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import NamedTuple

from huggingface_hub import constants

SCRIPTS = Path(__file__).parents[2] / "scripts"
TOKEN = "hf_a_secret"
REVISION = "a" * 40


def sha256(content):
    return hashlib.sha256(content).hexdigest()


class Request(NamedTuple):
    """What a client asked for; `range` and `authorization` are the headers, None without."""

    command: str
    path: str
    range: str | None
    authorization: str | None


class Server:
    """A file server that knows ranges and notes requests.

    Attributes:
        files: content by path.
        first: content by path that the first GET of a path gets instead.
        headers: additional headers by path.
        errors: status and headers by path, instead of the content.
        failures: statuses by path; each answers one request instead of the content.
        cut: how many bytes of an answer are sent before the connection breaks; all if None.
        hold: an event that the connection waits for before it breaks.
        ranges: whether a part of a file can be asked for.
        requests: what was asked for.
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

        self.files, self.first, self.headers = {}, {}, {}
        self.errors, self.failures = {}, {}
        self.cut, self.hold, self.ranges = None, None, True
        self.requests = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.address = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        if self.hold:
            self.hold.set()
        self._server.shutdown()
        self._server.server_close()

    def _answer(self, handler):
        path = handler.path.partition("?")[0]
        asked = handler.headers.get("Range")
        self.requests.append(
            Request(handler.command, path, asked, handler.headers.get("Authorization"))
        )
        status, headers, content = self._find(handler.command, path)
        start = int(re.fullmatch(r"bytes=(\d+)-", asked)[1]) if asked and self.ranges else 0
        if status == 200 and start:
            status = 206 if start < len(content) else 416
            headers["Content-Range"] = f"bytes {start}-{len(content) - 1}/{len(content)}"
            content = content[start:]
        handler.send_response(status)
        for name, value in {"Content-Length": len(content), **headers}.items():
            handler.send_header(name, str(value))
        handler.end_headers()
        if handler.command == "GET":
            handler.wfile.write(content[: self.cut])
            if self.cut is not None and self.cut < len(content):
                if self.hold:
                    self.hold.wait()
                handler.close_connection = True

    def _find(self, command, path):
        if self.failures.get(path):
            return self.failures[path].pop(0), {}, b""
        if path in self.errors:
            return *self.errors[path], b""
        if path not in self.files:
            return 404, {}, b""
        content = self.first.pop(path, None) if command == "GET" else None
        return 200, dict(self.headers.get(path, {})), content or self.files[path]


class Hub(Server):
    """A server that answers as the hub does about one repository at `REVISION`.

    Attributes:
        repository: its name.
        listing: path that its list of files is at.
    """

    def __init__(self, kind, repository):
        super().__init__()
        self.repository = repository
        self.listing = f"/api/{kind}s/{repository}/tree/{REVISION}"
        self._files = f"{'/datasets' if kind == 'dataset' else ''}/{repository}/resolve/{REVISION}"
        self._entries = {}

    def resolved(self, name):
        """Return the path that a file is at."""
        return f"{self._files}/{name}"

    def publish(self, name, content, stated=None):
        """Offer a large file, whose SHA-256 the hub states; `stated` is another one."""
        self.publish_small(name, content)
        self.headers[self.resolved(name)] |= {
            "X-Linked-Size": len(content),
            "X-Linked-ETag": f'"{stated or sha256(content)}"',
        }

    def publish_small(self, name, content):
        """Offer a file that is in git, whose SHA-256 the hub does not know."""
        self.files[self.resolved(name)] = content
        self.headers[self.resolved(name)] = {
            "ETag": f'"{"0" * 40}"',
            "X-Repo-Commit": REVISION,
        }
        self._entries[name] = {"type": "file", "path": name, "size": len(content), "oid": "0" * 40}
        self._publish_list()

    def withdraw(self, name):
        """Take a file out of the repository."""
        del self.files[self.resolved(name)], self._entries[name]
        self.refuse(name, 404, X_Error_Code="EntryNotFound")
        self._publish_list()

    def refuse(self, name, status, **headers):
        """Answer with an error when a file is asked for."""
        self.refuse_path(self.resolved(name), status, **headers)

    def refuse_path(self, path, status, **headers):
        """Answer with an error when a path is asked for."""
        named = {key.replace("_", "-"): value for key, value in headers.items()}
        self.errors[path] = (status, named)

    def asked(self, command="GET"):
        """Return the paths that were asked for, in order."""
        return [request.path for request in self.requests if request.command == command]

    def _publish_list(self):
        folders = {name.partition("/")[0] for name in self._entries if "/" in name}
        entries = [{"type": "directory", "path": name, "oid": "0" * 40} for name in folders]
        self.files[self.listing] = json.dumps([*entries, *self._entries.values()]).encode()


class Outcome(NamedTuple):
    """What a run of a script left: its exit code, the terminal, the log and a file, if any."""

    code: int
    terminal: str
    log: str
    content: bytes | None

    @property
    def error(self):
        """The line that says what to do."""
        return self.terminal.splitlines()[-1]


class Script:
    """A script that fetches, with a hub on this machine.

    Attributes:
        cache: where the hub's client keeps its files.
        log: its log.
        environment: its environment variables.
    """

    def __init__(self, name, hub, root):
        self._name = name
        self.log = root / "log"
        self.cache = root / "home/hub"
        (root / "hurry").mkdir()
        (root / "hurry/sitecustomize.py").write_text("import time\ntime.sleep = lambda _: None\n")
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("HF_")},
            "HF_ENDPOINT": hub.address,
            "HF_HOME": str(root / "home"),
            "HF_HUB_DISABLE_TELEMETRY": "1",
            "PYTHONPATH": str(root / "hurry"),
            "no_proxy": "127.0.0.1",
        }

    def launch(self, *arguments, stderr=subprocess.PIPE):
        """Start the script; the log is added to its arguments."""
        return subprocess.Popen(
            [sys.executable, str(SCRIPTS / self._name), *arguments, "--log", str(self.log)],
            env=self.environment,
            stderr=stderr,
        )

    def finish(self, process, path):
        """Wait for the script and return its outcome with the content of the file at `path`.

        When it fails, its last line alone says why.
        """
        _, terminal = process.communicate()
        outcome = Outcome(
            process.returncode,
            terminal.decode(),
            self.log.read_text(),
            path.read_bytes() if path.is_file() else None,
        )
        if outcome.code:
            assert outcome.code == 1
            assert ": error: " in outcome.error
            assert "Traceback" not in outcome.terminal
        return outcome


def use_hub(monkeypatch, hub, cache):
    """Have the hub's client of this process talk to `hub` and keep its files in `cache`."""
    template = constants.HUGGINGFACE_CO_URL_TEMPLATE.removeprefix(constants.ENDPOINT)
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", hub.address + template)
    monkeypatch.setattr(constants, "ENDPOINT", hub.address)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(cache))
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_TELEMETRY", True)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_IMPLICIT_TOKEN", True)
    monkeypatch.setenv("no_proxy", "127.0.0.1")


def fill_cache(cache, folder, name, content, blob):
    """Lay a file into a cache of the hub's client as `hf download` does.

    Args:
        folder: name of the repository's folder in the cache.
        blob: name of the file that holds the content.

    Returns:
        The path of that file.
    """
    snapshot = cache / folder / "snapshots" / REVISION / name
    stored = cache / folder / "blobs" / blob
    for path in (stored, snapshot):
        path.parent.mkdir(parents=True, exist_ok=True)
    stored.write_bytes(content)
    snapshot.symlink_to(os.path.relpath(stored, snapshot.parent))
    return stored


class Recorder:
    """A stage that keeps what it is told.

    Attributes:
        said: the lines.
        progresses: `[what, total, done]` of each progress.
    """

    def __init__(self):
        self.said, self.progresses = [], []

    def say(self, text):
        self.said.append(text)

    @contextmanager
    def progress(self, what, total=None):
        yield RecordedProgress(self.progresses, what, total)


class RecordedProgress:
    def __init__(self, progresses, what, total):
        self._entry = [what, total, 0]
        progresses.append(self._entry)

    def advance(self, steps=1):
        self._entry[2] += steps

    def reach(self, done, total):
        self._entry[1:] = [total, done]
