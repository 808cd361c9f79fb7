"""Texts that share a long run of words, or of code tokens, with an evaluation prompt.

A drafter is worth what it does on prompts that it never saw, so whatever quotes one is left out.
Runs of 13 words are what GPT-3 was decontaminated with (Brown et al. 2020, appendix C).
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lib.jsonl import read_jsonl
from lib.words import code_tokens_of, words_of

_FACTOR = np.uint64(0x9E3779B97F4A7C15)
"""Odd, so that no position of a run loses bits."""

Hashes = NDArray[np.uint64]


@dataclass(frozen=True)
class EvaluationPrompt:
    """What people ask in a held-out conversation; `is_code` if its domain is "code".

    Attributes:
        questions: what training data may not quote: the turns of a person, or the bare question
            where an instruction follows it, which others may give too.
    """

    id: str
    questions: tuple[str, ...]
    is_code: bool


@dataclass(frozen=True)
class SharedRun:
    """A run of an evaluation prompt that was found in a text."""

    text: int
    prompt: str
    run: str


def read_prompts(paths: Iterable[Path]) -> list[EvaluationPrompt]:
    """Return the prompts of evaluation files.

    Raises:
        ValueError: names the file and what is wrong in it.
    """
    prompts = []
    for path in paths:
        for number, record in enumerate(read_jsonl(path)):
            try:
                turns = record["conversations"]
                asked = tuple(turn["value"] for turn in turns if turn["from"] == "human")
                questions = (record["question"],) if "question" in record else asked
                is_code = record.get("domain") == "code"
                prompts.append(EvaluationPrompt(record["id"], questions, is_code))
            except (LookupError, TypeError, AttributeError) as error:
                raise ValueError(
                    f"{path}: prompt {number} needs id and conversations: {error!r}"
                ) from error
    return prompts


class Contamination:
    """Finds runs of evaluation prompts in texts.

    A prompt that is shorter than a run counts where a whole text has exactly its words.

    Args:
        shared_words: length of a run of words; all prompts are compared by these.
        shared_code_tokens: length of a run of code tokens; prompts of code are compared by these
            too, because code holds few words and many marks. Runs of fewer than five words (the
            borders of a table for instance) do not count.
    """

    def __init__(
        self, prompts: Sequence[EvaluationPrompt], shared_words: int, shared_code_tokens: int
    ):
        code = [prompt for prompt in prompts if prompt.is_code]
        self._words = _Runs(prompts, words_of, shared_words)
        self._code = _Runs(code, code_tokens_of, shared_code_tokens, _WORDS_IN_CODE)
        self._in_code = _Runs(code, words_of, _WORDS_IN_CODE)

    def find(self, texts: Sequence[str]) -> list[SharedRun]:
        """Return for each text that holds a run the first one found in it, in the order of texts.

        Many texts at once are much faster than one by one.
        """
        words = _Tokens([words_of(text) for text in texts])
        found = {number: self._words.first(words.of(number)) for number in self._words.in_(words)}
        for number in self._in_code.in_(words):
            if not found.get(number):
                found[number] = self._code.first(code_tokens_of(texts[number]))
        return [SharedRun(number, *run) for number, run in sorted(found.items()) if run]


_WORDS_IN_CODE = 5


class _Tokens:
    """The tokens of several texts, one after the other."""

    def __init__(self, texts: Sequence[list[str]]):
        self._texts = texts
        self.lengths = np.fromiter(map(len, texts), np.int64, len(texts))
        self.ends = np.cumsum(self.lengths)
        hashes = np.fromiter(map(hash, chain.from_iterable(texts)), np.int64)
        self.hashes = hashes.view(np.uint64)

    def of(self, text: int) -> list[str]:
        """Return the tokens of one text."""
        return self._texts[text]


class _Runs:
    """All runs of one length of the prompts, found by a hash and checked by their tokens.

    Args:
        tokens_of: takes a question apart.
        length: tokens of a run; a shorter question is one run.
        minimum_words: runs with fewer words are left out.
    """

    def __init__(
        self,
        prompts: Sequence[EvaluationPrompt],
        tokens_of: Callable[[str], list[str]],
        length: int,
        minimum_words: int = 1,
    ):
        self._length = length
        self._prompts: dict[tuple[str, ...], str] = {}
        for prompt in prompts:
            for question in prompt.questions:
                for run in self._runs(tokens_of(question)):
                    if len(words_of(" ".join(run))) >= minimum_words:
                        self._prompts.setdefault(run, prompt.id)
        long = _Tokens([list(run) for run in self._prompts if len(run) == length])
        self._hashes = np.unique(_run_hashes(long.hashes, length)[::length])
        self._has_short = any(len(run) < length for run in self._prompts)

    def in_(self, tokens: _Tokens) -> list[int]:
        """Return the texts that may hold a run; few others are among them."""
        runs = _run_hashes(tokens.hashes, self._length)
        places = np.searchsorted(self._hashes, runs).clip(max=max(0, len(self._hashes) - 1))
        starts = np.flatnonzero(self._hashes[places] == runs) if len(self._hashes) else places[:0]
        texts = np.searchsorted(tokens.ends, starts, side="right")
        short = np.flatnonzero(tokens.lengths < self._length) if self._has_short else texts[:0]
        return list(map(int, np.union1d(texts, short)))

    def first(self, tokens: list[str]) -> tuple[str, str] | None:
        """Return the prompt and the run of the first run that a text holds."""
        for run in self._runs(tokens):
            if run in self._prompts:
                return self._prompts[run], " ".join(run)
        return None

    def _runs(self, tokens: list[str]) -> Iterator[tuple[str, ...]]:
        for start in range(max(1, len(tokens) - self._length + 1)):
            yield tuple(tokens[start : start + self._length])


def _run_hashes(hashes: Hashes, length: int) -> Hashes:
    """Return for each `length` neighbouring token hashes one that depends on their order."""
    count = max(0, len(hashes) - length + 1)
    result = np.zeros(count, np.uint64)
    for position in range(length):
        result = result * _FACTOR + hashes[position : position + count]
    return result
