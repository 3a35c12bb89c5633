"""The second stage: a closer look at the best candidates, on their patch grids.

The first stage ranks the whole index by an inner product (native score plus moment), which weighs things by their area
and takes a lone thing on the right side for both. The second reads from the grid where each thing is and whether it is
there, and scores

    native + weight * std(native) * sum_r ( PLACE * tanh(d_r / std(d_r)) + PRESENCE * mean_w z_w )

where ``d_r`` is the displacement of relation r along its direction, ``z_w`` the best cell of a word of the relation
in standard deviations over the collection, and the spreads are those of the reference sample. The hyperbolic tangent
lets no displacement, however large, stand in for a thing that is missing.

How the stages join, whatever the page, batch or engine: exactly the first :data:`CANDIDATES` pictures of the first
stage (all of a smaller index) are scored again and ordered by (score, row). The others follow in the order of the first
stage; their spatial scores are lowered by one constant, so that the best of them stays below the last candidate.

Axes: R images, W words, P cells, G cells down and across.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from indexer.grid import GridQuery, GridSketcher, Packed
from indexer.store import Index
from parser.relation import Position, SpatialRelation
from service.canonical import Floats, Rows, Scores
from service.cores import CORES, each
from service.engine import Top
from service.maps import adr_dense, centroid, excess, whole_softmax_centroid
from service.query import Readout
from service.readout import UNIT, phrases
from service.recent import Recent
from service.reference import reference_rows

Doubles = NDArray[np.float64]
Seen = tuple[Doubles, Doubles]
"""Centres (R, W, 2) and best cells (R, W) of the words of a query."""

REMEMBERED = 4096
"""Queries of which it is remembered what they show in the reference, about a kilobyte each."""

CANDIDATES = 1000
PLACE = 4.8
PRESENCE = 2.0
"""Chosen on photographs of coco/train with heads trained on others, see the log of choices in benchmarks.spatial."""
BACKGROUND = 10
"""Nouns that compete with the query's for the cells, in ``adr_background``."""
SHARED_ROWS = 512
"""Grids of one query from which on reading them is worth another core."""
_LEAST_SPREAD = 0.02
"""Of a displacement, in picture widths; less is rounding."""


@dataclass(frozen=True, slots=True, eq=False)
class Reading:
    """A query ready for grids.

    Attributes
    ----------
    relations : tuple of SpatialRelation
    words : tuple of str
        The phrases of the relations.
    readout : Readout
        Any but the moment.
    query : GridQuery
        The words, and whatever competes with them.
    candidates : int
        How many of the first stage are read.
    """

    relations: tuple[SpatialRelation, ...]
    words: tuple[str, ...]
    readout: Readout
    query: GridQuery
    candidates: int


@dataclass(frozen=True, slots=True, eq=False)
class Usual:
    """What a query shows in the reference sample.

    Attributes
    ----------
    peak, peak_spread : (W,) float64
        Mean and standard deviation of the best cell of each word; infinite for a word that every picture shows alike.
    place, place_spread : tuple of float
        The same of the displacement of each relation. Only the distance from the centre has a mean that is not zero by
        itself.
    """

    peak: Doubles
    peak_spread: Doubles
    place: tuple[float, ...]
    place_spread: tuple[float, ...]

    @classmethod
    def of(cls, reading: Reading, centres: Doubles, peaks: Doubles) -> Usual:
        """Of centres (R, W, 2) and best cells (R, W) in the sample."""
        apart = [displacement(one, reading.words, centres) for one in reading.relations]
        centred = [one.relation is Position.AT_CENTER for one in reading.relations]
        spread = peaks.std(axis=0)
        return cls(
            peaks.mean(axis=0),
            np.where(spread > 0, spread, np.inf),
            tuple(float(some.mean()) if flag else 0.0 for some, flag in zip(apart, centred, strict=True)),
            tuple(max(float(some.std()), _LEAST_SPREAD) for some in apart),
        )


@dataclass(frozen=True, slots=True, eq=False)
class Joined:
    """A ranking after the second stage.

    Attributes
    ----------
    top : Top
        Rows and scores, best first.
    parts : (R, relations) float64
        What each relation adds to the spatial score of a candidate; rows of candidates only.
    candidates : int
        How many of the first rows were scored by the second stage.
    lowered : float
        What the spatial scores of all others were lowered by.
    """

    top: Top
    parts: Doubles
    candidates: int
    lowered: float


class Reranker:
    """Scores candidates on their patch grids.

    Parameters
    ----------
    index : Index
        With grids.
    candidates : int
        How many pictures of the first stage are scored again.

    Notes
    -----
    A score depends on the query, the picture and the index alone: similarities are exact whole numbers, and all that
    follows is summed within one picture.
    """

    def __init__(self, index: Index, *, candidates: int = CANDIDATES) -> None:
        self._candidates = candidates
        assert index.grid_sketcher is not None
        self._sketcher: GridSketcher = index.grid_sketcher
        self._native_std = index.manifest.calibration.native_std
        packed = index.grid()
        assert packed is not None
        self._packed = packed
        self._reference = packed[reference_rows(index)]
        self._known: Recent[tuple[Readout, tuple[SpatialRelation, ...], bytes], Usual] = Recent()
        vocabulary = self._sketcher.vocabulary
        self._mean_word: Floats = vocabulary.mean(axis=0)
        self._background: Floats = vocabulary[:: max(1, len(vocabulary) // BACKGROUND)][:BACKGROUND]

    def read(
        self, relations: Sequence[SpatialRelation], vectors: Mapping[str, Floats], readout: Readout
    ) -> Reading:
        """Prepare a query.

        Parameters
        ----------
        relations : sequence of SpatialRelation
        vectors : mapping of str to (D,) float32
            Unit text vectors of all phrases.
        readout : Readout
        """
        words = phrases(relations)
        stacked = np.stack([vectors[word] for word in words])
        match readout:
            case Readout.ADR | Readout.ADR_DENSE:
                texts = stacked
            case Readout.ADR_BACKGROUND:
                texts = np.concatenate([stacked, self._background])
            case _:
                texts = stacked - self._mean_word
        return Reading(tuple(relations), words, readout, self._sketcher.query(texts), self._candidates)

    def join(self, reading: Reading, first: Top, *, weight: float) -> Joined:
        """Rank again.

        Parameters
        ----------
        reading : Reading
        first : Top
            The first stage, at least ``reading.candidates`` rows or the whole index.
        weight : float
            Of the spatial score.
        """
        count = min(reading.candidates, len(first.rows))
        rows, native = first.rows[:count], first.scores.native[:count]
        parts = self.parts(reading, rows) * weight
        spatial = parts.sum(axis=1)
        total = (native.astype(np.float64) + spatial).astype(np.float32)
        order = np.lexsort((rows, -total))
        tail = first.scores[count:]
        lowered = 0.0
        if len(tail.total):
            below = np.nextafter(total[order[-1]], np.float32(-np.inf))
            lowered = max(0.0, float(tail.total[0]) - float(below))
        # In float64 scores that differ still differ once they are lowered; in float32 they could come to tie.
        scores = Scores(
            np.concatenate([total[order], tail.total.astype(np.float64) - lowered]),
            np.concatenate([native[order], tail.native]),
            np.concatenate([spatial[order], tail.spatial.astype(np.float64) - lowered]),
        )
        return Joined(
            Top(np.concatenate([rows[order], first.rows[count:]]), scores),
            parts[order],
            count,
            lowered,
        )

    def parts(self, reading: Reading, rows: Rows) -> Doubles:
        """Score pictures of the index, relation by relation, at weight 1: see :meth:`score`."""
        return self.score(reading, self._packed, rows)

    def score(self, reading: Reading, packed: Packed, rows: Rows | None = None) -> Doubles:
        """Score grids, relation by relation, at weight 1.

        Parameters
        ----------
        reading : Reading
        packed : (N, row_bytes) uint8
            Made by the index's grid sketcher; the pictures need not be in the index.
        rows : (R,) int64, optional
            Which of them; all by default.

        Returns
        -------
        parts : (R, relations) float64
            In units of the native score.
        """
        place, presence = self.terms(reading, packed, rows)
        return PLACE * place + PRESENCE * presence

    def terms(self, reading: Reading, packed: Packed, rows: Rows | None = None) -> tuple[Doubles, Doubles]:
        """What :meth:`score` is the weighted sum of.

        Returns
        -------
        place, presence : (R, relations) float64
            In units of the native score.
        """
        usual = self._usual(reading)
        centres, peaks = self._see(reading, packed, rows)
        presence = (peaks - usual.peak) / usual.peak_spread
        places, there = [], []
        for one, mean, spread in zip(reading.relations, usual.place, usual.place_spread, strict=True):
            places.append(np.tanh((displacement(one, reading.words, centres) - mean) / spread))
            words = [reading.words.index(word) for word in phrases([one])]
            there.append(presence[:, words].mean(axis=1))
        return self._native_std * np.stack(places, axis=1), self._native_std * np.stack(there, axis=1)

    def _usual(self, reading: Reading) -> Usual:
        """What the words show in the reference sample, remembered."""
        key = reading.readout, reading.relations, reading.query.integers.tobytes()
        known = self._known.get(key)
        if known is None:
            known = Usual.of(reading, *self._see(reading, self._reference))
            self._known.put(key, known, most=REMEMBERED)
        return known

    def _see(self, reading: Reading, packed: Packed, rows: Rows | None = None) -> Seen:
        """Centres (R, W, 2) and best cells (R, W) of the words."""
        chosen = np.arange(len(packed)) if rows is None else rows
        if len(chosen) < SHARED_ROWS:
            return self._read(reading, packed, chosen)
        seen = each(self._read, [(reading, packed, part) for part in np.array_split(chosen, CORES)])
        return np.concatenate([one for one, _ in seen]), np.concatenate([one for _, one in seen])

    def _read(self, reading: Reading, packed: Packed, rows: Rows) -> Seen:
        maps = self._sketcher.similarities(packed, reading.query, rows)
        if reading.readout is Readout.CENTROID:
            return whole_softmax_centroid(maps, self._sketcher.side)
        words = len(reading.words)
        centres = centres_of(maps, reading.query, self._sketcher.side, reading.readout)
        return centres[:, :words], maps[:, :words].max(axis=-1)


def centres_of(maps: Doubles, query: GridQuery, side: int, readout: Readout) -> Doubles:
    """Where each word is, by one of the published readouts.

    Parameters
    ----------
    maps : (R, W, P) float64
        From `indexer.grid.GridSketcher.similarities`.
    query : GridQuery
    side : int
        G.
    readout : Readout

    Returns
    -------
    centres : (R, W, 2) float64
    """
    square = (*maps.shape[:-1], side, side)
    cosines = (maps * query.unit[:, None] + query.offset[:, None]).transpose(0, 2, 1)
    weights = adr_dense(cosines) if readout is Readout.ADR_DENSE else excess(cosines)
    return centroid(weights.transpose(0, 2, 1).reshape(square))


def displacement(relation: SpatialRelation, words: Sequence[str], centres: Doubles) -> Doubles:
    """How far things stand apart in the direction that a relation asks for.

    Parameters
    ----------
    relation : SpatialRelation
    words : sequence of W str
    centres : (R, W, 2) float64

    Returns
    -------
    displacement : (R,) float64
        In picture widths; positive where the relation holds. For a position it is the distance from the middle of the
        picture towards it, and for the centre itself the distance from it, negative.
    """
    where = centres[:, words.index(relation.subject)]
    if relation.object is not None:
        where = where - centres[:, words.index(relation.object)]
    if relation.relation is Position.AT_CENTER:
        return -np.hypot(where[:, 0], where[:, 1])
    x, y = UNIT[relation.relation]
    along: Doubles = where[:, 0] * x + where[:, 1] * y
    return along
