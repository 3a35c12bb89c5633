"""What a place phrase says, given the thing it is measured from, the thing that stands there and the verb between."""

from __future__ import annotations

from dataclasses import dataclass

from parser import nouns, words
from parser.items import Chunk
from parser.lexicon import NO_OBJECT, OWN_PART, SIDE_RELATIONS, Role
from parser.phrases import Phrase
from parser.relation import Position, Relation

__all__ = ["Meaning", "meaning", "naming"]

UNCLEAR = "It is not clear which of the things named stands there."
DIRECTION = "It says where something looks or goes, not where it stands."
PATH = "After this verb 'over' tells of a way or a posture, not of a place above."
ON_GROUND = "Standing on the ground is not standing above it."

_LOOKING = frozenset(words.LOOKING.split())
_MOVING = frozenset(words.MOVING.split())
_HOVERING = frozenset(words.HOVERING.split())
_CARRYING = frozenset(words.CARRYING.split())
_RIDING = frozenset(words.RIDING.split())
_WHOLE = frozenset({"entire", "complete", "and"})
_WAYS = frozenset("way turn arrow arrows shift path step swipe slide look glance view exit".split())


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
    alone = entry.role is Role.POSITION and target is None
    if alone or (entry.position is not None and target is not None and _is_picture(target)):
        return Meaning(entry.position)
    if entry.role is Role.POSITION and entry.position in SIDE_RELATIONS:
        # "to the right and above the laptop"
        return _related(SIDE_RELATIONS[entry.position], words_said, target)
    if target is None or entry.relation is None:
        return Meaning(reason=NO_OBJECT if target is None else entry.reason)
    if entry.role is Role.OWN_SIDE and (target.head in nouns.REGIONS or target.head in nouns.BODY):
        return Meaning(reason=OWN_PART)
    return _related(entry.relation, words_said, target)


def _is_picture(target: Chunk) -> bool:
    before = target.text.split(" of ")[0].split()
    return target.head in nouns.FRAMES and all(
        word in words.ADJECTIVES or word in _WHOLE for word in before[:-1]
    )


def _related(relation: Relation, said: str, target: Chunk | None) -> Meaning:
    if target is None:
        return Meaning(reason=NO_OBJECT)
    if _is_no_place(relation, said, target):
        return Meaning()
    standing_on = relation is Relation.ABOVE and not said.endswith(("above", "over"))
    return Meaning(reason=ON_GROUND) if standing_on and target.head in nouns.GROUNDS else Meaning(relation)


def _is_no_place(relation: Relation, said: str, target: Chunk) -> bool:
    """Whether the words mean something else with this object: "under a blue sky", "over her shoulder"."""
    head = target.head
    if target.nameless or head in nouns.ABSTRACT or head in nouns.LEVELS:
        return True
    if relation in (Relation.ABOVE, Relation.BELOW) and _is_amount(target):
        return True
    if relation is Relation.BELOW:
        return (
            _is_lit(target)
            or head in nouns.SKY
            or head in nouns.COVERS
            or head in nouns.BODY
            or head == "water"
        )
    on_body = head in nouns.BODY and head not in ("head", "heads") and not target.text.startswith("body of")
    return said.endswith("over") and on_body


def _is_lit(target: Chunk) -> bool:
    """Whether the object is a light over everything: "under bright lights", not "under a traffic light"."""
    said = target.text.split()
    return target.head in nouns.LIGHTS and all(
        word in words.ADJECTIVES or word in nouns.LIGHTED for word in said[:-1]
    )


def _is_amount(target: Chunk) -> bool:
    """Whether the object is a number rather than a thing: "over 100 people", "under 10 years old"."""
    first, *rest = target.text.split()
    number = first[0].isdigit() or first in words.COUNTS
    return (number and (first not in words.COUNTS or any(word in nouns.UNITS for word in rest))) or (
        not rest and (number or target.head in nouns.UNITS)
    )


def naming(
    subject: Chunk, says: Relation | Position, phrase: Phrase, said: str, verb: Chunk | None
) -> tuple[tuple[str, ...], str]:
    """Name what stands there, or tell why it cannot be named.

    Returns
    -------
    names : tuple of str
        Noun phrases of the subject; empty where there is none.
    reason : str
        Why; empty where there is a name or nothing to tell.
    """
    over = said.endswith("over")
    covering = over and (subject.head in nouns.COVERS or subject.head in nouns.COVERINGS)
    remaining = said == "left of" and subject.head in nouns.REMNANTS
    entitled = said == "right of" and subject.head in nouns.RIGHTS
    broken = words.VERB_FORMS.get(subject.head) == "ed"  # "a tipped over truck"
    if covering or remaining or entitled or broken:
        return (), ""
    action = subject.action.head if subject.action is not None else ""
    moving = verb.head if verb is not None else ""
    reason = ""
    if moving in _LOOKING or action in _LOOKING or _is_turned(subject, says, phrase, moving):
        reason = DIRECTION
    elif over and ((moving and moving not in _HOVERING) or _is_going(subject)):
        reason = PATH
    elif subject.head in nouns.STUNTS or _is_either(says, action):
        reason = UNCLEAR
    if reason:
        return (), reason
    if says is Relation.ABOVE and action in _CARRYING:  # "a girl holding a balloon above a pony"
        return tuple(thing.text for thing in subject.inner), ""
    return (subject.text,), ""


def _is_going(subject: Chunk) -> bool:
    """Whether the subject ends in a verb that the noun phrase took in: "a train crossing over a road"."""
    head = subject.head
    return head.endswith("ing") and (head == "crossing" or head not in words.NOUNS_IN_ING)


def _is_turned(subject: Chunk, says: Relation | Position, phrase: Phrase, moving: str) -> bool:
    """Whether "to the left" tells where something goes."""
    turned = isinstance(says, Position) and phrase.prefix in ("to", "toward", "towards")
    return turned and (moving in _MOVING or subject.head in _WAYS)


def _is_either(says: Relation | Position, action: str) -> bool:
    """Whether the one who acts or the thing acted on may stand there: "a man holding an umbrella under a tree"."""
    if says is Relation.BELOW:
        return action in _CARRYING
    return says is Relation.ABOVE and bool(action) and action not in _CARRYING | _RIDING
