"""Balls, a bear, a guitar and a balloon, drawn so that an encoder trained on photographs knows them."""

from __future__ import annotations

import math

import numpy as np

from benchmarks.drawing import Ball, Board, Mask, Paint, Slope, oval_points, scatter


def soccer_ball(board: Board) -> None:
    """A black and white football."""
    ball = board.fill(board.oval(0.5, 0.5, 0.46), Ball(("#ffffff", "#f4f4f2", "#c9cacc", "#85878c")))
    for seam, patch in _truncated_icosahedron(0.46):
        if patch:
            board.fill(board.polygon(seam), Slope(("#3a3a40", "#0b0b0e"), 60), within=ball)
        else:
            board.fill(board.line([*seam, seam[0]], 0.011, smooth=False), "#55565c", within=ball)
    board.round_off(ball, dark=0.5, light=0.2, width=0.06)
    board.shine(0.33, 0.26, 0.08, 0.045, opacity=0.6)


def _truncated_icosahedron(radius: float) -> list[tuple[list[tuple[float, float]], bool]]:
    """Front faces of a football, seen with a pentagon a little off the middle: (outline, is pentagon)."""
    golden = (1 + math.sqrt(5)) / 2
    tips = np.array([(0, s1, s2 * golden) for s1 in (-1, 1) for s2 in (-1, 1)])
    tips = np.concatenate([np.roll(tips, shift, axis=1) for shift in range(3)])
    tips /= np.linalg.norm(tips[0])
    ahead = tips[0]
    side = np.cross(ahead, (0.3, 1, 0.2))
    side /= np.linalg.norm(side)
    frame = np.stack([side, np.cross(ahead, side), ahead])
    tilt = np.deg2rad(22)
    lean = np.array([[1, 0, 0], [0, np.cos(tilt), -np.sin(tilt)], [0, np.sin(tilt), np.cos(tilt)]])
    tips = tips @ frame.T @ lean.T
    near = np.arccos(np.clip(tips @ tips.T, -1, 1)) < 1.2
    faces = []
    for at, tip in enumerate(tips):
        if tip[2] > -0.25:
            neighbours = [other for other in range(12) if near[at, other] and other != at]
            faces.append((np.array([2 * tip + tips[other] for other in neighbours]), True))
    for i in range(12):
        for j in range(i):
            for k in range(j):
                if near[i, j] and near[j, k] and near[i, k] and tips[[i, j, k], 2].sum() > 0:
                    pairs = [(i, j), (j, i), (j, k), (k, j), (k, i), (i, k)]
                    faces.append((np.array([2 * tips[a] + tips[b] for a, b in pairs]), False))
    flat = []
    for corners, patch in sorted(faces, key=lambda face: face[1]):
        unit = corners / np.linalg.norm(corners, axis=1, keepdims=True)
        if unit[:, 2].max() < 0.05:
            continue
        points = unit[:, :2]
        middle = points.mean(axis=0)
        order = np.argsort(np.arctan2(*(points - middle).T[::-1]))
        flat.append(([(0.5 + radius * x, 0.5 + radius * y) for x, y in points[order]], patch))
    return flat


def basketball(board: Board) -> None:
    """A basketball with four seams."""
    ball = board.fill(board.oval(0.5, 0.5, 0.46), Ball(("#ee9350", "#d96a25", "#b34c15", "#6b2607")))
    board.fill(board.dots(scatter(2600, 9), 0.0035), "#7a2d08", within=ball, opacity=0.35)
    board.fill(board.dots(scatter(1500, 8), 0.0025), "#ffc48a", within=ball, opacity=0.4)
    seams = (
        [(0.03, 0.56), (0.28, 0.45), (0.6, 0.4), (0.97, 0.5)],
        [(0.42, 0.03), (0.5, 0.3), (0.54, 0.62), (0.5, 0.97)],
        [(0.13, 0.22), (0.3, 0.3), (0.42, 0.52), (0.38, 0.75), (0.25, 0.88)],
        [(0.74, 0.1), (0.68, 0.28), (0.72, 0.5), (0.82, 0.66), (0.93, 0.7)],
    )
    for seam in seams:
        board.fill(board.line(seam, 0.018), "#1b0d06", within=ball)
    board.round_off(ball, dark=0.45, light=0.2, width=0.06)
    board.shine(0.33, 0.25, 0.09, 0.05, opacity=0.45)


def tennis_ball(board: Board) -> None:
    """A felt ball with two seams."""
    ball = board.fill(board.oval(0.5, 0.5, 0.46), Ball(("#f0ff7a", "#d9f23c", "#b3cf1e", "#71860c")))
    board.fill(board.hairs(scatter(1400, 10), 0.022, 0.004, seed=1), "#8aa012", within=ball, opacity=0.45)
    board.fill(board.hairs(scatter(1400, 11), 0.022, 0.004, seed=2), "#f7ffb8", within=ball, opacity=0.5)
    for seam in (oval_points(-0.02, 0.2, 0.5, turn=10), oval_points(1.05, 0.85, 0.48, turn=10)):
        board.fill(board.line(seam, 0.05, smooth=False), "#8c9c3a", within=ball, opacity=0.5)
        board.fill(board.line(seam, 0.034, smooth=False), "#fbfff0", within=ball)
    board.round_off(ball, dark=0.4, light=0.2, width=0.06)
    board.shine(0.36, 0.24, 0.09, 0.05, opacity=0.3)


def teddy_bear(board: Board) -> None:
    """A sitting teddy bear with a bow tie."""
    fur = Ball(("#d9a066", "#b87b40", "#8a5526", "#5d3514"))
    parts = [board.oval(0.27, 0.1, 0.1), board.oval(0.73, 0.1, 0.1)]
    for ear, x in zip(parts, (0.27, 0.73), strict=True):
        _furry(board, ear, fur, 1)
        board.fill(board.oval(x, 0.11, 0.055), "#e8bf92")
    for foot, x in (
        (board.oval(0.25, 0.86, 0.14, 0.12, turn=-20), 0.25),
        (board.oval(0.75, 0.86, 0.14, 0.12, turn=20), 0.75),
    ):
        _furry(board, foot, fur, 2)
        board.fill(board.oval(x, 0.88, 0.075, 0.068), Ball(("#f0d0a8", "#d9ab78")))
    _furry(board, board.oval(0.5, 0.68, 0.27, 0.26), fur, 3)
    board.fill(board.oval(0.5, 0.7, 0.17, 0.18), Ball(("#f0d0a8", "#d9ab78")), blur=0.01)
    for arm in (board.oval(0.2, 0.6, 0.085, 0.17, turn=35), board.oval(0.8, 0.6, 0.085, 0.17, turn=-35)):
        _furry(board, arm, fur, 4)
    _furry(board, board.oval(0.5, 0.28, 0.28, 0.245), fur, 5)
    board.fill(board.oval(0.5, 0.36, 0.135, 0.1), Ball(("#f7dcb8", "#e0b482")), blur=0.006)
    for x in (0.38, 0.62):
        board.fill(board.oval(x, 0.25, 0.034), "#140c08")
        board.fill(board.oval(x - 0.01, 0.238, 0.01), "#ffffff")
    board.fill(board.blob([(0.45, 0.31), (0.55, 0.31), (0.5, 0.365)]), "#1d110a")
    board.fill(board.line([(0.5, 0.36), (0.5, 0.395)], 0.01), "#3a2010")
    board.fill(
        board.line([(0.43, 0.395), (0.465, 0.42), (0.5, 0.398), (0.535, 0.42), (0.57, 0.395)], 0.01),
        "#3a2010",
    )
    for side in (-1, 1):
        bow = [(0.5, 0.525), (0.5 + side * 0.13, 0.465), (0.5 + side * 0.145, 0.585)]
        board.fill(board.blob(bow), Slope(("#e04a4a", "#a81c26")))
    board.fill(board.oval(0.5, 0.525, 0.03), "#c42a34")


def _furry(board: Board, body: Mask, paint: Paint, seed: int) -> None:
    board.fill(body, paint)
    board.fill(
        board.hairs(scatter(1600, seed), 0.016, 0.004, seed=seed), "#f0c892", within=body, opacity=0.35
    )
    board.fill(
        board.hairs(scatter(1600, seed + 50), 0.016, 0.004, seed=seed), "#5d3514", within=body, opacity=0.4
    )
    board.round_off(body, dark=0.45, light=0.2, width=0.03)


def guitar(board: Board) -> None:
    """A standing acoustic guitar."""
    outline = [
        *((0.5, 0.46), (0.62, 0.47), (0.68, 0.55), (0.65, 0.64), (0.72, 0.72), (0.76, 0.83), (0.68, 0.95)),
        *((0.5, 0.985), (0.32, 0.95), (0.24, 0.83), (0.28, 0.72), (0.35, 0.64), (0.32, 0.55), (0.38, 0.47)),
    ]
    body = board.fill(board.blob(outline), "#5d2f10")
    top = board.blob([(0.5 + (x - 0.5) * 0.95, 0.72 + (y - 0.72) * 0.96) for x, y in outline])
    board.fill(top, Ball(("#f0b464", "#dd9440", "#b8681c"), at=(0.45, 0.5)))
    for at in range(24):
        x = 0.25 + 0.022 * at
        board.fill(board.line([(x, 0.45), (x + 0.004, 1.0)], 0.002), "#8f5218", within=top, opacity=0.4)
    board.round_off(body, width=0.025)
    board.fill(board.oval(0.5, 0.65, 0.085), "#4a2408")
    board.fill(board.oval(0.5, 0.65, 0.07), Ball(("#000000", "#1d0f06"), at=(0.3, 0.3)))
    board.fill(board.box(0.41, 0.835, 0.59, 0.865, radius=0.008), "#2a1408")
    board.fill(board.box(0.467, 0.12, 0.533, 0.62), Slope(("#4a2a14", "#2a1608", "#170b04"), 0))
    for at in range(14):
        y = 0.14 + 0.46 * (1 - 0.93**at) / (1 - 0.93**13)
        board.fill(board.line([(0.467, y), (0.533, y)], 0.004), "#d8d4c8")
    board.fill(
        board.blob([(0.455, 0.14), (0.445, 0.02), (0.5, 0.005), (0.555, 0.02), (0.545, 0.14)]),
        Slope(("#6b3a18", "#3a1c08")),
    )
    for side in (-1, 1):
        for y in (0.035, 0.07, 0.105):
            board.fill(board.oval(0.5 + side * 0.07, y, 0.018, 0.01), "#e8e4d8")
    for at in range(6):
        x = 0.478 + 0.0088 * at
        board.fill(board.line([(x, 0.03), (0.46 + 0.016 * at, 0.85)], 0.0025), "#f4f0e4")


def hot_air_balloon(board: Board) -> None:
    """A striped balloon with its basket."""
    envelope = board.blob(
        [
            (0.5, 0.02),
            (0.72, 0.07),
            (0.87, 0.24),
            (0.86, 0.42),
            (0.74, 0.6),
            (0.59, 0.74),
            (0.5, 0.75),
            (0.41, 0.74),
            (0.26, 0.6),
            (0.14, 0.42),
            (0.13, 0.24),
            (0.28, 0.07),
        ]
    )
    board.fill(envelope, "#e23b3b")
    colours = ("#e8433f", "#ffd23f", "#3a86d8", "#ffd23f", "#e8433f", "#ffd23f", "#3a86d8", "#ffd23f")
    edges = [-1.0, -0.86, -0.64, -0.34, 0.0, 0.34, 0.64, 0.86, 1.0]
    for colour, left, right in zip(colours, edges[:-1], edges[1:], strict=True):
        gore = []
        for edge in (left, right):
            side = [
                (0.5 + edge * 0.05, 0.015),
                (0.5 + edge * 0.25, 0.07),
                (0.5 + edge * 0.38, 0.25),
                (0.5 + edge * 0.37, 0.42),
                (0.5 + edge * 0.25, 0.6),
                (0.5 + edge * 0.1, 0.76),
            ]
            gore.append(side)
        board.fill(board.polygon([*gore[0], *reversed(gore[1])]), colour, within=envelope)
    board.round_off(envelope, dark=0.6, light=0.45, width=0.1)
    board.shine(0.34, 0.2, 0.05, 0.11, turn=25, opacity=0.4)
    for x in (0.44, 0.48, 0.52, 0.56):
        board.fill(board.line([(x, 0.74), (0.5 + (x - 0.5) * 0.9, 0.87)], 0.006), "#4a3a2a")
    basket = board.box(0.435, 0.86, 0.565, 0.98, radius=0.02)
    board.fill(basket, Slope(("#c98f4a", "#8a5722"), 0))
    for y in (0.885, 0.91, 0.935, 0.96):
        board.fill(board.line([(0.435, y), (0.565, y)], 0.006), "#5d3812", within=basket)
    board.fill(board.box(0.425, 0.85, 0.575, 0.875, radius=0.012), "#6b421a")
