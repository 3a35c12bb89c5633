"""The scan in eight bits: a quarter of the bytes of float32, read at the memory's speed, and a bound on what is lost.

What this module holds to:

- every row n is stored as ``x_n = centre + s_n (h_n + l_n / 254) + rest`` with int8 codes ``h_n`` and ``l_n``, every
  query as whole numbers of sixteen bits. All rows are scored by ``h_n`` alone, in integers and therefore exactly. What
  that leaves of a row has a known norm ``rho_n``, and ``|q . r_n| <= ||q|| rho_n`` (Cauchy and Schwarz) bounds the
  score from above and below, row by row; rounding and the query's own remainder are bounded too
  (:meth:`service.quantised.WholeQuery.error`);
- ``l_n`` is read only for rows that these bounds leave in doubt, and brings their scores as near as makes no difference
  but to ties: candidates, and neighbours of a page's pictures in the native ranking;
- a row is dropped only where it cannot reach the k-th best score. Rows are kept in a random order, so that those seen
  so far say about where that will be; where they said too much, the rows are gone through once more;
- the loops are compiled for the CPU at hand and run in all cores. Integers are exact on every one.

Axes: B queries, S of them with a spatial part, N images, R images of a selection, D components of a vector. Places are
those of rows in the random order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from indexer.tiles import Wide
from service.canonical import Doubles, Floats, JointQuery, Rows
from service.cores import CORES, each, split
from service.products import BLOCK, FINER, Side, keep, score, stacked
from service.quantised import TINY, UNIT_ROUNDOFF, CodedRows, WholeQuery, sort_rows
from service.scan import Coarse, FloatError, Found, blocks, floor_below

if TYPE_CHECKING:
    from indexer.store import Index

KEPT_BYTES = 1 << 29
"""Memory for native scores of all rows; where more would be needed, they are made in turns."""

_NONE_KEPT = np.empty((0, 0), np.float32)


@dataclass(frozen=True, slots=True, eq=False)
class _Asked:
    """One query of a batch, its vectors in whole numbers."""

    query: JointQuery
    count: int
    native: WholeQuery
    moments: WholeQuery | None


@dataclass(frozen=True, slots=True, eq=False)
class _Stacked:
    """Queries against one kind of rows, as :mod:`service.products` wants them."""

    codes: Wide
    many: Wide
    steps: Doubles
    norms: Floats

    @classmethod
    def of(cls, queries: Sequence[WholeQuery], rows: CodedRows) -> _Stacked:
        return cls(
            *stacked([one.codes for one in queries], rows.high.shape[1]),
            np.array([one.step for one in queries]),
            np.array([one.reach for one in queries], np.float32),
        )

    def against(self, rows: CodedRows) -> Side:
        return rows.high, rows.scale, rows.residual, rows.finer, self.codes, self.many, self.steps, self.norms


class Int8Scan:
    """See the module's text. Owns two int8 copies of the native vectors and one of the moments.

    Parameters
    ----------
    index : Index

    Notes
    -----
    Read-only after construction: any number of threads may use it.
    """

    name = "int8"

    def __init__(self, index: Index) -> None:
        n, dim, width = len(index), index.manifest.encoder.dim, 2 * index.manifest.k
        self._size = FloatError(dim, width)
        self._centre: Doubles = np.zeros(dim)
        for _, native, moments in blocks(index):
            self._size.add(native, moments)
            self._centre += native.sum(axis=0, dtype=np.float64) / n
        self._native, self._moments = CodedRows(n, dim), CodedRows(n, width)
        self._no_moments = _Stacked.of([], self._moments)
        self._row_at = shuffled(n)
        place = np.empty(n, np.int64)
        place[self._row_at] = np.arange(n)
        # The sketch of an int8 index is in codes already; its steps go into the query and nothing is lost.
        coded = n > 0 and index.sketch(slice(0, 1)).dtype == np.int8
        scale = index.sketcher.scale if coded else np.ones_like(index.sketcher.scale)
        self._moment_step: Doubles = np.tile(scale, 2).astype(np.float64)
        for rows, native, moments in blocks(index):
            self._native.put(place[rows], native, self._centre)
            if coded:
                codes = index.sketch(rows).reshape(moments.shape).astype(np.int8)
                self._moments.put_codes(place[rows], codes)
            else:
                self._moments.put(place[rows], np.ascontiguousarray(moments), np.zeros(width))

    def superset(
        self, queries: Sequence[JointQuery], counts: Sequence[int], *, ranks_follow: bool = False
    ) -> list[Found]:
        """See :meth:`service.scan.Scan.superset`."""
        asked = self._asked(queries, counts)
        n, spatial = len(self._native), [b for b, one in enumerate(asked) if one.moments is not None]
        kept = _NONE_KEPT
        if ranks_follow and 4 * len(spatial) * n <= KEPT_BYTES:
            kept = np.empty((len(spatial), n), np.float32)
        found = self._candidates(asked, None, kept)
        missed = [b for b, (_, needed, floor) in enumerate(found) if needed < floor]
        if missed:
            floors = np.array([found[b][1] for b in missed], np.float32)
            again = self._candidates([asked[b] for b in missed], floors, _NONE_KEPT)
            for b, one in zip(missed, again, strict=True):
                found[b] = one
        coarse: dict[int, Coarse] = {}
        if len(kept):
            coarse = {b: self._coarse(asked[b].native, line) for b, line in zip(spatial, kept, strict=True)}
        return [Found(rows, coarse.get(b)) for b, (rows, _, _) in enumerate(found)]

    def coarse(self, queries: Sequence[JointQuery]) -> list[Coarse]:
        """See :meth:`service.scan.Scan.coarse`."""
        return [self._coarse(whole) for whole in _natives(queries)]

    def sort_into(
        self, queries: Sequence[JointQuery], coarse: Sequence[Coarse], edges: Sequence[Floats]
    ) -> list[tuple[Rows, Rows]]:
        """See :meth:`service.scan.Scan.sort_into`."""
        found: list[tuple[Rows, Rows]] = []
        together = max(1, KEPT_BYTES // (4 * len(self._native)))
        for start in range(0, len(queries), together):
            part = slice(start, start + together)
            jobs = zip(queries[part], self._scored(coarse[part]), edges[part], strict=True)
            found += [self._sort(*job) for job in jobs]
        return found

    def _asked(self, queries: Sequence[JointQuery], counts: Sequence[int]) -> list[_Asked]:
        given = [query.spatial.ravel() * self._moment_step for query in queries if query.spatial is not None]
        moments = iter(WholeQuery.of(np.array(given)) if given else [])
        return [
            _Asked(query, count, native, None if query.spatial is None else next(moments))
            for query, count, native in zip(queries, counts, _natives(queries), strict=True)
        ]

    def _scored(self, coarse: Sequence[Coarse]) -> list[Coarse]:
        """The same with the scores that were not kept."""
        made = list(coarse)
        bare = {b: one.whole for b, one in enumerate(coarse) if one.scores is None and one.whole is not None}
        if bare:
            queries = _Stacked.of(list(bare.values()), self._native)
            scores = np.empty((len(bare), len(self._native)), np.float32)

            def part(first: int, last: int) -> None:
                score(
                    self._native.high, self._native.scale, queries.codes, queries.many, queries.steps,
                    first, last, scores,
                )  # fmt: skip

            each(part, split(len(self._native)))
            for b, line in zip(bare, scores, strict=True):
                made[b] = replace(made[b], scores=line)
        return made

    def _sort(self, query: JointQuery, coarse: Coarse, edges: Floats) -> tuple[Rows, Rows]:
        """Sort by the bounds the scan left; only whom they leave in doubt by the second codes."""
        assert coarse.whole is not None
        assert coarse.scores is not None
        if not len(edges):
            return np.array([len(self._native)]), np.zeros(0, np.int64)
        whole, scores, rows = coarse.whole, coarse.scores, self._native
        reach = 1.001 * (whole.norm + whole.rest)
        spare = reach * rows.largest_rest + coarse.error
        offset = float(query.native.astype(np.float64) @ self._centre)

        def part(first: int, last: int) -> tuple[Rows, Rows]:
            counts, inside = np.zeros(len(edges) + 1, np.int64), np.empty(last - first, np.int64)
            found = sort_rows(
                (rows.low, rows.scale, rows.residual), scores, whole.codes, whole.step / FINER, reach, spare, offset,
                edges, (first, last), counts, inside,
            )  # fmt: skip
            return counts, inside[:found]

        made = each(part, split(len(scores)))
        inside = np.concatenate([places for _, places in made])
        return np.sum([counts for counts, _ in made], axis=0), self._row_at[inside]

    def _coarse(self, whole: WholeQuery, scores: Floats | None = None) -> Coarse:
        # Sums with the centre's product are rounded once more.
        centre = 4 * UNIT_ROUNDOFF * whole.norm * float(np.linalg.norm(self._centre))
        return Coarse(whole.fine_error(self._native) + centre, scores, whole)

    def _stacked(self, asked: Sequence[_Asked]) -> tuple[_Stacked, _Stacked, Rows]:
        """Queries against vectors and against moments, and which of these belongs to which of those, -1 for none."""
        spatial = [one.moments for one in asked if one.moments is not None]
        has = np.array([one.moments is not None for one in asked])
        return (
            _Stacked.of([one.native for one in asked], self._native),
            _Stacked.of(spatial, self._moments) if spatial else self._no_moments,
            np.where(has, has.cumsum() - 1, -1),
        )

    def _candidates(
        self, asked: Sequence[_Asked], floors: Floats | None, kept: Floats
    ) -> list[tuple[Rows, np.float32, np.float32]]:
        """Rows that the best of each query may be among, ascending, the floor that it takes to tell, and the one taken.

        Where the first floor is lower, rows may be missing. Without floors (B,) they are guessed on the way. Native
        scores of spatial queries go into ``kept`` (S, N) or (0, 0).
        """
        native, moments, of = self._stacked(asked)
        vectors, sketches = native.against(self._native), moments.against(self._moments)
        room = 4 * BLOCK + 4 * max(one.count for one in asked) // CORES
        if floors is None:
            counts = np.array([one.count for one in asked])
            floors = np.full(len(asked), -np.inf, np.float32)
        else:
            counts = np.zeros(len(asked), np.int64)

        def part(first: int, last: int) -> tuple[Rows, Floats, Rows, Floats]:
            held, own, at = np.zeros(len(asked), np.int64), floors.copy(), first
            places = np.empty((len(asked), room), np.int64)
            scores = np.empty((len(asked), room), np.float32)
            while True:
                at = keep(vectors, sketches, of, counts, own, (first, last), at, kept, places, scores, held)
                if at == last:
                    return places, scores, held, own
                more = ((0, 0), (0, places.shape[1]))
                places, scores = np.pad(places, more), np.pad(scores, more)

        parts = each(part, split(len(self._native)))
        taken = np.max([own for *_, own in parts], axis=0)
        made = []
        for b, one in enumerate(asked):
            some = [np.concatenate([found[which][b, : found[2][b]] for found in parts]) for which in (0, 1)]
            made.append((*self._select(one, *some), taken[b]))
        return made

    def _select(self, asked: _Asked, places: Rows, scores: Floats) -> tuple[Rows, np.float32]:
        """Rows that may be among the best, ascending, of those that reached a floor, and the floor it takes to tell."""
        needed = np.float32(-np.inf)
        if len(places) >= asked.count:
            at = len(scores) - asked.count
            last = float(np.partition(scores, at)[at])
            needed = floor_below(last, self._error(asked) + 2 * UNIT_ROUNDOFF * abs(last))
        return np.sort(self._row_at[places[scores >= needed]]), needed

    def _error(self, asked: _Asked) -> float:
        """How far a fine score may be from the canonical one."""
        # Besides the terms' errors: rounding of their sum and of the canonical score.
        error = (
            asked.native.fine_error(self._native) + 16 * UNIT_ROUNDOFF * self._size.reach(asked.query) + TINY
        )
        return error if asked.moments is None else error + asked.moments.fine_error(self._moments)


def _natives(queries: Sequence[JointQuery]) -> list[WholeQuery]:
    return WholeQuery.of(np.array([query.native for query in queries], np.float64)) if queries else []


def shuffled(count: int) -> Rows:
    """Which row (N,) stands at each place: a random order, the same for each index of so many."""
    return np.random.default_rng(0).permutation(count)
