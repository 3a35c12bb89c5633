"""Text to what it says about place. Imports nothing of ours."""

from parser.grammar import QueryParser
from parser.lexicon import SAYINGS, Saying
from parser.relation import ParsedQuery, Position, Relation, SpatialRelation, Unscored

__all__ = [
    "SAYINGS",
    "ParsedQuery",
    "Position",
    "QueryParser",
    "Relation",
    "Saying",
    "SpatialRelation",
    "Unscored",
]
