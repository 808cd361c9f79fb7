"""What stands for the world when files are fetched: a file server here, a stage that records."""

import hashlib
import re
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple


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
