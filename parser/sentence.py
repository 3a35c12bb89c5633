"""The words of a sentence and what each can be to a noun phrase."""

from __future__ import annotations

from parser import words
from parser.lexicon import Role
from parser.phrases import Phrase

__all__ = ["Sentence", "foreign", "is_plural"]

_CANS = frozenset("a the two garbage trash soda beer tin paint watering spray".split())
_PAIRS = {
    ("salt", "pepper"),
    ("black", "white"),
    ("mac", "cheese"),
    ("macaroni", "cheese"),
    ("ham", "cheese"),
    ("fish", "chips"),
    ("bed", "breakfast"),
    ("peanut", "jelly"),
    ("rock", "roll"),
}
_ADJECTIVES = 5  # in a row, with commas between them
_ALSO_NOUNS = words.COUNTS | frozenset(
    "orange glass metal plastic paper leather stone brick light half other".split()
)
_LATIN_END = 0x250


def foreign(word: str) -> bool:
    """Whether a word is not in Latin letters."""
    return not word.isascii() and any(ord(letter) >= _LATIN_END for letter in word)


def is_plural(noun: str) -> bool:
    """Whether a noun looks like a plural."""
    return noun in words.PLURALS or (
        noun.endswith("s") and not noun.endswith(("ss", "us")) and noun not in words.SINGULARS
    )


class Sentence:
    """Words with the place phrases and idioms found in them.

    Attributes
    ----------
    tokens : list of str
        Words and signs.
    phrases : dict of int to Phrase
        Place phrases by their first word.
    idiom : set of int
        Words of idioms and quoted names, which belong to the noun phrase around them whatever they are.
    """

    def __init__(self, tokens: list[str], phrases: list[Phrase]) -> None:
        self.tokens = tokens
        self.phrases = {p.start: p for p in phrases if p.entry.role is not Role.IDIOM}
        self.idiom = {i for p in phrases if p.entry.role is Role.IDIOM for i in range(p.start, p.end)}

    def nounish(self, i: int) -> bool:
        """Whether a word can go on a noun phrase."""
        if i >= len(self.tokens) or i in self.phrases:
            return False
        if i in self.idiom:
            return True
        token = self.tokens[i]
        return (
            token[0].isalnum()
            and not foreign(token)
            and token not in words.CONJUNCTIONS
            and (token not in words.AUXILIARIES or self.is_can(i))
            and token not in words.PREPOSITIONS
            and token not in words.PRONOUNS
            and token not in words.RELATIVES
            and token not in words.DETERMINERS
            and token not in words.POSSESSIVES
            and token not in words.SUBORDINATORS
            and token not in words.NEGATORS
            and token not in words.ADVERBS
            and not self.adverbial(i)
        )

    def is_can(self, i: int) -> bool:
        """Whether "can" is the thing: "a can of paint", "a trash can"."""
        before, after = self.tokens[i - 1] if i else "", self.tokens[i + 1 : i + 2]
        return self.tokens[i] == "can" and (before in _CANS or after == ["of"])

    def adverbial(self, i: int) -> bool:
        """Whether the word at ``i`` is an adverb by its ending and describes no adjective after it."""
        token = self.tokens[i]
        if not token.endswith("ly") or len(token) <= 4 or token in words.NOUNS_IN_LY:
            return False
        if i and self.tokens[i - 1] in words.DETERMINERS and not self.nounish(i + 1):
            return False
        following = self.tokens[i + 1] if i + 1 < len(self.tokens) and i + 1 not in self.phrases else ""
        return not (following in words.ADJECTIVES or following.endswith("ed") or following.endswith("ing"))

    def goes_on_with_of(self, i: int) -> bool:
        """Whether the "of" at ``i`` goes on the noun phrase."""
        j = i + 1
        while j < len(self.tokens) and (
            self.tokens[j] in words.DETERMINERS or self.tokens[j] in words.POSSESSIVES
        ):
            j += 1
        return (
            i not in self.phrases and all(k not in self.phrases for k in range(i, j + 1)) and self.nounish(j)
        )

    def paired(self, i: int, content: list[str]) -> bool:
        """Whether the "and" at ``i`` joins two adjectives ("red and white bus") or a set pair."""
        if self.tokens[i : i + 1] not in (["and"], ["&"]) or not content or not self.nounish(i + 1):
            return False
        pair = (content[-1], self.tokens[i + 1])
        if pair in _PAIRS:
            return True
        return (
            all(word in words.ADJECTIVES for word in content)
            and pair[1] in words.ADJECTIVES
            and self.nounish(i + 2)
        )

    def listed(self, i: int, content: list[str]) -> bool:
        """Whether the comma at ``i`` stands between adjectives: "a small, white dog", "a red, white and blue flag"."""
        if self.tokens[i] != "," or not content or content[-1] in _ALSO_NOUNS:
            return False
        if not all(word in words.ADJECTIVES or word in words.ADVERBS or word == "one" for word in content):
            return False
        j = i + 1 + (self.tokens[i + 1 : i + 2] == ["and"])
        for _ in range(_ADJECTIVES):
            j += self.tokens[j : j + 1] == ["very"]
            if not self.nounish(j) or self.nounish(j + 1):
                return self.nounish(j)
            if self.tokens[j] not in words.ADJECTIVES or self.tokens[j + 1 : j + 2] != [","]:
                return self.paired(j + 1, self.tokens[j : j + 1])
            j += 2 + (self.tokens[j + 2 : j + 3] == ["and"])
        return False

    def adverb_inside(self, i: int, content: list[str]) -> bool:
        """Whether the adverb at ``i`` belongs to an adjective of the noun phrase ("a half open door")."""
        if self.tokens[i] not in words.ADVERBS or i in self.phrases:
            return False
        return (
            all(word in words.ADJECTIVES for word in content)
            and self.nounish(i + 1)
            and self.tokens[i + 1] in words.ADJECTIVES
        )
