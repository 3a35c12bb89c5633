"""What the things of a scene lie on or hang before: five backgrounds, drawn from a seed."""

from __future__ import annotations

from enum import StrEnum

import numpy as np
from PIL import Image, ImageDraw


class Background(StrEnum):
    """What the things lie on or hang before."""

    SKY = "sky"
    GRASS = "grass"
    SAND = "sand"
    TABLE = "wooden table"
    WALL = "wall"


def draw_backdrop(background: Background, size: tuple[int, int], rng: np.random.Generator) -> Image.Image:
    """Draw a background of `size` (width, height) pixels: RGB, the same for the same state of `rng`."""
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
