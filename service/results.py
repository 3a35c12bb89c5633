"""What a search answers, and how it is written as JSON."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import numpy as np

from parser.relation import ParsedQuery, SpatialRelation
from service.query import Readout
from service.readout import UNIT, is_proxy


class Ranking(StrEnum):
    """How a query was ranked."""

    NATIVE = "native"
    SPATIAL = "spatial"


@dataclass(frozen=True, slots=True)
class Hit:
    """One picture of a result.

    Attributes
    ----------
    id, path : str
    rank : int
        From 1, counted over all pages.
    score, native_score, spatial_score : float
        float32 values; higher is better. ``spatial_score`` is 0 in a native ranking.
    native_rank : int
        Where the native ranking has this picture.
    readout : Readout or None
        What the spatial score was read with: in a two-stage ranking only the candidates have the second stage's. None
        in a native ranking.
    contributions : tuple of float
        Spatial score by relation, in the order of ``ranked_relations``; empty unless asked for.
    """

    id: str
    path: str
    rank: int
    score: float
    native_score: float
    spatial_score: float
    native_rank: int
    readout: Readout | None = None
    contributions: tuple[float, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON values; scores in the fewest digits that read back as the same float32."""
        values: dict[str, Any] = {
            "id": self.id,
            "path": self.path,
            "rank": self.rank,
            "score": _short(self.score),
            "native_score": _short(self.native_score),
            "spatial_score": _short(self.spatial_score),
            "native_rank": self.native_rank,
        }
        if self.contributions:
            values["contributions"] = [_short(c) for c in self.contributions]
            values["readout"] = self.readout
        return values


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The answer to one query.

    Attributes
    ----------
    query : str
        As it was searched.
    mode : Ranking
    parsed : ParsedQuery
    ranked_relations : tuple of SpatialRelation
        Those that moved the ranking.
    readout : Readout or None
        What ranked them; None in a native ranking.
    weight : float
        Of the spatial scores: what was asked for, less where the sentence says other things too; 0 in a native ranking.
    hits : tuple of Hit
        Score descending, ties by id.
    warnings : tuple of str
        Sentences for the user.
    total : int
        Pictures the query was scored against.
    next_cursor : str or None
        Where the next page begins; None at the end.
    took_ms : dict of str to float
        By stage; in a batch, of the whole batch.
    """

    query: str
    mode: Ranking
    parsed: ParsedQuery
    ranked_relations: tuple[SpatialRelation, ...]
    readout: Readout | None
    weight: float
    hits: tuple[Hit, ...]
    warnings: tuple[str, ...]
    total: int
    next_cursor: str | None
    took_ms: dict[str, float] = field(compare=False)

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON values."""
        return {
            "query": self.query,
            "mode": self.mode.value,
            "frame": "viewer",
            "parsed": self.parsed.to_dict(),
            "relations": [_relation_to_dict(r) for r in self.ranked_relations],
            "readout": self.readout,
            "weight": self.weight,
            "hits": [hit.to_dict() for hit in self.hits],
            "warnings": list(self.warnings),
            "total": self.total,
            "next_cursor": self.next_cursor,
            "took_ms": {stage: round(ms, 3) for stage, ms in self.took_ms.items()},
        }


def _relation_to_dict(relation: SpatialRelation) -> dict[str, Any]:
    values: dict[str, Any] = {"subject": relation.subject, "relation": relation.relation.value}
    if relation.object is not None:
        values["object"] = relation.object
    return values | {"direction": list(UNIT.get(relation.relation, (0.0, 0.0))), "proxy": is_proxy(relation)}


def _short(score: float) -> float:
    return float(str(np.float32(score)))
