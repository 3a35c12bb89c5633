"""A small drawing board: shapes with shading, drawn large and scaled down.

Coordinates are fractions of a square board, x right, y down, and light comes from the upper left. A shape is a
mask; a mask is filled with a paint; what is drawn inside another shape names it as ``within``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from PIL import Image, ImageChops, ImageDraw, ImageFilter

SUPERSAMPLING = 4

Point = tuple[float, float]
Colour = str | tuple[int, int, int]
Mask = Image.Image


@dataclass(frozen=True, slots=True)
class Slope:
    """A straight gradient over the shape's box, from one side to the other; 0 degrees runs right, 90 down."""

    colours: tuple[Colour, ...]
    angle: float = 90

    def weights(self, side: int) -> np.ndarray:
        """Return (side, side) float64 in [0, 1]."""
        x, y = np.meshgrid(np.linspace(-0.5, 0.5, side), np.linspace(-0.5, 0.5, side))
        turn = math.radians(self.angle)
        along = x * math.cos(turn) + y * math.sin(turn)
        return along / (abs(math.cos(turn)) + abs(math.sin(turn))) + 0.5


@dataclass(frozen=True, slots=True)
class Ball:
    """A round gradient over the shape's box, lightest at `at`: the shading of a ball."""

    colours: tuple[Colour, ...]
    at: Point = (0.35, 0.3)
    reach: float = 0.85

    def weights(self, side: int) -> np.ndarray:
        """Return (side, side) float64 in [0, 1]."""
        x, y = np.meshgrid(np.linspace(0, 1, side), np.linspace(0, 1, side))
        return np.clip(np.hypot(x - self.at[0], y - self.at[1]) / self.reach, 0, 1)


Paint = Colour | Slope | Ball


class Board:
    """A transparent square to draw on. Owns its pixels, `SUPERSAMPLING` times as many as it gives out.

    Parameters
    ----------
    side : int
        Side of the finished drawing in pixels.
    """

    def __init__(self, side: int) -> None:
        self.side = side
        self._pixels = side * SUPERSAMPLING
        self._image = Image.new("RGBA", (self._pixels, self._pixels), (0, 0, 0, 0))

    def finish(self) -> Image.Image:
        """Return the drawing as RGBA, scaled down and cropped to what was drawn."""
        image = self._image.reduce(SUPERSAMPLING)
        solid = image.getchannel("A").point([0] * 25 + [255] * 231)
        return image.crop(solid.getbbox())

    # Shapes

    def polygon(self, points: Sequence[Point]) -> Mask:
        """Corners joined by straight lines."""
        mask = Image.new("L", self._image.size, 0)
        ImageDraw.Draw(mask).polygon([self._at(point) for point in points], 255)
        return mask

    def blob(self, points: Sequence[Point]) -> Mask:
        """A smooth closed curve through points."""
        return self.polygon(_spline(points, closed=True))

    def oval(self, x: float, y: float, rx: float, ry: float | None = None, *, turn: float = 0) -> Mask:
        """Centre and radii, turned clockwise by degrees."""
        return self.polygon(oval_points(x, y, rx, ry, turn=turn))

    def box(self, x0: float, y0: float, x1: float, y1: float, *, radius: float = 0) -> Mask:
        """Corners, rounded by a radius."""
        mask = Image.new("L", self._image.size, 0)
        corners = (*self._at((x0, y0)), *self._at((x1, y1)))
        ImageDraw.Draw(mask).rounded_rectangle(corners, radius * self._pixels, 255)
        return mask

    def boxes(self, corners: Iterable[tuple[float, float, float, float]]) -> Mask:
        """Many boxes in one mask."""
        mask = Image.new("L", self._image.size, 0)
        draw = ImageDraw.Draw(mask)
        for x0, y0, x1, y1 in corners:
            draw.rectangle((*self._at((x0, y0)), *self._at((x1, y1))), 255)
        return mask

    def line(self, points: Sequence[Point], width: float, *, smooth: bool = True) -> Mask:
        """A curve through points with round ends."""
        mask = Image.new("L", self._image.size, 0)
        draw = ImageDraw.Draw(mask)
        path = [self._at(point) for point in (_spline(points) if smooth and len(points) > 2 else points)]
        thick = max(1, round(width * self._pixels))
        draw.line(path, 255, thick, joint="curve")
        for x, y in (path[0], path[-1]):
            draw.ellipse((x - thick / 2, y - thick / 2, x + thick / 2, y + thick / 2), 255)
        return mask

    def dots(self, points: Iterable[Point], rx: float, ry: float | None = None) -> Mask:
        """Many equal ovals in one mask."""
        mask = Image.new("L", self._image.size, 0)
        draw = ImageDraw.Draw(mask)
        half_width, half_height = rx * self._pixels, (rx if ry is None else ry) * self._pixels
        for x, y in map(self._at, points):
            draw.ellipse((x - half_width, y - half_height, x + half_width, y + half_height), 255)
        return mask

    def hairs(self, points: Iterable[Point], length: float, width: float, *, seed: int) -> Mask:
        """Many short lines in all directions in one mask."""
        mask = Image.new("L", self._image.size, 0)
        draw = ImageDraw.Draw(mask)
        rng = np.random.default_rng(seed)
        for x, y in points:
            turn = rng.uniform(0, 2 * math.pi)
            end = (x + length * math.cos(turn), y + length * math.sin(turn))
            draw.line([self._at((x, y)), self._at(end)], 255, max(1, round(width * self._pixels)))
        return mask

    # Filling

    def fill(
        self,
        mask: Mask,
        paint: Paint,
        *,
        within: Mask | None = None,
        without: Mask | None = None,
        blur: float = 0,
        opacity: float = 1,
    ) -> Mask:
        """Fill a shape and return it, cut to `within` and `without`, its edge blurred by a radius."""
        if blur:
            mask = self._soften(mask, blur)
        if within is not None:
            mask = ImageChops.multiply(mask, within)
        if without is not None:
            mask = ImageChops.subtract(mask, without)
        box = mask.getbbox()
        if box is None:
            return mask
        cut = mask.crop(box)
        if opacity < 1:
            cut = cut.point([round(value * opacity) for value in range(256)])
        layer = _paint(paint, cut.size)
        layer.putalpha(cut)
        self._image.alpha_composite(layer, box[:2])
        return mask

    def round_off(self, body: Mask, *, dark: float = 0.45, light: float = 0.35, width: float = 0.05) -> None:
        """Darken the lower right edge of a shape and lighten the upper left one."""
        shift = round(width * self._pixels * 0.7)
        for sign, colour, opacity in ((-1, "#1c1020", dark), (1, "#ffffff", light)):
            inner = ImageChops.offset(body, sign * shift, sign * shift)
            self.fill(ImageChops.invert(inner), colour, within=body, blur=width, opacity=opacity)

    def shine(
        self, x: float, y: float, rx: float, ry: float, *, turn: float = -30, opacity: float = 0.7
    ) -> None:
        """A soft white spot of reflected light."""
        self.fill(self.oval(x, y, rx, ry, turn=turn), "#ffffff", blur=min(rx, ry) * 0.5, opacity=opacity)

    def _at(self, point: Point) -> Point:
        return point[0] * self._pixels, point[1] * self._pixels

    def _soften(self, mask: Mask, blur: float) -> Mask:
        quarter = mask.reduce(SUPERSAMPLING)
        soft = quarter.filter(ImageFilter.GaussianBlur(blur * self.side))
        return soft.resize(mask.size, Image.Resampling.BILINEAR)


def scatter(count: int, seed: int, box: tuple[float, float, float, float] = (0, 0, 1, 1)) -> list[Point]:
    """Random points in a box, the same ones for the same seed."""
    points = np.random.default_rng(seed).uniform(box[:2], box[2:], (count, 2))
    return [(float(x), float(y)) for x, y in points]


def oval_points(
    x: float,
    y: float,
    rx: float,
    ry: float | None = None,
    *,
    turn: float = 0,
    start: float = 0,
    end: float = 360,
) -> list[Point]:
    """Points along an oval or a part of it, clockwise from the right, in degrees."""
    ry = rx if ry is None else ry
    cos, sin = math.cos(math.radians(turn)), math.sin(math.radians(turn))
    points = []
    for degrees in np.linspace(start, end, 73):
        dx, dy = rx * math.cos(math.radians(degrees)), ry * math.sin(math.radians(degrees))
        points.append((x + dx * cos - dy * sin, y + dx * sin + dy * cos))
    return points


def ring(count: int, x: float, y: float, radius: float, *, start: float = -90) -> list[Point]:
    """Points at equal steps around a circle, clockwise from the top."""
    angles = [math.radians(start + 360 * at / count) for at in range(count)]
    return [(x + radius * math.cos(angle), y + radius * math.sin(angle)) for angle in angles]


def star(count: int, x: float, y: float, outer: float, inner: float, *, start: float = -90) -> list[Point]:
    """Corners of a star."""
    tips, notches = (
        ring(count, x, y, outer, start=start),
        ring(count, x, y, inner, start=start + 180 / count),
    )
    return [point for pair in zip(tips, notches, strict=True) for point in pair]


def _spline(points: Sequence[Point], *, closed: bool = False, steps: int = 14) -> list[Point]:
    """Catmull-Rom through all points."""
    count = len(points)
    path = []
    for at in range(count if closed else count - 1):
        around = [at - 1, at, at + 1, at + 2]
        around = [index % count if closed else min(max(index, 0), count - 1) for index in around]
        p0, p1, p2, p3 = (np.array(points[index]) for index in around)
        for t in np.linspace(0, 1, steps, endpoint=False):
            path.append(
                0.5 * (2 * p1 + (p2 - p0) * t + (2 * p0 - 5 * p1 + 4 * p2 - p3) * t**2
                       + (3 * p1 - p0 - 3 * p2 + p3) * t**3)
            )  # fmt: skip
    if not closed:
        path.append(np.array(points[-1]))
    return [(float(x), float(y)) for x, y in path]


def _paint(paint: Paint, size: tuple[int, int]) -> Image.Image:
    if isinstance(paint, (Slope, Ball)):
        weights = paint.weights(48)
        stops = np.linspace(0, 1, len(paint.colours))
        channels = np.array([_rgb(colour) for colour in paint.colours]).T
        pixels = np.stack([np.interp(weights, stops, channel) for channel in channels], axis=-1)
        small = Image.fromarray(np.round(pixels).astype(np.uint8))
        return small.resize(size, Image.Resampling.BILINEAR)
    return Image.new("RGB", size, paint)


def _rgb(colour: Colour) -> tuple[int, int, int]:
    return Image.new("RGB", (1, 1), colour).getpixel((0, 0))  # type: ignore[return-value]
