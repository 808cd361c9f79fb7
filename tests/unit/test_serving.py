"""Where a server runs, and with which options."""

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from urllib3 import HTTPConnectionPool

from lib.serving import Heartbeat, KeptServer, Serving
from lib.vllm_server import RequestRefused, Server, ServerEnded, ServerError


def test_a_server_takes_the_first_gpus_of_its_job(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,GPU-7a,6,7")
    assert Serving(gpus=3).environment() == {"CUDA_VISIBLE_DEVICES": "4,GPU-7a,6"}


def test_gpus_are_shared_out_to_copies_of_the_target():
    options = Serving(gpus=8, tensor_parallel=2, options=("--seed", "1")).command_options()
    pairs = dict(zip(options[::2], options[1::2], strict=True))
    assert pairs["--tensor-parallel-size"] == "2"
    assert pairs["--data-parallel-size"] == "4"
    assert pairs["--seed"] == "1"


def test_without_a_gpu_nothing_asks_for_one(monkeypatch):
    monkeypatch.setenv("VLLM_CPU_KVCACHE_SPACE", "3")
    assert Serving().environment() == {"VLLM_CPU_KVCACHE_SPACE": "3"}
    assert not any(
        "parallel" in option or "gpu" in option for option in Serving().command_options()
    )


class Scripted(BaseHTTPRequestHandler):
    """Answers with the status that its server was told, or not at all."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.answer()

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.answer()

    def answer(self):
        self.server.clients.add(self.client_address)
        status = self.server.statuses.pop(0) if self.server.statuses else 200
        self.send_response(status)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *_):
        pass


@contextmanager
def scripted(tmp_path, *statuses: int) -> Iterator[tuple[KeptServer, ThreadingHTTPServer]]:
    """Give a kept server that answers with these statuses, then with 200."""
    http = ThreadingHTTPServer(("127.0.0.1", 0), Scripted)
    http.statuses, http.clients = list(statuses), set()
    threading.Thread(target=http.serve_forever, daemon=True).start()
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    (tmp_path / "log").write_text("its last words\n")

    @contextmanager
    def start(number: int) -> Iterator[Server]:
        with HTTPConnectionPool("127.0.0.1", http.server_port, maxsize=8) as pool:
            yield Server("model", tmp_path / "log", process, pool)

    server = KeptServer(start, 0, lambda text: None)
    try:
        yield server, http
    finally:
        server.close()
        process.kill()
        http.shutdown()
        http.server_close()


def test_requests_one_after_the_other_share_a_connection(tmp_path):
    with scripted(tmp_path) as (server, http):
        for _ in range(5):
            assert server.post("/v1/completions", {}) == {}
        assert len(http.clients) == 1


def test_what_fails_in_passing_is_asked_again_and_what_is_refused_is_not(tmp_path):
    with scripted(tmp_path, 503, 429, 200, 400) as (server, http):
        assert server.post("/v1/completions", {}) == {}
        with pytest.raises(RequestRefused, match="400"):
            server.post("/v1/completions", {})
        assert http.statuses == []


def test_a_server_that_lives_and_answers_nothing_is_noticed(tmp_path):
    with scripted(tmp_path, *[503] * 1000) as (server, _):
        heartbeat = Heartbeat(server, patience=3)
        time.sleep(1.6)
        heartbeat.check()  # silent, though not for long
        time.sleep(1.6)
        with pytest.raises(ServerError, match="has not answered"):
            heartbeat.check()


def test_a_server_that_answers_again_is_left_alone(tmp_path):
    with scripted(tmp_path, 503) as (server, http):
        heartbeat = Heartbeat(server, patience=2)
        for _ in range(3):
            time.sleep(1.1)
            heartbeat.check()
        assert http.statuses == []


def test_a_server_that_has_ended_is_noticed_at_once(tmp_path):
    with scripted(tmp_path) as (server, _):
        heartbeat = Heartbeat(server, patience=100)
        server._server.process.kill()
        server._server.process.wait()
        with pytest.raises(ServerEnded, match="its last words"):
            heartbeat.check()
