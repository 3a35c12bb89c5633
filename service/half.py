"""The scan in sixteen bits, read by FAISS in all cores: for CPUs without fast products of eight.

FAISS scores what it stores exactly but for the order of summation, so the bound is what float16 takes from a row,
which is known, and what float32 sums may lose. Few queries wait for the memory and gain by it; many are bounded by
arithmetic, which one float32 matrix product does best.

Axes: N images, R images of a selection.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING

import faiss
import numpy as np

from service.canonical import Floats, JointQuery, Rows
from service.scan import (
    BLOCK_ROWS,
    Coarse,
    CpuScan,
    Found,
    floor_below,
    largest_norm,
    likely_share,
    scan_error,
)

if TYPE_CHECKING:
    from indexer.store import Index

FEW = 4
"""Queries up to which the memory is what they wait for."""

MOST = 8
"""A ranking longer than one eighth of the index is found by sorting everything."""


@dataclass(frozen=True, slots=True, eq=False)
class _Part:
    """The rows of one core: native vectors, and with moments behind them."""

    start: int
    native: faiss.IndexScalarQuantizer
    joint: faiss.IndexScalarQuantizer

    def __len__(self) -> int:
        return int(self.native.ntotal)


class HalfScan:
    """See the module's text. Owns two float16 copies of the native vectors and a float32 one.

    Parameters
    ----------
    index : Index

    Notes
    -----
    Read-only after construction: any number of threads may use it.
    """

    name = "float16"

    def __init__(self, index: Index) -> None:
        self._float = CpuScan(index)
        self._error = self._float.error
        self._size = len(index)
        self._lost = np.zeros(2)
        cores = os.cpu_count() or 1
        edges = np.linspace(0, len(index), cores + 1).astype(int).tolist()
        self._parts = [self._part(start, end) for start, end in pairwise(edges) if start < end]
        # The number of threads of OpenMP belongs to the thread that sets it.
        self._pool = ThreadPoolExecutor(
            cores, thread_name_prefix="scan", initializer=lambda: faiss.omp_set_num_threads(1)
        )

    def superset(
        self, queries: Sequence[JointQuery], counts: Sequence[int], *, ranks_follow: bool = False
    ) -> list[Found]:
        """See :meth:`service.scan.Scan.superset`.

        Where ranks follow, one pass in float32 costs less than one in float16 and another for the ranks.
        """
        if ranks_follow or len(queries) > FEW or max(counts) * MOST > self._size:
            return self._float.superset(queries, counts, ranks_follow=ranks_follow)
        return [Found(self._best(*job), None) for job in zip(queries, counts, strict=True)]

    def coarse(self, queries: Sequence[JointQuery]) -> list[Coarse]:
        """See :meth:`service.scan.Scan.coarse`."""
        return self._float.coarse(queries)

    def sort_into(
        self, queries: Sequence[JointQuery], coarse: Sequence[Coarse], edges: Sequence[Floats]
    ) -> list[tuple[Rows, Rows]]:
        """See :meth:`service.scan.Scan.sort_into`."""
        # A page's pictures can stand anywhere in the native ranking, and FAISS is slow to hand out all scores.
        return self._float.sort_into(queries, coarse, edges)

    def half_error(self, query: JointQuery) -> float:
        """How far a score in half precision may be from the canonical one."""
        size = lost = 0.0
        terms = 0
        rows = (self._error.native, self._error.moment)
        for part, row, gone in zip((query.native, query.spatial), rows, self._lost, strict=True):
            if part is not None:
                norm = largest_norm(part.reshape(1, -1))
                size, lost, terms = size + norm * (row + gone), lost + norm * gone, terms + part.size
        return 1.001 * float(lost) + scan_error(terms, float(size))

    def _best(self, query: JointQuery, count: int) -> Rows:
        vector = _vector(query)
        error = self.half_error(query)
        wanted = [likely_share(count, len(part), self._size) for part in self._parts]
        found: list[tuple[Floats, Rows]] = [_NONE] * len(self._parts)
        stale = list(range(len(self._parts)))
        while stale:
            searched = self._pool.map(
                lambda p: _search(self._parts[p], vector, wanted[p], joint=query.spatial is not None), stale
            )
            for p, one in zip(stale, searched, strict=True):
                found[p] = one
            scores = np.concatenate([one for one, _ in found])
            floor = floor_below(float(np.partition(scores, len(scores) - count)[len(scores) - count]), error)
            # A core whose last row still reaches the floor may hold more of them.
            stale = [
                p for p, (one, _) in enumerate(found) if one[-1] >= floor and len(one) < len(self._parts[p])
            ]
            for p in stale:
                wanted[p] = min(2 * wanted[p], len(self._parts[p]))
        rows: Rows = np.concatenate([rows for _, rows in found])[scores >= floor]
        return rows

    def _part(self, start: int, end: int) -> _Part:
        native, moments = self._float.native, self._float.moments
        stored = [
            faiss.IndexScalarQuantizer(width, faiss.ScalarQuantizer.QT_fp16, faiss.METRIC_INNER_PRODUCT)
            for width in (native.shape[1], native.shape[1] + moments.shape[1])
        ]
        for first in range(start, end, BLOCK_ROWS):
            rows = slice(first, min(first + BLOCK_ROWS, end))
            both = np.concatenate([native[rows], moments[rows]], axis=1)
            stored[0].add(native[rows])
            codes = stored[1].sa_encode(both)
            stored[1].add_sa_codes(codes)
            lost = both - stored[1].sa_decode(codes)
            parts = np.split(lost, [native.shape[1]], axis=1)
            self._lost = np.maximum(self._lost, [largest_norm(part) for part in parts])
        return _Part(start, *stored)


_NONE: tuple[Floats, Rows] = (np.zeros(0, np.float32), np.zeros(0, np.int64))


def _search(part: _Part, vector: Floats, count: int, *, joint: bool) -> tuple[Floats, Rows]:
    """The best of a part, best first."""
    scores, rows = (part.joint if joint else part.native).search(vector, count)
    return scores[0], rows[0] + part.start


def _vector(query: JointQuery) -> Floats:
    parts = [query.native] if query.spatial is None else [query.native, query.spatial.ravel()]
    return np.concatenate(parts)[None]


@cache
def half_pays(dim: int) -> bool:
    """Whether FAISS reads float16 rows of this width faster than numpy reads float32 ones here."""
    rows = np.random.default_rng(0).standard_normal((16_384, dim)).astype(np.float32)
    stored = faiss.IndexScalarQuantizer(dim, faiss.ScalarQuantizer.QT_fp16, faiss.METRIC_INNER_PRODUCT)
    stored.add(rows)
    query = np.ones((1, dim), np.float32)
    taken: tuple[list[float], list[float]] = ([], [])
    for _ in range(6):
        begin = time.perf_counter()
        stored.search(query, 10)
        middle = time.perf_counter()
        np.matmul(query, rows.T)
        taken[0].append(middle - begin)
        taken[1].append(time.perf_counter() - middle)
    return min(taken[0]) / (os.cpu_count() or 1) < min(taken[1])
