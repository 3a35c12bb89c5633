"""What was read so far."""

from __future__ import annotations

from dataclasses import dataclass, field

from parser.items import Chunk
from parser.relation import Position, Relation, SpatialRelation, Unscored

__all__ = ["Reading"]

BOTH = "The opposite is said of the same thing, so the two cancel out."

_OPPOSITE: dict[Relation | Position, Relation | Position] = {
    **{relation: relation.inverse for relation in Relation},
    Position.AT_LEFT: Position.AT_RIGHT,
    Position.AT_RIGHT: Position.AT_LEFT,
    Position.AT_TOP: Position.AT_BOTTOM,
    Position.AT_BOTTOM: Position.AT_TOP,
}


@dataclass(slots=True)
class Reading:
    """What the items say, in the order of the text.

    Attributes
    ----------
    phrases : dict of SpatialRelation to Chunk
        Each fact and the place phrase that says it.
    unscored : list of Unscored
        Place phrases that were understood and say nothing that can be scored.
    """

    phrases: dict[SpatialRelation, Chunk] = field(default_factory=dict)
    unscored: list[Unscored] = field(default_factory=list)

    @property
    def relations(self) -> tuple[SpatialRelation, ...]:
        """The facts that were read."""
        return tuple(self.phrases)

    def ignore(self, place: Chunk, reason: str) -> None:
        """Note a place phrase that was understood and is not scored."""
        note = Unscored(place.text, reason)
        if note not in self.unscored:
            self.unscored.append(note)

    def drop_contradictions(self) -> None:
        """Drop facts that cancel each other: a thing on both sides at once."""
        facts = {(fact.subject, fact.relation, fact.object) for fact in self.relations}
        for fact in self.relations:
            if (fact.subject, _OPPOSITE.get(fact.relation), fact.object) in facts:
                self.ignore(self.phrases.pop(fact), BOTH)
