from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks.data import Box, Pair, Photo, load_photos
from benchmarks.geometry import questions_of
from benchmarks.heads import both_ways, bound, evaluate, presence
from benchmarks.scenes import gallery, write_gallery
from benchmarks.train_compact import (
    Features,
    Recipe,
    cached_features,
    classes_of,
    tower_features,
    train,
)


@pytest.fixture(scope="module")
def seen(tmp_path_factory) -> tuple[list[Photo], Features]:
    """Six drawn pictures, and what the towers see of them."""
    folder = tmp_path_factory.mktemp("gallery")
    write_gallery(folder, gallery(6))
    photos = load_photos(folder)
    return photos, tower_features(photos)


def test_targets_of_a_mirror_image_are_mirrored(seen):
    photos, features = seen
    maps = features.targets.unflatten(1, (12, 12))
    assert torch.equal(maps[6:], maps[:6].flip(2))
    assert not torch.equal(maps[6:], maps[:6])
    assert torch.allclose(features.targets.sum(dim=2), torch.ones(12, 144))
    (box, *_) = photos[0].boxes
    there = maps[0, :, :, classes_of(photos).index(box.name)] > 0
    rows, columns = torch.nonzero(there, as_tuple=True)
    assert columns.min() / 12 <= box.x0 + 1e-6 < box.x1 - 1e-6 <= (columns.max() + 1) / 12
    assert rows.min() / 12 <= box.y0 + 1e-6 < box.y1 - 1e-6 <= (rows.max() + 1) / 12


def test_the_heads_train_on_what_the_towers_see(seen):
    photos, features = seen
    assert features.tokens.shape == (12, 144, 1280)
    assert len(features.targets) == 12
    recipe = Recipe(passes=12, batch=6, place_photos=3, patch_photos=6)
    heads = train(features, np.arange(len(photos)), recipe)
    scores = evaluate(heads, features, photos, np.arange(len(photos)))
    assert np.mean([value for value, _ in scores["recall_at_1"]]) > 0.6  # six pictures, learned by heart
    again = train(features, np.arange(len(photos)), recipe)
    assert torch.equal(heads.image, again.image)


def test_features_of_another_size_are_not_taken(tmp_path):
    write_gallery(tmp_path, gallery(1))
    photos = load_photos(tmp_path)
    kept = tmp_path / "features.pt"
    features = cached_features(kept, photos, 192)
    assert features.tokens.shape == (2, 36, 1280)
    assert torch.equal(cached_features(kept, photos, 192).tokens, features.tokens)
    with pytest.raises(SystemExit, match="2 pictures of 36 patches; 1 photographs of 384 px"):
        cached_features(kept, photos)
    write_gallery(tmp_path, list(gallery(2))[1:])
    with pytest.raises(SystemExit, match="is not what the tower sees of"):
        cached_features(kept, load_photos(tmp_path), 192)


def test_the_mean_of_both_ways_has_no_hand():
    unused = torch.zeros(0)
    tokens = (
        torch.arange(2 * 3 * 4 * 2, dtype=torch.float32).reshape(6, 4, 2).bfloat16()
    )  # 3 pictures of 2 x 2
    both = both_ways(Features(tokens, unused, unused, unused, unused, unused, (unused, unused))).tokens
    assert both.shape == tokens.shape
    assert torch.equal(both[3:].unflatten(1, (2, 2)), both[:3].unflatten(1, (2, 2)).flip(2))
    expected = (
        tokens[1, 0].float() + tokens[4, 1].float()
    ) / 2  # upper left, and upper right of the mirror image
    assert torch.equal(both[1, 0].float(), expected)


def test_a_probe_finds_what_the_tower_sees():
    rng = np.random.default_rng(0)
    names = ("cat", "dog", "cup")
    boxes = [[Box(name, 0.1, 0.1, 0.9, 0.9) for name in names if rng.random() < 0.5] for _ in range(60)]
    photos = [Photo(Path(f"{n}.jpg"), (), tuple(some), ()) for n, some in enumerate(boxes)]
    tokens = torch.from_numpy(rng.normal(size=(60, 36, 1280)).astype(np.float32))
    for n, some in enumerate(boxes):
        for box in some:
            tokens[n, :, 400 * names.index(box.name) :][:, :400] += 4.0
    unused = torch.zeros(0)
    features = Features(tokens, unused, unused, unused, unused, unused, (unused, unused))
    rows = np.arange(60)
    found = bound(features, photos, rows[:40], rows[40:])
    assert {name for _, name in found["probe_presence_auc"]} == set(names)
    assert min(value for value, _ in found["probe_presence_auc"]) > 0.99
    assert found["probe_pair_first"] == []  # these photographs ask nothing


def test_what_shows_two_things_stands_before_what_shows_one():
    both = [Box("cat", 0.1, 0.4, 0.3, 0.6), Box("dog", 0.7, 0.4, 0.9, 0.6)]
    pair = Pair("cat", "dog", -0.6, 0.0, "left", None, 0.04)
    photos = [
        Photo(Path(f"{n}.jpg"), (), tuple(some), (pair,) if n == 0 else ())
        for n, some in enumerate([both, both[:1], both[1:], []])
    ]
    questions = questions_of(photos)
    assert {(q.a, q.b, q.photo) for q in questions} == {("cat", "dog", 0)}
    told = presence(np.array([[2.0, 2.0, 0.0, 0.0], [2.0, 0.0, 2.0, 0.0]]), photos, ["cat", "dog"], questions)
    assert {value for value, _ in told["pair_first"]} == {1.0}
    fooled = presence(
        np.array([[1.0, 9.0, 0.0, 0.0], [1.0, 1.0, 0.0, 0.0]]), photos, ["cat", "dog"], questions
    )
    assert {value for value, _ in fooled["pair_first"]} == {0.0}
    assert {value for value, _ in fooled["pair_before_one"]} == {0.5}
