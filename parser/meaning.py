"""What a place phrase says, given the thing it is measured from, the thing that stands there and the verb between."""

from __future__ import annotations

from dataclasses import dataclass

from parser import nouns, words
from parser.chunks import Chunk
from parser.lexicon import NO_OBJECT, OWN_PART, SIDE_RELATIONS, Role
from parser.phrases import Phrase
from parser.relation import Position, Relation

__all__ = ["Meaning", "meaning", "naming"]

UNCLEAR = "It is not clear which of the things named stands there."
DIRECTION = "It says where something looks or goes, not where it stands."
PATH = "It tells of a way across something, not of a place above it."
ON_GROUND = "Standing on the ground is not standing above it."

_LOOKING = frozenset(words.LOOKING.split())
_MOVING = frozenset(words.MOVING.split())
_HOVERING = frozenset(words.HOVERING.split())
_CARRYING = frozenset(words.CARRYING.split())
_RIDING = frozenset(words.RIDING.split())
_WAYS = frozenset(["way", "turn", "arrow", "arrows", "shift", "path", "step", "swipe", "slide", "look", "glance", "view", "exit"])


@dataclass(frozen=True, slots=True)
class Meaning:
    """What is meant: a relation or position, or else the reason why nothing is scored (empty: nothing to tell)."""

    says: Relation | Position | None = None
    reason: str = ""


def meaning(phrase: Phrase, words_said: str, target: Chunk | None) -> Meaning:
    """Tell what a place phrase says of whatever stands there.

    Parameters
    ----------
    phrase : Phrase
        The place phrase.
    words_said : str
        Its words.
    target : Chunk or None
        The noun phrase it is measured from.
    """
    entry = phrase.entry
    if entry.role is Role.POSITION and target is None:
        return Meaning(entry.position)
    if (
        entry.role is Role.POSITION and entry.position in SIDE_RELATIONS
    ):  # "to the right and above the laptop"
        return _related(SIDE_RELATIONS[entry.position], words_said, target)
    if target is None:
        return Meaning(reason=NO_OBJECT)
    if entry.position is not None and _is_picture(target):
        return Meaning(entry.position)
    if entry.role is Role.OWN_SIDE and (target.head in nouns.REGIONS or target.head in nouns.BODY):
        return Meaning(reason=OWN_PART)
    if entry.relation is None:
        return Meaning(reason=entry.reason or NO_OBJECT)
    return _related(entry.relation, words_said, target)


def _is_picture(target: Chunk) -> bool:
    before = target.text.split(" of ")[0].split()
    return target.head in nouns.FRAMES and all(
        word in words.ADJECTIVES or word in _WHOLE for word in before[:-1]
    )


_WHOLE = frozenset(["entire", "complete", "and"])


def _related(relation: Relation, said: str, target: Chunk | None) -> Meaning:
    if target is None:
        return Meaning(reason=NO_OBJECT)
    head, first = target.head, target.text.split()[0]
    if target.nameless or head in nouns.ABSTRACT:
        return Meaning()
    if relation is Relation.BELOW and (
        head in nouns.SKY or head in nouns.COVERS or head in nouns.BODY or head == "water"
    ):
        return Meaning()
    vertical = relation in (Relation.ABOVE, Relation.BELOW)
    if (vertical and first not in words.COUNTS and first[0].isdigit()) or (vertical and head in nouns.UNITS):
        return Meaning()
    if said.endswith("over"):
        if head in nouns.BODY and head not in ("head", "heads"):
            return Meaning()
    elif relation is Relation.ABOVE and not said.endswith("above") and head in nouns.GROUNDS:
        return Meaning(reason=ON_GROUND)
    return Meaning(relation)


def naming(subject: Chunk, says: Relation | Position, said: str, verb: Chunk | None) -> tuple[str, str]:
    """Name what stands there, or tell why it cannot be named.

    Returns
    -------
    name : str
        Noun phrase of the subject; empty where there is none.
    reason : str
        Why; empty where there is a name or nothing to tell.
    """
    if verb is not None:
        if verb.head in _LOOKING:
            return "", DIRECTION
        if verb.head in _MOVING and isinstance(says, Position) and "to" in said.split():
            return "", DIRECTION
        if said.endswith("over") and verb.head not in _HOVERING:
            return "", PATH
    if isinstance(says, Position) and subject.head in _WAYS and "to" in said.split():
        return "", DIRECTION
    if said.endswith("over") and subject.head in nouns.COVERS:
        return "", ""
    if subject.inner is None or subject.action is None:
        return subject.text, ""
    action = subject.action.head
    if action in _LOOKING:
        return "", DIRECTION
    if says in (Relation.ABOVE, Relation.BELOW) and action in _CARRYING:
        return subject.inner.text, ""
    if says is Relation.ABOVE and action not in _RIDING:
        return "", UNCLEAR
    return subject.text, ""
