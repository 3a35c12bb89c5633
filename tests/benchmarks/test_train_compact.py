from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image, ImageDraw

from benchmarks.data import Box, load_photos
from benchmarks.scenes import gallery, write_gallery
from benchmarks.train_compact import (
    GRID,
    Recipe,
    View,
    box_targets,
    evaluate,
    tower_features,
    train,
    views_of,
)

BOX = Box("cup", 0.3, 0.5, 0.6, 0.9)


@pytest.mark.parametrize(
    "view",
    [View(), View(mirrored=True), View((0.1, 0.2, 0.9, 0.95)), View((0.4, 0.0, 1.0, 0.7), mirrored=True)],
)
def test_a_box_stays_on_its_thing(view):
    picture = Image.new("RGB", (400, 300))
    ImageDraw.Draw(picture).rectangle((0.3 * 400, 0.5 * 300, 0.6 * 400 - 1, 0.9 * 300 - 1), fill="white")
    seen = np.asarray(view.picture(picture).convert("L")) > 127
    (box,) = view.boxes([BOX])
    rows, columns = np.flatnonzero(seen.any(axis=1)), np.flatnonzero(seen.any(axis=0))
    height, width = seen.shape
    assert (box.x0 * width, box.x1 * width) == pytest.approx((columns[0], columns[-1] + 1), abs=1.5)
    assert (box.y0 * height, box.y1 * height) == pytest.approx((rows[0], rows[-1] + 1), abs=1.5)


def test_a_box_outside_a_view_is_left_out():
    assert View((0.7, 0.0, 1.0, 1.0)).boxes([BOX]) == []


def test_views_are_the_whole_its_mirror_image_and_crops():
    whole, mirror, *crops = views_of(50, 2)
    assert set(whole) == {View()}
    assert set(mirror) == {View(mirrored=True)}
    for view in (view for crop in crops for view in crop):
        x0, y0, x1, y1 = view.box
        assert 0 <= x0 < x1 <= 1
        assert 0 <= y0 < y1 <= 1
        assert 0.4 < (x1 - x0) * (y1 - y0) <= 0.91
    assert views_of(50, 2) == [whole, mirror, *crops]


def test_targets_of_a_mirrored_view_are_mirrored():
    plain, mirrored = (box_targets(view.boxes([BOX]), ["cup"]) for view in (View(), View(mirrored=True)))
    assert torch.allclose(plain.reshape(GRID, GRID, 2).flip(1), mirrored.reshape(GRID, GRID, 2), atol=1e-6)
    assert torch.allclose(plain.sum(dim=1), torch.ones(GRID * GRID))


def test_the_heads_train_on_what_the_towers_see(tmp_path):
    write_gallery(tmp_path, gallery(6))
    photos = load_photos(tmp_path)
    features = tower_features(photos, views_of(len(photos), 1))
    assert features.tokens.shape == (18, GRID * GRID, 1280)
    assert len(features.targets) == 18
    recipe = Recipe(passes=12, batch=6, place_photos=3, patch_photos=6)
    heads = train(features, np.arange(len(photos)), recipe)
    scores = evaluate(heads, features, photos, np.arange(len(photos)))
    assert scores["recall_at_1"] > 0.6  # six pictures, learned by heart
    again = train(features, np.arange(len(photos)), recipe)
    assert torch.equal(heads.image, again.image)
