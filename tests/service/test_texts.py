from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from indexer.compact import load_compact
from service.texts import TextVectors

TEXTS = [
    f"{thing} {where} a laptop"
    for thing in ("a cup", "two dogs", "an umbrella")
    for where in ("by", "under", "on")
]


@pytest.fixture(scope="module")
def compact():
    return load_compact(device="cpu")


def test_a_vector_does_not_depend_on_who_else_asks(compact):
    alone = {text: compact.encode_texts([text]).vectors[0] for text in TEXTS}
    vectors = TextVectors(compact)
    with ThreadPoolExecutor(6) as pool:
        answers = list(pool.map(vectors, [TEXTS[n:] + TEXTS[:n] for n in range(len(TEXTS))]))
    for n, answer in enumerate(answers):
        for text, (vector, cut) in zip(TEXTS[n:] + TEXTS[:n], answer, strict=True):
            assert np.array_equal(vector, alone[text])
            assert not cut
    facts = vectors.facts()
    assert facts.entries == len(TEXTS)
    assert facts.hits + facts.misses == len(TEXTS) ** 2


def test_a_text_twice_is_one_text(compact):
    vectors = TextVectors(compact)
    one, other = vectors(["a cup", "a cup"])
    assert one[0] is other[0]
    assert vectors.facts().misses == 1
    assert vectors(["a cup"])[0][0] is one[0]


def test_a_vector_does_not_depend_on_the_cores_there_are(compact):
    before = torch.get_num_threads()
    found = []
    for threads in (1, 2, 4):
        torch.set_num_threads(threads)
        found.append(compact.encode_texts(TEXTS).vectors)
        assert torch.get_num_threads() == threads
    torch.set_num_threads(before)
    assert np.array_equal(found[0], found[1])
    assert np.array_equal(found[0], found[2])
