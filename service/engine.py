"""Exact scoring of a whole index, on the CPU or on a CUDA device.

What this module holds to:

- the score of an image for a query depends on nothing but the two (:func:`canonical_scores`): not on the
  batch, the page, the device or the library that found it;
- a *scan* may use any arithmetic with a proven error bound; it hands back a superset of the true top k, which
  is then scored canonically, so approximate scores decide nothing;
- ties break by row, which is the order of image ids;
- memory is bounded by blocks of rows, whatever the size of the index.

Axes: B queries, N images, R images of a block or selection, D embedding, K sketch components an axis.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from indexer.store import Index
from service.errors import NoDevice
from service.scan import BLOCK_ROWS, CpuScan, Floats, JointQuery, Rows, Scan, blocks, scan_error


@dataclass(frozen=True, slots=True, eq=False)
class Scores:
    """Canonical scores of R images.

    Attributes
    ----------
    total, native, spatial : (R,) float32
        ``total`` is the sum rounded once, not the sum of the two rounded parts.
    """

    total: Floats
    native: Floats
    spatial: Floats

    def __getitem__(self, which: NDArray[np.intp] | slice) -> Scores:
        return Scores(self.total[which], self.native[which], self.spatial[which])


@dataclass(frozen=True, slots=True, eq=False)
class Top:
    """The best images for one query, best first.

    Attributes
    ----------
    rows : (R,) int64
        Row numbers of the index.
    scores : Scores
        In the same order.
    """

    rows: Rows
    scores: Scores


def canonical_scores(index: Index, query: JointQuery, rows: Rows) -> Scores:
    """Score a selection of images, each by itself, the same way whatever else is selected.

    Parameters
    ----------
    index : Index
    query : JointQuery
    rows : (R,) int64

    Returns
    -------
    Scores

    Notes
    -----
    Products of float32 values are exact in float64. Their sum along the contiguous axis follows an order that
    depends on the length of that axis alone, which a BLAS product does not promise.
    """
    native = np.empty(len(rows))
    spatial = np.zeros(len(rows))
    for start in range(0, len(rows), BLOCK_ROWS):
        part = slice(start, start + BLOCK_ROWS)
        native[part] = _inner(index.native()[rows[part]], query.native)
        if query.spatial is not None:
            moments = index.sketcher.decode(index.sketch(rows[part]))
            spatial[part] = _inner(moments.reshape(len(moments), -1), query.spatial.ravel())
    return Scores(
        (native + spatial).astype(np.float32), native.astype(np.float32), spatial.astype(np.float32)
    )


def _inner(rows: Floats, query: Floats) -> NDArray[np.float64]:
    product: NDArray[np.float64] = (rows.astype(np.float64, order="C") * query.astype(np.float64)).sum(
        axis=-1
    )
    return product


class Engine:
    """Scores every image of an index.

    Parameters
    ----------
    index : Index
        Kept open; canonical scores read its memory-mapped vectors.
    device : str
        ``auto`` takes CUDA where torch sees a device, ``cpu`` and ``cuda`` insist.

    Notes
    -----
    Read-only after construction: any number of threads may use it. A CPU scan takes one BLAS thread where the
    environment says so (``OPENBLAS_NUM_THREADS=1``, which the command line sets): threads serve queries.
    """

    def __init__(self, index: Index, device: str = "cpu") -> None:
        self.index = index
        self._dim, self._k = index.manifest.encoder.dim, index.manifest.k
        self._row_norms = _largest_norms(index)
        self._scan: Scan = CpuScan(index)
        self.device = "cpu"
        if device != "cpu" and (name := _cuda(insist=device != "auto")):
            from service.cuda import TorchScan  # noqa: PLC0415  (torch costs seconds)

            self._scan, self.device = TorchScan(index, name), name

    def __len__(self) -> int:
        return len(self.index)

    def top(self, queries: Sequence[JointQuery], counts: Sequence[int]) -> list[Top]:
        """Find the best images for each query.

        Parameters
        ----------
        queries : sequence of B JointQuery
            Native and spatial ones may be mixed.
        counts : sequence of B int
            How many; more than N means all.

        Returns
        -------
        tops : list of B Top
            Score descending, then row ascending.
        """
        if not len(self) or not queries:
            empty = np.zeros(0, np.float32)
            return [Top(np.zeros(0, np.int64), Scores(empty, empty, empty)) for _ in queries]
        counts = [min(count, len(self)) for count in counts]
        selections = self._scan.superset(queries, counts, [self._error(q) for q in queries])
        return [self._best(q, rows, n) for q, rows, n in zip(queries, selections, counts, strict=True)]

    def native_ranks(self, queries: Sequence[JointQuery], rows: Sequence[Rows]) -> list[NDArray[np.int64]]:
        """Say where images stand in the native ranking.

        Parameters
        ----------
        queries : sequence of B JointQuery
            Their spatial part does not count.
        rows : sequence of B (R_b,) int64
            The images asked about.

        Returns
        -------
        ranks : list of B (R_b,) int64
            From 1; exact, ties by row.
        """
        plain = [JointQuery(query.native) for query in queries]
        scores = [canonical_scores(self.index, q, r).native for q, r in zip(plain, rows, strict=True)]
        edges = [_intervals(s, self._error(q)) for q, s in zip(plain, scores, strict=True)]
        if not len(self) or not queries:
            return [np.zeros(0, np.int64) for _ in queries]
        parts = self._scan.sort_into(plain, edges)
        return [self._ranks(*job) for job in zip(plain, rows, scores, edges, parts, strict=True)]

    def _best(self, query: JointQuery, rows: Rows, count: int) -> Top:
        scores = canonical_scores(self.index, query, rows)
        order = np.lexsort((rows, -scores.total))[:count]
        return Top(rows[order], scores[order])

    def _ranks(
        self, query: JointQuery, rows: Rows, scores: Floats, edges: Floats, part: tuple[Rows, Rows]
    ) -> NDArray[np.int64]:
        counts, near = part
        near = np.sort(near)
        exact = canonical_scores(self.index, query, near).native
        place = np.empty(len(near), np.int64)
        place[np.lexsort((near, -exact))] = np.arange(len(near))
        # Rows in the gaps above an image's interval are better for sure; those in any interval are compared
        # exactly.
        gaps = counts.copy()
        gaps[1::2] = 0
        above = gaps[::-1].cumsum()[::-1]
        interval = np.searchsorted(edges, scores, side="right")
        return 1 + above[interval] + place[np.searchsorted(near, rows)]

    def _error(self, query: JointQuery) -> float:
        native_norm, moment_norm = self._row_norms
        if query.spatial is None:
            return scan_error(self._dim, _norm(query.native), native_norm)
        # The norm of the concatenation bounds what the parts can do together.
        return scan_error(
            self._dim + 2 * self._k,
            float(np.hypot(_norm(query.native), _norm(query.spatial))),
            float(np.hypot(native_norm, moment_norm)),
        )


def _intervals(scores: Floats, error: float) -> Floats:
    """Edges of disjoint intervals, outside of which a scan score decides the order against ``scores``."""
    centres = np.unique(scores).astype(np.float64)
    low = np.nextafter((centres - error).astype(np.float32), np.float32(-np.inf))
    high = np.nextafter((centres + error).astype(np.float32), np.float32(np.inf))
    apart = low[1:] > high[:-1]
    starts, ends = (
        low[np.r_[True, apart]] if len(low) else low,
        high[np.r_[apart, True]] if len(high) else high,
    )
    return np.stack([starts, ends], axis=1).ravel()


def _largest_norms(index: Index) -> tuple[float, float]:
    native = moment = 0.0
    for _, vectors, moments in blocks(index):
        native = max(native, float(np.sqrt((vectors.astype(np.float64) ** 2).sum(axis=1).max())))
        moment = max(moment, float(np.sqrt((moments.astype(np.float64) ** 2).sum(axis=1).max())))
    return native, moment


def _norm(vector: Floats) -> float:
    return float(np.sqrt((vector.astype(np.float64) ** 2).sum()))


def _cuda(*, insist: bool) -> str | None:
    import torch  # noqa: PLC0415

    if torch.cuda.is_available():
        return "cuda"
    if insist:
        raise NoDevice
    return None
