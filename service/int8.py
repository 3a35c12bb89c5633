"""The scan in eight bits: a quarter of the bytes of float32, read at the memory's speed, and a bound on what is lost.

What this module holds to:

- every row n is stored as ``x_n = centre + s_n c_n + r_n`` with int8 codes ``c_n`` and a residual whose norm
  ``rho_n`` is known, and every query as two int8 planes, sixteen bits. ``|q . r_n| <= ||q|| rho_n`` (Cauchy and
  Schwarz) turns an integer product into an upper and a lower bound of the score, row by row; rounding and the
  query's own remainder are bounded too (:meth:`service.quantised.Int8Rows.upper`);
- a row is dropped only where its upper bound is below the k-th largest lower bound;
- the residual is kept in eight more bits. They are read only for rows that the bounds leave in doubt: candidates
  beyond those wanted, and neighbours of a page's pictures in the native ranking;
- oneDNN does the products, in both cores, without spinning (``OMP_WAIT_POLICY=PASSIVE``, which the command
  line sets). Integers are exact on CPUs with VNNI and saturate on some without:
  :func:`service.quantised.int8_is_exact` decides.

Axes: B queries, N images, R images of a block or selection, D components of a vector.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from service.canonical import Floats, JointQuery, Rows
from service.quantised import BOTH, TINY, UNIT_ROUNDOFF, Doubles, Int8Rows, LooseRows, Planes, unit
from service.scan import (
    BLOCK_ROWS,
    FEW_EDGES,
    SAMPLE_ROWS,
    Coarse,
    Found,
    floor_of,
    guess_of,
    scan_error,
    sort_scores,
    stacked,
)

if TYPE_CHECKING:
    from indexer.store import Index

T = TypeVar("T")

BOUND_BYTES = 1 << 29
"""Memory for the bounds of a batch; more queries than fit are taken in turns."""


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
        self._native, self._rest = Int8Rows(dim), LooseRows(dim, n)
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
            self._rest.add(self._native.add(vectors - self._centre))
            sketch = index.sketch(rows)
            sketch = sketch.reshape(len(sketch), -1)
            decoded = sketcher.decode(index.sketch(rows)).reshape(len(sketch), -1).astype(np.float64)
            if codes:
                self._moments.add_codes(sketch.astype(np.int8))
            else:
                self._moments.add(decoded)
            row_norm = max(row_norm, float(np.linalg.norm(vectors, axis=1).max(initial=0.0)))
            moment_norm = max(moment_norm, float(np.linalg.norm(decoded, axis=1).max(initial=0.0)))
        for stored in (self._native, self._rest, self._moments):
            stored.pack()
        self._pool = ThreadPoolExecutor(os.cpu_count() or 1, thread_name_prefix="scan")
        self._norms = row_norm * 1.001, moment_norm * 1.001

    def superset(
        self, queries: Sequence[JointQuery], counts: Sequence[int], *, ranks_follow: bool = False
    ) -> list[Found]:
        """See :meth:`service.scan.Scan.superset`."""
        step = max(1, BOUND_BYTES // (8 * max(1, len(self._index))))
        found: list[Found] = []
        for start in range(0, len(queries), step):
            part = slice(start, start + step)
            found += self._superset(queries[part], counts[part])
        return found

    def coarse(self, queries: Sequence[JointQuery]) -> list[Coarse]:
        """See :meth:`service.scan.Scan.coarse`."""
        units, norms = unit(np.stack([query.native for query in queries]))
        planes = Planes.of(units)
        return self._coarse(planes, self._native.upper(planes), norms, range(len(queries)))

    def sort_into(
        self, queries: Sequence[JointQuery], coarse: Sequence[Coarse], edges: Sequence[Floats]
    ) -> list[tuple[Rows, Rows]]:
        """See :meth:`service.scan.Scan.sort_into`."""
        # One after another: each of their products takes both cores.
        return [self._sort(*job) for job in zip(queries, coarse, edges, strict=True)]

    def _sort(self, query: JointQuery, coarse: Coarse, edges: Floats) -> tuple[Rows, Rows]:
        """Sort by the bounds the scan left; only whom they leave in doubt by the residuals."""
        assert coarse.scores is not None
        assert coarse.plane is not None
        if not len(edges):
            return sort_scores(coarse.scores, edges)
        (codes, step), norm = coarse.plane, _norm(query.native)
        residual, offset = self._native.residual, np.float32(query.native.astype(np.float64) @ self._centre)
        # |step 256 high . s c| is at most the product of the norms, and ||s c|| at most those of both residuals.
        size = 1.001 * norm * 256 * step * float(np.linalg.norm(codes.astype(np.float64)))
        spare = size * self._rest.largest_residual + 2 * coarse.error
        # Most of an index is below all intervals, as one comparison with the least score that is not shows.
        grown = max(0.0, size - BOTH * norm) * self._native.largest_residual
        floor = (float(edges[0]) - float(offset) - spare - grown) / norm if norm else -math.inf
        near = np.flatnonzero(coarse.scores >= np.nextafter(np.float32(floor), np.float32(-np.inf)))
        middle = coarse.scores[near] - residual[near] * np.float32(BOTH)
        middle *= np.float32(norm)
        middle += offset
        reach = residual[near] * np.float32(size) + np.float32(spare)
        best, worst = middle + reach, middle - reach
        above, touched = _reached(worst, edges[1::2]), _reached(best, edges[::2])
        counts = np.zeros(len(edges) + 1, np.int64)
        sure = above == touched
        counts[::2] = np.bincount(above[sure], minlength=len(counts[::2]))
        counts[0] += len(coarse.scores) - len(near)
        doubt = near[~sure]
        fine = self._rest.some(doubt, codes, 256 * step)
        fine += coarse.scores[doubt]
        fine -= residual[doubt] * np.float32(BOTH)
        fine *= np.float32(norm)
        fine += offset
        more, inside = sort_scores(fine, edges)
        return counts + more, doubt[inside]

    def _superset(self, queries: Sequence[JointQuery], counts: Sequence[int]) -> list[Found]:
        native, joint, spatial = stacked(queries)
        units, norms = unit(native)
        planes = Planes.of(units)
        upper = self._native.upper(planes)
        error = self._native.error(planes) * norms
        totals = list(upper)
        factors = np.where([b not in joint for b in range(len(queries))], 1.0, norms)
        # A canonical score below the smallest subnormal is zero and ties with its like.
        errors = [self._native.error(planes) + TINY / norm if norm else 0.0 for norm in norms]
        extra: list[float] = [0.0] * len(queries)
        moves: dict[int, float] = {}
        if joint:
            moved, moved_norms = unit(spatial * self._moment_step)
            moved_planes = Planes.of(moved)
            shifts = self._moments.upper(moved_planes)
            moved_error = self._moments.error(moved_planes)
            for s, b in enumerate(joint):
                totals[b] = shifts[s]
                errors[b] = float(error[b] + moved_norms[s] * moved_error + TINY)
                extra[b] = moves[b] = float(moved_norms[s])
        reach = [
            (self._norms[0] * (norm if b in joint else 1.0)) + self._norms[1] * _norm_of(query.spatial)
            for b, (query, norm) in enumerate(zip(queries, norms, strict=True))
        ]
        # The canonical score is rounded, and so are the sums of bounds.
        errors = [e + 16 * UNIT_ROUNDOFF * r for e, r in zip(errors, reach, strict=True)]

        def slack(b: int) -> Callable[[Rows], Floats]:
            def of(rows: Rows) -> Floats:
                total = self._native.residual[rows] * np.float32((1 + BOTH) * factors[b])
                if extra[b]:
                    total = total + self._moments.residual[rows] * np.float32((1 + BOTH) * extra[b])
                return total

            return of

        more = self._rest.largest_residual + planes.high_rest * self._rest.largest

        def choose(b: int) -> Rows:
            if b in moves:
                totals[b] *= np.float32(moves[b])
                totals[b] += upper[b] * np.float32(norms[b])
            rows, count = _select(totals[b], slack(b), counts[b], errors[b]), counts[b]
            if _many(rows, count) and not (extra[b] and self._moments.largest_residual):
                # A quarter of the bytes of the vectors themselves.
                fine = self._rest.some(rows, planes.high[b], 256 * planes.step)
                fine -= np.float32(BOTH) * self._native.residual[rows]
                fine *= np.float32(factors[b])
                fine += totals[b][rows]
                error = errors[b] + 1.001 * factors[b] * more
                rows = rows[fine >= floor_of(fine, count, error)]
            return self._refine(queries[b], rows, count)

        chosen = self._each(choose, [(b,) for b in range(len(queries))])
        # For the native ranks of spatial queries; a native ranking has them already.
        left: list[Coarse | None] = [None] * len(queries)
        for b, one in zip(joint, self._coarse(planes, upper, norms, joint), strict=True):
            left[b] = one
        return [Found(rows, one) for rows, one in zip(chosen, left, strict=True)]

    def _each(self, call: Callable[..., T], jobs: Sequence[tuple[Any, ...]]) -> list[T]:
        """Call with each, on all cores where there are several."""
        if len(jobs) < 2:
            return [call(*job) for job in jobs]
        return list(self._pool.map(lambda job: call(*job), jobs))

    def _refine(self, query: JointQuery, rows: Rows, count: int) -> Rows:
        """Leave fewer of many candidates, by their float32 scores."""
        if not _many(rows, count):
            return rows
        # By einsum: a BLAS would wake its threads for a fraction of a millisecond's work.
        scores = np.einsum("rd,d->r", self._index.native()[rows], query.native)
        terms, size = len(query.native), _norm(query.native) * self._norms[0]
        if query.spatial is not None:
            moments = self._index.sketcher.decode(self._index.sketch(rows))
            scores += np.einsum("rk,k->r", moments.reshape(len(rows), -1), query.spatial.ravel())
            terms += query.spatial.size
            size += _norm(query.spatial) * self._norms[1]
        kept: Rows = rows[scores >= floor_of(scores, count, scan_error(terms, size))]
        return kept

    def _coarse(self, planes: Planes, upper: Floats, norms: Doubles, chosen: Iterable[int]) -> list[Coarse]:
        offset = float(np.linalg.norm(self._centre))
        rounding = (
            16
            * UNIT_ROUNDOFF
            * (self._norms[0] + offset + self._native.largest + 2 * self._native.largest_residual)
        )
        rest = self._rest.largest_residual + planes.high_rest * self._rest.largest
        error = 1.001 * (self._native.error(planes) + rest + rounding)
        return [
            Coarse(error * float(norms[b]) + TINY, upper[b], (planes.high[b], planes.step)) for b in chosen
        ]


def _reached(scores: Floats, edges: Floats) -> Rows:
    """How many of ascending edges each score reaches."""
    if len(edges) > FEW_EDGES:
        return np.searchsorted(edges, scores, side="right")
    reached = np.zeros(len(scores), np.uint8)
    for edge in edges:
        reached += (scores >= edge).view(np.uint8)
    return reached.astype(np.int64)


def _select(upper: Floats, slack: Callable[[Rows], Floats], count: int, error: float) -> Rows:
    """Rows whose upper bound reaches the ``count``-th largest lower bound."""
    n = len(upper)
    if count >= n:
        return np.arange(n)
    # Any threshold that leaves enough rows will do: one from a sample saves sorting all.
    threshold = guess_of(upper[:: max(1, n // SAMPLE_ROWS)], count, n)
    rows = np.flatnonzero(upper >= threshold)
    if len(rows) < count:
        threshold = np.partition(upper, n - count)[n - count]
        rows = np.flatnonzero(upper >= threshold)
    low = upper[rows] - slack(rows)
    last = float(np.partition(low, len(low) - count)[len(low) - count])
    floor = np.nextafter(np.float32(last - 2 * error - 4 * UNIT_ROUNDOFF * abs(last)), np.float32(-np.inf))
    return rows[upper[rows] >= floor] if floor >= threshold else np.flatnonzero(upper >= floor)


def _many(rows: Rows, count: int) -> bool:
    """Whether there are so many more candidates than wanted that another look costs less than their scores."""
    return len(rows) > count + 256


def _mean(index: Index) -> Doubles:
    total = np.zeros(index.manifest.encoder.dim)
    for start in range(0, len(index), BLOCK_ROWS):
        total += index.native()[start : start + BLOCK_ROWS].astype(np.float64).sum(axis=0)
    return (total / max(1, len(index))).astype(np.float32).astype(np.float64)


def _norm(vector: Floats) -> float:
    return float(np.linalg.norm(vector.astype(np.float64)))


def _norm_of(vector: Floats | None) -> float:
    return 0.0 if vector is None else _norm(vector)
