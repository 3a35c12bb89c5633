"""What can be said about place, as data: every phrase, what it means, and whether it is scored.

Fixed phrases stand in one dictionary from a tuple of words to its entry. Sides, ends, corners and the centre are
spelled from parts (``on the far`` ``left`` ``hand side`` ``of``), listed here and put together in ``phrases``.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from parser.relation import Position, Relation

__all__ = [
    "CORNER_RELATIONS",
    "LEXICON",
    "MAX_PHRASE",
    "PLACE_AREAS",
    "PLACE_DEGREES",
    "PLACE_PREPOSITIONS",
    "PLACE_WORDS",
    "POSITIONS",
    "SAYINGS",
    "SIDE_RELATIONS",
    "TRIGGERS",
    "Entry",
    "Role",
    "Saying",
]


class Role(Enum):
    """How a phrase takes part in a sentence."""

    RELATION = "relation"  # an object follows: "left of"
    OWN_SIDE = "own side"  # an object follows, and may be the thing that has the side: "on the left side of"
    POSITION = "position"  # stands alone: "on the left"
    PART = "part"  # a position where the picture follows, else a part of the object: "at the top of"
    UNSCORED = "unscored"  # understood, not measured: "next to"
    IDIOM = "idiom"  # no place at all, belongs to the words around it: "game over"
    ASIDE = "aside"  # no place at all, can be left out: "over there"


@dataclass(frozen=True, slots=True)
class Entry:
    """Meaning of one phrase.

    Attributes
    ----------
    role : Role
        How the phrase takes part in a sentence.
    relation : Relation or None
        What it says of subject and object.
    position : Position or None
        What it says of the subject alone, or with the picture as object.
    reason : str
        Why it is not scored; empty where it is.
    also : Relation or None
        A second relation said in the same breath: "to the upper left of".
    """

    role: Role
    relation: Relation | None = None
    position: Position | None = None
    reason: str = ""
    also: Relation | None = None


@dataclass(frozen=True, slots=True)
class Saying:
    """One thing that can be said, for the list a user sees.

    Attributes
    ----------
    name : str
        The relation or position, or the kind of an unscored phrase.
    phrases : tuple of str
        Usual wordings.
    example : str
        A query that says it.
    scored : bool
        Whether it moves the ranking.
    note : str
        What a user should know; empty where there is nothing.
    """

    name: str
    phrases: tuple[str, ...]
    example: str
    scored: bool
    note: str = ""


CONTACT = "Whether two things touch is not measured."
DISTANCE = "How near two things are is not measured."
INSIDE = "Whether one thing is inside another is not measured."
AMONG = "A place among several things is not measured."
SIDES = "More than one side is named, and only one can be scored."
FACING = "Which way a thing faces is not measured."
OWN_PART = "This names a part of the thing itself, not a place in the picture."
EDGE = "This names no side of the picture: say left, right, top or bottom."
NO_OBJECT = "No thing is named that the place is measured from."
ORDER = "An order among several things is not measured."

_UNSCORED = {
    CONTACT: "on|onto|touching|against|attached to|connected to|leaning against|leaning on|detached from|off|on top",
    DISTANCE: "next to|near|near to|nearby|beside|close to|closer to|close by|adjacent to|alongside|far from|"
    "far away from|away from|by the side of|at the side of|on the side of|side by side|across from|opposite|"
    "opposite to|across",
    INSIDE: "inside|inside of|within|into|enclosed by|contained in|outside|outside of|out of",
    AMONG: "between|in between|among|amongst|amid|surrounding|surrounded by|around|all around|beyond|past|along|"
    "on both sides of|on either side of|on each side of|on both sides|on either side|on each side|"
    "above or below|above and below|below or above|below and above",
    FACING: "facing|facing away from|facing towards|facing toward|parallel to|perpendicular to|toward|towards|"
    "pointing at",
    OWN_PART: "at the back of|in the back of|at the front of|in the front of|at the end of|part of",
    EDGE: "at the edge of|on the edge of|at the edge|on the edge|in the corner of|in the corner|at the corner of",
    NO_OBJECT: "overhead",
    ORDER: "leftmost|rightmost|topmost|second from the left|second from the right|"
    "third from the left|third from the right|first from the left|first from the right|ahead of",
}  # fmt: skip

# No place at all, though a trigger word is in it. The words stay part of the noun phrase around them.
_IDIOMS = (
    "game over|over the shoulder|over the counter|over the top|over easy|over medium|over joyed|over ripe|overnight|"
    "under construction|under age|under arrest|under attack|under control|under fire|under pressure|under repair|"
    "under renovation|under water|under way|under armour|under armor|under cover|under dog|under development|"
    "below average|below zero|below freezing|below deck|below par|above average|above ground|below ground|above par|"
    "on top of the world|on top of things|on top of that|on top of everything|on top of it all|on top of the game|"
    "left turn|right turn|left hand|right hand|left foot|right foot|left over|right of way|left of way|right away|"
    "black on black|behind the scenes|behind bars|behind schedule|behind the wheel|behind closed doors|"
    "left to right|right to left|from left to right|from right to left|left and right|left or right|right and left|"
    "right or left|"
    "top to bottom|bottom to top|right side up|head over heels|up and over|hand over hand|over and over|"
    "under the microscope|under a microscope|under a magnifying glass|under one roof|under a spell|"
    "under observation|under the weather|under the influence|under the radar|under the sea|over the moon|over the hill|"
    "over the years|over time|over the weekend|over the phone|over the limit|over the edge|over the line|over board|"
    "on the right track|in the right place|at the right time|at the right moment|in the right direction|"
    "on the left wing|on the right wing|on the right foot|on the left foot|in front of the camera"
)
_ASIDES = "over there|over here|all over|over again|above all|above all else|right now|right here|right then"

# A place of the picture is spelled from parts: on the far | left | hand side | of.
PLACE_PREPOSITIONS = frozenset(["at", "on", "in", "to", "near", "toward", "towards", "along", "by"])
PLACE_DEGREES = frozenset(["far", "very", "immediate", "extreme", "direct", "near", "exact", "dead"])
PLACE_AREAS = frozenset(
    [
        "side",
        "half",
        "edge",
        "part",
        "third",
        "portion",
        "border",
        "margin",
        "area",
        "section",
        "quarter",
        "quadrant",
        "corner",
    ]
)
PLACE_WORDS = {
    "left": "left",
    "lefthand": "left",
    "right": "right",
    "righthand": "right",
    "top": "top",
    "upper": "top",
    "uppermost": "top",
    "bottom": "bottom",
    "lower": "bottom",
    "center": "center",
    "centre": "center",
    "middle": "center",
}
POSITIONS = {
    frozenset({"left"}): Position.AT_LEFT,
    frozenset({"right"}): Position.AT_RIGHT,
    frozenset({"top"}): Position.AT_TOP,
    frozenset({"bottom"}): Position.AT_BOTTOM,
    frozenset({"center"}): Position.AT_CENTER,
    frozenset({"top", "center"}): Position.AT_TOP,
    frozenset({"bottom", "center"}): Position.AT_BOTTOM,
    frozenset({"left", "center"}): Position.AT_LEFT,
    frozenset({"right", "center"}): Position.AT_RIGHT,
    frozenset({"top", "left"}): Position.AT_TOP_LEFT,
    frozenset({"top", "right"}): Position.AT_TOP_RIGHT,
    frozenset({"bottom", "left"}): Position.AT_BOTTOM_LEFT,
    frozenset({"bottom", "right"}): Position.AT_BOTTOM_RIGHT,
}
SIDE_RELATIONS = {Position.AT_LEFT: Relation.LEFT_OF, Position.AT_RIGHT: Relation.RIGHT_OF}
CORNER_RELATIONS = {
    Position.AT_TOP_LEFT: (Relation.LEFT_OF, Relation.ABOVE),
    Position.AT_TOP_RIGHT: (Relation.RIGHT_OF, Relation.ABOVE),
    Position.AT_BOTTOM_LEFT: (Relation.LEFT_OF, Relation.BELOW),
    Position.AT_BOTTOM_RIGHT: (Relation.RIGHT_OF, Relation.BELOW),
}


def _build() -> dict[tuple[str, ...], Entry]:
    table: dict[tuple[str, ...], Entry] = {}

    def add(phrases: str, entry: Entry) -> None:
        for phrase in phrases.split("|"):
            table[tuple(phrase.split())] = entry

    for reason, phrases in _UNSCORED.items():
        add(phrases, Entry(Role.UNSCORED, reason=reason))
    add(
        "above|over|on top of|on the top of|on top the|over top of|ontop of|atop|atop of",
        Entry(Role.RELATION, Relation.ABOVE),
    )
    add("below|under|beneath|underneath|underneath of", Entry(Role.RELATION, Relation.BELOW))
    add("in front of|infront of", Entry(Role.RELATION, Relation.IN_FRONT_OF))
    add("behind|in back of", Entry(Role.RELATION, Relation.BEHIND))
    add("leftof", Entry(Role.RELATION, Relation.LEFT_OF))
    add("rightof", Entry(Role.RELATION, Relation.RIGHT_OF))
    add("centered in|centred in", Entry(Role.PART, position=Position.AT_CENTER, reason=AMONG))
    add(
        "left of center|left of centre|left of the center|left of the centre",
        Entry(Role.POSITION, position=Position.AT_LEFT),
    )
    add(
        "right of center|right of centre|right of the center|right of the centre",
        Entry(Role.POSITION, position=Position.AT_RIGHT),
    )
    add(_IDIOMS, Entry(Role.IDIOM))
    add(_ASIDES, Entry(Role.ASIDE))
    return table


LEXICON = _build()
"""Every fixed phrase, as a tuple of words."""

MAX_PHRASE = max(map(len, LEXICON))

# Words that say nothing alone: a phrase that begins with one is known by another of its words.
_PLAIN = frozenset(["in", "the", "of", "from", "to", "at", "by", "on"])
TRIGGERS = frozenset(
    next((word for word in phrase if word not in _PLAIN), phrase[0])
    for phrase, entry in LEXICON.items()
    if entry.role not in (Role.IDIOM, Role.ASIDE)
) | frozenset(PLACE_WORDS)
"""Without one of these words a query says nothing about place, and is not looked at any further."""

_DEPTH = "A picture has no depth: up and down stand in for it, and only where you ask for it."

SAYINGS: tuple[Saying, ...] = (
    Saying(
        "left_of",
        (
            "left of",
            "to the left of",
            "on the left side of",
            "to its left",
        ),
        "a cup to the left of a laptop",
        True,
    ),
    Saying(
        "right_of",
        (
            "right of",
            "to the right of",
            "on the right side of",
            "to its right",
        ),
        "a dog right of a bicycle",
        True,
    ),
    Saying(
        "above",
        (
            "above",
            "over",
            "on top of",
            "atop",
        ),
        "a clock above a door",
        True,
    ),
    Saying(
        "below",
        (
            "below",
            "under",
            "underneath",
            "beneath",
        ),
        "a cat under a table",
        True,
    ),
    Saying("in_front_of", ("in front of",), "a chair in front of a desk", False, _DEPTH),
    Saying(
        "behind",
        (
            "behind",
            "in back of",
        ),
        "a man behind a horse",
        False,
        _DEPTH,
    ),
    Saying(
        "at_left",
        (
            "on the left",
            "on the left side of the picture",
            "at the left edge",
        ),
        "a dog on the left",
        True,
    ),
    Saying(
        "at_right",
        (
            "on the right",
            "on the right side of the picture",
            "at the right edge",
        ),
        "a bus on the right",
        True,
    ),
    Saying(
        "at_top",
        (
            "at the top",
            "at the top of the picture",
        ),
        "a kite at the top of the photo",
        True,
    ),
    Saying(
        "at_bottom",
        (
            "at the bottom",
            "at the bottom of the picture",
        ),
        "a boat at the bottom of the photo",
        True,
    ),
    Saying(
        "at_center",
        (
            "in the center",
            "in the middle of the picture",
        ),
        "a pizza in the center of the photo",
        True,
    ),
    Saying(
        "at_top_left",
        (
            "in the top left corner",
            "at the upper left",
        ),
        "a lamp in the top left corner",
        True,
    ),
    Saying(
        "at_top_right",
        (
            "in the top right corner",
            "at the upper right",
        ),
        "the sun in the top right corner",
        True,
    ),
    Saying(
        "at_bottom_left",
        (
            "in the bottom left corner",
            "at the lower left",
        ),
        "a bag in the bottom left corner",
        True,
    ),
    Saying(
        "at_bottom_right",
        (
            "in the bottom right corner",
            "at the lower right",
        ),
        "a shoe in the bottom right corner",
        True,
    ),
    Saying(
        "distance",
        (
            "next to",
            "near",
            "beside",
            "far from",
        ),
        "a bike next to a car",
        False,
        DISTANCE,
    ),
    Saying(
        "contact",
        (
            "on",
            "touching",
            "against",
        ),
        "a book on a bed",
        False,
        CONTACT,
    ),
    Saying(
        "containment",
        (
            "inside",
            "within",
            "outside",
        ),
        "a cat inside a box",
        False,
        INSIDE,
    ),
    Saying(
        "among",
        (
            "between",
            "among",
            "around",
            "in the middle of",
        ),
        "a man between two cars",
        False,
        AMONG,
    ),
    Saying(
        "orientation",
        (
            "facing",
            "parallel to",
        ),
        "a dog facing a cat",
        False,
        FACING,
    ),
)
