"""Fruit, cake and coffee, drawn so that an encoder trained on photographs knows them."""

from __future__ import annotations

import math

from benchmarks.drawing import Ball, Board, Slope, oval_points, scatter, star


def orange(board: Board) -> None:
    """A speckled orange with its little star."""
    body = board.fill(board.oval(0.5, 0.5, 0.45), Ball(("#ffc04d", "#ff9a1f", "#f27a0a", "#b44e02")))
    board.fill(board.dots(scatter(900, 3), 0.005), "#b85200", within=body, blur=0.003, opacity=0.45)
    board.fill(board.dots(scatter(700, 2), 0.004), "#ffd58a", within=body, opacity=0.35)
    board.round_off(body, dark=0.35, light=0.15)
    board.shine(0.34, 0.28, 0.09, 0.05, opacity=0.5)
    board.fill(board.polygon(star(5, 0.53, 0.2, 0.045, 0.018)), "#5b7d1e")
    board.fill(board.oval(0.53, 0.2, 0.014), "#6b4a20")


def lemon(board: Board) -> None:
    """A lemon lying on its side."""
    body = board.blob(
        [
            (0.03, 0.5),
            (0.1, 0.42),
            (0.25, 0.26),
            (0.5, 0.2),
            (0.75, 0.27),
            (0.9, 0.42),
            (0.98, 0.5),
            (0.9, 0.58),
            (0.75, 0.74),
            (0.5, 0.8),
            (0.25, 0.74),
            (0.1, 0.58),
        ]
    )
    board.fill(body, Ball(("#fff27a", "#ffe02e", "#f2c200", "#b98a00"), at=(0.38, 0.25)))
    board.fill(board.dots(scatter(500, 4), 0.005), "#a87c00", within=body, opacity=0.3)
    board.round_off(body, dark=0.3, light=0.2)
    board.shine(0.36, 0.33, 0.1, 0.04, opacity=0.6)


def strawberry(board: Board) -> None:
    """A strawberry with seeds and leaves."""
    body = board.blob(
        [
            (0.5, 0.18),
            (0.72, 0.17),
            (0.87, 0.32),
            (0.83, 0.56),
            (0.68, 0.8),
            (0.5, 0.96),
            (0.32, 0.8),
            (0.17, 0.56),
            (0.13, 0.32),
            (0.28, 0.17),
        ]
    )
    board.fill(body, Ball(("#ff5a4a", "#ee2230", "#cf0f22", "#8a0414")))
    seeds = [
        (0.5 + 0.105 * (column + 0.5 * (row % 2)) * (1 - 0.035 * row), 0.27 + 0.085 * row)
        for row in range(8)
        for column in range(-4, 5)
    ]
    board.fill(
        board.dots([(x, y + 0.006) for x, y in seeds], 0.017, 0.023), "#8a0414", within=body, opacity=0.7
    )
    board.fill(board.dots(seeds, 0.011, 0.017), "#ffd76b", within=body)
    board.round_off(body)
    board.shine(0.31, 0.33, 0.05, 0.09, turn=20, opacity=0.45)
    for turn in (-68, -38, -5, 30, 62):
        tip = math.radians(turn - 90)
        x, y = 0.5 + 0.3 * math.cos(tip + math.pi) * 1.05, 0.19 - 0.17 * math.sin(tip)
        leaf = board.blob([(0.46, 0.13), ((0.5 + x) / 2 + 0.05, 0.14), (x, y), ((0.5 + x) / 2 - 0.05, 0.26)])
        board.fill(leaf, Slope(("#7cc03a", "#2f7d1f")))
        board.round_off(leaf, width=0.02)
    board.fill(board.line([(0.5, 0.16), (0.51, 0.09), (0.55, 0.03)], 0.035), Slope(("#8ccf45", "#3f8a25")))


def banana(board: Board) -> None:
    """One ripe banana, both ends up."""
    body = board.blob(
        [
            (0.08, 0.3),
            (0.14, 0.27),
            (0.2, 0.36),
            (0.33, 0.53),
            (0.52, 0.62),
            (0.74, 0.6),
            (0.92, 0.5),
            (0.97, 0.53),
            (0.9, 0.66),
            (0.72, 0.79),
            (0.48, 0.83),
            (0.26, 0.73),
            (0.12, 0.53),
        ]
    )
    board.fill(body, Slope(("#ffe96b", "#ffd92b", "#e5ac10"), angle=80))
    ridge = board.line(
        [(0.13, 0.34), (0.2, 0.53), (0.36, 0.68), (0.56, 0.74), (0.76, 0.69), (0.93, 0.55)], 0.012
    )
    board.fill(ridge, "#b98408", within=body, opacity=0.65)
    upper = board.line([(0.16, 0.32), (0.27, 0.5), (0.45, 0.63), (0.66, 0.65), (0.9, 0.53)], 0.05)
    board.fill(upper, "#fff6b0", within=body, blur=0.02, opacity=0.7)
    board.round_off(body, dark=0.4, light=0.2, width=0.04)
    stem = board.blob([(0.07, 0.31), (0.06, 0.17), (0.1, 0.15), (0.16, 0.29)])
    board.fill(stem, Slope(("#6b5a1a", "#b9b03a", "#e8c92c")))
    board.fill(board.oval(0.08, 0.16, 0.025, 0.014), "#4a3a12")
    board.fill(board.oval(0.95, 0.53, 0.025, 0.02, turn=-20), "#4a3a12")
    for x, y, r in ((0.4, 0.72, 0.009), (0.6, 0.7, 0.007), (0.25, 0.6, 0.008), (0.75, 0.73, 0.008)):
        board.fill(board.oval(x, y, r * 2, r), "#7a5510", opacity=0.8)


def apple(board: Board) -> None:
    """A green apple with a leaf."""
    body = board.blob(
        [
            (0.5, 0.26),
            (0.64, 0.2),
            (0.82, 0.25),
            (0.91, 0.43),
            (0.87, 0.66),
            (0.74, 0.87),
            (0.6, 0.93),
            (0.5, 0.9),
            (0.4, 0.93),
            (0.26, 0.87),
            (0.13, 0.66),
            (0.09, 0.43),
            (0.18, 0.25),
            (0.36, 0.2),
        ]
    )
    board.fill(body, Ball(("#d8f06a", "#9fd62f", "#6aae1c", "#34700d")))
    board.fill(board.dots(scatter(150, 5), 0.005), "#eefbb0", within=body, opacity=0.6)
    board.fill(board.oval(0.5, 0.27, 0.13, 0.05), "#2f6a0c", blur=0.02, opacity=0.8)
    board.round_off(body)
    board.shine(0.3, 0.4, 0.06, 0.11, turn=20, opacity=0.65)
    board.fill(board.line([(0.5, 0.28), (0.51, 0.17), (0.57, 0.06)], 0.03), Slope(("#8a6233", "#4a2f12")))
    leaf = board.blob([(0.53, 0.17), (0.63, 0.07), (0.8, 0.06), (0.74, 0.16), (0.62, 0.2)])
    board.fill(leaf, Slope(("#6bbf3a", "#2c7a1c"), angle=30))
    board.fill(board.line([(0.54, 0.17), (0.66, 0.12), (0.78, 0.07)], 0.008), "#c6ee8a", within=leaf)


def pumpkin(board: Board) -> None:
    """A pumpkin with a carved face, lit from within."""
    for x, rx in ((0.2, 0.17), (0.8, 0.17), (0.32, 0.19), (0.68, 0.19), (0.5, 0.18)):
        lobe = board.fill(
            board.oval(x, 0.58, rx, 0.38), Ball(("#ffab4a", "#f5821f", "#d8620c", "#94400a"), at=(0.42, 0.25))
        )
        board.round_off(lobe, dark=0.5, light=0.25, width=0.035)
    glow = Ball(("#fff6b0", "#ffd23f", "#f79a16"), at=(0.5, 0.7))
    for side in (-1, 1):
        eye = [(0.5 + side * 0.06, 0.54), (0.5 + side * 0.26, 0.54), (0.5 + side * 0.17, 0.37)]
        board.fill(board.polygon([(x + 0.008, y - 0.01) for x, y in eye]), "#5d2404")
        board.fill(board.polygon(eye), glow)
    board.fill(board.polygon([(0.455, 0.64), (0.545, 0.64), (0.5, 0.56)]), glow)
    grin = [
        (0.2, 0.66),
        (0.3, 0.72),
        (0.34, 0.68),
        (0.4, 0.745),
        (0.5, 0.755),
        (0.6, 0.745),
        (0.66, 0.68),
        (0.7, 0.72),
        (0.8, 0.66),
        (0.74, 0.8),
        (0.64, 0.87),
        (0.6, 0.81),
        (0.54, 0.885),
        (0.46, 0.885),
        (0.4, 0.81),
        (0.36, 0.87),
        (0.26, 0.8),
    ]
    board.fill(board.polygon([(x + 0.006, y - 0.012) for x, y in grin]), "#5d2404")
    board.fill(board.polygon(grin), glow)
    stem = board.fill(
        board.blob([(0.45, 0.25), (0.46, 0.13), (0.42, 0.06), (0.52, 0.03), (0.55, 0.12), (0.56, 0.25)]),
        Slope(("#a8b060", "#5d7a2a", "#3a4f14"), 30),
    )
    board.round_off(stem, width=0.02)


def birthday_cake(board: Board) -> None:
    """A cake with pink icing, cherries and five candles."""
    for at in range(5):
        x = 0.26 + 0.12 * at
        board.fill(
            board.box(x - 0.014, 0.13, x + 0.014, 0.36),
            Slope(("#ffffff", ("#ff6a8a", "#5aa8ff", "#ffd23f", "#6bd08a", "#b07aff")[at], "#b0b0c0"), 0),
        )
        board.fill(board.oval(x, 0.085, 0.045), "#ffd76b", blur=0.02, opacity=0.6)
        board.fill(
            board.blob([(x, 0.03), (x + 0.018, 0.09), (x, 0.125), (x - 0.018, 0.09)]),
            Slope(("#fff6b0", "#ffb01f", "#f0650f")),
        )
    board.fill(board.oval(0.5, 0.86, 0.48, 0.1), Slope(("#ffffff", "#c8ccd4")))
    side = board.polygon(
        [
            *oval_points(0.5, 0.4, 0.38, 0.1, start=180, end=360),
            *oval_points(0.5, 0.8, 0.38, 0.1, start=0, end=180),
        ]
    )
    sponge = board.fill(side, Slope(("#8a5026", "#b8743c", "#9a5c2c", "#552c10"), 0))
    for y in (0.53, 0.68):
        board.fill(
            board.polygon(
                [
                    *oval_points(0.5, y, 0.39, 0.1, start=180, end=0),
                    *oval_points(0.5, y + 0.035, 0.39, 0.1, start=0, end=180),
                ]
            ),
            "#fff0dc",
            within=sponge,
        )
    icing = [
        (0.12, 0.4),
        (0.13, 0.52),
        (0.17, 0.6),
        (0.22, 0.55),
        (0.27, 0.53),
        (0.32, 0.63),
        (0.37, 0.66),
        (0.42, 0.57),
        (0.48, 0.56),
        (0.54, 0.68),
        (0.6, 0.64),
        (0.65, 0.55),
        (0.7, 0.57),
        (0.75, 0.64),
        (0.8, 0.56),
        (0.86, 0.53),
        (0.88, 0.4),
        (0.75, 0.32),
        (0.5, 0.3),
        (0.25, 0.32),
    ]
    cream = board.fill(board.blob(icing), Slope(("#ffc0d4", "#ff9abc", "#ee7aa4", "#c85a84"), 0))
    board.round_off(cream, dark=0.35, light=0.4, width=0.025)
    board.fill(board.oval(0.5, 0.4, 0.37, 0.095), Ball(("#fff0f5", "#ffd0e0", "#ffb0cb")))
    for x, y in oval_points(0.5, 0.4, 0.32, 0.075)[:-1:8]:
        board.fill(board.oval(x, y, 0.038, 0.03), Ball(("#ff6a5a", "#e0222a", "#8a0414")))
        board.shine(x - 0.01, y - 0.01, 0.01, 0.006)
    for at in range(5):
        x = 0.26 + 0.12 * at
        board.fill(
            board.box(x - 0.014, 0.2, x + 0.014, 0.385),
            Slope(("#ffffff", ("#ff6a8a", "#5aa8ff", "#ffd23f", "#6bd08a", "#b07aff")[at], "#b0b0c0"), 0),
        )


def mug(board: Board) -> None:
    """A mug of coffee, its handle on the right."""
    handle = board.line([(0.68, 0.34), (0.86, 0.31), (0.94, 0.47), (0.86, 0.65), (0.68, 0.68)], 0.075)
    board.fill(handle, Slope(("#f4f4f0", "#b8b8b4")))
    board.round_off(handle, width=0.02)
    body = board.polygon(
        [
            *oval_points(0.4, 0.22, 0.34, 0.07, start=180, end=360),
            *oval_points(0.4, 0.8, 0.32, 0.08, start=0, end=180),
        ]
    )
    board.fill(body, Slope(("#d8d8d4", "#ffffff", "#f0f0ec", "#a9a9a6"), 0))
    band = board.polygon(
        [
            *oval_points(0.4, 0.42, 0.34, 0.07, start=180, end=0),
            *oval_points(0.4, 0.6, 0.34, 0.07, start=0, end=180),
        ]
    )
    board.fill(band, Slope(("#1c4f94", "#3f83d6", "#2d6cbb", "#123866"), 0), within=body)
    board.fill(board.oval(0.4, 0.22, 0.34, 0.085), Slope(("#ffffff", "#d0d0cc")))
    inside = board.fill(board.oval(0.4, 0.225, 0.305, 0.068), Slope(("#a8a8a4", "#f2f2ee"), 0))
    coffee = board.fill(
        board.oval(0.4, 0.245, 0.29, 0.056), Ball(("#7a4a22", "#4a2810", "#2a1406")), within=inside
    )
    board.fill(board.oval(0.33, 0.235, 0.1, 0.014), "#b98450", within=coffee, blur=0.006, opacity=0.7)
