"""The fast encoder gives the ids of the tokenizer, or says that it can't."""

import json
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from targets.families import ORDINARY
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from lib.encoding import (
    FastEncoder,
    NotFast,
    TokenizerEncoder,
)

PIECES = [
    *("", " ", "  ", "\n", "\n\n", "\t", " \n ", "'s", "'LL", "don't", "x" * 300, "1234567", "٣"),
    *(
        "Grüße",
        "é",
        "e\u0301",
        "\u0301",
        "数据和文字",
        "かな",
        "한국어",
        "ไทย",
        "🙂",
        "👩‍👩‍👧",
        "\u200b",
    ),
    *("\u00a0", "\r\n", "def f(x):\n\treturn x", "…", "<|im", "_start|>", "</think", "ﬁ", "\x00"),
    *("<|im_start|>", "<|im_end|>", "<think>", "</think>", "<tool_call>"),
]
TEXTS = st.lists(st.sampled_from(PIECES) | st.text(st.characters(exclude_categories=["Cs"])))


@pytest.fixture(scope="module")
def qwen_encoders(qwen):
    tokenizer = AutoTokenizer.from_pretrained(qwen)
    return FastEncoder(tokenizer), TokenizerEncoder(tokenizer)


@settings(max_examples=400, derandomize=True, deadline=None)
@given(parts=TEXTS)
def test_the_real_tokenizer_of_qwen_gives_the_same_ids(qwen_encoders, parts):
    fast, exact = qwen_encoders
    assert fast.encode("".join(parts)) == exact.encode("".join(parts))


@settings(max_examples=200, derandomize=True, deadline=None)
@given(parts=TEXTS)
def test_the_toy_tokenizer_gives_the_same_ids(render, parts):
    tokenizer = render().tokenizer
    text = "".join(parts)
    assert FastEncoder(tokenizer).encode(text) == TokenizerEncoder(tokenizer).encode(text)


@pytest.mark.parametrize("character", [" ", "\n", "a", "é", "^", "数"])
def test_very_long_runs_are_encoded(qwen_encoders, character):
    fast, exact = qwen_encoders
    text = f"<|im_start|>{character * 200_000}<|im_end|>"
    assert fast.encode(text) == exact.encode(text)


def test_special_and_ordinary_added_tokens_of_qwen_are_one_id(qwen_encoders):
    fast, _ = qwen_encoders
    assert all(len(fast.encode(token)) == 1 for token in (*ORDINARY, "<|im_end|>"))


def small_tokenizer(
    split=None, normalizer=None, added=(), use_regex=True, prefix=False, kind=models.BPE
):
    """A byte-level tokenizer, trained on a little text, with ids that are no ranks."""
    backend = Tokenizer(kind())
    level = pre_tokenizers.ByteLevel(add_prefix_space=prefix, use_regex=use_regex)
    backend.pre_tokenizer = pre_tokenizers.Sequence([split, level]) if split else level
    if normalizer:
        backend.normalizer = normalizer
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=["<unused>"],
        show_progress=False,
    )
    if kind is models.BPE:
        backend.train_from_iterator(["the cat sat on the mat and then they thought"] * 9, trainer)
    backend.add_tokens(list(added))
    return PreTrainedTokenizerFast(tokenizer_object=backend)


@pytest.mark.parametrize(
    "parts",
    [
        {},
        {"normalizer": normalizers.NFC()},
        {"split": pre_tokenizers.Split(Regex(r"\w+|\W"), "isolated"), "use_regex": False},
        {"added": [AddedToken("<a>"), AddedToken("<a><b>")]},
    ],
)
def test_other_byte_level_tokenizers_give_the_same_ids(parts):
    tokenizer = small_tokenizer(**parts)
    fast, exact = FastEncoder(tokenizer), TokenizerEncoder(tokenizer)
    chance = random.Random(0)
    for _ in range(300):
        text = "".join(chance.choices([*"theca nmo\n12é́", "<a>", "<a><b>", "<unused>"], k=20))
        assert fast.encode(text) == exact.encode(text)


@pytest.mark.parametrize(
    ("parts", "what"),
    [
        ({"normalizer": normalizers.NFKC()}, "normalizer NFKC"),
        ({"prefix": True}, "pre-tokenizer ByteLevel"),
        ({"split": pre_tokenizers.Digits(), "use_regex": False}, "pre-tokenizer Sequence"),
        ({"added": [AddedToken("<a>", lstrip=True)]}, "'<a>' with lstrip"),
        (
            {"added": [AddedToken("<a>", normalized=True)], "normalizer": normalizers.NFC()},
            "'<a>' with normalized",
        ),
        ({"kind": models.WordLevel}, "model WordLevel"),
        (
            {"split": pre_tokenizers.Split("-", "removed"), "use_regex": False},
            "pre-tokenizer Sequence",
        ),
    ],
)
def test_a_tokenizer_of_another_structure_is_refused(parts, what):
    with pytest.raises(NotFast, match=what):
        FastEncoder(small_tokenizer(**parts))


def test_a_tokenizer_without_a_backend_is_refused():
    with pytest.raises(NotFast, match="tokenizers library"):
        FastEncoder(object())


def test_a_merge_order_that_ranks_cannot_say_is_noticed_by_comparing(tmp_path, render):
    """Merges of one token at two places in the order: the tokenizer prefers another pair."""
    parts = json.loads(render().tokenizer.backend_tokenizer.to_str())
    letters = [c for c in "abc" if c in parts["model"]["vocab"]]
    assert letters == ["a", "b", "c"]
    vocabulary = {c: n for n, c in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    for token in ("ab", "bc", "abc"):
        vocabulary[token] = len(vocabulary)
    parts["model"].update(vocab=vocabulary, merges=[["b", "c"], ["a", "bc"], ["a", "b"]])
    parts["added_tokens"] = []
    backend = Tokenizer.from_str(json.dumps(parts))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend)
    fast, exact = FastEncoder(tokenizer), TokenizerEncoder(tokenizer)
    for text in ("abc", "ab", "bc", "abab", "abcbc"):
        assert fast.encode(text) == exact.encode(text)
