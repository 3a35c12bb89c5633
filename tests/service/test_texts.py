from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from indexer.compact import load_compact
from service.texts import TextVectors
from tests.support import TinyEncoder

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


class Slow(TinyEncoder):
    """An encoder that takes its time, and fails when told to."""

    fails = False

    def encode_texts(self, texts):
        found = super().encode_texts(texts)
        time.sleep(0.2)
        if self.fails:
            raise RuntimeError("out of order")
        return found


def test_who_asks_for_a_text_under_way_waits_for_it():
    encoder = Slow()
    vectors = TextVectors(encoder)
    with ThreadPoolExecutor(6) as pool:
        answers = list(pool.map(vectors, [["red"]] * 6))
    assert encoder.text_calls == [("red",)]
    assert all(answer[0][0] is answers[0][0][0] for answer in answers)


def test_a_text_that_failed_is_tried_again():
    encoder = Slow()
    encoder.fails = True
    vectors = TextVectors(encoder)
    with ThreadPoolExecutor(2) as pool:
        for asked in [pool.submit(vectors, ["red"]) for _ in range(2)]:
            with pytest.raises(RuntimeError, match="out of order"):
                asked.result()
    encoder.fails = False
    assert vectors(["red"])[0][0] is vectors(["red"])[0][0]
