"""What the tiny models are trained on: drawn things, put together by the hundred in a moment.

Drawing a scene afresh takes ten milliseconds, pasting one together about one. Captions name the things of a picture in
any order and never say where they are. A good quarter of the pairs of things is never shown together, so that what is
measured on them was not learnt by heart.

Axes: B pictures, C things, H x W pixels.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageFilter, ImageOps

from benchmarks.backdrops import Background
from benchmarks.scenes import CONTROLLED_SIZE, GALLERY, Scene, draw_scene, draw_thing, listed

Floats = NDArray[np.float32]

NAMES = GALLERY
_STEPS = (1, 6)
EXTENTS = tuple(np.geomspace(0.22, 0.58, 14).tolist())
"""Longest sides as fractions of the picture's side."""
_CROWDED = 10
"""Extents that three things may have."""
EASY, FULL = (0.8, 0.2, 0.0), (0.2, 0.45, 0.35)
"""How often a picture holds one, two and three things, at the start of training and later."""
FORMS = ("{}", "a photo of {}", "a picture of {}", "there is {}")
_SHADOW = (24, 18, 20)


def unseen_pairs() -> list[tuple[str, str]]:
    """Pairs of things that no training picture shows together: those one and six places apart on a circle.

    Each thing is in three of the 18 pairs, and is trained on with the eight other things.
    """
    circle = [NAMES[at] for at in np.random.default_rng(0).permutation(len(NAMES))]
    pairs = {
        frozenset((name, circle[(at + step) % len(circle)]))
        for at, name in enumerate(circle)
        for step in _STEPS
    }
    return sorted((min(pair), max(pair)) for pair in pairs)


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """Pictures and their captions.

    Attributes
    ----------
    pixels : (B, 3, H, W) float32
        Normalised.
    captions : tuple of B str
    shown : (B, C) bool
        Which things a picture shows, in the order of :data:`NAMES`.
    """

    pixels: Floats
    captions: tuple[str, ...]
    shown: NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class _Cutout:
    """A thing at one size with room for its shadow: ``rest * picture + paint`` puts it there."""

    width: int
    height: int
    margin: int
    lit: tuple[Floats, Floats]
    shaded: tuple[Floats, Floats]


class Compositor:
    """Puts training pictures together from backdrops and things drawn once.

    Owns some hundred megabytes of them and a random state.

    Parameters
    ----------
    side : int
        Of the square pictures, in pixels.
    mean, std : three floats
        Of the normalisation, for values from 0 to 1.
    backdrops : int
        How many of each background.
    """

    def __init__(
        self, side: int, mean: Sequence[float], std: Sequence[float], *, seed: int, backdrops: int = 40
    ) -> None:
        self._rng = np.random.default_rng(seed)
        self._side = side
        self._mean: Floats = np.float32(255) * np.array(mean, np.float32)[:, None, None]
        self._std: Floats = np.float32(255) * np.array(std, np.float32)[:, None, None]
        self._unseen = {frozenset(pair) for pair in unseen_pairs()}
        drawn = [
            (background, self._backdrop(background)) for background in Background for _ in range(backdrops)
        ]
        self._backdrops = drawn + [
            (background, np.ascontiguousarray(each[..., ::-1])) for background, each in drawn
        ]
        self._cutouts = {
            name: [[self._cutout(name, extent, flip) for flip in (False, True)] for extent in EXTENTS]
            for name in NAMES
        }

    def batch(self, size: int, counts: Sequence[float] = FULL) -> Batch:
        """Put `size` new pictures together; `counts` says how often they hold one, two and three things."""
        pixels = np.empty((size, 3, self._side, self._side), np.float32)
        captions = []
        shown = np.zeros((size, len(NAMES)), bool)
        for at in range(size):
            names = self._choose(counts)
            self._compose(names, pixels[at])
            form = FORMS[self._rng.integers(len(FORMS))]
            captions.append(form.format(listed([names[n] for n in self._rng.permutation(len(names))])))
            shown[at, [NAMES.index(name) for name in names]] = True
        return Batch(pixels, tuple(captions), shown)

    def _choose(self, counts: Sequence[float]) -> list[str]:
        count = 1 + int(self._rng.choice(len(counts), p=counts))
        while True:
            names = [NAMES[at] for at in self._rng.permutation(len(NAMES))[:count]]
            if not any(frozenset(pair) in self._unseen for pair in itertools.combinations(names, 2)):
                return names

    def _compose(self, names: Sequence[str], out: Floats) -> None:
        background, backdrop = self._backdrops[self._rng.integers(len(self._backdrops))]
        out[:] = backdrop
        for cutout, left, top in self._place(names):
            rest, paint = cutout.lit if background is Background.SKY else cutout.shaded
            x, y = left - cutout.margin, top - cutout.margin
            rows = slice(max(0, y), min(self._side, y + rest.shape[-2]))
            columns = slice(max(0, x), min(self._side, x + rest.shape[-1]))
            inside = (..., slice(rows.start - y, rows.stop - y), slice(columns.start - x, columns.stop - x))
            part = out[:, rows, columns]
            part *= rest[inside]
            part += paint[inside]

    def _place(self, names: Sequence[str], gap: int = 4) -> list[tuple[_Cutout, int, int]]:
        """Random sizes and places, whole and without overlap: cutout, left, top."""
        sizes = len(EXTENTS) if len(names) < 3 else _CROWDED
        while True:
            placed: list[tuple[_Cutout, int, int]] = []
            for name in names:
                cutout = self._cutouts[name][self._rng.integers(sizes)][self._rng.integers(2)]
                left, top = self._rng.integers(
                    2, (self._side - 2 - cutout.width, self._side - 2 - cutout.height)
                )
                placed.append((cutout, int(left), int(top)))
            if not any(
                ax < bx + b.width + gap
                and bx < ax + a.width + gap
                and ay < by + b.height + gap
                and by < ay + a.height + gap
                for (a, ax, ay), (b, bx, by) in itertools.combinations(placed, 2)
            ):
                return placed

    def _backdrop(self, background: Background) -> Floats:
        drawn = draw_scene(Scene((), background, CONTROLLED_SIZE, int(self._rng.integers(2**31))))
        return self._normalised(drawn.resize((self._side, self._side), Image.Resampling.BICUBIC))

    def _cutout(self, name: str, extent: float, flip: bool) -> _Cutout:
        drawn = draw_thing(name, CONTROLLED_SIZE)
        drawn = ImageOps.mirror(drawn) if flip else drawn
        scale = extent * self._side / max(drawn.size)
        width, height = (max(1, round(edge * scale)) for edge in drawn.size)
        margin, shift = round(0.08 * self._side), round(0.02 * self._side)
        thing = Image.new("RGBA", (width + 2 * margin, height + 2 * margin))
        thing.paste(drawn.resize((width, height), Image.Resampling.LANCZOS), (margin, margin))
        shade = Image.new("L", thing.size, 0)
        shade.paste(thing.getchannel("A"), (shift, shift))
        soft = np.asarray(shade.filter(ImageFilter.GaussianBlur(0.018 * self._side)), np.float32)
        alpha: Floats = np.asarray(thing.getchannel("A"), np.float32) / np.float32(255)
        colour = self._normalised(thing.convert("RGB")) * alpha
        dark: Floats = (np.array(_SHADOW, np.float32)[:, None, None] - self._mean) / self._std
        shadow: Floats = (1 - alpha) * soft * np.float32(0.5 / 255)
        return _Cutout(
            width,
            height,
            margin,
            lit=(1 - alpha, colour),
            shaded=(1 - alpha - shadow, colour + shadow * dark),
        )

    def _normalised(self, image: Image.Image) -> Floats:
        pixels: Floats = (np.asarray(image, np.float32).transpose(2, 0, 1) - self._mean) / self._std
        return pixels
