"""Both ends of a transfer of hidden states, as vLLM and speculators' trainer read them."""

import argparse
import socket
import sys
import warnings
from argparse import Namespace
from dataclasses import asdict
from itertools import combinations
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml
from hs_connectors import FileTransfer, FP8Transfer, HiddenStatesBackend, MooncakeTransfer
from speculators.train.config import TrainConfig

from lib.configuration import ConfigurationError, complete, load_schema, stage_settings
from lib.serving import Serving
from lib.states_transfer import Mooncake, Transfer
from lib.vllm_states import VllmStates

ROOT = Path(__file__).parents[2]
STORE = Mooncake("store.example:1234", "http://meta/metadata", "rdma", "mlx5_0,mlx5_1", 3.5, 7)


def launched(kind: str, arguments: list[str]) -> dict[str, Any]:
    """Return what hs_connectors itself would give a server for a command line."""
    backend = HiddenStatesBackend.registry[kind]
    parser = argparse.ArgumentParser()
    backend.add_launch_args(parser)
    config: dict[str, Any] = backend.build_kv_transfer_config(parser.parse_args(arguments))
    return config


def resolved(transfer: Transfer, folder: Path) -> Namespace:
    """Return what the trainer makes of the options of a transfer; a warning is an error."""
    train = {"verifier": {"verifier_name_or_path": "target"}, **transfer.trainer_options(folder)}
    (folder / "trainer.yaml").write_text(yaml.safe_dump({"train": train}))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        config = TrainConfig.resolve(["--config", str(folder / "trainer.yaml")])
    return Namespace(**config.flatten())


def fetched_by_the_trainer(transfer: Transfer, folder: Path) -> Any:
    """Return the trainer's end of a transfer."""
    arguments = resolved(transfer, folder)
    backend = HiddenStatesBackend.registry[arguments.hidden_states_backend]
    return backend.from_train_args(arguments, "data")


@pytest.mark.parametrize("kind", ["file", "fp8"])
def test_a_server_with_gpus_writes_with_the_connector_of_the_transfer(kind: str) -> None:
    config = Transfer(kind).connector(Path("/states"), on_gpu=True)
    assert config == launched(kind, ["--hidden-states-path", "/states"])


def test_a_server_with_gpus_fills_the_store_that_is_configured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    arguments = [
        *("--mooncake-master", "store.example:1234"),
        *("--mooncake-metadata-server", "http://meta/metadata"),
        *("--mooncake-protocol", "rdma", "--mooncake-device", "mlx5_0,mlx5_1"),
        *("--mooncake-global-segment-gib", "3.5", "--mooncake-local-buffer-gib", "0.25"),
        *("--mooncake-writer-threads", "7"),
    ]
    for name in ("", "10.0.0.7"):
        monkeypatch.setenv("MOONCAKE_LOCAL_HOSTNAME", name)
        config = Transfer("mooncake", STORE).connector(Path("/states"), on_gpu=True)
        assert config == launched("mooncake", arguments)


@pytest.mark.parametrize(("kind", "end"), [("file", FileTransfer), ("fp8", FP8Transfer)])
def test_the_trainer_reads_the_folder_that_the_server_writes(
    kind: str, end: type, tmp_path: Path
) -> None:
    transfer = Transfer(kind)
    found = fetched_by_the_trainer(transfer, tmp_path)
    server = transfer.connector(tmp_path, on_gpu=True)["kv_connector_extra_config"]
    assert type(found) is end
    assert str(found.hidden_states_path) == server["shared_storage_path"]


def test_the_trainer_asks_the_store_that_the_server_fills_and_lends_it_no_memory(
    tmp_path: Path,
) -> None:
    transfer = Transfer("mooncake", STORE)
    found = fetched_by_the_trainer(transfer, tmp_path)
    assert isinstance(found, MooncakeTransfer)
    server = transfer.connector(tmp_path, on_gpu=True)["kv_connector_extra_config"]["mooncake"]
    client = asdict(found.store.config)
    own = {"global_segment_size", "num_writer_threads"}
    assert {k: v for k, v in client.items() if k not in own} == {
        k: v for k, v in server.items() if k not in own
    }
    assert client["global_segment_size"] == 0
    assert server["global_segment_size"] == 3.5 * 1024**3


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a package where Mooncake's would be."""
    for name in ("mooncake", "mooncake.store"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))


def test_a_package_that_is_missing_is_noticed_before_a_server_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "mooncake.store", None)
    said: list[str] = []
    states = VllmStates(
        *(tmp_path, [1], "float32", False, Serving(), tmp_path / "server.log", said.append),
        transfer=Transfer("mooncake"),
    )
    with (
        pytest.raises(ValueError, match=r"^hidden_states.transfer: mooncake .* install"),
        states.served(tmp_path, 10),
    ):
        pass
    assert said == []


@pytest.mark.usefixtures("installed")
def test_a_master_that_does_not_answer_is_noticed() -> None:
    with socket.create_server(("127.0.0.1", 0)) as master:
        address = f"127.0.0.1:{master.getsockname()[1]}"
        transfer = Transfer("mooncake", Mooncake(address))
        transfer.check()
    with pytest.raises(ValueError, match=rf"^hidden_states.mooncake.master: .*{address}"):
        transfer.check()


def configured(**changes: Any) -> dict[str, Any]:
    """Return the complete toy configuration with changed hidden states."""
    raw = yaml.safe_load((ROOT / "config/config.yaml").read_text())
    raw["hidden_states"].update(changes)
    return complete(raw, load_schema(ROOT / "config/schema.yaml"), ROOT)


@pytest.mark.parametrize("kind", ["fp8", "mooncake"])
def test_states_that_are_stored_are_files(kind: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        configured(transfer=kind)
    (line,) = str(caught.value).splitlines()
    assert line.startswith("hidden_states.transfer:")
    assert configured(mode="online", transfer=kind)["hidden_states"]["transfer"] == kind


def test_keys_of_the_configuration_are_those_of_the_store() -> None:
    config = configured(mode="online", transfer="mooncake")
    assert Mooncake(**config["hidden_states"]["mooncake"]) == Mooncake()


def test_another_transfer_makes_a_training_stale() -> None:
    settings = [
        stage_settings(configured(mode="online", transfer=kind), "train_drafter")
        for kind in ("file", "fp8", "mooncake")
    ]
    for one, other in combinations(settings, 2):
        assert one != other


def test_where_the_store_is_makes_nothing_stale() -> None:
    changed = configured(mooncake={"master": "elsewhere:1"})
    for stage in ("extract_hidden_states", "train_drafter"):
        assert stage_settings(changed, stage) == stage_settings(configured(), stage)
