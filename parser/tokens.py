"""Text to words: lower-case, with contractions opened and everything that is no word kept as one character."""

from __future__ import annotations

import re
import unicodedata
from itertools import islice

__all__ = ["MAX_TOKENS", "fold", "tokenize"]

MAX_TOKENS = 300
"""Words and signs that are read of a text; what comes later is not looked at."""

_TOKEN = re.compile(
    r"[^\W\d_](?:\.[^\W\d_](?![^\W_]))+\.?"  # u.s.
    r"|(?:dr|mr|mrs|ms|prof|st|mt)\.(?=\s+\w)"
    r"|[^\W_]{1,2}&[^\W_](?![^\W_])"  # b&w
    r"|w/(?:o(?:ut)?(?![^\W_]))?"
    r"|(?:\d+(?:,\d{3}|\.\d+)+)(?:-?[^\W_]+)*"  # 1.5-litre
    r"|[^\W_]+(?:[-'][^\W_]+)*(?:(?<=s)'(?=\s\w))?|[^\s\w]|_"
)
_CONTRACTION = re.compile(
    r"(that|there|it|who|what|where|which|he|she|here)'(s)|(they|we|you|there|who)'(re)|(i)'(m|ve|d)"
)
_PLACE = re.compile(
    r"(left|right|top|bottom|upper|lower|center|centre)(-(left|right|hand|side|corner|most|center|centre)){1,3}$"
)
_HYPHENATED = frozenset(
    "left-of right-of to-the-left-of to-the-right-of in-front-of on-top-of next-to".split()
)
_OPENED = {"s": "is", "re": "are", "m": "am", "ve": "have", "d": "would"}
_SHORT = {"w/": "with", "w/o": "without", "w/out": "without"}
_SAME = {
    odd: plain
    for plain, odds in {
        "'": "\u2018\u2019`\u00b4",
        "-": "\u2010\u2011",
        '"': "\u201c\u201d\u201e\u00ab\u00bb",
    }.items()
    for odd in odds
}
_ODD = re.compile(f"[{''.join(_SAME)}]")
_USUAL = re.compile(r"[^\ufdfa\ufdfb]+")
"""All but two signs that stand for whole sentences: written out, ten thousand of them would take their time."""


def fold(text: str) -> str:
    """Lower-case text with one form for every quote, hyphen and full-width letter."""
    if text.isascii():
        return text.lower()
    # str.translate looks up every character that is not ASCII, and of those a text can hold a lot.
    text = _USUAL.sub(lambda usual: unicodedata.normalize("NFKC", usual.group()), text)
    return _ODD.sub(lambda odd: _SAME[odd.group()], text).lower()


def tokenize(folded: str) -> list[str]:
    """Split folded text into at most :data:`MAX_TOKENS` words and signs.

    Examples
    --------
    >>> tokenize("the t-shirt that's left of a dog's bed, ok")
    ['the', 't-shirt', 'that', 'is', 'left', 'of', 'a', "dog's", 'bed', ',', 'ok']
    """
    tokens: list[str] = []
    for match in islice(_TOKEN.finditer(folded), MAX_TOKENS):
        word = match.group()
        if "'" in word and (opened := _CONTRACTION.fullmatch(word)):
            first, short = (group for group in opened.groups() if group)
            tokens += (first, _OPENED[short])
        elif word in _SHORT:
            tokens.append(_SHORT[word])
        elif "-" in word and (_PLACE.match(word) or word in _HYPHENATED):
            tokens += word.split("-")
        else:
            tokens.append(word)
    return tokens
