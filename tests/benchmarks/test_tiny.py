"""The tiny models go the way of real checkpoints: every dense mode has been seen to find things, not only to run."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from benchmarks.controlled import ROUNDS, Controlled, controlled_set, indexed, named, read_all, ways
from benchmarks.geometry import Texts, questions_of
from benchmarks.tiny import ATTENTION_POOLED, CLASS_TOKEN, TINY, load_tiny, weights
from benchmarks.tiny_scenes import unseen_pairs
from indexer.encoder import DenseMode, DenseView

ROOT = Path(__file__).resolve().parents[2]
BEST = {
    CLASS_TOKEN: (DenseMode.KK, DenseView.NATIVE),
    ATTENTION_POOLED: (DenseMode.HEAD, DenseView.NATIVE),
}
"""As `benchmarks.controlled` decides on pairs that training did show together."""


def read(name: str, data: Controlled, some: Sequence[tuple[DenseMode, DenseView]]) -> list[dict[str, float]]:
    """Share of questions that each reader has right, by mode and view."""
    text = Texts(load_tiny(name), questions_of(data.photos))
    made = []
    for mode, view in some:
        encoder = load_tiny(name, dense_mode=mode, dense_view=view)
        with indexed(encoder, data) as (seen, index):
            _, right = read_all(encoder, data, seen, index, text)
        made.append(
            {reader: float(np.mean(one)) for reader, one in right.items()}
            | {"named": named(encoder, seen, data)}
        )
    return made


@pytest.fixture(scope="module", params=TINY)
def best(request) -> dict[str, float]:
    """A model in its best mode, on rotations and mirror images of pairs that training never showed together."""
    return read(request.param, controlled_set(unseen_pairs() * ROUNDS), [BEST[request.param]])[0]


@pytest.mark.parametrize("name", TINY)
def test_weights_are_small_and_under_version_control(name: str) -> None:
    assert weights(name).stat().st_size <= 3_000_000
    if (ROOT / ".git").exists():
        subprocess.run(
            ["git", "ls-files", "--error-unmatch", weights(name)], cwd=ROOT, check=True, capture_output=True
        )


def test_the_pooled_vector_knows_things_and_no_places(best: dict[str, float]) -> None:
    assert best["named"] > 0.5  # one in 66 by luck
    assert 0.45 < best["native"] < 0.55


def test_the_patches_know_places(best: dict[str, float]) -> None:
    assert best["moment_full"] >= 0.90
    assert best["centroid_full"] >= 0.95
    assert 0.45 < best["shuffled"] < 0.55


def test_every_training_free_mode_finds_things() -> None:
    some = [(mode, view) for mode, view in ways(CLASS_TOKEN) if mode is not DenseMode.LAST]
    for way, one in zip(some, read(CLASS_TOKEN, controlled_set(unseen_pairs()), some), strict=True):
        assert one["moment_full"] > 0.8, way
        assert one["centroid_full"] > 0.85, way
