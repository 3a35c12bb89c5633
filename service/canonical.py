"""The score of an image for a query, to the last bit: what every scan is measured by.

Axes: R images of a selection, D embedding, K sketch components an axis.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from indexer.store import Index

Floats = NDArray[np.float32]
Rows = NDArray[np.int64]

CANONICAL_ROWS = 256
"""Rows scored at a time: they stay in the cache."""


@dataclass(frozen=True, slots=True, eq=False)
class JointQuery:
    """A query as vectors.

    Attributes
    ----------
    native : (D,) float32
        Unit text vector of the whole query.
    spatial : (2, K) float32 or None
        ``weight * sum_r lambda_r u_r B(t_s - t_o)``, x then y; None for a native query.
    """

    native: Floats
    spatial: Floats | None = None


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
    Products of float32 values are exact in float64. Their sum along the contiguous axis of an array follows an order
    that depends on the length of that axis alone, which a dot product does not promise; but that takes half the time.
    So its result counts where all that the order of summation may change rounds to the same float32, as it nearly
    always does, and the other rows are summed in order.
    """
    found = np.empty((3, len(rows)), np.float32)
    vectors, wide = index.native(), query.native.astype(np.float64)
    moved = None if query.spatial is None else query.spatial.ravel().astype(np.float64)
    terms = len(wide) + (0 if moved is None else len(moved))
    share = order_error(terms)
    norms = [0.0 if part is None else float(np.linalg.norm(part)) for part in (wide, moved)]
    for start in range(0, len(rows), CANONICAL_ROWS):
        part = slice(start, start + CANONICAL_ROWS)
        some = vectors[rows[part]]  # `take` would copy all of a mapped file, whose vectors are not aligned
        moments = None
        sums, size = np.zeros((3, len(some))), norms[0] * _largest(some)
        np.vecdot(some, wide, out=sums[1])
        if moved is not None:
            moments = index.sketcher.decode(index.sketch(rows[part])).reshape(len(some), -1)
            np.vecdot(moments, moved, out=sums[2])
            size += norms[1] * _largest(moments)
        np.add(sums[1], sums[2], out=sums[0])
        slack = (
            share * size * np.array([[1.0], [1.0], [moved is not None]])
        )  # a native query has no spatial score
        low, high = (sums - slack).astype(np.float32), (sums + slack).astype(np.float32)
        for row in np.flatnonzero((low != high).any(axis=0)):
            native = _in_order(some[row], wide)
            spatial = 0.0 if moments is None or moved is None else _in_order(moments[row], moved)
            low[:, row] = native + spatial, native, spatial
        found[:, part] = low
    return Scores(*found)


def order_error(terms: int) -> float:
    """How far two float64 sums of the same products, in whatever orders, can be apart.

    Parameters
    ----------
    terms : int

    Returns
    -------
    share : float
        Of the sum of the products' magnitudes: twice gamma, for there are two orders (see
        :func:`service.scan.scan_error`), and as much again for a last sum and for the norms' own rounding.
    """
    return 4 * (terms + 4) * 2.0**-53


def _in_order(row: Floats, query: NDArray[np.float64]) -> float:
    return float((row.astype(np.float64) * query).sum())


def _largest(rows: Floats) -> float:
    """At least the largest norm of rows."""
    return 1.001 * float(np.sqrt(np.vecdot(rows, rows).max(initial=0.0))) + 2.0**-60
