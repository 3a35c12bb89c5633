"""Pictures of two or three drawn things in known places: the demo gallery, and scenes for controlled tests.

    python -m benchmarks.scenes --out DIR [--controlled] [--count N] [--seed N] [--family shapes]

A `Scene` says what lies where; `draw_scene` and `describe` follow from it alone, so a scene can be mirrored, its
arrangement turned, and drawn again to the last pixel. The command writes a data folder: ``images/`` and
``photos.jsonl``, a line a picture. With ``--controlled`` these are N arrangements of two things, each in its four
rotations and their exact mirror images.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageFilter, ImageOps

from benchmarks.backdrops import Background, draw_backdrop
from benchmarks.drawing import Board
from benchmarks.objects import SHAPES, THINGS

SIZE = (480, 360)
CONTROLLED_SIZE = (384, 384)
"""Square, so that a quarter turn keeps every distance."""
DECISIVE = 0.2
"""Centres further apart than this share of the picture's side count as beside, above or below each other."""

Box = tuple[float, float, float, float]


GALLERY = (
    *("banana", "cake", "clock", "guitar", "laptop", "orange"),
    *("school bus", "soccer ball", "teddy bear", "tennis ball", "tv", "umbrella"),
)
"""Things that the built-in encoder finds by name, and few enough that a pair stands in several pictures of four
hundred, in both orders."""


class Family(StrEnum):
    """Which things to draw."""

    THINGS = "things"
    SHAPES = "shapes"


@dataclass(frozen=True, slots=True)
class Placed:
    """A thing in its place: the centre in fractions of the picture, x right, y down.

    ``extent`` is its longest side as a fraction of the picture's short side.
    """

    name: str
    x: float
    y: float
    extent: float = 0.35


Arrangement = tuple[Placed, ...]


@dataclass(frozen=True, slots=True)
class Scene:
    """Everything a picture follows from. ``mirrored`` flips the finished pixels, drawings included."""

    objects: Arrangement
    background: Background = Background.WALL
    size: tuple[int, int] = SIZE
    seed: int = 0
    mirrored: bool = False

    def mirror(self) -> Scene:
        """Return the scene whose picture is the exact mirror image of this one's."""
        return replace(self, mirrored=not self.mirrored)

    def boxes(self) -> list[Box]:
        """Return (x0, y0, x1, y1) of each object in fractions of the picture, as drawn."""
        width, height = self.size
        found = []
        for placed in self.objects:
            left, top, w, h = _pixels(placed, self.size)
            if self.mirrored:
                left = width - left - w
            found.append((left / width, top / height, (left + w) / width, (top + h) / height))
        return found


# Arrangements --------------------------------------------------------------------------------------------


def arrange(names: Sequence[str], rng: np.random.Generator, *, size: tuple[int, int] = SIZE) -> Arrangement:
    """Put things in random places, at random sizes, whole and without overlap."""
    low, high = (0.34, 0.56) if len(names) < 3 else (0.3, 0.44)
    shrink = 1.0
    while True:
        placed: list[Placed] = []
        for name in names:
            extent = float(rng.uniform(low, high)) * shrink
            _, _, w, h = _pixels(Placed(name, 0, 0, extent), size)
            x_margin, y_margin = (w / 2 + 6) / size[0], (h / 2 + 6) / size[1]
            x, y = rng.uniform((x_margin, y_margin), (1 - x_margin, 1 - y_margin))
            placed.append(Placed(name, float(x), float(y), extent))
        if not any(_touch(a, b, size) for a, b in itertools.combinations(placed, 2)):
            return tuple(placed)
        shrink *= 0.99  # so that an end is certain


def mirror(arrangement: Arrangement) -> Arrangement:
    """Swap left and right of the places; the things themselves stay as they are."""
    return tuple(replace(placed, x=1 - placed.x) for placed in arrangement)


def rotations(arrangement: Arrangement) -> tuple[Arrangement, Arrangement, Arrangement, Arrangement]:
    """Return the arrangement and its quarter turns, clockwise; the things themselves stay upright.

    Fractions are turned about the middle, so distances are kept on square pictures only.
    """
    turns = [arrangement]
    for _ in range(3):
        turns.append(tuple(replace(placed, x=1 - placed.y, y=placed.x) for placed in turns[-1]))
    return turns[0], turns[1], turns[2], turns[3]


def _touch(a: Placed, b: Placed, size: tuple[int, int], gap: int = 8) -> bool:
    (ax, ay, aw, ah), (bx, by, bw, bh) = _pixels(a, size), _pixels(b, size)
    return ax < bx + bw + gap and bx < ax + aw + gap and ay < by + bh + gap and by < ay + ah + gap


def _pixels(placed: Placed, size: tuple[int, int]) -> tuple[int, int, int, int]:
    """Left, top, width and height of a thing in pixels."""
    w, h = draw_thing(placed.name, size).size
    scale = placed.extent * min(size) / max(w, h)
    w, h = max(1, round(w * scale)), max(1, round(h * scale))
    return round(placed.x * size[0] - w / 2), round(placed.y * size[1] - h / 2), w, h


# Drawing -------------------------------------------------------------------------------------------------


def draw_scene(scene: Scene, *, backdrop: Image.Image | None = None) -> Image.Image:
    """Draw a scene: RGB, the same pixels for the same scene; before another `backdrop` of its size, if given."""
    rng = np.random.default_rng([scene.seed, list(Background).index(scene.background)])
    picture = draw_backdrop(scene.background, scene.size, rng) if backdrop is None else backdrop.copy()
    shade = Image.new("L", scene.size, 0)
    drawn = []
    for placed in scene.objects:
        left, top, w, h = _pixels(placed, scene.size)
        sprite = draw_thing(placed.name, scene.size).resize((w, h), Image.Resampling.LANCZOS)
        drawn.append((sprite, (left, top)))
        shift = round(0.02 * min(scene.size))
        alpha = sprite.getchannel("A")
        shade.paste(alpha, (left + shift, top + shift), alpha)
    if scene.background is not Background.SKY:
        soft = shade.filter(ImageFilter.GaussianBlur(0.018 * min(scene.size)))
        picture.paste((24, 18, 20), mask=soft.point([round(0.5 * value) for value in range(256)]))
    for sprite, corner in drawn:
        picture.paste(sprite, corner, sprite)
    return ImageOps.mirror(picture) if scene.mirrored else picture


def draw_thing(name: str, size: tuple[int, int]) -> Image.Image:
    """Draw a thing by itself, RGBA, as large as it is drawn for pictures of `size` before it is scaled down."""
    return _sprite(name, 256 * math.ceil(min(size) / 512))


@cache
def _sprite(name: str, side: int) -> Image.Image:
    drawers = THINGS | SHAPES
    if name not in drawers:
        raise KeyError(f"{name!r} is none of {', '.join(drawers)}")
    board = Board(side)
    drawers[name](board)
    return board.finish()


# Describing ----------------------------------------------------------------------------------------------


def describe(scene: Scene, file: str) -> dict[str, Any]:
    """Return a picture's line of ``photos.jsonl``: boxes, pairs, and captions that name but do not arrange."""
    boxes = scene.boxes()
    names = [placed.name for placed in scene.objects]
    return {
        "file": file,
        "width": scene.size[0],
        "height": scene.size[1],
        "captions": _captions(names, scene.background),
        "boxes": [[name, *(round(edge, 4) for edge in box)] for name, box in zip(names, boxes, strict=True)],
        "pairs": [
            pair
            for (a, box_a), (b, box_b) in itertools.combinations(zip(names, boxes, strict=True), 2)
            if (pair := _pair(a, b, box_a, box_b))
        ],
    }


def _pair(a: str, b: str, box_a: Box, box_b: Box) -> dict[str, Any] | None:
    dx = (box_a[0] + box_a[2] - box_b[0] - box_b[2]) / 2
    dy = (box_a[1] + box_a[3] - box_b[1] - box_b[3]) / 2
    if max(abs(dx), abs(dy)) <= DECISIVE:
        return None
    return {
        "a": a,
        "b": b,
        "dx": round(dx, 3),
        "dy": round(dy, 3),
        "lr": None if abs(dx) <= DECISIVE else "left" if dx < 0 else "right",
        "ab": None if abs(dy) <= DECISIVE else "above" if dy < 0 else "below",
        "lr_clean": box_a[2] < box_b[0] or box_b[2] < box_a[0],
        "ab_clean": box_a[3] < box_b[1] or box_b[3] < box_a[1],
        "min_area": round(min((x1 - x0) * (y1 - y0) for x0, y0, x1, y1 in (box_a, box_b)), 4),
    }


def _captions(names: Sequence[str], background: Background) -> list[str]:
    forward, backward = listed(names), listed(names[::-1])
    ground = {Background.WALL: "and a painted wall", Background.SKY: "and a blue sky with clouds"}.get(
        background,
        f"and some {background.value}" if background is not Background.TABLE else "and a wooden table",
    )
    return [
        forward, f"a picture of {backward}", f"{backward} together", f"{forward}, {ground}",
        f"there is {forward}",
    ]  # fmt: skip


def listed(names: Sequence[str]) -> str:
    """Name things in a row: ``a cup, an apple and a clock``."""
    things = [f"{'an' if name[0] in 'aeiou' else 'a'} {name}" for name in names]
    return f"{', '.join(things[:-1])} and {things[-1]}" if len(things) > 1 else things[0]


# Gallery -------------------------------------------------------------------------------------------------


def gallery(
    count: int, *, seed: int = 0, family: Family = Family.THINGS, size: tuple[int, int] = SIZE
) -> Iterator[Scene]:
    """Yield scenes of two or three things; the n-th one does not depend on how many are asked for."""
    names = GALLERY if family is Family.THINGS else list(SHAPES)
    for at in range(count):
        rng = np.random.default_rng([seed, at])
        chosen = [names[index] for index in rng.permutation(len(names))[: 2 + at % 2]]
        background = list(Background)[int(rng.integers(len(Background)))]
        yield Scene(arrange(chosen, rng, size=size), background, size, seed=int(rng.integers(2**31)))


# Controlled pictures -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class View:
    """One of the eight pictures of an arrangement.

    Attributes
    ----------
    arrangement : int
        Pictures of one arrangement share it.
    turn : int
        Quarter turns of the places, clockwise, from 0 to 3.
    scene : Scene
        Says by ``mirrored`` whether this is the exact mirror image.
    """

    arrangement: int
    turn: int
    scene: Scene


def face_to_face(
    names: tuple[str, str], rng: np.random.Generator, *, size: tuple[int, int] = CONTROLLED_SIZE
) -> Arrangement:
    """Put two things on either side of the middle, so that they stay whole and apart in all four rotations."""
    while True:
        distance, angle = rng.uniform(0.38, 0.56), rng.uniform(0, 2 * math.pi)
        x, y = 0.5 + rng.uniform(-0.06, 0.06, 2)
        dx, dy = distance / 2 * math.cos(angle), distance / 2 * math.sin(angle)
        one, other = rng.uniform(0.24, 0.42, 2).tolist()
        arrangement = (
            Placed(names[0], float(x + dx), float(y + dy), one),
            Placed(names[1], float(x - dx), float(y - dy), other),
        )
        turns = rotations(arrangement)
        whole = all(
            0 <= edge <= 1 for turn in turns for box in Scene(turn, size=size).boxes() for edge in box
        )
        if whole and not any(_touch(turn[0], turn[1], size) for turn in turns):
            return arrangement


def controlled(
    pairs: Iterable[tuple[str, str]], *, seed: int = 0, size: tuple[int, int] = CONTROLLED_SIZE
) -> Iterator[View]:
    """Yield the four rotations of an arrangement of each pair, each followed by its exact mirror image.

    Between the rotations of an arrangement nothing changes but where its two things are: background, sizes and the
    upright drawings are the same to the pixel.
    """
    for at, names in enumerate(pairs):
        rng = np.random.default_rng([seed, at])
        background = list(Background)[at % len(Background)]
        first = Scene(face_to_face(names, rng, size=size), background, size, seed=int(rng.integers(2**31)))
        for turn, places in enumerate(rotations(first.objects)):
            scene = replace(first, objects=places)
            yield View(at, turn, scene)
            yield View(at, turn, scene.mirror())


def random_pairs(count: int, *, seed: int = 0, family: Family = Family.THINGS) -> Iterator[tuple[str, str]]:
    """Yield pairs of things; the n-th one does not depend on how many are asked for."""
    names = GALLERY if family is Family.THINGS else list(SHAPES)
    for at in range(count):
        one, other = np.random.default_rng([seed, at, 1]).permutation(len(names))[:2]
        yield names[one], names[other]


# Writing -------------------------------------------------------------------------------------------------


def write_gallery(out: Path, scenes: Iterable[Scene]) -> int:
    """Write ``images/`` and ``photos.jsonl`` below `out`; return the number of pictures."""
    return _write(out, ((f"scene-{at:05d}.jpg", scene, {}) for at, scene in enumerate(scenes)))


def write_controlled(out: Path, views: Iterable[View]) -> int:
    """Write controlled pictures as a data folder, without loss; a line also says which of the eight it is."""
    return _write(
        out,
        (
            (
                f"arrangement-{view.arrangement:05d}-{90 * view.turn}{'-mirrored' * view.scene.mirrored}.png",
                view.scene,
                {"arrangement": view.arrangement, "turn": view.turn, "mirrored": view.scene.mirrored},
            )
            for view in views
        ),
    )


def _write(out: Path, pictures: Iterable[tuple[str, Scene, dict[str, Any]]]) -> int:
    (out / "images").mkdir(parents=True, exist_ok=True)
    lines = []
    for file, scene, facts in pictures:
        draw_scene(scene).save(out / "images" / file, quality=92)
        lines.append(json.dumps(describe(scene, file) | facts))
    (out / "photos.jsonl").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return len(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.scenes", description="Draw a gallery of scenes."
    )
    parser.add_argument("--out", type=Path, required=True, help="folder for images/ and photos.jsonl")
    parser.add_argument(
        "--controlled",
        action="store_true",
        help="four rotations of each arrangement, and their mirror images",
    )
    parser.add_argument("--count", type=int, default=400, help="pictures; with --controlled, arrangements")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--family", type=Family, choices=list(Family), default=Family.THINGS)
    options = parser.parse_args(arguments)
    if options.count < 1:
        parser.error(f"--count: expected at least 1, came {options.count}")
    if options.controlled:
        pairs = random_pairs(options.count, seed=options.seed, family=options.family)
        written = write_controlled(options.out, controlled(pairs, seed=options.seed))
    else:
        written = write_gallery(options.out, gallery(options.count, seed=options.seed, family=options.family))
    print(f"{written} pictures in {options.out / 'images'}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
