"""The values a parsed query is made of."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

__all__ = ["ParsedQuery", "Position", "Relation", "SpatialRelation", "Unscored"]


class Relation(StrEnum):
    """Where the subject stands as seen from the object, in the viewer's image plane."""

    LEFT_OF = "left_of"
    RIGHT_OF = "right_of"
    ABOVE = "above"
    BELOW = "below"
    IN_FRONT_OF = "in_front_of"
    BEHIND = "behind"

    @property
    def inverse(self) -> Relation:
        """The relation that holds when subject and object change places."""
        return _INVERSE[self]

    @property
    def is_depth(self) -> bool:
        """Whether the relation is about depth, which an image plane only shows by proxy."""
        return self in (Relation.IN_FRONT_OF, Relation.BEHIND)


_INVERSE = {
    Relation.LEFT_OF: Relation.RIGHT_OF,
    Relation.RIGHT_OF: Relation.LEFT_OF,
    Relation.ABOVE: Relation.BELOW,
    Relation.BELOW: Relation.ABOVE,
    Relation.IN_FRONT_OF: Relation.BEHIND,
    Relation.BEHIND: Relation.IN_FRONT_OF,
}


class Position(StrEnum):
    """Where the subject stands in the picture itself."""

    AT_LEFT = "at_left"
    AT_RIGHT = "at_right"
    AT_TOP = "at_top"
    AT_BOTTOM = "at_bottom"
    AT_CENTER = "at_center"
    AT_TOP_LEFT = "at_top_left"
    AT_TOP_RIGHT = "at_top_right"
    AT_BOTTOM_LEFT = "at_bottom_left"
    AT_BOTTOM_RIGHT = "at_bottom_right"


@dataclass(frozen=True, slots=True)
class SpatialRelation:
    """One fact that a query names: ``subject relation object``, or ``subject position``.

    Attributes
    ----------
    subject : str
        Noun phrase, lower-case, without article or possessive.
    relation : Relation or Position
        A :class:`Relation` has an object, a :class:`Position` has none.
    object : str or None
        Noun phrase in the same form as ``subject``; None for a position.
    """

    subject: str
    relation: Relation | Position
    object: str | None = None

    def __post_init__(self) -> None:
        if isinstance(self.relation, Relation) != (self.object is not None):
            raise ValueError(
                f"{self.relation!s} with object={self.object!r}: a relation has an object, a position none"
            )


@dataclass(frozen=True, slots=True)
class Unscored:
    """A spatial phrase that was recognised but does not move the ranking.

    Attributes
    ----------
    phrase : str
        The words of the query, lower-case.
    reason : str
        Why it is not scored, as a sentence for the user.
    """

    phrase: str
    reason: str


@dataclass(frozen=True, slots=True)
class ParsedQuery:
    """What a query says about space.

    Attributes
    ----------
    query : str
        The text as it came.
    relations : tuple of SpatialRelation
        In the order of the text. Depth relations are listed here too; whether they rank is the caller's choice.
    unscored : tuple of Unscored
        Spatial words that were understood but name nothing that can be scored.
    warnings : tuple of str
        What was ignored and why, as sentences for the user.
    """

    query: str
    relations: tuple[SpatialRelation, ...] = ()
    unscored: tuple[Unscored, ...] = ()
    warnings: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return plain lists and strings: the form that the command line and the HTTP interface print."""
        return {
            "query": self.query,
            "relations": [
                {"subject": fact.subject, "relation": str(fact.relation)}
                | ({} if fact.object is None else {"object": fact.object})
                for fact in self.relations
            ],
            "unscored": [{"phrase": note.phrase, "reason": note.reason} for note in self.unscored],
            "warnings": list(self.warnings),
        }
