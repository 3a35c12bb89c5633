"""Rows and queries in eight bits, with bounds on what that loses. The mathematics of :mod:`service.int8`.

Axes: B queries, N rows, D components.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from indexer.grid import has_fast_int8
from service.canonical import Floats, Rows

Doubles = NDArray[np.float64]
Codes = NDArray[np.int8]
Block = tuple[Tensor, Tensor, Tensor, Tensor]
"""Packed codes, scales, zeros (what oneDNN asks for) and residual norms."""

PACK_ROWS = 65_536
"""Rows of a product: few, so that both cores seldom wait for each other; on a busy machine each wait is a
millisecond."""
TURN = 32
"""Queries of a product: its float32 result, 16 MiB, is memory that the allocator keeps; more would come fresh from the
system, page by page."""

LOOSE_ROWS = 2048
"""Rows that are fetched for a product at a time: they stay in the cache."""

FEW = 4
"""Up to so many queries numpy sums in one core: torch would wake the other for less than that costs."""

UNIT_ROUNDOFF = 2.0**-24
TINY = 2.0**-120
BOTH = 1 + 1 / 256
"""The bias comes with either plane of the query, and the second counts a 256th."""


class Int8Rows:
    """Rows as int8 codes, a scale and a residual norm each, packed for products.

    Attributes
    ----------
    residual : (N,) float32
        ``rho_n``, rounded up.
    largest, largest_residual : float
        Largest norm of ``s_n c_n`` and of a residual.
    """

    def __init__(self, width: int) -> None:
        self._width = width
        self._blocks: list[Block] = []
        self._waiting: list[tuple[Codes, Floats, Floats]] = []
        self.residual: Floats = np.zeros(0, np.float32)
        self.largest = self.largest_residual = 0.0

    def add(self, rows: Doubles) -> Doubles:
        """Quantise rows and return what is left of them."""
        peak = np.abs(rows).max(axis=1, initial=0.0)
        scale = np.where(peak > 0, peak / 127, 1.0).astype(np.float32)
        scale = np.maximum(scale, np.float32(2.0**-126))
        codes = np.clip(np.rint(rows / scale[:, None]), -127, 127)
        rest: Doubles = rows - codes * scale[:, None].astype(np.float64)
        self._append(codes.astype(np.int8), scale, np.linalg.norm(rest, axis=1))
        return rest

    def add_codes(self, codes: Codes) -> None:
        """Take rows that are codes already."""
        self._append(codes, np.ones(len(codes), np.float32), np.zeros(len(codes)))

    def _append(self, codes: Codes, scale: Floats, residual: Doubles) -> None:
        rounded = np.nextafter((residual * (1 + 2.0**-20)).astype(np.float32), np.float32(np.inf))
        rounded[residual == 0] = 0
        norms = np.linalg.norm(codes.astype(np.float64), axis=1) * scale
        self.largest = max(self.largest, float(norms.max(initial=0.0)) * (1 + 2.0**-20))
        self.largest_residual = max(self.largest_residual, float(rounded.max(initial=0.0)))
        self.residual = np.concatenate([self.residual, rounded])
        self._waiting.append((np.array(codes), scale, rounded))
        if sum(len(one) for one, _, _ in self._waiting) >= PACK_ROWS:
            self.pack()

    def pack(self) -> None:
        """Pack what was added since; after the last rows."""
        if not self._waiting:
            return
        codes, scale, residual = (np.concatenate(parts) for parts in zip(*self._waiting, strict=True))
        packed = torch.ops.onednn.qlinear_prepack(torch.from_numpy(codes), None)
        zero = torch.zeros(len(codes), dtype=torch.int32)
        self._blocks.append((packed, torch.from_numpy(scale), zero, torch.from_numpy(residual)))
        self._waiting = []

    def upper(self, planes: Planes) -> Floats:
        """Bound scores of unit queries from above.

        Returns
        -------
        upper : (B, N) float32
            ``score <= upper + error`` and ``score >= upper - (2 + 1/256) residual - error``, by :meth:`error`.
        """
        high, low = torch.from_numpy(planes.high), torch.from_numpy(planes.low)
        out = torch.empty((len(high), len(self.residual)), dtype=torch.float32)
        for rows, block in self._sliced():
            for part in _turns(len(high)):
                both = torch.cat([high[part], low[part]])
                scores = _product(both, 256 * planes.step, block, bias=True)
                half = len(both) // 2
                if half <= FEW:
                    bound = out[part, rows].numpy()
                    np.multiply(scores[half:].numpy(), np.float32(1 / 256), out=bound)
                    bound += scores[:half].numpy()
                else:
                    torch.add(scores[:half], scores[half:], alpha=1 / 256, out=out[part, rows])
        bounds: Floats = out.numpy()
        return bounds

    def products(self, queries: Iterable[Codes], steps: Iterable[float]) -> Floats:
        """Inner products of int8 queries with ``s_n c_n``, each times its step.

        Returns
        -------
        products : (B, N) float32
        """
        stack, factors = torch.from_numpy(np.stack(list(queries))), torch.tensor(list(steps))[:, None]
        out = torch.empty((len(stack), len(self.residual)), dtype=torch.float32)
        for rows, block in self._sliced():
            for part in _turns(len(stack)):
                scores = _product(stack[part], 1.0, block, bias=False)
                if len(scores) <= FEW:
                    np.multiply(scores.numpy(), factors[part].numpy(), out=out[part, rows].numpy())
                else:
                    torch.mul(scores, factors[part], out=out[part, rows])
        products: Floats = out.numpy()
        return products

    def error(self, planes: Planes) -> float:
        """Bound what the query's remainder and rounding may do to :meth:`upper`.

        Notes
        -----
        A score goes through six roundings at most: the integer sum, the product of the scales, that with the sum,
        the bias, the second plane, and the step itself. Sixteen are allowed for.
        """
        rounding = 16 * UNIT_ROUNDOFF * (planes.size * self.largest + 2 * self.largest_residual)
        return 1.001 * (planes.rest * self.largest + rounding) + TINY

    def _sliced(self) -> Iterator[tuple[slice, Block]]:
        self.pack()
        start = 0
        for block in self._blocks:
            yield slice(start, start + len(block[1])), block
            start += len(block[1])


class LooseRows(Int8Rows):
    """Rows that are not packed, so that products can take a few of them.

    Parameters
    ----------
    width, count : int
        D and N.
    """

    def __init__(self, width: int, count: int) -> None:
        super().__init__(width)
        self._codes = np.empty((count, width), np.int8)
        self._scale = np.empty(count, np.float32)
        self._filled = 0

    def pack(self) -> None:
        """Put what was added since in its place."""
        for codes, scale, _ in self._waiting:
            part = slice(self._filled, self._filled + len(codes))
            self._codes[part], self._scale[part] = codes, scale
            self._filled = part.stop
        self._waiting = []

    def some(self, rows: Rows, query: Codes, step: float) -> Floats:
        """Inner products of one int8 query (D,) with ``s_n c_n`` of some rows, times its step.

        Returns
        -------
        products : (R,) float32
        """
        column = torch.from_numpy(np.stack([query, query], axis=1))
        found = np.empty(len(rows), np.float32)
        for start in range(0, len(rows), LOOSE_ROWS):
            part = slice(start, start + LOOSE_ROWS)
            sums = torch._int_mm(torch.from_numpy(self._codes[rows[part]]), column)
            np.multiply(sums.numpy()[:, 0], self._scale[rows[part]], out=found[part], casting="same_kind")
        found *= np.float32(step)
        return found


@dataclass(frozen=True, slots=True, eq=False)
class Planes:
    """Unit queries as ``step (256 high + low)``, with one step for all.

    Attributes
    ----------
    high, low : (B, D) int8
    step : float
    rest, high_rest : float
        Largest norm of what both planes, or the high one alone, leave of a query.
    size : float
        Largest of ``step (256 ||high|| + ||low||)``.
    """

    LIMIT = 127 * 256

    high: Codes
    low: Codes
    step: float
    rest: float
    high_rest: float
    size: float

    @classmethod
    def of(cls, units: Doubles) -> Planes:
        """Round unit vectors (B, D)."""
        peak = float(np.abs(units).max(initial=0.0))
        step = float(np.float32(peak / cls.LIMIT * (1 + 2.0**-20))) if peak else 1.0
        whole = np.rint(units / step)
        high = np.floor((whole + 128) / 256)
        low = whole - 256 * high
        norms = np.linalg.norm(high, axis=1) * 256 + np.linalg.norm(low, axis=1)
        return cls(
            high.astype(np.int8),
            low.astype(np.int8),
            step,
            float(np.linalg.norm(units - step * whole, axis=1).max(initial=0.0)),
            float(np.linalg.norm(units - step * 256 * high, axis=1).max(initial=0.0)),
            float(norms.max(initial=0.0)) * step,
        )


@cache
def int8_is_exact() -> bool:
    """Whether this torch and this CPU multiply int8 exactly, where they do it fast.

    The largest values there are, in sums that would saturate sixteen bits, and random ones; a CPU without VNNI
    is not asked.
    """
    operators = getattr(torch.ops, "onednn", None)
    if not hasattr(operators, "qlinear_pointwise") or not has_fast_int8():
        return False
    random = np.random.default_rng(0)
    try:
        for width in (32, 100, 512):
            rows = random.integers(-127, 128, (70, width)).astype(np.int8)
            query = random.integers(-128, 128, (6, width)).astype(np.int8)
            rows[0], rows[1], query[0], query[1] = 127, -127, 127, -128
            block, loose = Int8Rows(width), LooseRows(width, len(rows))
            for one in (block, loose):
                one.add_codes(rows)
                one.pack()
            for count in (1, 2, 6):
                exact = query[:count].astype(np.int64) @ rows.T.astype(np.int64)
                if not np.array_equal(block.products(query[:count], [1.0] * count), exact):
                    return False
            if not np.array_equal(loose.some(np.arange(70), query[1], 1.0), exact[1]):
                return False
    except (RuntimeError, TypeError, NotImplementedError):
        return False
    return True


@cache
def int8_pays(dim: int) -> bool:
    """Whether a product with int8 rows of this width is exact here and no plain loop.

    It reads a quarter of what float32 reads and wins wherever oneDNN has a kernel for it; where it has none, it takes
    hundreds of times as long. Ten times tells the two apart on the busiest machine; a closer race would not.
    """
    if not int8_is_exact():
        return False
    rows = np.random.default_rng(0).integers(-127, 128, (16_384, dim)).astype(np.int8)
    stored, planes = Int8Rows(dim), Planes.of(unit(np.ones((1, dim)))[0])
    stored.add_codes(rows)
    wide, query = rows.astype(np.float32), np.ones((1, dim), np.float32)
    taken: tuple[list[float], list[float]] = ([], [])
    for _ in range(6):
        begin = time.perf_counter()
        stored.upper(planes)
        middle = time.perf_counter()
        np.matmul(query, wide.T)
        taken[0].append(middle - begin)
        taken[1].append(time.perf_counter() - middle)
    return min(taken[0]) < 10 * min(taken[1])


def _product(queries: Tensor, step: float, block: Block, *, bias: bool) -> Tensor:
    packed, scale, zero, residual = block
    # oneDNN takes a plain loop, a thousand times as slow, for a single row.
    stack = queries if len(queries) > 1 else torch.cat([queries, queries])
    product: Tensor = torch.ops.onednn.qlinear_pointwise(
        stack, step, 0, packed, scale, zero, residual if bias else None, 1.0, 0, torch.float32, "none", [], ""
    )
    return product[: len(queries)]


def unit(vectors: Any) -> tuple[Doubles, Doubles]:
    """Unit vectors in float64, and the norms they had."""
    wide = np.asarray(vectors, np.float64)
    norms = np.linalg.norm(wide, axis=1)
    return wide / np.where(norms > 0, norms, 1.0)[:, None], norms


def _turns(count: int) -> Iterator[slice]:
    return (slice(start, min(start + TURN, count)) for start in range(0, count, TURN))
