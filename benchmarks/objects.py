"""Everyday things and plain shapes to put into scenes.

The things are the ones that an EfficientNet-lite2 trained on photographs (ImageNet) named among its first five
guesses on at least eight of ten backgrounds; drawings it did not know (a pizza, a penguin, a sailing boat) were
left out, however nice. `tests/benchmarks/test_scenes.py` repeats the check.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from functools import partial

from PIL import ImageChops

from benchmarks import food, toys
from benchmarks.drawing import Ball, Board, Slope, oval_points, ring, scatter, star

Drawer = Callable[[Board], None]


def clock(board: Board) -> None:
    """A wall clock at ten past ten."""
    rim = board.fill(board.oval(0.5, 0.5, 0.47), Ball(("#6b6f78", "#33363d", "#121317")))
    board.round_off(rim, width=0.02)
    board.fill(board.oval(0.5, 0.5, 0.415), "#0c0c10")
    face = board.fill(board.oval(0.5, 0.5, 0.405), Ball(("#ffffff", "#fbfaf2", "#e6e2d2")))
    for at, ((x0, y0), (x1, y1)) in enumerate(
        zip(ring(60, 0.5, 0.5, 0.39), ring(60, 0.5, 0.5, 0.37), strict=True)
    ):
        board.fill(board.line([(x0, y0), (x1, y1)], 0.012 if at % 5 == 0 else 0.005), "#1a1a1e")
    for number, (x, y) in enumerate(ring(12, 0.5, 0.5, 0.31)):
        _numeral(board, str(number or 12), x, y, 0.085)
    _hand(board, 305, 0.2, 0.032)
    _hand(board, 60, 0.31, 0.022)
    _hand(board, 200, 0.34, 0.008, "#d01f1f")
    board.fill(board.oval(0.5, 0.5, 0.028), "#1a1a1e")
    board.fill(board.oval(0.5, 0.5, 0.012), "#d01f1f")
    glass = board.blob([(0.2, 0.3), (0.4, 0.14), (0.6, 0.13), (0.4, 0.3), (0.2, 0.5), (0.14, 0.45)])
    board.fill(glass, "#ffffff", within=face, blur=0.02, opacity=0.35)


def _hand(board: Board, degrees: float, length: float, width: float, colour: str = "#1a1a1e") -> None:
    x, y = math.sin(math.radians(degrees)), -math.cos(math.radians(degrees))
    hand = board.line([(0.5 - 0.06 * x, 0.5 - 0.06 * y), (0.5 + length * x, 0.5 + length * y)], width)
    board.fill(ImageChops.offset(hand, 8, 10), "#000000", blur=0.006, opacity=0.3)
    board.fill(hand, colour)


def _numeral(board: Board, text: str, x: float, y: float, height: float) -> None:
    """Numbers as strokes, so that no font is needed."""
    w, h, gap = height * 0.5, height, height * 0.22
    strokes: dict[str, list[list[tuple[float, float]]]] = {
        "0": [oval_points(0.5, 0.5, 0.5, 0.5)],
        "1": [[(0.1, 0.25), (0.55, 0.0), (0.55, 1.0)]],
        "2": [[*oval_points(0.5, 0.28, 0.48, 0.28, start=190, end=380), (0.0, 1.0), (1.0, 1.0)]],
        "3": [
            oval_points(0.45, 0.25, 0.45, 0.25, start=200, end=440),
            oval_points(0.45, 0.73, 0.52, 0.27, start=-80, end=160),
        ],
        "4": [[(0.75, 1.0), (0.75, 0.0), (0.0, 0.68), (1.0, 0.68)]],
        "5": [
            [(0.95, 0.0), (0.2, 0.0), (0.1, 0.45)],
            oval_points(0.45, 0.67, 0.52, 0.33, start=-125, end=150),
        ],
        "6": [oval_points(0.5, 0.68, 0.46, 0.32), [(0.05, 0.66), (0.3, 0.2), (0.7, 0.0)]],
        "7": [[(0.0, 0.0), (1.0, 0.0), (0.35, 1.0)]],
        "8": [oval_points(0.5, 0.25, 0.4, 0.25), oval_points(0.5, 0.74, 0.48, 0.26)],
        "9": [oval_points(0.5, 0.32, 0.46, 0.32), [(0.95, 0.34), (0.7, 0.8), (0.3, 1.0)]],
    }
    left = x - (len(text) * w + (len(text) - 1) * gap) / 2
    for at, digit in enumerate(text):
        for stroke in strokes[digit]:
            points = [(left + at * (w + gap) + px * w, y - h / 2 + py * h) for px, py in stroke]
            board.fill(board.line(points, height * 0.17, smooth=False), "#1a1a1e")


def umbrella(board: Board) -> None:
    """An open red umbrella."""
    board.fill(board.line([(0.5, 0.1), (0.5, 0.86)], 0.022), Slope(("#d5d5d5", "#7a7a7a"), 0))
    handle = board.line([(0.5, 0.8), (0.5, 0.9), (0.455, 0.955), (0.4, 0.945), (0.375, 0.89)], 0.04)
    board.fill(handle, Slope(("#a86a3a", "#5d3214")))
    ribs = (0.03, 0.2, 0.38, 0.62, 0.8, 0.97)
    dome = oval_points(0.5, 0.52, 0.47, 0.44, start=180, end=360)
    scallops = []
    for left, right in itertools.pairwise(ribs):
        scallops.append(oval_points((left + right) / 2, 0.52, (right - left) / 2, 0.055, start=180, end=360))
    lower = [point for scallop in reversed(scallops) for point in reversed(scallop)]
    canopy = board.polygon([*dome, *lower])
    board.fill(canopy, Slope(("#ff5b5b", "#d81f2f"), 0))
    for at, (left, right) in enumerate(itertools.pairwise(ribs)):
        panel = board.blob(
            [
                (0.5, 0.07),
                ((left + 0.5) / 2 - 0.04 * (at < 2), 0.22),
                (left, 0.56),
                (right, 0.56),
                ((right + 0.5) / 2 + 0.04 * (at > 2), 0.22),
            ]
        )
        shade = (("#ff7a70", "#e5323b"), ("#f04a4a", "#c4182a"))[at % 2]
        board.fill(panel, Slope(shade, 70), within=canopy)
    for rib in ribs[1:-1]:
        bend = (rib + 0.5) / 2 + (rib - 0.5) * 0.18
        board.fill(board.line([(0.5, 0.08), (bend, 0.24), (rib, 0.52)], 0.007), "#8f0d1c", within=canopy)
    board.round_off(canopy, dark=0.45, light=0.3, width=0.05)
    board.fill(board.line([(0.5, 0.02), (0.5, 0.09)], 0.02), "#5d3214")


def school_bus(board: Board) -> None:
    """A yellow school bus, heading right."""
    yellow = Slope(("#ffd84a", "#f9b916", "#d08a05"))
    body = board.blob(
        [
            (0.03, 0.27),
            (0.08, 0.22),
            (0.5, 0.21),
            (0.76, 0.22),
            (0.81, 0.27),
            (0.83, 0.44),
            (0.95, 0.48),
            (0.98, 0.55),
            (0.98, 0.72),
            (0.9, 0.74),
            (0.5, 0.74),
            (0.06, 0.74),
            (0.02, 0.7),
            (0.02, 0.4),
        ]
    )
    board.fill(body, yellow)
    board.round_off(body, dark=0.35, light=0.35, width=0.03)
    for at in range(7):
        x = 0.055 + 0.092 * at
        board.fill(board.box(x, 0.29, x + 0.078, 0.43, radius=0.012), "#1b1d22")
        pane = board.box(x + 0.007, 0.297, x + 0.071, 0.423, radius=0.008)
        board.fill(pane, Slope(("#9fc6de", "#4a6b80"), 60))
        board.fill(board.line([(x, 0.36), (x + 0.078, 0.36)], 0.006), "#1b1d22", within=pane)
    board.fill(board.box(0.71, 0.29, 0.785, 0.69, radius=0.01), "#1b1d22")
    for x in (0.718, 0.752):
        board.fill(board.box(x, 0.3, x + 0.027, 0.66, radius=0.006), Slope(("#9fc6de", "#3f5c70")))
    board.fill(
        board.polygon([(0.8, 0.29), (0.817, 0.3), (0.828, 0.43), (0.8, 0.43)]), Slope(("#b4d6ea", "#4a6b80"))
    )
    for y in (0.475, 0.545, 0.655):
        board.fill(board.line([(0.02, y), (0.7, y)], 0.012), "#17181a", within=body)
    board.fill(board.box(0.86, 0.63, 1.0, 0.7, radius=0.012), "#26282c")
    board.fill(board.box(0.0, 0.66, 0.06, 0.72, radius=0.012), "#26282c")
    board.fill(board.oval(0.955, 0.57, 0.022), Ball(("#ffffff", "#fff3c0", "#c9a24a")))
    for x in (0.07, 0.76):
        board.fill(board.oval(x, 0.245, 0.018), Ball(("#ff9a7a", "#d01a10")))
    for x in (0.2, 0.84):
        board.fill(board.oval(x, 0.73, 0.098), "#1a1a1c", within=body)
        tyre = board.fill(board.oval(x, 0.745, 0.085), Ball(("#4a4b50", "#26272a", "#0c0c0e")))
        board.round_off(tyre, width=0.015)
        board.fill(board.oval(x, 0.745, 0.045), Ball(("#f0f0f0", "#a8abb0", "#5a5d62")))
        board.fill(board.dots(ring(6, x, 0.745, 0.028), 0.006), "#2a2b2e")


def laptop(board: Board) -> None:
    """An open laptop."""
    lid = board.fill(board.polygon([(0.17, 0.12), (0.83, 0.12), (0.85, 0.62), (0.15, 0.62)]), "#2a2c30")
    board.round_off(lid, dark=0.2, light=0.4, width=0.008)
    screen = board.polygon([(0.195, 0.145), (0.805, 0.145), (0.822, 0.59), (0.178, 0.59)])
    board.fill(screen, Slope(("#3f7fd0", "#6db3ea", "#b9dcf5")))
    board.fill(
        board.blob([(0.1, 0.62), (0.3, 0.4), (0.45, 0.5), (0.62, 0.36), (0.9, 0.62)]),
        Slope(("#4f9a58", "#1f5a35")),
        within=screen,
    )
    board.fill(
        board.polygon([(0.19, 0.145), (0.45, 0.145), (0.25, 0.59), (0.17, 0.59)]),
        "#ffffff",
        within=screen,
        opacity=0.18,
    )
    for at in range(7):
        board.fill(
            board.box(0.36 + 0.042 * at, 0.555, 0.39 + 0.042 * at, 0.58, radius=0.006), "#ffffff", opacity=0.8
        )
    board.fill(
        board.polygon([(0.15, 0.62), (0.85, 0.62), (0.99, 0.86), (0.01, 0.86)]), Slope(("#b4b8bd", "#dfe2e5"))
    )
    keys = []
    for row in range(5):
        y0, y1 = 0.645 + 0.026 * row, 0.666 + 0.026 * row
        half = 0.325 + 0.36 * (y0 - 0.62) * 0.9
        for key in range(13):
            x0 = 0.5 - half + 2 * half * key / 13
            x1 = x0 + 2 * half / 13 - 0.007
            if row == 4 and 3 < key < 9:
                x1 = x0 + 2 * half / 13
            keys.append((x0, y0, x1, y1))
    board.fill(board.boxes(keys), "#24262a")
    board.fill(
        board.polygon([(0.39, 0.782), (0.61, 0.782), (0.62, 0.848), (0.38, 0.848)]),
        Slope(("#9fa3a8", "#c4c8cc")),
    )
    board.fill(board.box(0.01, 0.86, 0.99, 0.885, radius=0.012), Slope(("#a8acb0", "#6b6f74")))


def television(board: Board) -> None:
    """A flat screen with a sunset on it."""
    board.fill(
        board.polygon([(0.44, 0.76), (0.56, 0.76), (0.58, 0.86), (0.42, 0.86)]), Slope(("#3a3c40", "#17181a"))
    )
    board.fill(board.oval(0.5, 0.88, 0.25, 0.035), Slope(("#4a4c50", "#141517")))
    case = board.fill(board.box(0.01, 0.14, 0.99, 0.78, radius=0.02), Slope(("#2a2b2e", "#0b0b0d")))
    board.round_off(case, dark=0.2, light=0.4, width=0.008)
    screen = board.fill(board.box(0.035, 0.165, 0.965, 0.74), Slope(("#2b62b8", "#6fb0ea", "#f5c98a")))
    board.fill(board.oval(0.72, 0.5, 0.07), Ball(("#fff8d8", "#ffd76b")), within=screen)
    for points, colours in (
        ([(-0.1, 0.8), (0.2, 0.38), (0.42, 0.56), (0.6, 0.42), (1.1, 0.8)], ("#6b5a8a", "#3a2f5d")),
        ([(-0.1, 0.9), (0.15, 0.6), (0.5, 0.66), (0.8, 0.58), (1.1, 0.9)], ("#2f6b4a", "#123a26")),
    ):
        board.fill(board.blob(points), Slope(colours), within=screen)
    board.fill(
        board.polygon([(0.04, 0.165), (0.42, 0.165), (0.18, 0.74), (0.035, 0.74)]),
        "#ffffff",
        within=screen,
        opacity=0.13,
    )
    board.fill(board.oval(0.5, 0.76, 0.008), "#d03030")


def daisy(board: Board) -> None:
    """A daisy from above."""
    for count, radius, length, shade in (
        (17, 0.27, 0.2, ("#e6e6ee", "#b9bccb")),
        (17, 0.25, 0.19, ("#ffffff", "#d9dbe6")),
    ):
        start = -90 if count * radius > 4.5 else -79
        for at, (x, y) in enumerate(ring(count, 0.5, 0.5, radius, start=start)):
            turn = start + 360 * at / count
            petal = board.oval(x, y, length, 0.05, turn=turn)
            board.fill(petal, Slope(shade, turn))
            board.round_off(petal, dark=0.3, light=0.1, width=0.012)
            for side in (-0.016, 0.016):
                rib = [
                    (
                        0.5 + a * math.cos(math.radians(turn)) - side * math.sin(math.radians(turn)),
                        0.5 + a * math.sin(math.radians(turn)) + side * math.cos(math.radians(turn)),
                    )
                    for a in (0.15, 0.42)
                ]
                board.fill(board.line(rib, 0.004), "#a8abc0", within=petal, opacity=0.6)
    board.fill(board.oval(0.505, 0.51, 0.15), "#6b6a80", blur=0.015, opacity=0.5)
    eye = board.fill(board.oval(0.5, 0.5, 0.135), Ball(("#ffe14d", "#f7b916", "#b87404")))
    board.fill(
        board.dots(scatter(500, 12, (0.36, 0.36, 0.64, 0.64)), 0.006), "#a86404", within=eye, opacity=0.7
    )
    board.fill(
        board.dots(scatter(350, 13, (0.36, 0.36, 0.6, 0.6)), 0.005), "#fff08a", within=eye, opacity=0.8
    )
    board.round_off(eye)


def ladybird(board: Board) -> None:
    """A ladybird from above, heading up."""
    for side in (-1, 1):
        for y0, y1, reach in ((0.4, 0.3, 0.45), (0.56, 0.58, 0.49), (0.72, 0.86, 0.44)):
            leg = [
                (0.5 + side * 0.3, y0),
                (0.5 + side * (reach - 0.04), (y0 + y1) / 2 - 0.03),
                (0.5 + side * reach, y1),
            ]
            board.fill(board.line(leg, 0.026), "#141416")
        board.fill(
            board.line(
                [(0.5 + side * 0.06, 0.12), (0.5 + side * 0.12, 0.04), (0.5 + side * 0.2, 0.03)], 0.014
            ),
            "#141416",
        )
    board.fill(board.oval(0.5, 0.2, 0.16, 0.12), Ball(("#4a4a50", "#1b1b1e", "#08080a")))
    neck = board.fill(board.oval(0.5, 0.28, 0.25, 0.13), Ball(("#3a3a40", "#151518", "#060608")))
    for side in (-1, 1):
        board.fill(board.oval(0.5 + side * 0.17, 0.27, 0.05, 0.045), "#fffdf0", within=neck)
        board.fill(board.oval(0.5 + side * 0.08, 0.15, 0.03, 0.026), "#fffdf0")
    shell = board.fill(board.oval(0.5, 0.62, 0.38, 0.365), Ball(("#ff6a4a", "#e8281a", "#c0140c", "#74060a")))
    board.fill(board.line([(0.5, 0.26), (0.5, 0.99)], 0.014), "#101012", within=shell)
    for x, y, r in (
        (0.33, 0.48, 0.075),
        (0.67, 0.48, 0.075),
        (0.26, 0.69, 0.065),
        (0.74, 0.69, 0.065),
        (0.39, 0.83, 0.055),
        (0.61, 0.83, 0.055),
        (0.5, 0.34, 0.07),
    ):
        board.fill(board.oval(x, y, r), Ball(("#3a3036", "#151214")), within=shell)
    board.round_off(shell, dark=0.5, light=0.3, width=0.06)
    board.shine(0.34, 0.4, 0.1, 0.04, turn=-35, opacity=0.7)


def shape(board: Board, form: str, colour: str) -> None:
    """Draw a plain shape in one colour with a little shading."""
    match form:
        case "circle":
            body = board.oval(0.5, 0.5, 0.46)
        case "square":
            body = board.box(0.08, 0.08, 0.92, 0.92)
        case "triangle":
            body = board.polygon(ring(3, 0.5, 0.62, 0.54))
        case "star":
            body = board.polygon(star(5, 0.5, 0.53, 0.5, 0.2))
        case _:
            body = board.blob(
                [
                    (0.5, 0.27),
                    (0.62, 0.13),
                    (0.8, 0.12),
                    (0.94, 0.27),
                    (0.92, 0.48),
                    (0.75, 0.7),
                    (0.5, 0.93),
                    (0.25, 0.7),
                    (0.08, 0.48),
                    (0.06, 0.27),
                    (0.2, 0.12),
                    (0.38, 0.13),
                ]
            )
    board.fill(body, colour)
    board.round_off(body, dark=0.25, light=0.2, width=0.03)


THINGS: dict[str, Drawer] = {
    "apple": food.apple,
    "banana": food.banana,
    "basketball": toys.basketball,
    "cake": food.birthday_cake,
    "clock": clock,
    "cup": food.mug,
    "daisy": daisy,
    "guitar": toys.guitar,
    "hot air balloon": toys.hot_air_balloon,
    "ladybug": ladybird,
    "laptop": laptop,
    "lemon": food.lemon,
    "orange": food.orange,
    "pumpkin": food.pumpkin,
    "school bus": school_bus,
    "soccer ball": toys.soccer_ball,
    "strawberry": food.strawberry,
    "teddy bear": toys.teddy_bear,
    "tennis ball": toys.tennis_ball,
    "tv": television,
    "umbrella": umbrella,
}

_COLOURS = {
    "red": "#d8262c",
    "blue": "#2458c8",
    "green": "#2c9a3c",
    "yellow": "#f5cf1e",
    "purple": "#7e3aa8",
    "orange": "#f08418",
}
SHAPES: dict[str, Drawer] = {
    f"{colour} {form}": partial(shape, form=form, colour=value)
    for colour, value in _COLOURS.items()
    for form in ("circle", "square", "triangle", "star", "heart")
}
