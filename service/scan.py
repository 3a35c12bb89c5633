"""The scan: approximate scores of all rows, fast and with a proven bound, reduced to the rows that may matter.

Axes: B queries, N images, R images of a block or selection, D embedding, K sketch components an axis.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import numpy as np

from service.canonical import Floats, JointQuery, Rows, Scores

if TYPE_CHECKING:
    from indexer.store import Index
    from service.quantised import WholeQuery

BLOCK_ROWS = 16_384
"""Rows read at a time."""

_UNIT_ROUNDOFF = 2.0**-24
_SMALLEST_NORMAL = 2.0**-126


@dataclass(frozen=True, slots=True, eq=False)
class Coarse:
    """What a scan knows of the native scores of one query, for its native ranks.

    Attributes
    ----------
    error : float
        How far a score of :meth:`Scan.sort_into` may be from the canonical one.
    scores : (N,) float32 or None
        The scan's own, left over from a scan before; None where they are made again.
    whole : WholeQuery or None
        The query in whole numbers, for scores of eight bits.
    """

    error: float
    scores: Floats | None = field(default=None, repr=False)
    whole: WholeQuery | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Found:
    """What a scan found for one query.

    Attributes
    ----------
    rows : (R,) int64
        Whatever may be among the best, ascending.
    coarse : Coarse or None
        None where it has nothing to spare.
    scores : Scores or None
        Canonical ones, where the scan makes them itself: ``rows`` are then the best and no others, best first.
    """

    rows: Rows
    coarse: Coarse | None
    scores: Scores | None = None


class Scan(Protocol):
    """Approximate scores of all rows, reduced to what the engine needs. Owns its copy of the vectors."""

    @property
    def name(self) -> str:
        """What to call it in a report."""
        ...

    def superset(
        self, queries: Sequence[JointQuery], counts: Sequence[int], *, ranks_follow: bool = False
    ) -> list[Found]:
        """Rows that may be among the best ``counts[b]`` of query b, at least as many.

        Where native ranks will be asked for, what serves them too may be kept, see :class:`Coarse`.
        """
        ...

    def coarse(self, queries: Sequence[JointQuery]) -> list[Coarse]:
        """What :meth:`superset` would leave for the native ranks, without scores."""
        ...

    def sort_into(
        self, queries: Sequence[JointQuery], coarse: Sequence[Coarse], edges: Sequence[Floats]
    ) -> list[tuple[Rows, Rows]]:
        """Distribute native scores over intervals ``[e0, e1), [e1, e2), ...`` with the tails on both sides.

        Parameters
        ----------
        coarse : sequence of B Coarse
            Of the same queries.
        edges : sequence of B (2 M_b,) float32
            Ascending.

        Returns
        -------
        parts : list of B (counts, rows)
            counts : (2 M_b + 1,) int64, scores per interval; rows : (R_b,) int64, those in odd intervals.
        """
        ...


def floor_below(last: float, error: float) -> np.float32:
    """Lowest scan score that a member of the true top k can have.

    Parameters
    ----------
    last : float
        The k-th best scan score. k rows have canonical scores of at least ``last - error``, so whoever
        belongs to the top k has that too, and a scan score of at least ``last - 2 error``.
    error : float
        From :func:`scan_error`.
    """
    return np.float32(np.nextafter(np.float32(last - 2 * error), np.float32(-np.inf)))


def scan_error(terms: int, size: float) -> float:
    """Bound how far a float32 inner product, summed in any order, is from the canonical score.

    Parameters
    ----------
    terms : int
        Length of the vectors.
    size : float
        At least ``|x|.|y|``, the sum of the products' magnitudes.

    Returns
    -------
    error : float
        At least ``|scan - canonical|``.

    References
    ----------
    N. J. Higham, Accuracy and Stability of Numerical Algorithms, 2nd edition, SIAM 2002, equation (3.5):
    ``|fl(x.y) - x.y| <= gamma_n |x|.|y|`` with ``gamma_n = n u / (1 - n u)`` for every order of summation,
    fused or not. Four more terms cover the sum of both parts and the rounding of the canonical score, one
    smallest normal number a term flushed subnormals; the last hundredth covers the norms' own rounding.

    Examples
    --------
    >>> f"{scan_error(256, 1.0):.1e}"
    '1.6e-05'
    """
    n = terms + 4
    gamma = n * _UNIT_ROUNDOFF / (1 - n * _UNIT_ROUNDOFF)
    return 1.01 * (gamma * size + n * _SMALLEST_NORMAL)


class FloatError:
    """:func:`scan_error` of queries over rows that are scanned in float32.

    Parameters
    ----------
    dim, width : int
        D and 2K.

    Attributes
    ----------
    native, moment : float
        Largest norm of a native vector and of a vector of moments, of the rows added so far.
    """

    def __init__(self, dim: int, width: int) -> None:
        self._dim, self._width = dim, width
        self.native = self.moment = 0.0

    def add(self, native: Floats, moments: Floats) -> None:
        """Count rows in, (R, D) and (R, 2K)."""
        self.native = max(self.native, largest_norm(native))
        self.moment = max(self.moment, largest_norm(moments))

    def reach(self, query: JointQuery) -> float:
        """At least the largest score that a row can have, and the sum of its products' magnitudes."""
        size = self.native * largest_norm(query.native[None])
        if query.spatial is not None:
            # Part by part (Cauchy and Schwarz): moments are small, and what multiplies them is not.
            size += self.moment * largest_norm(query.spatial.reshape(1, -1))
        return size

    def __call__(self, query: JointQuery) -> float:
        """How far a float32 score may be from the canonical one."""
        return scan_error(self._dim + (0 if query.spatial is None else self._width), self.reach(query))


def largest_norm(rows: Floats) -> float:
    """Largest Euclidean norm of rows, in float64."""
    return float(np.sqrt((rows.astype(np.float64) ** 2).sum(axis=1).max(initial=0.0)))


def blocks(index: Index) -> Iterator[tuple[slice, Floats, Floats]]:
    """Native vectors and decoded moments (R, 2K), block by block, aligned."""
    for start in range(0, len(index), BLOCK_ROWS):
        rows = slice(start, min(start + BLOCK_ROWS, len(index)))
        moments = index.sketcher.decode(index.sketch(rows))
        yield rows, np.array(index.native()[rows]), moments.reshape(len(moments), -1)
