from __future__ import annotations

import numpy as np
import pytest

from benchmarks import spatial
from benchmarks.data import Box, Pair, Photo
from benchmarks.gallery import index_of, look, open_encoder
from benchmarks.geometry import (
    OPPOSITE,
    SHUFFLES,
    Question,
    balanced,
    half_crop,
    misaligned,
    questions_of,
    read,
    report,
    won,
)
from benchmarks.record import share, wilson
from benchmarks.retrieval import crops, patch_windows, window_around
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


def test_other_photographs_in_a_folder_of_the_same_name_are_seen_anew(photos, tmp_path):
    encoder, cache = TinyEncoder(), tmp_path / "cache"
    look(encoder, photos[:5], cache=cache)
    other = look(encoder, photos[5:10], cache=cache)
    assert np.array_equal(other.pooled, look(encoder, photos[5:10]).pooled)


def test_crops_of_mirror_images_keep_both_things_whole(photos):
    rng = np.random.default_rng(0)
    boxes = [Box("cup", 0.5, 0.2, 0.7, 0.3), Box("dog", 0.1, 0.4, 0.2, 1.0)]
    for _ in range(100):
        left, top, right, bottom = window_around(boxes, rng)
        assert 0 <= left <= 0.1
        assert 0 <= top <= 0.2
        assert 0.7 <= right <= bottom == 1.0
    mirrored = look(TinyEncoder(), photos[:2], mirrored=True)
    whole = [(0.0, 0.0, 1.0, 1.0), (0.25, 0.0, 1.0, 1.0)]
    for views in (crops(TinyEncoder(), photos[:2]), patch_windows(mirrored)):
        seen = views(1, whole)
        assert np.allclose(seen.grid(0), mirrored.grid(1), atol=1e-3)
        assert seen.pooled.shape == (2, mirrored.pooled.shape[1])


def test_a_share_without_spread_still_has_an_interval():
    sure = share("x", [1.0] * 12, [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5])
    assert (sure.low, sure.high) == wilson(6, 6)


def test_an_axis_without_questions_is_an_empty_one(photos):
    asked = [q for q in questions_of(photos) if q.axis == "lr"]
    margin = {
        "native": np.zeros(len(asked)),
        **{f"shuffled_{n}": np.zeros(len(asked)) for n in range(SHUFFLES)},
    }
    for name in (
        "moment",
        "centroid",
        "centroid_full",
        "moment_full",
        "native_null",
        "moment_null",
        "centroid_null",
    ):
        margin[name] = np.ones(len(asked))
    assert {m.name for m in report(asked, margin)} >= {"lr_moment", "ab_moment"}


def test_an_encoder_that_is_not_there_is_said_in_a_line():
    with pytest.raises(SystemExit, match="no_such"):
        open_encoder("no_such", None)


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
