"""The score of an image for a query, to the last bit: what every scan is measured by.

Axes: R images of a selection, D embedding, K sketch components an axis.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from indexer.compiled import LINE, ask_for, compiled
from indexer.sketch import Codes
from service.lanes import LANES, dot

if TYPE_CHECKING:
    from indexer.store import Index

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]
Rows = NDArray[np.int64]

_AHEAD, _START = 4, 512
"""Rows between the one that is read and the one whose first bytes the memory is asked for; the CPU itself goes on."""


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
        ``total`` is the sum rounded once, not the sum of the two rounded parts. After a second stage ``total`` and
        ``spatial`` are float64.
    """

    total: Floats | Doubles
    native: Floats
    spatial: Floats | Doubles

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
    Products of float32 values are exact in float64, so the order of their sum alone decides: see :mod:`service.lanes`.
    """
    sums = np.zeros((3, len(rows)))
    dot_rows(index.native(), rows, query.native.astype(np.float64), sums[1])
    if query.spatial is not None:
        sums[2] = moment_scores(index, query.spatial, rows)
    np.add(sums[1], sums[2], out=sums[0])
    return Scores(*sums.astype(np.float32))


def moment_scores(index: Index, spatial: Floats, rows: Rows) -> Doubles:
    """What the moments of a selection of images (R,) add to their scores, before it is rounded.

    Parameters
    ----------
    index : Index
    spatial : (2, K) float32
    rows : (R,) int64

    Returns
    -------
    scores : (R,) float64
    """
    codes, query = index.sketch(rows), spatial.ravel().astype(np.float64)
    out = np.empty(len(rows))
    if codes.dtype == np.int8:
        dot_codes(codes.reshape(len(rows), len(query)), index.sketcher.scale, query, out)
    else:
        moments = index.sketcher.decode(codes).reshape(len(rows), len(query))
        dot_rows(moments, np.arange(len(rows)), query, out)
    return out


@compiled
def dot_rows(vectors: Floats, rows: Rows, query: Doubles, out: Doubles) -> None:
    """Inner products of some rows in float64, in the order of :mod:`service.lanes`.

    Parameters
    ----------
    vectors : (N, D) float32
        Aligned or not.
    rows : (R,) int64
    query : (D,) float64
    out : (R,) float64
        Written to.
    """
    width = len(query)
    padded = np.zeros(-(-width // LANES) * LANES)
    padded[:width] = query
    room = np.zeros((1, len(padded)), np.float32)
    for i in range(len(rows)):
        later = rows[min(i + _AHEAD, len(rows) - 1)]
        for at in range(0, min(_START, 4 * width), LINE):
            ask_for(vectors, later, at)
        if width == len(padded):
            out[i] = dot(vectors, rows[i], padded)
        else:
            room[0, :width] = vectors[rows[i]]
            out[i] = dot(room, 0, padded)


@compiled
def dot_codes(codes: Codes, scale: Floats, query: Doubles, out: Doubles) -> None:
    """:func:`dot_rows` of int8 codes (R, 2 K) as a sketcher decodes them, times their scale (K,) in float32."""
    width = len(query)
    padded = np.zeros(-(-width // LANES) * LANES)
    padded[:width] = query
    decoded = np.zeros((1, len(padded)), np.float32)
    for i in range(len(codes)):
        for start in range(0, width, len(scale)):
            some, own = codes[i, start : start + len(scale)], decoded[0, start : start + len(scale)]
            for j in range(len(scale)):
                own[j] = np.float32(some[j]) * scale[j]
        out[i] = dot(decoded, 0, padded)


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
