from __future__ import annotations

import json
import sys
from dataclasses import replace

import numpy as np
import pytest

from benchmarks import diagnose
from benchmarks.access import caption_pool, disjoint
from benchmarks.geometry import Question
from benchmarks.objects import SHAPES
from benchmarks.orbits import (
    MAX_SLANT,
    MIN_RATIO,
    TURNS,
    draw_orbits,
    facts_of,
    see_orbits,
    symmetric_backdrop,
)
from benchmarks.probes import centred, cross_fit, flip_odd, gram, orbit_even, orbit_odd, right_share, told
from benchmarks.record import Metric
from benchmarks.scenes import Background, describe, draw_scene
from benchmarks.verdict import ROWS, Access, Pooling, judge, same_encoder
from tests.support import COLOURS, GRID, TinyEncoder, paint_gallery

THINGS = [f"{colour} {shape}" for colour in COLOURS for shape in ("square", "circle")]


def samples(n=240, folds=4, dim=12):
    rng = np.random.default_rng(0)
    fold = np.arange(n) % folds
    return rng, rng.choice([-1.0, 1.0], n), fold[:, None] != fold, rng.standard_normal((n, dim))


def test_a_probe_finds_a_planted_direction_and_nothing_in_noise():
    _, target, allowed, noise = samples()
    planted = noise.copy()
    planted[:, 3] += 2 * target
    assert right_share(cross_fit(gram(planted), target, allowed), target).mean() > 0.9
    assert abs(right_share(cross_fit(gram(noise), target, allowed), target).mean() - 0.5) < 0.1
    assert not cross_fit(gram(0 * noise), target, allowed).any()


def test_a_probe_never_learns_from_what_it_may_not_see():
    rng, _, allowed, _ = samples()
    n = len(allowed)
    fold = np.arange(n) % 4
    thing = np.eye(16)[fold * 4 + rng.integers(4, size=n)]  # things of a fold stand in no other
    side = rng.choice([-1.0, 1.0], 16)
    target = thing @ side  # each thing always stands on its own side
    everyone = ~np.eye(n, dtype=bool)
    seen = cross_fit(gram(thing), target, everyone, strengths=[0.1])
    assert right_share(seen, target).mean() > 0.95
    assert abs(right_share(cross_fit(gram(thing), target, allowed), target).mean() - 0.5) < 0.1
    assert not cross_fit(gram(thing), target, np.zeros_like(allowed)).any()


def test_a_probe_told_the_words_learns_what_one_of_the_picture_alone_cannot():
    rng, target, allowed, noise = samples(dim=6)
    difference = rng.standard_normal((len(target), 6))
    picture = noise + target[:, None] * difference @ np.linalg.qr(rng.standard_normal((6, 6)))[0]
    size = rng.choice([-1.0, 1.0], len(target))
    others = told(difference, size)

    def reads(of):
        return right_share(cross_fit(gram(picture) * others[of], target, allowed), target).mean()

    assert min(reads("words"), reads("both")) > 0.8
    assert abs(reads("size") - 0.5) < 0.1


def test_odd_and_even_parts():
    rng = np.random.default_rng(1)
    vectors = rng.standard_normal((8, 5)).astype(np.float32)
    assert not flip_odd(vectors, vectors).any()
    assert flip_odd(vectors, -vectors) == pytest.approx(vectors)
    odd, even = orbit_odd(vectors), orbit_even(vectors)
    assert odd[0] == pytest.approx((vectors[0] - vectors[2]) / 2)
    assert odd[:2] == pytest.approx(-odd[2:4])
    assert even[4] == pytest.approx((vectors[4] - vectors[5] + vectors[6] - vectors[7]) / 4)
    assert even[5] == pytest.approx(-even[4])
    assert centred(vectors).mean(axis=0) == pytest.approx(0, abs=1e-12)
    same = np.repeat(vectors[:2], TURNS, axis=0)
    assert not orbit_odd(same).any()
    assert orbit_even(same) == pytest.approx(0)


def test_orbits_are_balanced_and_their_folds_share_no_thing():
    orbits = draw_orbits(1, seed=3, things=THINGS)
    assert orbits[:5] == draw_orbits(2, seed=3, things=THINGS)[:5]
    facts = facts_of(orbits)
    of_fold = [{name for orbit in orbits if orbit.fold == fold for name in orbit.names} for fold in range(4)]
    assert sum(map(len, of_fold)) == len(set().union(*of_fold)) == len(THINGS)
    for n, orbit in enumerate(orbits):
        own = facts.orbit == n
        assert sorted(zip(facts.horizontal[own], facts.sign[own], strict=True)) == [
            (False, -1), (False, 1), (True, -1), (True, 1),
        ]  # fmt: skip
        for scene, across, sign in zip(orbit.scenes, facts.horizontal[own], facts.sign[own], strict=True):
            pair = describe(scene, "")["pairs"][0]
            assert (pair["lr"] if across else pair["ab"]) == ("left right" if across else "above below").split()[
                int(sign > 0)
            ]  # fmt: skip
        one, other = orbit.scenes[0].objects
        assert max(one.extent, other.extent) >= MIN_RATIO * min(one.extent, other.extent)
        apart = sorted((abs(one.x - other.x), abs(one.y - other.y)))
        assert apart[0] <= MAX_SLANT * apart[1]
    assert 0.3 < np.mean(facts.larger > 0) < 0.7


@pytest.mark.parametrize("background", Background)
def test_a_symmetric_backdrop_has_no_side(background):
    scene = replace(draw_orbits(1, things=list(SHAPES)[:8])[0].scenes[0], background=background)
    pixels = np.asarray(symmetric_backdrop(scene), np.int16)
    for turned in (np.rot90(pixels), pixels[:, ::-1], pixels[::-1]):
        assert np.abs(pixels - turned).max() <= 1
    plain = np.asarray(draw_scene(scene, backdrop=symmetric_backdrop(scene)), np.int16)
    assert 0.5 < (plain == pixels).all(axis=2).mean() < 1


def test_what_is_seen_of_orbits_is_kept(tmp_path):
    orbits = draw_orbits(1, things=THINGS)
    first = see_orbits(TinyEncoder(), orbits, cache=tmp_path / "orbits.npz")
    again = see_orbits(TinyEncoder(), orbits, cache=tmp_path / "orbits.npz")
    assert len(first[0].pooled) == TURNS * len(orbits) == 2 * len(first[1])
    assert np.array_equal(first[0].pooled, again[0].pooled)
    assert np.array_equal(first[1], again[1])
    mirrored = first[1] @ first[0].pooled[facts_of(orbits).horizontal].T
    assert np.diag(mirrored) == pytest.approx(1, abs=0.02)  # but for cells that two colours share


def test_only_questions_about_other_things_train():
    def pair(a, b):
        return Question(0, a, b, "left", False, 1.0)

    allowed = disjoint([pair("a", "b"), pair("c", "d")], [pair("b", "c"), pair("a", "e"), pair("e", "f")])
    assert allowed.tolist() == [[False, False], [False, True], [True, True]]


def judged(**changed):
    """A verdict on an encoder at chance, with some figures changed: value, low, high."""
    names = (
        "photo_flip_odd_probe photo_moment_flip_odd_probe mirror_native template_unseen caption_unseen "
        "pooled_axis pooled_polarity pooled_polarity_lr moment_polarity grid_probe_polarity"
    ).split()
    figures = dict.fromkeys(names, (0.5, 0.45, 0.55)) | changed
    return judge({n: Metric(n, v, low=low, high=high, n=100) for n, (v, low, high) in figures.items()})


def test_verdicts_follow_from_the_intervals():
    well = (0.9, 0.85, 0.95)
    assert judged().access is Access.NOT_FOUND
    assert judged(photo_flip_odd_probe=well).access is Access.UNREACHABLE
    assert judged(photo_flip_odd_probe=well, caption_unseen=(0.6, 0.55, 0.65)).access is Access.ACCESSIBLE
    # One interval of three is above chance by luck too often.
    assert judged(photo_flip_odd_probe=well, caption_unseen=(0.6, 0.51, 0.7)).access is Access.UNREACHABLE
    assert judged(mirror_native=well).access is Access.ACCESSIBLE
    assert judged().pooling is Pooling.NOTHING
    assert judged(moment_polarity=well).pooling is Pooling.DISCARDED
    assert judged(grid_probe_polarity=well).pooling is Pooling.DISCARDED
    assert judged(moment_polarity=well, pooled_polarity=(0.6, 0.55, 0.65)).pooling is Pooling.MOSTLY_DISCARDED
    assert judged(moment_polarity=well, pooled_polarity=well).pooling is Pooling.KEPT
    assert judged(pooled_polarity=well).pooling is Pooling.KEPT
    assert judged(moment_polarity=(0.55, 0.51, 0.6)).pooling is Pooling.UNDECIDED
    sentences = judged(moment_polarity=well).sentences
    assert "discarded" in sentences[1]
    assert "0.900 [0.850, 0.950] (moment_polarity)" in sentences[1]


def test_an_encoder_of_the_paper_is_known():
    assert same_encoder("ViT-B-16", "openai") == 0
    assert same_encoder("ViT-B-16", "laion2b_s34b_b88k:/some/file.pt") == 1
    assert same_encoder("ViT-B-16", "random:0") is None
    assert same_encoder("compact", "built-in") is None


def write_photos(folder, count, seed):
    (folder / "images").mkdir(parents=True)
    lines = []
    for n, squares in enumerate(paint_gallery(folder / "images", count, seed=seed)):
        a, b = squares
        boxes = [
            [s.colour, *(v / GRID for v in (s.column, s.row, s.column + s.size, s.row + s.size))]
            for s in squares
        ]
        dx, dy = (a.column - b.column) / GRID, (a.row - b.row) / GRID
        pair = {
            "a": a.colour, "b": b.colour, "dx": dx, "dy": dy, "ab": None, "min_area": 0.02,
            "lr": None if abs(dx) <= 0.2 else "left" if dx < 0 else "right",
        }  # fmt: skip
        captions = [f"a {a.colour} square and a {b.colour} square, {n}"]
        lines.append({"file": f"{n:04d}.png", "captions": captions, "boxes": boxes, "pairs": [pair]})
    (folder / "photos.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))


def test_the_command_from_pictures_to_figures(tmp_path, monkeypatch, capsys):
    data = tmp_path / "data"
    for seed, part in enumerate(("train", "dev")):
        write_photos(data / "coco" / part, 30, seed)
    (data / "phrases").mkdir()
    (data / "phrases" / "vsr.jsonl").write_text('{"text": "The cat is left of the dog."}\n' * 2)
    pool, counts = caption_pool(data)
    assert counts == {"captions": len(pool) - 1, "vsr": 1}
    measured = diagnose.diagnose
    monkeypatch.setattr(diagnose, "open_encoder", lambda *_, **__: TinyEncoder())
    monkeypatch.setattr(diagnose, "diagnose", lambda *a, **kw: measured(*a, **kw, things=THINGS))
    out = tmp_path / "diagnose.json"
    monkeypatch.setattr(sys, "argv", ["diagnose", "--quick", "--data", str(data), "--json", str(out)])
    diagnose.main()
    document = json.loads(out.read_text())
    value = {metric["name"]: metric["value"] for metric in document["metrics"]}
    assert len(value) == len(document["metrics"])
    assert {"pooled_polarity", "pooled_axis", "moment_polarity"} <= set(value)
    assert {row.ours for row in ROWS} <= set(value)
    # The mean of this encoder's tokens is the same wherever things stand, to the last bit in the mirror.
    assert value["mirror_native"] == value["photo_flip_odd_probe"] == value["object_identity_null"] == 0.5
    assert value["mirror_moment"] > 0.9
    assert value["moment_polarity"] > 0.6
    assert document["verdict"]["access"] == "not found in the pooled vector"
    assert document["verdict"]["pooling"] == "discarded"
    page = out.with_suffix(".md").read_text()
    assert "Same encoder: **no**" in page
    assert page.count("not measured") == 0
    for suffix in ("access", "pooling"):
        assert out.with_name(f"diagnose-{suffix}.png").stat().st_size > 10_000
    assert "Controlled rotations: discarded" in capsys.readouterr().out
