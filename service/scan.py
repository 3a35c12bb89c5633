"""The scan: approximate scores of all rows, fast and with a proven bound, reduced to the rows that may matter.

Axes: B queries, N images, R images of a block or selection, D embedding, K sketch components an axis.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

import numpy as np

from indexer.compiled import compiled
from service.canonical import Floats, JointQuery, Rows, Scores
from service.cores import each, split

if TYPE_CHECKING:
    from indexer.store import Index
    from service.quantised import WholeQuery

BLOCK_ROWS = 16_384
"""Rows read at a time."""

PRODUCT_ROWS = 512
"""Rows scored at a time: for 64 queries 128 KiB of scores, which stay in the cache until they are filtered."""

KEPT_BYTES = 1 << 29
"""Memory for scores that are kept for native ranks; where more would be needed, they are made again."""

_AT_A_TIME = 16

FEW_EDGES = 40

SAMPLE_ROWS = 4096
"""Rows that a guess at the last score of a ranking rests on."""

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
        Whatever may be among the best, in any order.
    coarse : Coarse or None
        None where it has nothing to spare.
    scores : Scores or None
        Canonical ones, where the scan makes them itself: ``rows`` are then the best, best first, and no others.
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
        """What :meth:`superset` would leave for the native ranks."""
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


class CpuScan:
    """One matrix product a block of rows, in float32: what any CPU does, what small indexes need and large batches.

    Attributes
    ----------
    native : (N, D) float32
    moments : (N, 2K) float32
    error : FloatError

    Notes
    -----
    Rows are shared out to all cores, each of which has its own products: let BLAS take one thread
    (``OPENBLAS_NUM_THREADS=1``, which the command line sets).
    """

    name = "float32"

    def __init__(self, index: Index) -> None:
        # Mapped vectors start 45 bytes into their file; BLAS wants them aligned.
        dim, width = index.manifest.encoder.dim, 2 * index.manifest.k
        self._both = np.empty((len(index), dim + width), np.float32)
        self.native, self.moments = self._both[:, :dim], self._both[:, dim:]
        self.error = FloatError(self.native.shape[1], self.moments.shape[1])
        for rows, native, moments in blocks(index):
            self.native[rows], self.moments[rows] = native, moments
            self.error.add(native, moments)

    def superset(
        self, queries: Sequence[JointQuery], counts: Sequence[int], *, ranks_follow: bool = False
    ) -> list[Found]:
        """See :meth:`Scan.superset`."""
        kept = None
        if ranks_follow and 4 * len(queries) * len(self.native) <= KEPT_BYTES:
            kept = np.empty((len(queries), len(self.native)), np.float32)
        found = dict(enumerate(self._scanned(queries, counts, len(self.native) // SAMPLE_ROWS, kept)))
        missed = [b for b, rows in found.items() if rows is None]
        if missed:
            again = self._scanned([queries[b] for b in missed], [counts[b] for b in missed], 0)
            found.update(zip(missed, again, strict=True))
        made = [rows for rows in found.values() if rows is not None]
        assert len(made) == len(queries)  # without a guess none is missed
        coarse: list[Coarse] | list[None] = [None] * len(queries)
        if kept is not None:
            coarse = [replace(one, scores=line) for one, line in zip(self.coarse(queries), kept, strict=True)]
        return [Found(rows, one) for rows, one in zip(made, coarse, strict=True)]

    def _scanned(
        self,
        queries: Sequence[JointQuery],
        counts: Sequence[int],
        stride: int,
        kept: Floats | None = None,
    ) -> list[Rows | None]:
        """Candidates of each query, with a guess from every ``stride``-th row; without one where it is 0.

        A query whose guess was too high gets None. Native scores (B, N) go into ``kept``.
        """
        native, joint, spatial = stacked(queries)
        together = kept is None and len(joint) == len(queries)
        both = np.concatenate([native, spatial], axis=1) if together else native

        def score(part: slice, out: Floats | None = None, kept: Floats | None = None) -> Floats:
            scores: Floats = np.matmul(both, self._both[part, : both.shape[1]].T, out=out)
            if kept is not None:
                kept[:, part] = scores
            if joint and not together:
                scores[joint] += spatial @ self.moments[part].T
            return scores

        sample = score(slice(0, None, stride)) if stride else np.zeros((len(queries), 0), np.float32)
        guesses = [
            guess_of(line, count, len(self.native)) for line, count in zip(sample, counts, strict=True)
        ]
        errors = [self.error(query) for query in queries]
        floors = np.array(
            [floor_below(float(g), e) for g, e in zip(guesses, errors, strict=True)], np.float32
        )

        def part(first: int, last: int) -> _Reaching:
            found = _Reaching(floors)
            room = np.empty((len(queries), min(PRODUCT_ROWS, last - first)), np.float32)
            for start in range(first, last, PRODUCT_ROWS):
                rows = slice(start, min(start + PRODUCT_ROWS, last))
                found.add(start, score(rows, room[:, : rows.stop - start], kept))
            return found

        parts = each(part, split(len(self.native)))
        chosen: list[Rows | None] = []
        for b, (count, guess, error) in enumerate(zip(counts, guesses, errors, strict=True)):
            rows, scores = (
                np.concatenate(found) for found in zip(*(one.of(b) for one in parts), strict=True)
            )
            place = len(scores) - count
            last = np.partition(scores, place)[place] if place >= 0 else np.float32(-np.inf)
            # Below the guess, rows that come as close to the last may have been passed over.
            sure = place >= 0 and last >= guess
            chosen.append(rows[scores >= floor_below(float(last), error)] if sure else None)
        return chosen

    def coarse(self, queries: Sequence[JointQuery]) -> list[Coarse]:
        """See :meth:`Scan.coarse`."""
        return [Coarse(self.error(JointQuery(query.native))) for query in queries]

    def sort_into(
        self, queries: Sequence[JointQuery], coarse: Sequence[Coarse], edges: Sequence[Floats]
    ) -> list[tuple[Rows, Rows]]:
        """See :meth:`Scan.sort_into`."""
        if all(one.scores is not None for one in coarse):
            lines = [one.scores for one in coarse if one.scores is not None]
            return [sort_scores(line, limits) for line, limits in zip(lines, edges, strict=True)]
        native = np.stack([q.native for q in queries])
        counts = [np.zeros(len(e) + 1, np.int64) for e in edges]
        inside: list[list[Rows]] = [[] for _ in edges]
        for start in range(0, len(self.native), BLOCK_ROWS):
            scores = native @ self.native[start : start + BLOCK_ROWS].T
            for b, line in enumerate(scores):
                more, rows = sort_scores(line, edges[b])
                counts[b] += more
                inside[b].append(start + rows)
        return [(c, np.concatenate(rows)) for c, rows in zip(counts, inside, strict=True)]


def sort_scores(scores: Floats, edges: Floats) -> tuple[Rows, Rows]:
    """Distribute scores over intervals; see :meth:`Scan.sort_into`."""
    if len(edges) <= FEW_EDGES:
        # A page of ten: twenty comparisons of everything cost less than a search for every score.
        reached = [scores >= edge for edge in edges]
        above = [len(scores), *(int(np.count_nonzero(one)) for one in reached), 0]
        inside = [np.flatnonzero(low > high) for low, high in zip(reached[::2], reached[1::2], strict=True)]
        return -np.diff(above), np.concatenate([np.zeros(0, np.int64), *inside])
    # Most of an index is below the lowest interval and needs no search.
    reaching = np.flatnonzero(scores >= edges[0])
    interval = np.searchsorted(edges, scores[reaching], side="right")
    counts = np.bincount(interval, minlength=len(edges) + 1)
    counts[0] += len(scores) - len(reaching)
    return counts, reaching[interval % 2 == 1].astype(np.int64)


class _Reaching:
    """Rows of one core that reach the floor of a query (B,), with their scores."""

    def __init__(self, floors: Floats) -> None:
        self._floors = floors
        self._held = np.zeros(len(floors), np.int64)
        self._rows = np.empty((len(floors), 0), np.int64)
        self._scores = np.empty((len(floors), 0), np.float32)

    def add(self, first: int, scores: Floats) -> None:
        """Take what reaches of scores (B, R) of rows from ``first`` on."""
        needed, room = int(self._held.max()) + scores.shape[1], self._rows.shape[1]
        if needed > room:
            more = ((0, 0), (0, 2 * needed - room))
            self._rows, self._scores = np.pad(self._rows, more), np.pad(self._scores, more)
        keep_reaching(scores, self._floors, first, self._rows, self._scores, self._held)

    def of(self, query: int) -> tuple[Rows, Floats]:
        """What a query has, in ascending order of rows."""
        held = int(self._held[query])
        return self._rows[query, :held], self._scores[query, :held]


@compiled
def keep_reaching(scores: Floats, floors: Floats, first: int, rows: Rows, values: Floats, held: Rows) -> None:
    """Append what reaches a floor.

    Parameters
    ----------
    scores : (B, R) float32
    floors : (B,) float32
    first : int
        Number of the first row.
    rows, values : (B, M) int64, (B, M) float32
        Written to, from ``held`` on.
    held : (B,) int64
        Added to.
    """
    width = scores.shape[1]
    for b in range(len(scores)):
        floor, at, line = floors[b], held[b], scores[b]
        for start in range(0, width, _AT_A_TIME):
            end = min(start + _AT_A_TIME, width)
            some = line[start:end]
            # Hardly any row reaches: a count of several at once costs less than a look at each.
            reaching = np.int32(0)
            for score in some:
                reaching += np.int32(score >= floor)
            if reaching:
                for n in range(start, end):
                    if line[n] >= floor:
                        rows[b, at], values[b, at] = first + n, line[n]
                        at += 1
        held[b] = at


def guess_of(sample: Floats, count: int, total: int) -> np.float32:
    """A score that nearly always ``count`` of ``total`` rows reach, from a sample of their scores."""
    place = likely_share(count, len(sample), total)
    if place >= len(sample):
        return np.float32(-np.inf)
    return np.float32(np.partition(sample, len(sample) - place)[len(sample) - place])


def likely_share(count: int, rows: int, total: int) -> int:
    """How many of the best ``count`` of ``total`` are among so many of the rows, or fewer, nearly always."""
    expected = count * rows / max(1, total)
    return min(rows, math.ceil(expected + 5 * math.sqrt(expected) + 5))


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


def stacked(queries: Sequence[JointQuery]) -> tuple[Floats, list[int], Floats]:
    """Stack queries to matrices.

    Returns
    -------
    native : (B, D) float32
    joint : list of S int
        Which queries have a spatial part.
    spatial : (S, 2K) float32
        Theirs. Native queries pay nothing for the sketch.
    """
    parts = {b: q.spatial.ravel() for b, q in enumerate(queries) if q.spatial is not None}
    spatial = np.stack(list(parts.values())) if parts else np.zeros((0, 0), np.float32)
    return np.stack([q.native for q in queries]), list(parts), spatial


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
