"""The plainest scan there is, in float64, to hold others against: no bound of theirs is used, and no compiled loop."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from service.canonical import Doubles, Floats, JointQuery, Rows, order_error
from service.scan import Coarse, FloatError, Found, blocks

if TYPE_CHECKING:
    from indexer.store import Index


class PlainScan:
    """One product a block of rows; see :class:`service.scan.Scan`.

    Attributes
    ----------
    native, moments : (N, D) and (N, 2K) float32
    """

    name = "float64"

    def __init__(self, index: Index) -> None:
        dim, width = index.manifest.encoder.dim, 2 * index.manifest.k
        self.native, self.moments = (np.empty((len(index), wide), np.float32) for wide in (dim, width))
        self._size = FloatError(dim, width)
        for rows, native, moments in blocks(index):
            self.native[rows], self.moments[rows] = native, moments
            self._size.add(native, moments)

    def superset(
        self, queries: Sequence[JointQuery], counts: Sequence[int], *, ranks_follow: bool = False
    ) -> list[Found]:
        """See :meth:`service.scan.Scan.superset`."""
        found = []
        for query, count in zip(queries, counts, strict=True):
            scores = self.scores(query)
            last = np.partition(scores, len(scores) - count)[len(scores) - count]
            found.append(Found(np.flatnonzero(scores >= last - 2 * self.error(query)), None))
        return found

    def coarse(self, queries: Sequence[JointQuery]) -> list[Coarse]:
        """See :meth:`service.scan.Scan.coarse`."""
        return [Coarse(self.error(JointQuery(query.native))) for query in queries]

    def sort_into(
        self, queries: Sequence[JointQuery], coarse: Sequence[Coarse], edges: Sequence[Floats]
    ) -> list[tuple[Rows, Rows]]:
        """See :meth:`service.scan.Scan.sort_into`."""
        found = []
        for query, limits in zip(queries, edges, strict=True):
            interval = np.searchsorted(limits, self.scores(JointQuery(query.native)), side="right")
            counts = np.bincount(interval, minlength=len(limits) + 1)
            found.append((counts, np.flatnonzero(interval % 2 == 1)))
        return found

    def scores(self, query: JointQuery) -> Doubles:
        """All scores (N,)."""
        scores: Doubles = self._products(self.native, query.native)
        if query.spatial is not None:
            scores += self._products(self.moments, query.spatial.ravel())
        return scores

    def error(self, query: JointQuery) -> float:
        """How far a score may be from the canonical one, which is rounded to float32."""
        terms = self.native.shape[1] + self.moments.shape[1]
        return self._size.reach(query) * (order_error(terms) + 2.0**-23) + 2.0**-140

    @staticmethod
    def _products(rows: Floats, vector: Floats) -> Doubles:
        wide = vector.astype(np.float64)
        parts = [rows[at : at + 8192].astype(np.float64) @ wide for at in range(0, len(rows), 8192)]
        return np.concatenate(parts)
