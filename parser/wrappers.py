"""The words around a query that ask for a picture and describe nothing in it: "show me photos where ..."."""

from __future__ import annotations

from parser.words import ADJECTIVES, DETERMINERS

__all__ = ["unwrap"]

_ASKING = frozenset(
    (
        "please show find give get search searching display retrieve list fetch return want need see i i'm "
        "you we can could would like love let let's do have looking look"
    ).split()
)
_FILLING = _ASKING | frozenset("me us for to the a an all any some only am is are in".split())
_PICTURES = frozenset(
    (
        "photo photos photograph photographs picture pictures image images pic pics shot shots snapshot "
        "snapshots closeup close-up view scene scenes footage"
    ).split()
)
_KINDS = ADJECTIVES | DETERMINERS | frozenset(
    (
    "and of blurry overhead aerial close up night wide zoomed cropped stock professional nice good great "
    "bunch few several my your color colour b&w detailed panoramic outdoor indoor"
    ).split()
)  # fmt: skip
_JOINING = tuple(
    tuple(phrase.split())
    for phrase in (
        "in which there is|in which there are|where there is|where there are|of where|in which|on which|that shows|"
        "that show|which shows|which show|that contains|that contain|that has|that have|taken of|shows|showing|show|"
        "containing|contains|featuring|depicting|depicts|of|where|with|having|wherein"
    ).split("|")
)


def unwrap(tokens: list[str]) -> list[str]:
    """Drop what stands around the description.

    Examples
    --------
    >>> unwrap("show me a blurry photo of a dog".split())
    ['a', 'dog']
    >>> unwrap("a photo left of a dog".split())
    ['a', 'photo', 'left', 'of', 'a', 'dog']
    """
    if len(tokens) > 1 and tokens[0] in "\"'" and tokens.count(tokens[0]) == 2 and tokens[-1] == tokens[0]:
        tokens = tokens[1:-1]
    start = 0
    if tokens and tokens[0] in _ASKING:
        while start < len(tokens) and tokens[start] in _FILLING:
            start += 1
    return tokens[_picture(tokens, start) :]


def _picture(tokens: list[str], start: int) -> int:
    """Skip "a blurry photo of"; where there is none, stay at ``start``."""
    at = start
    while at < len(tokens) and tokens[at] in _KINDS and tokens[at] not in _PICTURES:
        at += 1
    if at < len(tokens) and tokens[at] in _PICTURES:
        for joining in _JOINING:
            end = at + 1 + len(joining)
            if tuple(tokens[at + 1 : end]) == joining:
                return _picture(tokens, end)
    return start
