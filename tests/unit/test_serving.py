"""Where a server runs, and with which options."""

import pytest

from lib.serving import Serving, job_gpus


def test_a_job_takes_the_first_gpus_that_it_was_given(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,GPU-7a,6")
    assert job_gpus(2) == ["4", "GPU-7a"]
    assert Serving(gpus=3).environment() == {"CUDA_VISIBLE_DEVICES": "4,GPU-7a,6"}
    with pytest.raises(ValueError, match="4 GPUs are configured, the job was given 3"):
        job_gpus(4)


def test_a_machine_of_ones_own_gives_its_gpus_in_their_order(monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert job_gpus(2) == ["0", "1"]


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
