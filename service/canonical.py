"""The score of an image for a query, to the last bit: what every scan is measured by.

Axes: R images of a selection, D embedding, K sketch components an axis.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from indexer.compiled import compiled

if TYPE_CHECKING:
    from indexer.store import Index

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]
Rows = NDArray[np.int64]

LANES = 64
"""Partial sums of a score: enough for the widest vector registers, whatever CPU has them."""


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
    Products of float32 values are exact in float64, so the order of their sum alone decides. Component j is added to
    lane ``j mod 64``, from the first to the last, and the lanes are then added half to half. Every CPU does just that.
    """
    sums = np.zeros((3, len(rows)))
    dot_rows(index.native(), rows, query.native.astype(np.float64), sums[1])
    if query.spatial is not None:
        moments = index.sketcher.decode(index.sketch(rows)).reshape(len(rows), query.spatial.size)
        dot_rows(moments, np.arange(len(rows)), query.spatial.ravel().astype(np.float64), sums[2])
    np.add(sums[1], sums[2], out=sums[0])
    return Scores(*sums.astype(np.float32))


@compiled
def dot_rows(vectors: Floats, rows: Rows, query: Doubles, out: Doubles) -> None:
    """Inner products of some rows in float64, in the order of :func:`canonical_scores`.

    Parameters
    ----------
    vectors : (N, D) float32
        Aligned or not.
    rows : (R,) int64
    query : (D,) float64
    out : (R,) float64
        Written to.
    """
    lanes = np.zeros(LANES)
    width = len(query)
    whole = width // LANES * LANES
    for i in range(len(rows)):
        row = vectors[rows[i]]
        lanes[:] = 0.0
        for start in range(0, whole, LANES):
            # Slices let the compiler see that it may take several components at a time.
            some, others = row[start : start + LANES], query[start : start + LANES]
            for lane in range(LANES):
                lanes[lane] += np.float64(some[lane]) * others[lane]
        for at in range(whole, width):
            lanes[at - whole] += np.float64(row[at]) * query[at]
        half = LANES // 2
        while half:
            for lane in range(half):
                lanes[lane] += lanes[lane + half]
            half //= 2
        out[i] = lanes[0]


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
