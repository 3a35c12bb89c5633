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
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from service.canonical import Doubles, Floats, JointQuery, Rows, Scores, canonical_scores
from service.cores import CORES, each
from service.errors import NoDevice
from service.int8 import Int8Scan
from service.scan import Coarse, Found, Scan

if TYPE_CHECKING:
    from indexer.store import Index

SHARED_ROWS = 8192
"""Rows of one query from which on their canonical scores are worth another core."""


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
    coarse: Coarse | None = field(default=None, repr=False)
    """What the scan knows already for :meth:`Engine.native_ranks`; keeps (N,) scores alive where it does."""


class Engine:
    """Scores every image of an index.

    Parameters
    ----------
    index : Index
        Kept open; canonical scores read its memory-mapped vectors.
    device : str
        ``auto`` takes CUDA where torch sees a device, ``cpu`` and ``cuda`` insist.
    scan : Scan, optional
        Instead of the device's own. Whichever it is, the answers are the same to the last bit.

    Notes
    -----
    Read-only after construction: any number of threads may use it. A scan takes all cores, for it waits for the memory
    or for arithmetic.
    """

    def __init__(self, index: Index, device: str = "cpu", *, scan: Scan | None = None) -> None:
        self.index = index
        self.device = (device != "cpu" and _cuda(insist=device != "auto")) or "cpu"
        self._scan = scan or _scan_of(index, self.device)

    @property
    def scan(self) -> str:
        """What scans: ``int8`` or ``cuda``."""
        return self._scan.name

    def __len__(self) -> int:
        return len(self.index)

    def top(
        self, queries: Sequence[JointQuery], counts: Sequence[int], *, ranks_follow: bool = False
    ) -> list[Top]:
        """Find the best images for each query.

        Parameters
        ----------
        queries : sequence of B JointQuery
            Native and spatial ones may be mixed.
        counts : sequence of B int
            How many; more than N means all.
        ranks_follow : bool
            Whether :meth:`native_ranks` will be asked about them: a scan may then keep what it would make again.

        Returns
        -------
        tops : list of B Top
            Score descending, then row ascending.
        """
        if not len(self) or not queries:
            empty = np.zeros(0, np.float32)
            return [Top(np.zeros(0, np.int64), Scores(empty, empty, empty)) for _ in queries]
        counts = [min(count, len(self)) for count in counts]
        found = self._scan.superset(queries, counts, ranks_follow=ranks_follow)
        if len(queries) == 1:
            return [self._best(queries[0], found[0], counts[0], alone=True)]
        return each(self._best, list(zip(queries, found, counts, strict=True)))

    def top_among(self, query: JointQuery, rows: Rows, count: int) -> Top:
        """:meth:`top` of one query among some images (R,) alone, ascending."""
        return self._best(query, Found(rows, None), count, alone=True)

    def native_ranks_among(self, query: JointQuery, asked: Rows, rows: Rows) -> NDArray[np.int64]:
        """:meth:`native_ranks` of one query in the native ranking of some images (R,) alone, ascending."""
        scores = self._scores(JointQuery(query.native), rows).native
        place = np.empty(len(rows), np.int64)
        place[_best_first(scores)] = np.arange(1, len(rows) + 1)
        ranks: NDArray[np.int64] = place[np.searchsorted(rows, asked)]
        return ranks

    def native_ranks(
        self,
        queries: Sequence[JointQuery],
        rows: Sequence[Rows],
        coarse: Sequence[Coarse | None] | None = None,
    ) -> list[NDArray[np.int64]]:
        """Say where images stand in the native ranking.

        Parameters
        ----------
        queries : sequence of B JointQuery
            Their spatial part does not count.
        rows : sequence of B (R_b,) int64
            The images asked about.
        coarse : sequence of B Coarse or None, optional
            ``Top.coarse`` of the same queries: saves a scan.

        Returns
        -------
        ranks : list of B (R_b,) int64
            From 1; exact, ties by row.
        """
        if not len(self) or not queries:
            return [np.zeros(0, np.int64) for _ in queries]
        plain = [JointQuery(query.native) for query in queries]
        spare = coarse or [None] * len(plain)
        made = iter(
            self._scan.coarse([query for query, one in zip(plain, spare, strict=True) if one is None])
        )
        known = [next(made) if one is None else one for one in spare]
        scores = [canonical_scores(self.index, q, r).native for q, r in zip(plain, rows, strict=True)]
        edges = [_intervals(s, one.error) for s, one in zip(scores, known, strict=True)]
        parts = self._scan.sort_into(plain, known, edges)
        return each(self._ranks, list(zip(plain, rows, scores, edges, parts, strict=True)))

    def _best(self, query: JointQuery, found: Found, count: int, *, alone: bool = False) -> Top:
        if found.scores is not None:
            return Top(found.rows, found.scores, found.coarse)
        scores = self._scores(query, found.rows) if alone else canonical_scores(self.index, query, found.rows)
        order = _best_first(scores.total)[:count]
        return Top(found.rows[order], scores[order], found.coarse)

    def _scores(self, query: JointQuery, rows: Rows) -> Scores:
        """Canonical scores on all cores, where there are enough for that."""
        if len(rows) < SHARED_ROWS:
            return canonical_scores(self.index, query, rows)
        made = each(canonical_scores, [(self.index, query, part) for part in np.array_split(rows, CORES)])
        return Scores(
            np.concatenate([one.total for one in made]),
            np.concatenate([one.native for one in made]),
            np.concatenate([one.spatial for one in made]),
        )

    def _ranks(
        self, query: JointQuery, rows: Rows, scores: Floats, edges: Floats, part: tuple[Rows, Rows]
    ) -> NDArray[np.int64]:
        counts, near = part
        near = np.sort(near)
        exact = canonical_scores(self.index, query, near).native
        place = np.empty(len(near), np.int64)
        place[_best_first(exact)] = np.arange(len(near))
        # Rows in the gaps above an image's interval are better for sure; those in any interval are compared
        # exactly.
        gaps = counts.copy()
        gaps[1::2] = 0
        above = gaps[::-1].cumsum()[::-1]
        interval = np.searchsorted(edges, scores, side="right")
        return 1 + above[interval] + place[np.searchsorted(near, rows)]


def _best_first(scores: Floats | Doubles) -> Rows:
    """Places (R,) of float32 scores from the best to the worst, equals in their order.

    Faster than a stable sort of floats.
    """
    bits = (np.asarray(scores, np.float32) + np.float32(0.0)).view(
        np.int32
    )  # a negative zero is no less than zero
    # As whole numbers, floats are in order but for those below zero, which are the wrong way round.
    ascending = bits ^ (bits >> 31 & np.int32(0x7FFFFFFF))
    keys = (~ascending).astype(np.int64) << 32 | np.arange(len(scores))
    keys.sort()
    return keys & 0xFFFFFFFF


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


def _scan_of(index: Index, device: str) -> Scan:
    if device != "cpu":
        from service.cuda import TorchScan  # noqa: PLC0415  (torch costs seconds)

        return TorchScan(index, device)
    return Int8Scan(index)


def _cuda(*, insist: bool) -> str | None:
    import torch  # noqa: PLC0415

    if torch.cuda.is_available():
        return "cuda"
    if insist:
        raise NoDevice
    return None
