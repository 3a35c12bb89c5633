"""The items a sentence is cut into."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from parser.phrases import Phrase

__all__ = ["Chunk", "Kind"]


class Kind(Enum):
    """What an item is to the grammar."""

    NOUN = "noun phrase"
    VERB = "verb"
    AUXILIARY = "auxiliary"
    PLACE = "place phrase"
    PREPOSITION = "preposition"
    CONJUNCTION = "and, or"
    COMMA = "comma"
    BREAK = "end of a sentence"
    SUBORDINATOR = "while, but"
    RELATIVE = "who, that, which"
    QUESTION = "what, who"
    THERE = "there"
    NEGATOR = "not, without"


@dataclass(slots=True, eq=False)
class Chunk:
    """One item of the row.

    Attributes
    ----------
    kind : Kind
        What it is.
    text : str
        Its words; a noun phrase without leading articles and possessives.
    full : str
        A noun phrase with them.
    head : str
        Last word of a noun phrase before its first "of"; the dictionary form of a verb; the word itself otherwise.
    phrase : Phrase or None
        What a place phrase says.
    form : str
        Inflection of a verb: base, s, ing or ed.
    negative : bool
        A noun phrase that begins with "no".
    pronoun : bool
        A noun phrase that stands for another one.
    nameless : bool
        A noun phrase that names nothing: "something", "what".
    start : int
        First word of the item.
    inner : tuple of Chunk
        For "man holding a fork and a spoon": the fork and the spoon.
    action : Chunk or None
        The holding.
    modified : bool
        A noun phrase that carries more than its own words.
    near : Chunk or None
        For "with": a thing left out just before it, which a pronoun may also stand for.
    """

    kind: Kind
    text: str = ""
    full: str = ""
    head: str = ""
    phrase: Phrase | None = None
    form: str = ""
    negative: bool = False
    pronoun: bool = False
    nameless: bool = False
    start: int = 0
    inner: tuple[Chunk, ...] = ()
    action: Chunk | None = None
    modified: bool = False
    near: Chunk | None = None
