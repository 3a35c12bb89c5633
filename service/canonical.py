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

CANONICAL_ROWS = 128
"""Rows scored at a time: their float64 values stay in the cache."""


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
    Products of float32 values are exact in float64. Their sum along the contiguous axis follows an order that
    depends on the length of that axis alone, which a BLAS product does not promise.
    """
    native = np.empty(len(rows))
    spatial = np.zeros(len(rows))
    vectors, wide = index.native(), query.native.astype(np.float64)
    moved = None if query.spatial is None else query.spatial.ravel().astype(np.float64)
    for start in range(0, len(rows), CANONICAL_ROWS):
        part = slice(start, start + CANONICAL_ROWS)
        native[part] = _inner(vectors[rows[part]], wide)
        if moved is not None:
            moments = index.sketcher.decode(index.sketch(rows[part]))
            spatial[part] = _inner(moments.reshape(len(moments), -1), moved)
    return Scores(
        (native + spatial).astype(np.float32), native.astype(np.float32), spatial.astype(np.float32)
    )


def _inner(rows: Floats, query: NDArray[np.float64]) -> NDArray[np.float64]:
    products = rows.astype(np.float64, order="C")
    products *= query
    sums: NDArray[np.float64] = products.sum(axis=-1)
    return sums
