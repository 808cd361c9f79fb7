"""A real vLLM server of the toy target: how it starts, and how it ends."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lib.vllm_server import ServerError, vllm_server
from workflow.project import ROOT, Project

OPTIONS = ("--enforce-eager", "--dtype", "float32", "--max-model-len", "1024")


@pytest.fixture(autouse=True)
def small_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_CPU_KVCACHE_SPACE", "1")


def target_of(project: Project) -> Path:
    return next((project.folder / "models").glob("toy@*"))


@pytest.fixture
def short_folder() -> Iterator[Path]:
    """An empty folder with a path that is short enough for sockets."""
    with tempfile.TemporaryDirectory(prefix="t") as name:
        yield Path(name)


def test_server_leaves_no_process_and_no_socket_when_its_owner_is_killed(
    finished: Project, tmp_path: Path, short_folder: Path
) -> None:
    kernels = f"{tempfile.gettempdir()}/torchinductor_{os.getuid()}"
    owner = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import sys, time\n"
            f"sys.path.insert(0, {str(ROOT / 'scripts')!r})\n"
            "from pathlib import Path\n"
            "from lib.vllm_server import vllm_server\n"
            f"with vllm_server(Path({str(target_of(finished))!r}), 'toy', {OPTIONS!r},"
            f" Path('server.log')) as server:\n"
            "    print(server.post('/v1/completions', {'model': 'toy', 'prompt': [1, 2, 3],"
            " 'max_tokens': 4})['usage']['completion_tokens'], flush=True)\n"
            "    time.sleep(600)\n",
        ],
        cwd=tmp_path,
        env={**os.environ, "TMPDIR": str(short_folder), "TORCHINDUCTOR_CACHE_DIR": kernels},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert owner.stdout is not None
    assert int(owner.stdout.readline()) > 0
    folder = Project(tmp_path)
    assert len(folder.processes()) > 2
    assert any(path.is_socket() for path in short_folder.rglob("*"))
    os.kill(owner.pid, signal.SIGKILL)
    owner.wait()
    end = time.monotonic() + 30
    while folder.processes() and time.monotonic() < end:
        time.sleep(0.1)
    assert folder.processes() == []
    assert list(short_folder.iterdir()) == []


def test_server_that_cannot_start_fails_at_once_with_the_end_of_its_log(tmp_path: Path) -> None:
    with (
        pytest.raises(ServerError, match="nowhere"),
        vllm_server(tmp_path / "nowhere", "toy", OPTIONS, tmp_path / "server.log"),
    ):
        pass
