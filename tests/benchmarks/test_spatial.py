from __future__ import annotations

import numpy as np
import pytest

from benchmarks import spatial
from benchmarks.data import Box, Pair, Photo
from benchmarks.gallery import index_of, look
from benchmarks.geometry import OPPOSITE, Question, balanced, half_crop, misaligned, questions_of, read, won
from tests.support import GRID, TinyEncoder, paint_gallery

WORDS = np.eye(6, dtype=np.float32)[3:]


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    folder = tmp_path_factory.mktemp("photos")
    found = []
    for n, squares in enumerate(paint_gallery(folder, 30, seed=3)):
        boxes = []
        for s in squares:
            x, y, side = s.column / GRID, s.row / GRID, s.size / GRID
            boxes.append(Box(s.colour, x, y, x + side, y + side))
        (a, b) = boxes
        dx, dy = a.x0 - b.x0, a.y0 - b.y0
        lr = None if abs(dx) <= 0.2 else "left" if dx < 0 else "right"
        ab = None if abs(dy) <= 0.2 else "above" if dy < 0 else "below"
        pair = Pair(a.name, b.name, dx, dy, lr, ab, min(a.area, b.area))
        captions = (f"{a.name} and {b.name}", f"a {a.name} square above a {b.name} square")
        found.append(Photo(folder / f"{n:04d}.png", captions, (a, b), (pair,)))
    return found


def test_every_metric_is_made_and_the_readers_read(photos):
    metrics, curves = spatial.measure(TinyEncoder(), photos)
    value = {m.name: m.value for m in metrics}
    fixed = (
        "lr_native lr_moment lr_centroid lr_best ab_native ab_moment ab_centroid ab_best shuffled_moment "
        "recall_at_1 recall_at_5 recall_at_10 cond_r1_lr_native cond_r1_lr_best pairwise_lr_best "
        "captions_r1_native captions_r1_spatial mirror_native mirror_spatial"
    )
    assert set(fixed.split()) <= set(value)
    assert len(value) == len(metrics)
    assert value["lr_best"] > 0.95
    assert value["lr_moment"] > 0.9
    assert 0.3 < value["shuffled_moment"] < 0.7
    assert value["mirror_native"] == 0.5
    assert value["pairwise_lr_best"] > 0.95
    assert value["cond_r1_lr_native"] < 0.5 < value["cond_r1_lr_best"]
    assert {row["k"] for row in curves["moment_pca"]} == {16, 32}


def test_what_is_seen_is_kept(photos, tmp_path):
    encoder = TinyEncoder()
    first = look(encoder, photos[:5], cache=tmp_path)
    again = look(encoder, photos[:5], cache=tmp_path)
    assert np.array_equal(first.pooled, again.pooled)
    assert all(np.array_equal(a, b) for a, b in zip(first.tokens, again.tokens, strict=True))
    assert len(list(tmp_path.iterdir())) == 1
    look(encoder, photos[:5], mirrored=True, cache=tmp_path)
    assert len(list(tmp_path.iterdir())) == 2


def test_an_index_of_what_was_seen_has_photograph_n_in_row_n(photos, tmp_path):
    seen = look(TinyEncoder(), photos)
    index = index_of(seen, TinyEncoder(), tmp_path / "index", k=8)
    assert np.array_equal(index.native(), seen.pooled)
    assert index.images["path"].to_pylist()[7] == "000007.jpg"


def test_questions_know_halves_and_sizes(photos):
    boxes = (Box("cup", 0.0, 0.0, 0.1, 0.1), Box("dog", 0.2, 0.5, 0.4, 0.9))
    photo = Photo(photos[0].path, (), boxes, (Pair("cup", "dog", -0.25, -0.65, "left", "above", 0.01),))
    across, down = questions_of([photo])
    assert (across.relation, across.axis, across.same_half) == ("left", "lr", True)
    assert (down.relation, down.axis, down.same_half) == ("above", "ab", False)
    assert across.ratio == pytest.approx(8)
    assert across.text() == "a cup to the left of a dog"
    assert down.text(OPPOSITE["above"]) == "a cup below a dog"


def test_readers_of_a_full_grid_agree_on_a_clear_one():
    tokens = np.full((4, 4, 6), 0.01, np.float32)
    tokens[1, 0, 0] = tokens[2, 3, 1] = 1.0
    s, o = np.eye(6, dtype=np.float32)[:2]
    for name, centres in read(tokens, s, o, WORDS).items():
        assert centres[0, 0] < centres[1, 0], name
        assert centres[0, 1] < centres[1, 1], name
    assert half_crop(tokens, s, o, 0) < 0
    assert half_crop(tokens, o, s, 0) > 0


def test_balanced_questions_have_both_directions_as_often():
    def ask(a, b, relation):
        return Question(0, a, b, relation, False, 1.0)

    asked = [ask("a", "b", "left"), ask("a", "b", "left"), ask("b", "a", "left"), ask("c", "d", "left")]
    rows = balanced(asked)
    assert len(rows) == 2
    assert 2 in rows
    assert balanced([ask("a", "b", "left"), ask("b", "a", "right")]).size == 0


def test_ties_count_half_and_nobody_is_their_own_null():
    assert won(np.array([0.2, -1.0, 0.0, 1e-12])).tolist() == [1.0, 0.0, 0.5, 0.5]
    assert all(misaligned(n, 50) != n for n in range(50))
    assert all(misaligned(n, 101) != n for n in range(101))
