"""What maps of similarity say: where in the picture a word is, and how clearly.

Pure functions on arrays, float64 throughout. Axes: ``...`` any batch, H x W cells down and across, P = H * W, M words.
x runs right, y runs down, cell centres lie in [-0.5, 0.5]. Sums pair mirrored cells first, so that a mirrored map gives
the mirrored centroid to the last bit.

References
----------
The coupling and its two readings (:func:`excess`, :func:`adr_dense`) are those of "Readout Blindness: VLM Scores Miss
the Spatial Direction Their Frozen Encoders Retain", arXiv:2610.06324; epsilon, floor, tolerance and number of rounds as
its authors published them. The centroid of a standardised map is ours.
"""

from __future__ import annotations

from math import factorial

import numpy as np
from numpy.typing import NDArray

from indexer.compiled import compiled, compiled_sums
from indexer.moments import paired_differences, paired_sums

Doubles = NDArray[np.float64]

EPSILON = 0.05
FLOOR = 1e-30
_ROUNDS = 200
_TOLERANCE = 1e-9
_SAFE = 1e-300
_PER_LN2 = 1.4426950408889634
_LN2 = 0.693147180369123816490  # its first 32 bits, so that small multiples are exact
_LN2_REST = 1.90821492927058770002e-10
_TAYLOR = tuple(1.0 / factorial(k) for k in range(10))
_BIAS, _FRACTION = 1023, 52
"""Of a float64: what is added to its exponent, and the bits below that."""


def total(maps: Doubles) -> Doubles:
    """Sum of each map.

    Parameters
    ----------
    maps : (..., H, W) float64

    Returns
    -------
    sums : (...) float64
    """
    sums: Doubles = paired_sums(paired_sums(maps, -2), -1).sum(axis=(-2, -1))
    return sums


def centroid(weights: Doubles, *, floor: float = FLOOR) -> Doubles:
    """Centre of weight of each map.

    Parameters
    ----------
    weights : (..., H, W) float64, not negative
    floor : float
        Least mass divided by.

    Returns
    -------
    centres : (..., 2) float64
        x then y, in [-0.5, 0.5]; a map without weight is at the upper left corner, as in the published readout, whose
        coordinates start there.

    Examples
    --------
    >>> centroid(np.array([[0.0, 0.0], [0.0, 2.0]])).tolist()
    [0.25, 0.25]
    """
    mass = total(weights)
    x, y = _steps(weights.shape[-1]), _steps(weights.shape[-2])
    across = (x * paired_differences(paired_sums(weights, -2), -1).sum(axis=-2)).sum(axis=-1)
    down = (y[:, None] * paired_differences(paired_sums(weights, -1), -2)).sum(axis=(-2, -1))
    held = np.maximum(mass, floor)
    # Masses below the floor shrink towards the origin of the published coordinates, the corner.
    short = 0.5 * (1.0 - mass / held)
    return np.stack([across / held - short, down / held - short], axis=-1)


def standardised(maps: Doubles) -> Doubles:
    """Each map in units of its own spread.

    Parameters
    ----------
    maps : (..., H, W) float64

    Returns
    -------
    z : (..., H, W) float64
        Mean 0 and standard deviation 1; zeros for a flat map. Neither what is added to a map nor a positive factor
        changes it.
    """
    cells = maps.shape[-2] * maps.shape[-1]
    centred = maps - (total(maps) / cells)[..., None, None]
    spread = np.sqrt(total(centred**2) / cells)[..., None, None]
    z: Doubles = centred / np.where(spread > 0, spread, 1.0)
    return z


def softmax_centroid(maps: Doubles, *, tau: float = 1.0) -> Doubles:
    """Where a word is: the centroid of the softmax of its standardised map.

    Parameters
    ----------
    maps : (..., H, W) float64
        Similarities of cells to a word, in any unit and up to a constant.
    tau : float
        Temperature in standard deviations of the map. Large ones approach the moment, small ones the best cell.

    Returns
    -------
    centres : (..., 2) float64
    """
    z = standardised(maps) / tau
    return centroid(np.exp(z - z.max(axis=(-2, -1), keepdims=True)))


def whole_softmax_centroid(maps: Doubles, side: int) -> tuple[Doubles, Doubles]:
    """:func:`softmax_centroid` of maps of whole numbers.

    Parameters
    ----------
    maps : (R, W, P) float64
        Whole numbers whose squares add up to less than 2**53 a map.
    side : int
        G, with P = G * G.

    Returns
    -------
    centres : (R, W, 2) float64
    peaks : (R, W) float64
        The best cell of each map.

    Notes
    -----
    Weights are rounded to multiples of 2**-32, so that every sum here is one of whole numbers that float64 holds:
    exact in any order, in any batch, and for a mirrored map the mirror image to the last bit.

    Examples
    --------
    >>> whole_softmax_centroid(np.array([[[0.0, 5.0, 0.0, 5.0]]]), 2)[0].round(3).tolist()
    [[[0.19, 0.0]]]
    """
    centres, peaks = np.empty((*maps.shape[:2], 2)), np.empty(maps.shape[:2])
    flat = np.ascontiguousarray(maps).reshape(-1, maps.shape[-1])
    _whole_centres(flat, side, centres.reshape(-1, 2), peaks.reshape(-1))
    return centres, peaks


@compiled
def _whole_centres(maps: Doubles, side: int, centres: Doubles, peaks: Doubles) -> None:
    cells = maps.shape[1]
    weights, exponents = np.empty(cells), np.empty(cells, np.int64)
    powers = exponents.view(np.float64)
    right, below = np.empty(cells), np.empty(cells)
    for p in range(cells):  # twice the distance from the middle
        right[p], below[p] = 2 * (p % side) + 1 - side, 2 * (p // side) + 1 - side
    for m in range(len(maps)):
        cell = maps[m]
        first, second, peak = _whole_sums(cell)
        spread = np.sqrt(max(cells * second - first * first, 0.0)) / cells
        inverse = 1.0 / spread if spread > 0 else 0.0
        for p in range(cells):
            # exp(x) as 2**n times a polynomial of what is left, at most ln(2) / 2: good to 1e-11, and the same on
            # every CPU, which a mathematics library does not promise.
            x = (cell[p] - peak) * inverse
            n = max(np.rint(x * _PER_LN2), -63.0)
            r = max((x - n * _LN2) - n * _LN2_REST, -1.0)
            power = _TAYLOR[9]
            for k in range(8, -1, -1):
                power = _TAYLOR[k] + r * power
            exponents[p], weights[p] = (np.int64(n) + (_BIAS + 32)) << _FRACTION, power
        for p in range(cells):
            weights[p] = np.rint(weights[p] * powers[p])
        mass, across, down = _whole_moments(weights, right, below)
        centres[m, 0], centres[m, 1] = across / (2 * side * mass), down / (2 * side * mass)
        peaks[m] = peak


@compiled_sums
def _whole_sums(cell: Doubles) -> tuple[float, float, float]:
    """Sum, sum of squares and largest of whole numbers (P,)."""
    first = second = 0.0
    peak = cell[0]
    for value in cell:
        first += value
        second += value * value
        peak = max(peak, value)
    return first, second, peak


@compiled_sums
def _whole_moments(weights: Doubles, right: Doubles, below: Doubles) -> tuple[float, float, float]:
    """Sum of whole weights (P,), and their sums times whole distances (P,) to the right and below."""
    mass = across = down = 0.0
    for p in range(len(weights)):
        mass += weights[p]
        across += weights[p] * right[p]
        down += weights[p] * below[p]
    return mass, across, down


def argmax_centre(maps: Doubles) -> Doubles:
    """Where a word is most similar: the mean of the best cells, (..., 2)."""
    return centroid((maps == maps.max(axis=(-2, -1), keepdims=True)).astype(np.float64))


def coupling(similarities: Doubles, *, epsilon: float = EPSILON) -> Doubles:
    """Entropic transport of uniform cells to uniform words.

    Parameters
    ----------
    similarities : (..., P, M) float64
        Cosines.
    epsilon : float

    Returns
    -------
    plan : (..., P, M) float64
        Rows sum to 1/P, columns to 1/M.
    """
    peak = similarities.max(axis=(-2, -1), keepdims=True)
    kernel = np.exp((similarities - peak) / epsilon)
    rows, columns = 1.0 / kernel.shape[-2], 1.0 / kernel.shape[-1]
    v = np.ones((*kernel.shape[:-2], 1, kernel.shape[-1]))
    done = np.zeros((*kernel.shape[:-2], 1, 1), dtype=bool)
    u = np.ones((*kernel.shape[:-1], 1))
    for _ in range(_ROUNDS):
        # What has converged stands still, so that a picture's plan does not depend on its neighbours in a batch.
        u = np.where(done, u, rows / ((kernel * v).sum(axis=-1, keepdims=True) + _SAFE))
        v = np.where(done, v, columns / ((kernel * u).sum(axis=-2, keepdims=True) + _SAFE))
        off = np.abs((u * kernel * v).sum(axis=-1, keepdims=True) - rows).max(axis=(-2, -1), keepdims=True)
        done |= off < _TOLERANCE
        if done.all():
            break
    plan: Doubles = u * kernel * v
    return plan


def excess(similarities: Doubles, *, epsilon: float = EPSILON) -> Doubles:
    """What the coupling has beyond an even one: the weights of ``adr``.

    Parameters
    ----------
    similarities : (..., P, M) float64
        Cosines to all content words of the query, and to background words if they are to compete.

    Returns
    -------
    weights : (..., P, M) float64, not negative
    """
    cells, words = similarities.shape[-2:]
    weights: Doubles = np.maximum(coupling(similarities, epsilon=epsilon) - 1.0 / (cells * words), 0.0)
    return weights


def adr_dense(similarities: Doubles, *, epsilon: float = EPSILON) -> Doubles:
    """Softmax over the cells, each word by itself: the weights of ``adr-dense``.

    Parameters
    ----------
    similarities : (..., P, M) float64
        Cosines.

    Returns
    -------
    weights : (..., P, M) float64
        Columns sum to 1.
    """
    lifted = np.exp((similarities - similarities.max(axis=-2, keepdims=True)) / epsilon)
    weights: Doubles = lifted / lifted.sum(axis=-2, keepdims=True)
    return weights


def _steps(n: int) -> Doubles:
    """Centres of the cells beyond the middle, from the middle outwards."""
    centres: Doubles = (np.arange(n) + 0.5) / n - 0.5
    return centres[(n + 1) // 2 :]
