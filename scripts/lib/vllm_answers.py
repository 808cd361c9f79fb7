"""Answers of the target from a vLLM server, many at once."""

from collections.abc import Sequence, Set
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Any

from lib.sampling import Answer, Sampling
from lib.serving import KeptServer

OPTIONS = ("--generation-config", "vllm")
"""Only `Sampling` says how to sample: no penalty or top_k of the target's own settings."""


def completion_request(prompt: Sequence[int], sampling: Sampling, ends: Set[int]) -> dict[str, Any]:
    """Return what `/v1/completions` is asked for an answer in token ids.

    Args:
        ends: ids that end the answer.
    """
    return {
        "prompt": list(prompt),
        "max_tokens": sampling.max_tokens,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": sampling.top_k or -1,
        "seed": sampling.seed_for(prompt),
        "stop_token_ids": sorted(ends),
        "return_token_ids": True,
    }


class VllmAnswers:
    """A served target that answers prompts as they come.

    Prompts and answers are token ids, so no text is rendered or cut anywhere on the way.

    Attributes:
        context_length: most tokens of a prompt and its answer together.
        width: prompts to have under way.
    """

    def __init__(
        self, server: KeptServer, end_of_turn_ids: frozenset[int], sampling: Sampling, width: int
    ):
        self._server = server
        self._ends = end_of_turn_ids
        self._sampling = sampling
        self._pool = ThreadPoolExecutor(width)
        self._under_way: dict[Future[Answer], tuple[int, ...]] = {}
        self.context_length: int = server.get("/v1/models")["data"][0]["max_model_len"]
        self.width = width

    def start(self, prompt: tuple[int, ...]) -> None:
        """Ask the server for the answer to a prompt."""
        self._under_way[self._pool.submit(self._ask, prompt)] = prompt

    def finished(self) -> list[tuple[tuple[int, ...], Answer]]:
        """Wait for at least one answer; return those that are there, each with its prompt.

        Raises:
            ServerError: the server ended too often, or refuses a prompt.
        """
        done, _ = wait(self._under_way, return_when=FIRST_COMPLETED)
        return [(self._under_way.pop(one), one.result()) for one in done]

    def close(self) -> None:
        """Ask nothing more."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _ask(self, prompt: tuple[int, ...]) -> Answer:
        body = completion_request(prompt, self._sampling, self._ends)
        (choice,) = self._server.post("/v1/completions", body)["choices"]
        return Answer.until_end(choice["token_ids"], self._ends)
