"""What the tiny models are shown while they are trained."""

from __future__ import annotations

import itertools

import pytest
import torch

from benchmarks.tiny_scenes import NAMES, Compositor, unseen_pairs
from benchmarks.train_tiny import clip_loss


def test_unseen_pairs_are_never_shown_together() -> None:
    unseen = {frozenset(pair) for pair in unseen_pairs()}
    assert len(unseen) == 18
    for name in NAMES:
        assert sum(name in pair for pair in unseen) == 3
    batch = Compositor(64, (0.5,) * 3, (0.25,) * 3, seed=0, backdrops=1).batch(1000)
    shown = [[name for name, there in zip(NAMES, row, strict=True) if there] for row in batch.shown]
    together = {frozenset(pair) for names in shown for pair in itertools.combinations(names, 2)}
    assert not together & unseen
    assert len(together) == 66 - 18
    for caption, names in zip(batch.captions, shown, strict=True):
        assert [name for name in NAMES if name in caption] == names
        assert not {"left", "right", "above", "below", "on", "under", "over", "beside"} & set(caption.split())


def test_the_loss_with_one_match_each_is_cross_entropy() -> None:
    logits = torch.randn(5, 5, generator=torch.Generator().manual_seed(0))
    target = torch.arange(5)
    expected = torch.nn.functional.cross_entropy(logits, target) / 2
    expected += torch.nn.functional.cross_entropy(logits.T, target) / 2
    assert clip_loss(logits, torch.eye(5, dtype=torch.bool)).item() == pytest.approx(expected.item())
