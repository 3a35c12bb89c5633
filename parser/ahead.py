"""What stands ahead in a row of items, as far as it decides how an item is read."""

from __future__ import annotations

from parser.items import Chunk, Kind
from parser.lexicon import Role

__all__ = ["JOINTS", "goes_on", "listed", "placed", "turns_round"]

JOINTS = (Kind.CONJUNCTION, Kind.COMMA, Kind.SUBORDINATOR)
"""What a clause of its own may follow."""

_LINKS = (
    [Kind.COMMA, Kind.CONJUNCTION, Kind.NOUN],
    [Kind.COMMA, Kind.NOUN],
    [Kind.CONJUNCTION, Kind.NOUN],
)
_STANDING = frozenset("stand sit lie hang rest perch float hover sleep hide wait kneel crouch show".split())
"""Verbs after which a place is followed by what is there: "on the right sits a cat", "right side shows a cat"."""


def placed(items: list[Chunk], i: int) -> bool:
    """Whether the noun phrase at ``i`` gets a place of its own before the clause ends."""
    for item in items[i + 1 :]:
        if item.kind is Kind.PLACE:
            return item.phrase is not None and item.phrase.entry.role is not Role.UNSCORED
        if item.kind in (Kind.COMMA, Kind.BREAK, Kind.SUBORDINATOR):
            return False
    return False


def listed(items: list[Chunk], i: int) -> bool:
    """Whether the noun phrase at ``i`` is inside a list: "a cat, a dog and a bird"."""
    rest = [item.kind for item in items[i + 1 : i + 9]]
    while rest[:2] == [Kind.COMMA, Kind.NOUN]:
        rest = rest[2:]
    return rest[:2] == [Kind.CONJUNCTION, Kind.NOUN] or rest[:3] == [
        Kind.COMMA,
        Kind.CONJUNCTION,
        Kind.NOUN,
    ]


def turns_round(items: list[Chunk], i: int) -> bool:
    """Whether a verb and then its subject follow at ``i``: "is a cat", "there is a cat", "sits a cat"."""
    turned = False
    for item in items[i : i + 4]:
        if item.kind is Kind.NOUN:
            return turned and not item.pronoun
        if item.kind not in (Kind.THERE, Kind.AUXILIARY) and item.head not in _STANDING:
            return False
        turned = True
    return False


def goes_on(items: list[Chunk], i: int) -> bool:
    """Whether the noun phrase at ``i`` goes on the answer before it: "on the left, a cat and a bird"."""
    kinds = [item.kind for item in items[i - 3 : i + 12]]
    before, last, rest = kinds[:2], kinds[2], kinds[4:]
    if not (last is Kind.CONJUNCTION or (last is Kind.COMMA and listed(items, i))):
        return False
    if before[1] is not Kind.NOUN and before != [Kind.NOUN, Kind.COMMA]:
        return False
    while (link := next((link for link in _LINKS if rest[: len(link)] == link), None)) is not None:
        rest = rest[len(link) :]
    return not rest or rest[0] in (*JOINTS, Kind.BREAK)
