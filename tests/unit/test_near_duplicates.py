"""Candidates hold every similar pair, and few others."""

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lib.near_duplicates import (
    Bands,
    Candidates,
    Suspects,
    find_suspects,
    similarity,
    word_hashes,
)

TEXTS = st.lists(st.frozensets(st.sampled_from("abcdefghij"), min_size=1), min_size=1, max_size=12)


def in_one_band(texts):
    """All texts share 40 bands, as if the signatures told nothing."""
    numbers = np.arange(len(texts))
    bands = np.tile(np.arange(40), len(texts))
    return Suspects(numbers, np.repeat(numbers, 40), bands)


def all_candidates(texts, threshold):
    return Candidates(in_one_band(texts), [word_hashes(words) for words in texts], threshold)


def candidates_of(texts, threshold):
    """For each text the candidates when all before it were entered."""
    candidates = all_candidates(texts, threshold)
    found = []
    for text in range(len(texts)):
        found.append(candidates.of(text))
        candidates.enter(text)
    return found


@settings(max_examples=400, derandomize=True, deadline=None)
@given(texts=TEXTS, threshold=st.sampled_from([0.5, 0.6, 2 / 3, 0.7, 0.75, 0.8, 0.9, 1.0]))
def test_every_similar_text_is_a_candidate(texts, threshold):
    for text, found in enumerate(candidates_of(texts, threshold)):
        similar = {n for n in range(text) if similarity(texts[n], texts[text]) >= threshold}
        assert similar <= set(found)
        assert found == sorted(set(found))


@settings(max_examples=100, derandomize=True, deadline=None)
@given(texts=TEXTS, data=st.data())
def test_only_entered_texts_are_candidates(texts, data):
    entered = data.draw(st.sets(st.sampled_from(range(len(texts)))))
    candidates = all_candidates(texts, 0.5)
    for text in range(len(texts)):
        assert set(candidates.of(text)) <= entered
        if text in entered:
            candidates.enter(text)


@pytest.mark.parametrize(("own", "threshold"), [(10, 0.7), (5, 0.85), (14, 0.6)])
def test_texts_of_one_template_are_no_candidates_where_they_differ_enough(own, threshold):
    """A template of 40 words; the similarity of each two is just below the threshold."""
    template = [f"common{n}" for n in range(40)]
    texts = [frozenset([*template, *(f"own{text}x{n}" for n in range(own))]) for text in range(100)]
    assert threshold - 0.1 < similarity(texts[0], texts[1]) < threshold
    assert sum(map(len, candidates_of(texts, threshold))) == 0


@pytest.mark.parametrize("threshold", [0.5, 0.7, 0.85, 0.95, 1.0])
def test_similar_texts_are_suspects_and_others_are_not(threshold):
    chance = random.Random(1)
    bands = Bands(threshold)
    texts, expected = [], []
    for number in range(400):
        words = frozenset(f"{number}x{n}" for n in range(60))
        common = 60 if threshold == 1 else round(60 * threshold) + chance.randint(0, 2)
        near = frozenset(chance.sample(sorted(words), min(60, common)))
        texts += [words, near, frozenset(f"{number}y{n}" for n in range(60))]
        expected += [True, True, False]
        assert similarity(words, near) >= threshold - 0.01
    places = find_suspects(bands.keys(texts)).places.tolist()
    found = [place in places for place in range(len(texts))]
    right = [one == other for one, other in zip(found, expected, strict=True)]
    assert sum(right) >= 0.97 * len(right)
    assert sum(found[2::3]) <= 1  # a band's key has 32 bits


def test_no_texts_have_no_suspects():
    assert len(find_suspects(Bands(0.7).keys([]))) == 0
    assert candidates_of([], 0.7) == []
