"""Text to token ids, as the target's tokenizer gives them.

A byte-level BPE tokenizer can be encoded by tiktoken several times faster than by its own library.
That is done only where the structure of the tokenizer allows it; stages that do so compare a share
of their rows with those of the tokenizer itself.
"""

import re
import unicodedata
from collections.abc import Mapping, Sequence, Set
from functools import lru_cache
from typing import Any, Protocol

import msgspec
import tiktoken
from transformers.convert_slow_tokenizer import bytes_to_unicode

_GPT2_PATTERN = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
"""What `ByteLevel` cuts text by when it brings no pattern of its own."""

_MUCH_SPACE = 5000
_LONG_SPACE = re.compile(rf"\s{{{_MUCH_SPACE}}}")
"""White space in which the patterns make tiktoken look ahead so far that its stack overflows."""


class NotFast(Exception):
    """The tokenizer has a part that the fast encoder does not know."""


class Encoder(Protocol):
    """Something that turns text into token ids."""

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text in which special tokens count as such."""


class TokenizerEncoder:
    """The tokenizer itself."""

    def __init__(self, tokenizer: Any):
        self._tokenizer = tokenizer

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text in which special tokens count as such."""
        ids: list[int] = self._tokenizer(text, add_special_tokens=False)["input_ids"]
        return ids


class FastEncoder:
    """tiktoken for what stands between added tokens, each such piece encoded once.

    Raises:
        NotFast: names the part of the tokenizer that is not known.
    """

    def __init__(self, tokenizer: Any):
        parts = _parts(tokenizer)
        self._exact = TokenizerEncoder(tokenizer)
        self._normalizes = _normalizes(parts["normalizer"])
        self._added = _added_tokens(parts["added_tokens"], self._normalizes)
        self._split = _splitter(self._added)
        ranks, self._ids = _ranks(parts["model"], self._added.keys())
        try:
            self._encoding = tiktoken.Encoding(
                "target",
                pat_str=_pattern(parts["pre_tokenizer"]),
                mergeable_ranks=ranks,
                special_tokens={},
            )
        except ValueError as error:
            raise NotFast(f"pattern: {error}") from error
        # the history of a conversation comes again with each of its turns
        self._piece = lru_cache(maxsize=1024)(self._encode_piece)

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text in which special tokens count as such."""
        ids: list[int] = []
        for number, piece in enumerate(self._split(text)):
            if number % 2:
                ids.append(self._added[piece])
            elif piece:
                ids += self._piece(piece)
        return ids

    def _encode_piece(self, text: str) -> list[int]:
        if len(text) >= _MUCH_SPACE and _LONG_SPACE.search(text):
            return self._exact.encode(text)
        if self._normalizes and not text.isascii():
            text = unicodedata.normalize("NFC", text)
        ranks = self._encoding.encode_ordinary(text)
        return ranks if self._ids is None else list(map(self._ids.__getitem__, ranks))


def _parts(tokenizer: Any) -> dict[str, Any]:
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        raise NotFast("the tokenizer is not one of the tokenizers library")
    parts: dict[str, Any] = msgspec.json.decode(backend.to_str())
    if parts["truncation"] or parts["padding"]:
        raise NotFast("it truncates or pads")
    if backend.encode_special_tokens:
        raise NotFast("it takes special tokens apart")
    return parts


def _normalizes(normalizer: Mapping[str, Any] | None) -> bool:
    if normalizer is None:
        return False
    if normalizer["type"] != "NFC":
        raise NotFast(f"normalizer {normalizer['type']}")
    return True


def _pattern(pre_tokenizer: Mapping[str, Any] | None) -> str:
    """Return the pattern that cuts text into words before merging."""
    if pre_tokenizer is None:
        raise NotFast("no pre-tokenizer")
    kind = pre_tokenizer["type"]
    *splits, last = pre_tokenizer["pretokenizers"] if kind == "Sequence" else [pre_tokenizer]
    if last["type"] != "ByteLevel" or last["add_prefix_space"]:
        raise NotFast(f"pre-tokenizer {kind}")
    if not splits and last["use_regex"]:
        return _GPT2_PATTERN
    if len(splits) == 1 and not last["use_regex"] and splits[0]["type"] == "Split":
        split = splits[0]
        if split["behavior"] == "Isolated" and not split["invert"] and "Regex" in split["pattern"]:
            return str(split["pattern"]["Regex"])
    raise NotFast(f"pre-tokenizer {kind}")


def _added_tokens(tokens: Sequence[Mapping[str, Any]], normalizes: bool) -> dict[str, int]:
    unknown = ["single_word", "lstrip", "rstrip", *(["normalized"] if normalizes else [])]
    for token in tokens:
        flags = [name for name in unknown if token[name]]
        if flags:
            raise NotFast(f"added token {token['content']!r} with {flags[0]}")
    return {token["content"]: token["id"] for token in tokens}


def _splitter(added: Mapping[str, int]) -> Any:
    """Return a function that gives text and added tokens in turn, the longest token first."""
    longest_first = sorted(added, key=len, reverse=True)
    pattern = "|".join(map(re.escape, longest_first)) or r"(?!)"
    return re.compile(f"({pattern})").split


def _ranks(model: Mapping[str, Any], added: Set[str]) -> tuple[dict[bytes, int], list[int] | None]:
    """Return the ranks of tiktoken, in the order of the merges.

    Args:
        added: tokens that text is split at before, which need no merge.

    Returns:
        The rank of each token by its bytes, and the id of each rank (None if they are the same).
    """
    if model["type"] != "BPE":
        raise NotFast(f"model {model['type']}")
    for name in ("dropout", "continuing_subword_prefix", "end_of_word_suffix", "byte_fallback"):
        if model.get(name):
            raise NotFast(f"model with {name}")
    vocabulary: dict[str, int] = model["vocab"]
    letters = bytes_to_unicode()
    if missing := [letter for letter in letters.values() if letter not in vocabulary]:
        raise NotFast(f"{len(missing)} bytes that are no token")
    merges = [pair.split(" ", 1) if isinstance(pair, str) else pair for pair in model["merges"]]
    order = sorted(letters.values(), key=vocabulary.__getitem__)
    order += dict.fromkeys(map("".join, merges))
    if model["ignore_merges"]:  # then words that are a token count as such without any merge
        order += sorted(set(vocabulary) - set(order) - added, key=vocabulary.__getitem__)
    ids = [vocabulary[token] for token in order]
    as_bytes = {ord(letter): byte for byte, letter in letters.items()}
    ranks = {token.translate(as_bytes).encode("latin-1"): rank for rank, token in enumerate(order)}
    return ranks, None if ids == list(range(len(ids))) else ids
