"""Requests and answers of the HTTP interface. Requests are checked by these; answers are described by them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from service.errors import SearchError
from service.filters import CONDITIONS_LIMIT
from service.pictures import THUMBNAIL_SIDES
from service.query import (
    K_RANGE,
    OFFSET_RANGE,
    SCORE_RANGE,
    WEIGHT_RANGE,
    Mode,
    Readout,
    SearchRequest,
)

BATCH_LIMIT = 256


def _between(low: float, high: float) -> dict[str, float]:
    return {"minimum": low, "maximum": high}


ALLOWED: Mapping[str, dict[str, float] | list[Any]] = {
    "k": _between(*K_RANGE),
    "offset": _between(*OFFSET_RANGE),
    "weight": _between(*WEIGHT_RANGE),
    "min_score": _between(*SCORE_RANGE),
    "mode": [*Mode],
    "readout": [*Readout],
    "depth": [False, True],
    "explain": [False, True],
    "where": _between(0, CONDITIONS_LIMIT),
    "queries": _between(1, BATCH_LIMIT),
    "side": [*THUMBNAIL_SIDES],
}
"""What a field may hold, for whoever sent something else; of a list, how many items."""


class SearchBody(BaseModel):
    """A query and how to answer it. ``q`` and ``query`` are the same."""

    model_config = ConfigDict(extra="forbid")

    q: str | None = Field(
        default=None, description="What the picture shows.", examples=["a cup to the left of a laptop"]
    )
    query: str | None = Field(default=None, description="The same as `q`.")
    k: int = Field(default=10, ge=K_RANGE[0], le=K_RANGE[1], description="Hits to return.")
    offset: int = Field(
        default=0, ge=OFFSET_RANGE[0], le=OFFSET_RANGE[1], description="Hits to leave out first."
    )
    cursor: str | None = Field(default=None, description="`next_cursor` of the page before.")
    mode: Mode = Field(default=Mode.AUTO, description="`native` leaves relations out of the ranking.")
    depth: bool = Field(
        default=False, description="Let in front of and behind rank, by the height in the picture."
    )
    weight: float = Field(
        default=1.0, ge=WEIGHT_RANGE[0], le=WEIGHT_RANGE[1], description="Weight of the spatial score."
    )
    readout: Readout | None = Field(
        default=None, description="What reads the places; by default the best that the index has."
    )
    min_score: float | None = Field(default=None, description="Leave out hits that score less.")
    explain: bool = Field(default=False, description="Say for each hit what each relation contributed.")
    where: list[str] = Field(
        default=[],
        max_length=CONDITIONS_LIMIT,
        description="Conditions on the columns of the index's table, all to be met.",
        examples=[["year>=2020", "camera=Nikon"]],
    )

    def to_request(self) -> SearchRequest:
        """As the searcher takes it.

        Raises
        ------
        SearchError
            No query, or two.
        """
        values = self.model_dump(exclude={"q", "query", "where"})
        return SearchRequest(query=one_query(self.q, self.query), where=tuple(self.where), **values)


def search_parameters() -> list[dict[str, Any]]:
    """Describe the fields of a :class:`SearchBody` as parameters of an address, for OpenAPI."""
    schema = SearchBody.model_json_schema(ref_template="#/components/schemas/{model}")
    return [
        {"name": name, "in": "query", "required": False, "schema": one}
        | ({"description": one["description"]} if "description" in one else {})
        for name, one in schema["properties"].items()
    ]


def one_query(q: str | None, query: str | None) -> str:
    """Take the query that came under one of two names.

    Raises
    ------
    MissingQuery
        None came, or two.
    """
    if q is not None and query is None:
        return q
    if query is not None and q is None:
        return query
    raise MissingQuery("both q and query came" if q is not None else "no query came")


class MissingQuery(SearchError):
    """A request without a query, or with two."""

    title = "One query is needed"

    def __init__(self, came: str) -> None:
        super().__init__(f"{came}: send one", field="query")


class BatchBody(BaseModel):
    """Several queries; an item is a text or a :class:`SearchBody`. Items are checked one by one."""

    model_config = ConfigDict(extra="forbid")

    queries: list[Any] = Field(
        min_length=1,
        max_length=BATCH_LIMIT,
        json_schema_extra={
            "items": {"anyOf": [{"type": "string"}, {"$ref": "#/components/schemas/SearchBody"}]}
        },
    )


class _Answer(BaseModel):
    model_config = ConfigDict(extra="forbid")


class RelationModel(_Answer):
    """A relation or position that was read."""

    subject: str
    relation: str
    object: str | None = None


class RankedRelationModel(RelationModel):
    """A relation that moved the ranking."""

    direction: tuple[float, float] = Field(description="Unit vector; x right, y down. Zero for the centre.")
    proxy: bool = Field(description="Whether the score only stands for what was asked (depth).")


class UnscoredModel(_Answer):
    """A spatial phrase that was understood but does not rank."""

    phrase: str
    reason: str


class ParsedModel(_Answer):
    """What the query says about place."""

    query: str
    relations: list[RelationModel]
    unscored: list[UnscoredModel]
    warnings: list[str]


class HitModel(_Answer):
    """One picture."""

    id: str
    path: str
    rank: int
    score: float
    native_score: float
    spatial_score: float
    native_rank: int
    contributions: list[float] | None = Field(
        default=None, description="With `explain`: by relation, as in `relations`."
    )
    readout: Readout | None = Field(default=None, description="With `explain`: what read the places.")


class IndexModel(_Answer):
    """Which index answered."""

    images: int
    encoder: str
    created: str
    generation: str


class SearchAnswer(_Answer):
    """The answer to one query."""

    query: str
    mode: Literal["native", "spatial"]
    frame: Literal["viewer"] = Field(description="Left and right are the viewer's, always.")
    parsed: ParsedModel
    relations: list[RankedRelationModel]
    readout: Readout | None = Field(description="What read the places; null in a native ranking.")
    weight: float = Field(
        description="Of the spatial scores: the one asked for, less where the sentence says more than its relations."
    )
    hits: list[HitModel]
    warnings: list[str]
    total: int = Field(description="Pictures the query was scored against.")
    next_cursor: str | None
    took_ms: dict[str, float]
    index: IndexModel


class Problem(BaseModel):
    """What went wrong (RFC 9457)."""

    type: str
    title: str
    status: int
    detail: str
    field: str | None = None
    allowed: list[Any] | dict[str, Any] | None = None


class BatchError(_Answer):
    """An item that could not be answered."""

    error: Problem


class BatchAnswer(_Answer):
    """Answers in the order of the queries."""

    results: list[SearchAnswer | BatchError]


class PictureModel(_Answer):
    """What the index knows about a picture."""

    id: str
    path: str
    content_hash: str | None
    bytes: int | None
    width: int | None
    height: int | None
    orientation: int | None
    format: str | None
    file: str
    thumb: str
