"""Misspelt relation words, found without a dictionary: one slip from a relation word, and no English word itself."""

from __future__ import annotations

from string import ascii_lowercase

__all__ = ["SLIPS", "correct"]

# Only long words: a slip in "over" or "top" is as a rule another word.
_WORDS = "above below under beneath underneath behind bottom center middle corner".split()
_SIDES = ["left", "right"]

# Words, names and abbreviations that one slip would reach.
_ENGLISH = frozenset(
    (
        "centre lift loft deft heft weft cleft eft let felt lefts lefty leff leet lest lent lept leaf lef let elft "
        "eft light might night fight sight tight eight bright wright rights fright rite rigid righty "
        "plight alright aright bight dight hight wight abode aboves abide bove bellow blow elow belong "
        "bellows belows belly billow fellow mellow yellow blew bowel elbow melow ander ender "
        "inder udder hunder sunder tender asunder unders wonder render gender sender fender bender "
        "anders enders undergo thunder launder blunder plunder founder yonder undead behinds "
        "bequeath bottoms button buttons cotton bottle blossom bottomy enter cent centers canter cantor "
        "renter censer cater center's cente tenter venter denter fenter mentor center middles muddle "
        "meddle fiddle riddle piddle diddle corners corder horner cornet cornea corned born corn coroner "
        "scorner warner garner conner corer comer cornier forner corrner's centera centero uncer lower clever "
        "beneaths undy funder bunder bidder"
    ).split()
)


def _slips(word: str) -> set[str]:
    """Return every string one dropped, doubled, wrong or swapped letter away from ``word``."""
    cuts = [(word[:i], word[i:]) for i in range(len(word) + 1)]
    dropped = {a + b[1:] for a, b in cuts if b}
    swapped = {a + b[1] + b[0] + b[2:] for a, b in cuts if len(b) > 1}
    wrong = {a + c + b[1:] for a, b in cuts if b for c in ascii_lowercase}
    added = {a + c + b for a, b in cuts for c in ascii_lowercase}
    return (dropped | swapped | wrong | added) - {word}


SLIPS: dict[str, str] = {
    slip: word for word in (*_WORDS, *_SIDES) for slip in sorted(_slips(word)) if slip not in _ENGLISH
}
"""A misspelling and the word it is read as."""

SLIPS |= {
    "undernethe": "underneath", "underneeth": "underneath", "undernieth": "underneath", "benieth": "beneath",
    "beneeth": "beneath", "undearneath": "underneath",
}  # fmt: skip


def correct(tokens: list[str]) -> tuple[list[str], list[tuple[str, str]]]:
    """Replace misspelt relation words where the words around them make the reading certain.

    ``left`` and ``right`` are short and near many words, so they are only read where "of" follows or "to the", "on the"
    stands before them.

    Returns
    -------
    tokens : list of str
        The words, corrected.
    corrected : list of (str, str)
        What was written and what was read.
    """
    fixed, corrected = _its(tokens), []
    for i, token in enumerate(tokens):
        word = SLIPS.get(token)
        if word is None or not _certain(tokens, i, word):
            continue
        fixed[i] = word
        corrected.append((token, word))
    return fixed, corrected


def _its(tokens: list[str]) -> list[str]:
    """Read "on it's left" as "on its left"."""
    for i in range(len(tokens) - 3):
        if (
            tokens[i + 1 : i + 3] == ["it", "is"]
            and tokens[i] in ("on", "to", "at")
            and tokens[i + 3] in _SIDES
        ):
            return [*tokens[: i + 1], "its", *_its(tokens[i + 3 :])]
    return list(tokens)


def _certain(tokens: list[str], i: int, word: str) -> bool:
    before, after = tokens[max(i - 2, 0) : i], tokens[i + 1 : i + 4]
    if word in ("above", "below", "under", "beneath", "underneath", "behind"):
        return bool(before and after)
    if after[:1] == ["of"] or after[:2] == ["side", "of"]:
        return word in _SIDES or before[-1:] == ["the"]
    return before[-1:] == ["the"] and before[0] in ("to", "on", "at", "in") and after[:1] != ["-"]
