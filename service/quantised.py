"""Rows and queries in whole numbers, with bounds on what that loses. The mathematics of :mod:`service.int8`.

Axes: B queries, N rows, R rows of a part, D components.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from indexer.compiled import compiled, prefetch
from indexer.tiles import STEP, Codes, Wide
from service.canonical import Doubles, Floats, Rows
from service.products import FINER, SPARE, whole_product

UNIT_ROUNDOFF = 2.0**-24
TINY = 2.0**-120
_CODE = 127
_QUERY_CODE = 32_767
_SUM = 2.0**31
_TOGETHER = 64
"""Rows of which those that need a closer look are all asked for before the first is looked at."""
_SMALLEST_SCALE = np.float32(2.0**-126)


class CodedRows:
    """Rows as ``scale * (high + low / 254)`` and a rest.

    Parameters
    ----------
    count, width : int
        N and D.

    Attributes
    ----------
    high : (N + SPARE, D and some zeros) int8
        See :mod:`service.products`.
    low : (N, D and some zeros) int8
    scale : (N,) float32
    residual : (N,) float32
        Norm of what ``high`` alone leaves of a row, rounded up.
    largest, largest_residual, largest_rest : float
        Largest norm of ``scale * high``, of what that leaves, and of what both codes leave.
    """

    def __init__(self, count: int, width: int) -> None:
        whole = -(-width // STEP) * STEP
        self.high = np.zeros((count + SPARE, whole), np.int8)
        self.low = np.zeros((count, whole), np.int8)
        self.scale = np.ones(count, np.float32)
        self.residual = np.zeros(count, np.float32)
        self.largest = self.largest_residual = self.largest_rest = 0.0
        self._width = width

    def __len__(self) -> int:
        return len(self.scale)

    @property
    def finer(self) -> Codes:
        """``low``, without rows where it would say nothing."""
        return self.low if self.largest_residual else self.low[:0]

    def put(self, at: Rows, rows: Floats, centre: Doubles) -> None:
        """Quantise rows (R, D) less a centre (D,), at their places (R,)."""
        residual, rest = np.empty(len(rows)), np.empty(len(rows))
        norm = quantise(rows, centre, at, self.high, self.low, self.scale, residual, rest)
        up = np.nextafter((residual * (1 + 2.0**-20)).astype(np.float32), np.float32(np.inf))
        self.residual[at] = np.where(residual > 0, up, np.float32(0.0))
        self.largest = max(self.largest, norm * (1 + 2.0**-20))
        self.largest_residual = max(self.largest_residual, float(self.residual[at].max(initial=0.0)))
        self.largest_rest = max(self.largest_rest, float(rest.max(initial=0.0)) * (1 + 2.0**-20))

    def put_codes(self, at: Rows, codes: Codes) -> None:
        """Take rows (R, D) that are codes already; nothing is left of them."""
        self.high[at, : self._width] = codes
        norms = np.linalg.norm(codes.astype(np.float32), axis=1)
        self.largest = max(self.largest, float(norms.max(initial=0.0)) * (1 + 2.0**-10))


@dataclass(frozen=True, slots=True, eq=False)
class WholeQuery:
    """A query as ``step * codes`` and a rest.

    Attributes
    ----------
    codes : (D,) int16
        Few enough that its products with int8 rows add up within 32 bits.
    step : float
    norm, rest : float
        Of the query, and of what the codes leave of it.
    """

    codes: Wide
    step: float
    norm: float
    rest: float

    @classmethod
    def of(cls, vectors: Doubles) -> list[WholeQuery]:
        """Round vectors (B, D)."""
        codes, sizes = np.empty(vectors.shape, np.int16), np.empty((len(vectors), 3))
        _round_queries(vectors, codes, sizes)
        return [cls(line, *some) for line, some in zip(codes, sizes.tolist(), strict=True)]

    @property
    def reach(self) -> np.float32:
        """``norm``, not less after rounding: what multiplies the residuals of rows."""
        return np.float32(self.norm * (1 + 2.0**-20))

    def error(self, rows: CodedRows) -> float:
        """How far ``step * scale * <codes, high>`` plus or minus ``norm * residual`` may miss a product.

        What the query's own rounding does, and sixteen roundings to float32.
        """
        rounding = 16 * UNIT_ROUNDOFF * self.norm * (rows.largest + 2 * rows.largest_residual)
        return 1.001 * (self.rest * rows.largest + rounding) + TINY

    def fine_error(self, rows: CodedRows) -> float:
        """How far ``step * scale * <codes, high + low / 254>`` may miss a product."""
        lost = self.norm * rows.largest_rest + self.rest * (rows.largest_residual + rows.largest_rest)
        return self.error(rows) + 1.001 * lost


@compiled
def _round_queries(vectors: Doubles, codes: Wide, sizes: Doubles) -> None:
    """Fill in codes (B, D) of vectors (B, D), and what else :class:`WholeQuery` holds of each (B, 3)."""
    width, up = vectors.shape[1], 1 + 2.0**-20
    # Every partial sum is at most the product of the norms (Cauchy and Schwarz).
    longest = 0.99 * _SUM / (_CODE * np.sqrt(width + 1.0)) - np.sqrt(np.float64(width))
    for b in range(len(vectors)):
        squares = peak = rest = 0.0
        for j in range(width):
            squares += vectors[b, j] * vectors[b, j]
            peak = max(peak, abs(vectors[b, j]))
        step = max(peak / _QUERY_CODE, np.sqrt(squares) / longest) * up
        step = step if step > 0 else 1.0
        for j in range(width):
            code = np.rint(vectors[b, j] / step)
            codes[b, j] = np.int16(code)
            left = vectors[b, j] - step * code
            rest += left * left
        sizes[b, 0], sizes[b, 1], sizes[b, 2] = step, np.sqrt(squares) * up, np.sqrt(rest) * up


@compiled
def quantise(
    rows: Floats,
    centre: Doubles,
    at: Rows,
    high: Codes,
    low: Codes,
    scale: Floats,
    residual: Doubles,
    rest: Doubles,
) -> float:
    """Fill in what :class:`CodedRows` holds of some rows, the last two in their order; return the largest norm."""
    width = rows.shape[1]
    left = np.empty(width)
    largest = 0.0
    for n in range(len(rows)):
        peak = 0.0
        for j in range(width):
            left[j] = np.float64(rows[n, j]) - centre[j]
            peak = max(peak, abs(left[j]))
        step = np.float32(peak / _CODE) if peak > 0 else np.float32(1.0)
        step = max(step, _SMALLEST_SCALE)
        place = at[n]
        scale[place] = step
        wide = np.float64(step)
        first = second = third = 0.0
        for j in range(width):
            code = min(127.0, max(-127.0, np.rint(left[j] / wide)))
            high[place, j] = np.int8(code)
            first += code * code
            after = left[j] - code * wide
            second += after * after
            code = min(127.0, max(-127.0, np.rint(after * (FINER / wide))))
            low[place, j] = np.int8(code)
            after -= code * (wide / FINER)
            third += after * after
        residual[n], rest[n] = np.sqrt(second), np.sqrt(third)
        largest = max(largest, wide * np.sqrt(first))
    return largest


@compiled
def sort_rows(
    rows: tuple[Codes, Floats, Floats],
    coarse: Floats,
    query: Wide,
    step: float,
    reach: float,
    spare: float,
    offset: float,
    edges: Floats,
    part: tuple[int, int],
    counts: Rows,
    inside: Rows,
) -> int:
    """Distribute fine scores over intervals, looking closer only where the coarse ones leave doubt.

    Parameters
    ----------
    rows : (N, D) int8, (N,) float32, (N,) float32
        ``low``, ``scale`` and ``residual``.
    coarse : (N,) float32
        From :func:`products` with ``high``.
    query : (D,) int16
    step : float
        Of a product with ``low``.
    reach, spare : float
        A fine score is within ``reach * residual + spare`` of its coarse one.
    offset : float
        To be added to all scores.
    edges : (2 M,) float32
        Ascending, at least one.
    part : int, int
        First and last row.
    counts : (2 M + 1,) int64
        Added to: scores per interval, as `numpy.searchsorted` from the right numbers them.
    inside : (R,) int64
        Written to: rows in intervals of odd number.

    Returns
    -------
    found : int
        How many they are.
    """
    low, scale, residual = rows
    waiting = np.empty(_TOGETHER, np.int64)
    found = 0
    for start in range(part[0], part[1], _TOGETHER):
        some = 0
        for n in range(start, min(start + _TOGETHER, part[1])):
            if offset + coarse[n] + (reach * residual[n] + spare) < edges[0]:
                counts[0] += 1
            else:  # nearly all of these will be in doubt of one edge or another
                prefetch(low, n)
                waiting[some] = n
                some += 1
        for i in range(some):
            n = waiting[i]
            middle, doubt = offset + coarse[n], reach * residual[n] + spare
            interval = reached(edges, middle - doubt)
            if interval != reached(edges, middle + doubt):
                fine = np.float32(middle + step * scale[n] * whole_product(low, n, query))
                interval = reached(edges, np.float64(fine))
            counts[interval] += 1
            if interval % 2:
                inside[found] = n
                found += 1
    return found


@compiled
def reached(edges: Floats, score: float) -> int:
    """How many of ascending edges a score reaches."""
    start, end = 0, len(edges)
    while start < end:
        middle = (start + end) // 2
        if score >= edges[middle]:
            start = middle + 1
        else:
            end = middle
    return start
