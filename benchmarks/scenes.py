"""Pictures of two or three drawn things in known places: the demo gallery, and scenes for controlled tests.

A `Scene` says what lies where; `draw_scene` and `describe` follow from it alone, so a scene can be mirrored, its
arrangement turned, and drawn again to the last pixel. ``python -m benchmarks.scenes --out DIR`` writes a data
folder: ``images/`` and ``photos.jsonl``, a line a picture.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw, ImageFilter, ImageOps

from benchmarks.drawing import Board
from benchmarks.objects import SHAPES, THINGS

SIZE = (480, 360)
DECISIVE = 0.2
"""Centres further apart than this share of the picture's side count as beside, above or below each other."""

Box = tuple[float, float, float, float]


class Background(StrEnum):
    """What the things lie on or hang before."""

    SKY = "sky"
    GRASS = "grass"
    SAND = "sand"
    TABLE = "wooden table"
    WALL = "wall"


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
    w, h = _sprite(placed.name, _side(size)).size
    scale = placed.extent * min(size) / max(w, h)
    w, h = max(1, round(w * scale)), max(1, round(h * scale))
    return round(placed.x * size[0] - w / 2), round(placed.y * size[1] - h / 2), w, h


# Drawing -------------------------------------------------------------------------------------------------


def draw_scene(scene: Scene) -> Image.Image:
    """Draw a scene: RGB, the same pixels for the same scene."""
    rng = np.random.default_rng([scene.seed, list(Background).index(scene.background)])
    picture = _backdrop(scene.background, scene.size, rng)
    shade = Image.new("L", scene.size, 0)
    drawn = []
    for placed in scene.objects:
        left, top, w, h = _pixels(placed, scene.size)
        sprite = _sprite(placed.name, _side(scene.size)).resize((w, h), Image.Resampling.LANCZOS)
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


def _side(size: tuple[int, int]) -> int:
    return 256 * math.ceil(min(size) / 512)


@cache
def _sprite(name: str, side: int) -> Image.Image:
    drawers = THINGS | SHAPES
    if name not in drawers:
        raise KeyError(f"{name!r} is none of {', '.join(drawers)}")
    board = Board(side)
    drawers[name](board)
    return board.finish()


def _backdrop(background: Background, size: tuple[int, int], rng: np.random.Generator) -> Image.Image:
    width, height = size
    y, x = np.mgrid[0:height, 0:width].astype(np.float32) / min(size)
    down = np.linspace(0, 1, height, dtype=np.float32)[:, None]
    match background:
        case Background.SKY:
            clouds = np.clip(_noise(size, rng, 3, 5) * 2.6 - 0.2, 0, 1) * (0.25 + 0.75 * down)
            return _blend(("#3f86d6", "#a9d3f2"), down, ("#ffffff", clouds * 0.9))
        case Background.GRASS:
            patches = _noise(size, rng, 4, 3)
            lawn = _blend(("#5f9440", "#4a8030"), down, ("#89b457", np.clip(patches, 0, 1) * 0.5),
                          ("#2f6420", np.clip(-patches, 0, 1) * 0.5))  # fmt: skip
            _grow(lawn, rng)
            return lawn
        case Background.SAND:
            ripples = np.sin(26 * y + 5 * _noise(size, rng, 2, 2) + 2 * x)
            grain = rng.standard_normal((height, width), np.float32)
            return _blend(("#e9d3a3", "#d8ba80"), down, ("#b8935a", np.clip(ripples, 0, 1) * 0.3),
                          ("#8a6a3c", np.clip(grain, 0, 3) * 0.1))  # fmt: skip
        case Background.TABLE:
            plank = height / 4
            across = np.arange(height)[:, None] + rng.uniform(0, plank)
            tone = rng.uniform(-1, 1, 8).astype(np.float32)[(across // plank).astype(int)]
            grain = np.sin(9 * _noise(size, rng, 3, 3, stretch=(0.12, 2)) + 3 * tone)
            seam = (across % plank < 2) * np.ones((1, width), np.float32)
            return _blend(("#b98450", "#a87240"), down, ("#6b4018", np.clip(grain, 0, 1) * 0.35),
                          ("#e0b47a", np.clip(tone, 0, 1) * 0.25), ("#3a200c", seam * 0.7))  # fmt: skip
        case Background.WALL:
            tints = ("#e8e2d4", "#cfdde6", "#e6d0c8", "#d3e0cc", "#dcd4e6")
            plaster = _noise(size, rng, 60, 2) + 0.5 * rng.standard_normal((height, width), np.float32)
            light = np.clip(1.1 - 0.8 * np.hypot(x - 0.2, y), 0, 1)
            tint = tints[int(rng.integers(len(tints)))]
            return _blend((tint, tint), down, ("#4a4038", np.clip(plaster, 0, 3) * 0.03),
                          ("#ffffff", light * 0.5), ("#4a4038", down * 0.15))  # fmt: skip


def _grow(lawn: Image.Image, rng: np.random.Generator) -> None:
    """Draw blades of grass, those further down in front."""
    draw = ImageDraw.Draw(lawn)
    unit = min(lawn.size)
    count = 8 * lawn.width * lawn.height // unit
    roots = rng.uniform((0, 0), (lawn.width, lawn.height * 1.05), (count, 2))
    roots = roots[np.argsort(roots[:, 1])]
    tips = roots + rng.normal((0, -0.035 * unit), (0.012 * unit, 0.012 * unit), (count, 2))
    tones = ("#3c7427", "#558c38", "#6ea348", "#82b356", "#487f30")
    for at, (root, tip) in enumerate(zip(roots.tolist(), tips.tolist(), strict=True)):
        draw.line((*root, *tip), tones[at % len(tones)], 1 + at % 2)


def _noise(
    size: tuple[int, int],
    rng: np.random.Generator,
    cells: int,
    octaves: int,
    *,
    stretch: tuple[float, float] = (1, 1),
) -> np.ndarray:
    """Smooth noise of about unit spread, (height, width): finer octaves at half the weight."""
    total = np.zeros(size[::-1], np.float32)
    for octave in range(octaves):
        across = max(2, round(cells * 2**octave * stretch[0] * size[0] / min(size)))
        along = max(2, round(cells * 2**octave * stretch[1] * size[1] / min(size)))
        coarse = Image.fromarray(rng.standard_normal((along, across), np.float32))
        total += np.asarray(coarse.resize(size, Image.Resampling.BICUBIC)) / 2**octave
    return total


def _blend(ends: tuple[str, str], down: np.ndarray, *layers: tuple[str, np.ndarray]) -> Image.Image:
    """Run from one colour at the top to another at the bottom, then lay on colours by their weights."""
    top, bottom = (np.array(_rgb(colour), np.float32) for colour in ends)
    shape = np.broadcast_shapes(down.shape, *(weight.shape for _, weight in layers))
    pixels = np.broadcast_to((top + (bottom - top) * down[..., None]), (*shape, 3))
    for colour, weight in layers:
        pixels = pixels + (np.array(_rgb(colour), np.float32) - pixels) * weight[..., None]
    return Image.fromarray(np.clip(np.round(pixels), 0, 255).astype(np.uint8))


def _rgb(colour: str) -> tuple[int, int, int]:
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)


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
    forward, backward = _listed(names), _listed(names[::-1])
    ground = {Background.WALL: "and a painted wall", Background.SKY: "and a blue sky with clouds"}.get(
        background,
        f"and some {background.value}" if background is not Background.TABLE else "and a wooden table",
    )
    return [
        forward, f"a picture of {backward}", f"{backward} together", f"{forward}, {ground}",
        f"there is {forward}",
    ]  # fmt: skip


def _listed(names: Sequence[str]) -> str:
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


def write_gallery(out: Path, scenes: Iterator[Scene]) -> int:
    """Write ``images/`` and ``photos.jsonl`` below `out`; return the number of pictures."""
    (out / "images").mkdir(parents=True, exist_ok=True)
    lines = []
    for at, scene in enumerate(scenes):
        file = f"scene-{at:05d}.jpg"
        draw_scene(scene).save(out / "images" / file, quality=92)
        lines.append(json.dumps(describe(scene, file)))
    (out / "photos.jsonl").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return len(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.scenes", description="Draw a gallery of scenes."
    )
    parser.add_argument("--out", type=Path, required=True, help="folder for images/ and photos.jsonl")
    parser.add_argument("--count", type=int, default=400)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--family", type=Family, choices=list(Family), default=Family.THINGS)
    options = parser.parse_args(arguments)
    if options.count < 1:
        parser.error(f"--count: expected at least 1, came {options.count}")
    written = write_gallery(options.out, gallery(options.count, seed=options.seed, family=options.family))
    print(f"{written} pictures in {options.out / 'images'}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
