"""The scan in eight bits: a quarter of the bytes of float32, read at the memory's speed, and a bound on what is lost.

What this module holds to:

- every row n is stored as ``x_n = centre + s_n (h_n + l_n / 254) + rest`` with int8 codes ``h_n`` and ``l_n``, every
  query as whole numbers of sixteen bits. All rows are scored by ``h_n`` alone, in integers and therefore exactly. What
  that leaves of a row has a known norm ``rho_n``, and ``|q . r_n| <= ||q|| rho_n`` (Cauchy and Schwarz) bounds the
  score from above and below, row by row; rounding and the query's own remainder are bounded too
  (:meth:`service.quantised.WholeQuery.error`);
- a row is dropped only where its upper bound is below the k-th largest lower bound;
- ``l_n`` is read only for rows that the bounds leave in doubt: candidates beyond those wanted, and neighbours of a
  page's pictures in the native ranking;
- the loops are compiled for the CPU at hand and run in all cores. Integers are exact on every one.

More than :data:`FEW` queries at a time are bounded by arithmetic and no longer by the memory, which one float32
matrix product does best.

Axes: B queries, N images, R images of a block or selection, D components of a vector.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from service.canonical import Doubles, Floats, JointQuery, Rows
from service.cores import each, split
from service.quantised import FINER, TINY, UNIT_ROUNDOFF, CodedRows, WholeQuery, products, refine, sort_rows
from service.scan import (
    BLOCK_ROWS,
    SAMPLE_ROWS,
    Coarse,
    CpuScan,
    Found,
    floor_below,
    guess_of,
    sort_scores,
)

if TYPE_CHECKING:
    from indexer.store import Index

MANY = 1.2
"""Candidates for each that is wanted, from which on another look costs less than their exact scores."""

FEW = 4
"""Queries up to which the memory is what they wait for."""


class Int8Scan:
    """See the module's text. Owns two int8 copies of the native vectors, one of the moments, and float32 ones of both.

    Parameters
    ----------
    index : Index

    Notes
    -----
    Read-only after construction: any number of threads may use it.
    """

    name = "int8"

    def __init__(self, index: Index) -> None:
        self._float = CpuScan(index)
        n, sketcher = len(index), index.sketcher
        native, moments = self._float.native, self._float.moments
        self._centre: Doubles = native.mean(axis=0, dtype=np.float64) if n else np.zeros(native.shape[1])
        self._native, self._moments = CodedRows(n, native.shape[1]), CodedRows(n, moments.shape[1])
        # The sketch of an int8 index is in codes already; its steps go into the query and nothing is lost.
        coded = n > 0 and index.sketch(slice(0, 1)).dtype == np.int8
        self._moment_step = np.tile(sketcher.scale if coded else np.ones_like(sketcher.scale), 2).astype(
            float
        )
        for start in range(0, n, BLOCK_ROWS):
            rows = slice(start, min(start + BLOCK_ROWS, n))
            self._native.put(rows, np.ascontiguousarray(native[rows]), self._centre)
            if coded:
                self._moments.put_codes(
                    rows, index.sketch(rows).reshape(-1, moments.shape[1]).astype(np.int8)
                )
            else:
                self._moments.put(rows, np.ascontiguousarray(moments[rows]), np.zeros(moments.shape[1]))

    def superset(
        self, queries: Sequence[JointQuery], counts: Sequence[int], *, ranks_follow: bool = False
    ) -> list[Found]:
        """See :meth:`service.scan.Scan.superset`."""
        if len(queries) > FEW:
            return self._float.superset(queries, counts, ranks_follow=ranks_follow)
        whole = [WholeQuery.of(query.native.astype(np.float64)) for query in queries]
        moved = [
            None if query.spatial is None else WholeQuery.of(query.spatial.ravel() * self._moment_step)
            for query in queries
        ]
        scores, shifts = self._score(whole, [one for one in moved if one is not None])
        shift = iter(shifts)
        found = []
        for query, count, one, other, native in zip(queries, counts, whole, moved, scores, strict=True):
            terms = [(self._native, one)]
            total = native
            if other is not None:
                terms.append((self._moments, other))
                total = native + next(shift)
            rows = _select(total, terms, count, 16 * UNIT_ROUNDOFF * self._float.error.reach(query))
            # For the native ranks of spatial queries; a native ranking has them already.
            found.append(Found(rows, None if other is None else self._coarse(one, native)))
        return found

    def coarse(self, queries: Sequence[JointQuery]) -> list[Coarse]:
        """See :meth:`service.scan.Scan.coarse`."""
        if len(queries) > FEW:
            return self._float.coarse(queries)
        whole = [WholeQuery.of(query.native.astype(np.float64)) for query in queries]
        return [self._coarse(one, line) for one, line in zip(whole, self._score(whole, [])[0], strict=True)]

    def sort_into(
        self, queries: Sequence[JointQuery], coarse: Sequence[Coarse], edges: Sequence[Floats]
    ) -> list[tuple[Rows, Rows]]:
        """See :meth:`service.scan.Scan.sort_into`."""
        if any(one.whole is None for one in coarse):
            return self._float.sort_into(queries, coarse, edges)
        return [self._sort(*job) for job in zip(queries, coarse, edges, strict=True)]

    def _sort(self, query: JointQuery, coarse: Coarse, edges: Floats) -> tuple[Rows, Rows]:
        """Sort by the bounds the scan left; only whom they leave in doubt by the second codes."""
        assert coarse.whole is not None
        assert coarse.scores is not None
        if not len(edges):
            return sort_scores(coarse.scores, edges)
        whole, scores, rows = coarse.whole, coarse.scores, self._native
        reach = 1.001 * (whole.norm + whole.rest)
        spare = reach * rows.largest_rest + coarse.error
        offset = float(query.native.astype(np.float64) @ self._centre)

        def part(first: int, last: int) -> tuple[Rows, Rows]:
            counts, inside = np.zeros(len(edges) + 1, np.int64), np.empty(last - first, np.int64)
            found = sort_rows(
                (rows.low, rows.scale, rows.residual), scores, whole.codes, whole.step / FINER, reach, spare, offset,
                edges, (first, last), counts, inside,
            )  # fmt: skip
            return counts, inside[:found]

        made = each(part, split(len(scores)))
        return np.sum([counts for counts, _ in made], axis=0), np.concatenate([inside for _, inside in made])

    def _score(self, native: Sequence[WholeQuery], moved: Sequence[WholeQuery]) -> tuple[Floats, Floats]:
        """Products of all rows with native queries (B, N) and of all moments with spatial ones (S, N)."""
        jobs = []
        for rows, queries in ((self._native, native), (self._moments, moved)):
            codes = np.array([one.codes for one in queries]).reshape(-1, rows.high.shape[1])
            steps = np.array([one.step for one in queries])
            jobs.append((rows, codes, steps, np.empty((len(queries), len(rows.high)), np.float32)))

        def part(first: int, last: int) -> None:
            for rows, codes, steps, out in jobs:
                products(rows.high, rows.scale, codes, steps, first, last, out)

        each(part, split(len(self._native.high)))
        return jobs[0][3], jobs[1][3]

    def _coarse(self, whole: WholeQuery, scores: Floats) -> Coarse:
        # Sums with the centre's product are rounded once more.
        centre = 4 * UNIT_ROUNDOFF * whole.norm * float(np.linalg.norm(self._centre))
        return Coarse(whole.fine_error(self._native) + centre, scores, whole)


def _select(
    scores: Floats, terms: Sequence[tuple[CodedRows, WholeQuery]], count: int, rounding: float
) -> Rows:
    """Rows that may be among the best.

    Parameters
    ----------
    scores : (N,) float32
        Sum of the terms, by the first codes of their rows.
    terms : sequence of (CodedRows, WholeQuery)
    count : int
        How many of the best.
    rounding : float
        What rounding of the sum and of the canonical score may add to the terms' errors.
    """
    n = len(scores)
    if count >= n:
        return np.arange(n)
    slack = np.zeros(n, np.float32)
    for rows, query in terms:
        if rows.largest_residual:
            slack += rows.residual * np.float32(query.norm * (1 + 2.0**-20))
    upper = scores + slack
    # Any threshold that leaves enough rows will do: one from a sample saves sorting all.
    threshold = guess_of(upper[:: max(1, n // SAMPLE_ROWS)], count, n)
    chosen = np.flatnonzero(upper >= threshold)
    if len(chosen) < count:
        threshold = np.partition(upper, n - count)[n - count]
        chosen = np.flatnonzero(upper >= threshold)
    error = sum(query.error(rows) for rows, query in terms) + rounding + TINY
    floor = _floor(upper[chosen] - 2 * slack[chosen], count, error)
    chosen = chosen[upper[chosen] >= floor] if floor >= threshold else np.flatnonzero(upper >= floor)
    if len(chosen) < MANY * count:
        return chosen
    fine = scores[chosen]
    for rows, query in terms:
        if rows.largest_residual:
            refine(rows.low, rows.scale, query.codes, query.step / FINER, chosen, fine)
    error = sum(query.fine_error(rows) for rows, query in terms) + rounding + TINY
    return chosen[fine >= _floor(fine, count, error)]


def _floor(scores: Floats, count: int, error: float) -> np.float32:
    """What a member of the true best has at least, where none of these scores is more than the error off."""
    last = float(np.partition(scores, len(scores) - count)[len(scores) - count])
    return floor_below(last, error + 2 * UNIT_ROUNDOFF * abs(last))
