"""States that a trainer gets from a real server on each way, beside those of transformers.

A trainer's own end of the transfer reads them, and its own client asks for them.
"""

import socket
import time
from argparse import Namespace
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

import pytest
import torch
from hs_connectors import HiddenStatesBackend, HiddenStatesTransfer
from openai import OpenAI
from speculators.data_generation.vllm_client import generate_hidden_states
from speculators.train.data import ArrowDataset

from lib.arrow_rows import read_token_rows
from lib.processes import guarded_process
from lib.serving import Serving
from lib.states_transfer import Mooncake, Transfer
from lib.vllm_states import VllmStates
from workflow.parity import SAME, own_states, relative_distance
from workflow.project import Project
from workflow.small_dataset import target_of, write_small_dataset

LAYER_IDS = list(range(6))
"""All layers of the toy target; the states before the final norm follow."""

BLOCK = 128
"""Tokens that a server on a processor keeps together: what a cache of prefixes would reuse."""

FP8_STEP = 2**-4
"""Greatest relative error of a rounding to 3 bits of mantissa; bfloat16 adds two of 2**-9."""

FP8_LEAST = 1 / 448 / 2**10
"""The same for numbers too small for that, over the greatest number of the token (all layers)."""


@dataclass(frozen=True)
class Received:
    """What came to the trainer's end.

    Attributes:
        kind: the transfer.
        alone: states of the first prompt, sent before all others.
        together: states of all prompts, sent at once.
        rows: items of speculators' own data set.
        left: files that are left in the folder of the transfer.
    """

    kind: str
    alone: torch.Tensor
    together: list[torch.Tensor]
    rows: list[dict[str, torch.Tensor]]
    left: list[str]


@pytest.fixture(scope="module")
def dataset(finished: Project, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a folder with a small data set."""
    folder = tmp_path_factory.mktemp("dataset")
    write_small_dataset(finished, folder, train=3, validation=1)
    return folder


@pytest.fixture(scope="module")
def prompts(finished: Project) -> list[list[int]]:
    """Give prompts of which several begin alike, for one block of a cache and for several."""
    rows = [ids for ids, _, _ in read_token_rows(finished.folder / "results/toy/tokenized")]
    longest, second, *_ = sorted(rows, key=len, reverse=True)
    return [
        longest,
        longest,
        longest[:-1],
        longest[: 2 * BLOCK + 1],
        longest[: 2 * BLOCK] + second[:100],
        longest[:BLOCK] + second[:150],
        second,
        second[: BLOCK + 1],
        second[:1],
    ]


@pytest.fixture(scope="module")
def own(finished: Project, prompts: list[list[int]]) -> list[torch.Tensor]:
    """Give the states of the prompts as transformers computes them."""
    return own_states(target_of(finished), LAYER_IDS, prompts)


@contextmanager
def transfer_of(kind: str, folder: Path) -> Iterator[Transfer]:
    """Give a transfer with what it needs, or skip the test where that is not installed."""
    if kind != "mooncake":
        yield Transfer(kind)
        return
    mooncake = pytest.importorskip("mooncake.store", exc_type=ImportError)
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    master = Path(mooncake.__file__).with_name("mooncake_master")
    command = [str(master), "--rpc_address=127.0.0.1", f"--rpc_port={port}", "--metrics_port=0"]
    with guarded_process(command, folder / "master.log"):
        transfer = Transfer(kind, Mooncake(f"127.0.0.1:{port}", store_gib=0.25))
        end = time.monotonic() + 30
        while time.monotonic() < end:
            try:
                transfer.check()
            except ValueError:
                time.sleep(0.1)
            else:
                break
        yield transfer


def end_of(transfer: Transfer, folder: Path) -> HiddenStatesTransfer:
    """Return the trainer's end of a transfer."""
    options = transfer.trainer_options(folder)
    backend = HiddenStatesBackend.registry[options["data"]["hidden_states_backend"]]
    return backend.from_train_args(Namespace(**options["backend"]), str(folder))


@pytest.fixture(scope="module", params=["file", "fp8", "mooncake"])
def received(
    request: pytest.FixtureRequest,
    finished: Project,
    dataset: Path,
    prompts: list[list[int]],
    tmp_path_factory: pytest.TempPathFactory,
) -> Received:
    """Serve the target and ask for the states of all prompts, by each transfer."""
    folder, target = tmp_path_factory.mktemp(request.param), target_of(finished)
    states = folder / "states"
    states.mkdir()
    with transfer_of(request.param, folder) as transfer:
        server = VllmStates(
            *(target, LAYER_IDS, "float32", False, Serving(), folder / "server.log", print),
            transfer=transfer,
        )
        with server.served(states, max(map(len, prompts))) as running:
            end = end_of(transfer, states)
            end.setup()
            client = OpenAI(base_url=f"{running.url}/v1", api_key="none", max_retries=0)

            def ask(ids: list[int]) -> torch.Tensor:
                handle, parameters = generate_hidden_states(
                    client, str(target), {"input_ids": ids}, max_retries=0
                )
                sample = end.get_generated(parameters)
                assert sample is not None
                end.delete(handle)
                assert sample["token_ids"].tolist() == ids
                return sample["hidden_states"]

            alone = ask(prompts[0])
            with ThreadPoolExecutor(len(prompts)) as pool:
                together = list(pool.map(ask, prompts))
            data = ArrowDataset(
                max_len=512,
                datapath=dataset / "tokenized",
                transfer=end_of(transfer, states),
                vllm_endpoint=f"{running.url}/v1",
                hidden_states_dtype=torch.float32,
                model=str(target),
            )
            rows = [data[row] for row in range(len(data))]
            left = [path.name for path in states.iterdir()]
    return Received(request.param, alone, together, rows, left)


def assert_same(kind: str, states: torch.Tensor, own: torch.Tensor) -> None:
    """Check states of each token in each layer, as exactly as the transfer lets them come."""
    assert states.shape == own.shape
    if kind == "fp8":
        greatest = own.abs().amax(dim=(1, 2), keepdim=True)
        bound = (FP8_STEP + 2 * 2**-8) * own.abs() + 1.1 * FP8_LEAST * greatest
        assert ((states.float() - own).abs() <= bound).all()
    else:
        assert relative_distance(states, own).max() < SAME


def test_a_prompt_has_the_states_of_transformers(
    received: Received, own: list[torch.Tensor]
) -> None:
    assert_same(received.kind, received.alone, own[0])


def test_prompts_that_begin_alike_have_them_too_when_sent_at_once(
    received: Received, own: list[torch.Tensor]
) -> None:
    for states, expected in zip(received.together, own, strict=True):
        assert_same(received.kind, states, expected)


def test_the_data_set_of_the_trainer_gives_them(
    received: Received, finished: Project, dataset: Path
) -> None:
    rows = [ids for ids, _, _ in read_token_rows(dataset / "tokenized")]
    for item, ids, own in zip(
        received.rows, rows, own_states(target_of(finished), LAYER_IDS, rows), strict=True
    ):
        assert item["input_ids"].tolist() == ids
        layers = item["hidden_states"].unflatten(1, (len(LAYER_IDS), -1))
        last = item["verifier_last_hidden_states"].unsqueeze(1)
        assert_same(received.kind, torch.cat([layers, last], dim=1), own)


def test_what_has_been_read_is_not_left_in_the_folder(received: Received) -> None:
    assert received.left == []


def test_another_layer_token_or_beginning_would_be_seen(own: list[torch.Tensor]) -> None:
    whole = own[0]
    for one, other in combinations(range(whole.shape[1]), 2):
        assert relative_distance(whole[:, [one]], whole[:, [other]]).min() > 100 * SAME
    late = relative_distance(whole[1:], whole[:-1]).amax(dim=0)
    assert late.min() > 100 * SAME
    joined = own[5]  # what a block of the second prompt follows here is another beginning
    moved = relative_distance(joined[BLOCK:], own[6][: len(joined) - BLOCK]).amax(dim=0)
    assert moved[1:].min() > 100 * SAME
