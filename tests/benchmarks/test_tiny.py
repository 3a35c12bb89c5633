"""The tiny models go the way of real checkpoints: every dense mode has been seen to find things, not only to run."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest

from benchmarks.controlled import Controlled, controlled_set, read_all, ways
from benchmarks.geometry import Texts, questions_of
from benchmarks.tiny import TINY, load_tiny, weights
from benchmarks.tiny_scenes import unseen_pairs
from indexer.encoder import DenseMode, DenseView

ROOT = Path(__file__).resolve().parents[2]
BEST = {
    "tiny-vit-class-token": (DenseMode.KK, DenseView.NATIVE),
    "tiny-vit-attention-pooled": (DenseMode.HEAD, DenseView.NATIVE),
}


@pytest.fixture(scope="module")
def unseen() -> Controlled:
    """Rotations and mirror images of pairs that training never showed together."""
    return controlled_set(unseen_pairs())


@pytest.fixture(scope="module")
def found(unseen) -> dict[tuple[str, DenseMode, DenseView], dict[str, float]]:
    made = {}
    for name in TINY:
        text = Texts(load_tiny(name), questions_of(unseen.photos))
        for mode, view in ways(name):
            _, right, named = read_all(load_tiny(name, dense_mode=mode, dense_view=view), unseen, text)
            made[name, mode, view] = {reader: float(np.mean(one)) for reader, one in right.items()} | {"named": named}
    return made


@pytest.mark.parametrize("name", TINY)
def test_weights_are_small_and_under_version_control(name: str) -> None:
    assert weights(name).stat().st_size <= 3_000_000
    if (ROOT / ".git").exists():
        subprocess.run(["git", "ls-files", "--error-unmatch", weights(name)], cwd=ROOT, check=True, capture_output=True)


@pytest.mark.parametrize("name", TINY)
def test_the_pooled_vector_knows_things_and_no_places(found, name: str) -> None:
    best = found[name, *BEST[name]]
    assert best["named"] > 0.5  # one in 66 by luck
    assert 0.4 < best["native"] < 0.6


@pytest.mark.parametrize("name", TINY)
def test_the_patches_know_places(found, name: str) -> None:
    best = found[name, *BEST[name]]
    assert best["moment_full"] >= 0.90
    assert best["centroid_full"] >= 0.95
    assert 0.45 < best["shuffled"] < 0.55


@pytest.mark.parametrize("mode", [DenseMode.VALUE, DenseMode.QQ, DenseMode.KK])
@pytest.mark.parametrize("view", DenseView)
def test_every_training_free_mode_finds_things(found, mode: DenseMode, view: DenseView) -> None:
    one = found["tiny-vit-class-token", mode, view]
    assert one["moment_full"] > 0.7
    assert one["centroid_full"] > 0.8
