"""The scan in eight bits: a quarter of the bytes of float32, read at the memory's speed, and a bound on what is lost.

What this module holds to:

- every row n is stored as ``x_n = centre + s_n c_n + r_n`` with int8 codes ``c_n`` and a residual whose norm
  ``rho_n`` is known, and every query as two int8 planes, sixteen bits. ``|q . r_n| <= ||q|| rho_n`` (Cauchy and
  Schwarz) turns an integer product into an upper and a lower bound of the score, row by row; rounding and the
  query's own remainder are bounded too (:meth:`Int8Rows.upper`);
- a row is dropped only where its upper bound is below the k-th largest lower bound;
- the residual is kept in eight more bits. They are read only where they pay: for native ranks, and for batches
  whose candidates would cost more to fetch;
- oneDNN does the products, in both cores, without spinning (``OMP_WAIT_POLICY=PASSIVE``, which the command
  line sets). Integers are exact on CPUs with VNNI and saturate on some without: :func:`int8_is_exact` decides.

Axes: B queries, N images, R images of a block or selection, D components of a vector.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from service.scan import (
    BLOCK_ROWS,
    Coarse,
    Floats,
    Found,
    JointQuery,
    Rows,
    floor_of,
    scan_error,
    sort_scores,
    stacked,
)

if TYPE_CHECKING:
    from indexer.store import Index

Doubles = NDArray[np.float64]
Codes = NDArray[np.int8]

BOUND_BYTES = 1 << 29
"""Memory for the bounds of a batch; more queries than fit are taken in turns."""

_U = 2.0**-24
_TINY = 2.0**-120
_BOTH = 1 + 1 / 256  # the bias comes with either plane of the query, and the second counts a 256th
_SAMPLE = 4096


class Int8Scan:
    """See the module's text. Owns two int8 copies of the native vectors and one of the moments.

    Parameters
    ----------
    index : Index
        Candidates are looked up in its memory-mapped vectors.

    Notes
    -----
    Read-only after construction: any number of threads may use it.
    """

    name = "int8"

    def __init__(self, index: Index) -> None:
        self._index = index
        sketcher = index.sketcher
        n, dim = len(index), index.manifest.encoder.dim
        self._centre = _mean(index)
        native = [Int8Rows(dim), Int8Rows(dim)]
        self._moments = Int8Rows(2 * index.manifest.k)
        codes = n > 0 and index.sketch(slice(0, 1)).dtype == np.int8
        # The sketch of an int8 index is in codes already; its steps go into the query and nothing is lost.
        self._moment_step = np.tile(sketcher.scale if codes else np.ones_like(sketcher.scale), 2).astype(
            float
        )
        row_norm = moment_norm = 0.0
        for start in range(0, n, BLOCK_ROWS):
            rows = slice(start, min(start + BLOCK_ROWS, n))
            vectors = index.native()[rows].astype(np.float64)
            rest = native[1].add(native[0].add(vectors - self._centre))
            del rest
            sketch = index.sketch(rows)
            sketch = sketch.reshape(len(sketch), -1)
            decoded = sketcher.decode(index.sketch(rows)).reshape(len(sketch), -1).astype(np.float64)
            if codes:
                self._moments.add_codes(sketch.astype(np.int8))
            else:
                self._moments.add(decoded)
            row_norm = max(row_norm, float(np.linalg.norm(vectors, axis=1).max(initial=0.0)))
            moment_norm = max(moment_norm, float(np.linalg.norm(decoded, axis=1).max(initial=0.0)))
        self._native, self._rest = native
        self._norms = row_norm * 1.001, moment_norm * 1.001

    def superset(self, queries: Sequence[JointQuery], counts: Sequence[int]) -> list[Found]:
        """See :meth:`service.scan.Scan.superset`."""
        step = max(1, BOUND_BYTES // (8 * max(1, len(self._index))))
        found: list[Found] = []
        for start in range(0, len(queries), step):
            part = slice(start, start + step)
            found += self._superset(queries[part], counts[part])
        return found

    def coarse(self, queries: Sequence[JointQuery]) -> list[Coarse]:
        """See :meth:`service.scan.Scan.coarse`."""
        units, norms = _unit(np.stack([query.native for query in queries]))
        planes = _Planes.of(units)
        return self._coarse(self._native.upper(planes), units, norms, self._native.error(planes))

    def sort_into(
        self, queries: Sequence[JointQuery], coarse: Sequence[Coarse], edges: Sequence[Floats]
    ) -> list[tuple[Rows, Rows]]:
        """See :meth:`service.scan.Scan.sort_into`."""
        parts: list[tuple[Rows, Rows]] = []
        step = max(1, BOUND_BYTES // (8 * max(1, len(self._index))))
        for start in range(0, len(queries), step):
            part = slice(start, start + step)
            units, norms = _unit(np.stack([q.native for q in queries[part]]))
            # Each by its own planes, as its error was made with.
            planes = [_Planes.of(unit[None]) for unit in units]
            fine = self._rest.products([p.high[0] for p in planes], [p.step * 256 for p in planes])
            for job in zip(queries[part], coarse[part], fine, norms, edges[part], strict=True):
                parts.append(sort_scores(self._fine(*job[:-1]), job[-1]))
        return parts

    def _superset(self, queries: Sequence[JointQuery], counts: Sequence[int]) -> list[Found]:
        native, joint, spatial = stacked(queries)
        units, norms = _unit(native)
        planes = _Planes.of(units)
        upper = self._native.upper(planes)
        error = self._native.error(planes) * norms
        totals = list(upper)
        factors = np.where([b not in joint for b in range(len(queries))], 1.0, norms)
        # A canonical score below the smallest subnormal is zero and ties with its like.
        errors = [self._native.error(planes) + _TINY / norm if norm else 0.0 for norm in norms]
        extra: list[float] = [0.0] * len(queries)
        if joint:
            moved, moved_norms = _unit(spatial * self._moment_step)
            moved_planes = _Planes.of(moved)
            shifts = self._moments.upper(moved_planes)
            moved_error = self._moments.error(moved_planes)
            for s, b in enumerate(joint):
                total = torch.from_numpy(shifts[s]).mul_(float(moved_norms[s]))
                totals[b] = total.add_(torch.from_numpy(upper[b]), alpha=float(norms[b])).numpy()
                errors[b] = float(error[b] + moved_norms[s] * moved_error + _TINY)
                extra[b] = float(moved_norms[s])
        reach = [
            (self._norms[0] * (norm if b in joint else 1.0)) + self._norms[1] * _norm_of(query.spatial)
            for b, (query, norm) in enumerate(zip(queries, norms, strict=True))
        ]
        # The canonical score is rounded, and so are the sums of bounds.
        errors = [e + 16 * _U * r for e, r in zip(errors, reach, strict=True)]

        def slack(b: int) -> Callable[[Rows], Floats]:
            def of(rows: Rows) -> Floats:
                total = self._native.residual[rows] * np.float32((1 + _BOTH) * factors[b])
                if extra[b]:
                    total = total + self._moments.residual[rows] * np.float32((1 + _BOTH) * extra[b])
                return total

            return of

        chosen = [
            _select(total, slack(b), count, errors[b])
            for b, (total, count) in enumerate(zip(totals, counts, strict=True))
        ]
        # For the native ranks of spatial queries; a native ranking has them already.
        left: list[Coarse | None] = [None] * len(queries)
        for b, one in zip(
            joint,
            self._coarse([upper[b] for b in joint], units[joint], norms[joint], self._native.error(planes)),
            strict=True,
        ):
            left[b] = one
        wanting = sum(len(rows) for rows, count in zip(chosen, counts, strict=True) if _many(rows, count))
        # Reading the residuals of all rows, or fetching the candidates' float32: whichever are fewer bytes. From
        # sixteen queries on a product costs more than its bytes.
        if 4 * wanting > len(self._index) * max(1.0, len(queries) / 16) and not (
            joint and self._moments.largest_residual
        ):
            rest = self._rest.products(planes.high, [256 * planes.step] * len(queries))
            more = self._rest.largest_residual + planes.high_rest * self._rest.largest
            for b, (rows, count) in enumerate(zip(chosen, counts, strict=True)):
                if _many(rows, count):
                    fine = rest[b][rows] - np.float32(_BOTH) * self._native.residual[rows]
                    fine = totals[b][rows] + np.float32(factors[b]) * fine
                    error = errors[b] + 1.001 * factors[b] * more
                    chosen[b] = rows[fine >= floor_of(fine, count, error)]
        return [
            Found(self._refine(query, rows, count), one)
            for query, rows, count, one in zip(queries, chosen, counts, left, strict=True)
        ]

    def _refine(self, query: JointQuery, rows: Rows, count: int) -> Rows:
        """Leave fewer of many candidates, by their float32 scores."""
        if not _many(rows, count):
            return rows
        scores = self._index.native()[rows] @ query.native
        terms, norms = len(query.native), (_norm(query.native), self._norms[0])
        if query.spatial is not None:
            moments = self._index.sketcher.decode(self._index.sketch(rows))
            scores += moments.reshape(len(rows), -1) @ query.spatial.ravel()
            terms += query.spatial.size
            norms = math.hypot(norms[0], _norm(query.spatial)), math.hypot(*self._norms)
        return rows[scores >= floor_of(scores, count, scan_error(terms, *norms))]

    def _coarse(self, upper: Iterable[Floats], units: Doubles, norms: Doubles, error: float) -> list[Coarse]:
        offset = float(np.linalg.norm(self._centre))
        rounding = (
            16 * _U * (self._norms[0] + offset + self._native.largest + 2 * self._native.largest_residual)
        )
        found = []
        for line, unit, norm in zip(upper, units, norms, strict=True):
            rest = self._rest.largest_residual + _Planes.of(unit[None]).high_rest * self._rest.largest
            found.append(Coarse(1.001 * float(norm) * (error + rest + rounding) + _TINY, line))
        return found

    def _fine(self, query: JointQuery, coarse: Coarse, rest: Floats, norm: float) -> Floats:
        assert coarse.scores is not None
        scores = torch.from_numpy(rest)
        scores.add_(torch.from_numpy(coarse.scores)).sub_(
            torch.from_numpy(self._native.residual), alpha=_BOTH
        )
        offset = float(query.native.astype(np.float64) @ self._centre)
        fine: Floats = scores.mul_(float(norm)).add_(offset).numpy()
        return fine


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
        self._blocks: list[tuple[Tensor, Tensor, Tensor, Tensor]] = []
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
        weight = torch.from_numpy(np.ascontiguousarray(codes))
        self._blocks.append(
            (
                torch.ops.onednn.qlinear_prepack(weight, None),
                torch.from_numpy(scale),
                torch.zeros(len(codes), dtype=torch.int32),
                torch.from_numpy(rounded),
            )
        )

    def upper(self, planes: _Planes) -> Floats:
        """Bound scores of unit queries from above.

        Returns
        -------
        upper : (B, N) float32
            ``score <= upper + error`` and ``score >= upper - (2 + 1/256) residual - error``, by :meth:`error`.
        """
        count = len(planes.high)
        both = torch.from_numpy(np.concatenate([planes.high, planes.low]))
        out = torch.empty((count, len(self.residual)), dtype=torch.float32)
        for rows, block in self._sliced():
            scores = _product(both, 256 * planes.step, block, bias=True)
            torch.add(scores[:count], scores[count:], alpha=1 / 256, out=out[:, rows])
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
            torch.mul(_product(stack, 1.0, block, bias=False), factors, out=out[:, rows])
        products: Floats = out.numpy()
        return products

    def error(self, planes: _Planes) -> float:
        """Bound what the query's remainder and rounding may do to :meth:`upper`.

        Notes
        -----
        A score goes through six roundings at most: the integer sum, the product of the scales, that with the sum,
        the bias, the second plane, and the step itself. Sixteen are allowed for.
        """
        rounding = 16 * _U * (planes.size * self.largest + 2 * self.largest_residual)
        return 1.001 * (planes.rest * self.largest + rounding) + _TINY

    def _sliced(self) -> Iterator[tuple[slice, tuple[Tensor, Tensor, Tensor, Tensor]]]:
        start = 0
        for block in self._blocks:
            yield slice(start, start + len(block[1])), block
            start += len(block[1])


@dataclass(frozen=True, slots=True, eq=False)
class _Planes:
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
    def of(cls, units: Doubles) -> _Planes:
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
    if not hasattr(operators, "qlinear_pointwise") or not torch.cpu._is_vnni_supported():
        return False
    random = np.random.default_rng(0)
    try:
        for width in (32, 100, 512):
            rows = random.integers(-127, 128, (70, width)).astype(np.int8)
            query = random.integers(-128, 128, (6, width)).astype(np.int8)
            rows[0], rows[1], query[0], query[1] = 127, -127, 127, -128
            block = Int8Rows(width)
            block.add_codes(rows)
            for count in (1, 2, 6):
                exact = query[:count].astype(np.int64) @ rows.T.astype(np.int64)
                if not np.array_equal(block.products(query[:count], [1.0] * count), exact):
                    return False
    except (RuntimeError, TypeError, NotImplementedError):
        return False
    return True


def _product(
    queries: Tensor, step: float, block: tuple[Tensor, Tensor, Tensor, Tensor], *, bias: bool
) -> Tensor:
    packed, scale, zero, residual = block
    product: Tensor = torch.ops.onednn.qlinear_pointwise(
        queries,
        step,
        0,
        packed,
        scale,
        zero,
        residual if bias else None,
        1.0,
        0,
        torch.float32,
        "none",
        [],
        "",
    )
    return product


def _select(upper: Floats, slack: Callable[[Rows], Floats], count: int, error: float) -> Rows:
    """Rows whose upper bound reaches the ``count``-th largest lower bound."""
    n = len(upper)
    if count >= n:
        return np.arange(n)
    # Any threshold that leaves enough rows will do: one from a sample saves sorting all.
    sample = upper[:: max(1, n // _SAMPLE)]
    expected = count * len(sample) / n
    place = min(len(sample), math.ceil(expected + 3 * math.sqrt(expected) + 3))
    threshold = np.partition(sample, len(sample) - place)[len(sample) - place]
    rows = np.flatnonzero(upper >= threshold)
    if len(rows) < count:
        threshold = np.partition(upper, n - count)[n - count]
        rows = np.flatnonzero(upper >= threshold)
    low = upper[rows] - slack(rows)
    last = float(np.partition(low, len(low) - count)[len(low) - count])
    floor = np.nextafter(np.float32(last - 2 * error - 4 * _U * abs(last)), np.float32(-np.inf))
    return rows[upper[rows] >= floor] if floor >= threshold else np.flatnonzero(upper >= floor)


def _many(rows: Rows, count: int) -> bool:
    """Whether there are so many more candidates than wanted that another look costs less than their scores."""
    return len(rows) > count + 256


def _mean(index: Index) -> Doubles:
    total = np.zeros(index.manifest.encoder.dim)
    for start in range(0, len(index), BLOCK_ROWS):
        total += index.native()[start : start + BLOCK_ROWS].astype(np.float64).sum(axis=0)
    return (total / max(1, len(index))).astype(np.float32).astype(np.float64)


def _unit(vectors: Any) -> tuple[Doubles, Doubles]:
    wide = np.asarray(vectors, np.float64)
    norms = np.linalg.norm(wide, axis=1)
    return wide / np.where(norms > 0, norms, 1.0)[:, None], norms


def _norm(vector: Floats) -> float:
    return float(np.linalg.norm(vector.astype(np.float64)))


def _norm_of(vector: Floats | None) -> float:
    return 0.0 if vector is None else _norm(vector)
