"""A sentence as a short row of items: noun phrases, verbs, place phrases and the small words between them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum

from parser import nouns, words
from parser.lexicon import Role
from parser.phrases import Phrase

__all__ = ["Chunk", "Kind", "chunk", "doubtful"]


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


_SIGNS = {",": Kind.COMMA, "-": Kind.COMMA, "–": Kind.COMMA, "—": Kind.COMMA, ":": Kind.COMMA, "(": Kind.COMMA, ")": Kind.COMMA,
          "+": Kind.CONJUNCTION, "&": Kind.CONJUNCTION}  # fmt: skip
_BEFORE_VERB = (
    Kind.NOUN, Kind.RELATIVE, Kind.SUBORDINATOR, Kind.THERE, Kind.PLACE, Kind.NEGATOR, Kind.VERB
)  # fmt: skip
_CANS = frozenset("garbage trash soda beer tin paint watering spray".split())
_BREAKS = frozenset(".;!?|/…")
_LATIN_END = 0x250


def _plural(noun: str) -> bool:
    return noun in words.PLURALS or (
        noun.endswith("s") and not noun.endswith(("ss", "us")) and noun not in words.SINGULARS
    )


def _foreign(word: str) -> bool:
    return not word.isascii() and any(ord(letter) >= _LATIN_END for letter in word)


def chunk(tokens: list[str], phrases: list[Phrase], verbs: Collection[int] = ()) -> list[Chunk]:
    """Cut a sentence into items.

    Parameters
    ----------
    tokens : list of str
        Words and signs.
    phrases : list of Phrase
        Place phrases and idioms found in them.
    verbs : collection of int
        Indices of doubtful words that a tagger took for verbs.

    Returns
    -------
    list of Chunk
        In the order of the text. Adverbs and asides are left out.
    """
    return _Cutter(tokens, phrases, verbs).run()


def doubtful(tokens: list[str], phrases: list[Phrase]) -> list[int]:
    """Words before a place phrase that may end a noun phrase or be a verb, which the word lists cannot tell."""
    cutter = _Cutter(tokens, phrases, ())
    cutter.run()
    return cutter.doubtful


class _Cutter:
    def __init__(self, tokens: list[str], phrases: list[Phrase], verbs: Collection[int]) -> None:
        self.tokens = tokens
        self.phrases = {p.start: p for p in phrases if p.entry.role is not Role.IDIOM}
        self.idiom = {i for p in phrases if p.entry.role is Role.IDIOM for i in range(p.start, p.end)}
        self.verbs = verbs
        self.doubtful: list[int] = []
        self.items: list[Chunk] = []
        self._one = False  # the noun phrase being read began with "a"
        self._determined = False  # it began with an article or possessive

    def run(self) -> list[Chunk]:
        i = 0
        while i < len(self.tokens):
            i = self._step(i)
        return self.items

    def _add(self, kind: Kind, i: int, head: str = "") -> int:
        self.items.append(Chunk(kind, text=self.tokens[i], head=head or self.tokens[i], start=i))
        return i + 1

    def _after(self, *kinds: Kind) -> bool:
        return bool(self.items) and self.items[-1].kind in kinds

    def _step(self, i: int) -> int:  # noqa: PLR0911, PLR0912 - one branch for each word class
        token = self.tokens[i]
        phrase = self.phrases.get(i)
        if phrase is not None:
            if phrase.entry.role is not Role.ASIDE:
                text = " ".join(self.tokens[phrase.start : phrase.end])
                self.items.append(Chunk(Kind.PLACE, text=text, head=text, phrase=phrase, start=i))
            return phrase.end
        if i in self.idiom:
            return self._noun(i)
        if token in _SIGNS:
            return self._add(_SIGNS[token], i)
        if token in _BREAKS or _foreign(token):
            return self._add(Kind.BREAK, i)
        if not token[0].isalnum():
            return i + 1
        if token in words.CONJUNCTIONS:
            return self._add(Kind.CONJUNCTION, i)
        if token == "as":
            dressed = self._after(Kind.VERB) and self.items[-1].head == "dress"
            return self._add(Kind.PREPOSITION if dressed else Kind.SUBORDINATOR, i)
        if token in words.SUBORDINATORS:
            return self._add(Kind.SUBORDINATOR, i)
        if token == "no":
            return self._noun(i)
        if token in words.NEGATORS:
            return self._add(Kind.NEGATOR, i)
        if token in words.AUXILIARIES:
            return self._add(Kind.AUXILIARY, i)
        if token == "there":
            return self._add(Kind.THERE, i)
        if token in words.RELATIVES and self._relative(token):
            return self._add(Kind.RELATIVE, i)
        if token in words.QUESTIONS or token == "which":
            return self._question(i)
        if (token in words.PRONOUNS and token != "her") or (token == "her" and not self._nounish(i + 1)):
            self.items.append(Chunk(Kind.NOUN, text=token, full=token, head=token, pronoun=True, start=i))
            return i + 1
        if token in words.INDEFINITE and not (token in ("one", "all", "other") and self._nounish(i + 1)):
            self.items.append(Chunk(Kind.NOUN, text=token, full=token, head=token, nameless=True, start=i))
            return i + 1
        if token in words.PREPOSITIONS and not (token == "like" and self._after(Kind.AUXILIARY)):
            return self._add(Kind.PREPOSITION, i)
        if token in words.ADVERBS or self._adverbial(i):
            return i + 1
        if self._is_verb(i, []):
            return self._verb(i)
        return self._noun(i)

    def _relative(self, token: str) -> bool:
        """Whether "that" or "which" goes back to a noun phrase: "a dog that", "a dog, which"."""
        aside = (
            token != "that" and self._after(Kind.COMMA) and [i.kind for i in self.items[-2:-1]] == [Kind.NOUN]
        )
        return self._after(Kind.NOUN) or aside

    def _question(self, i: int) -> int:
        if self.tokens[i] == "how" and self.tokens[i + 1 : i + 2] == ["many"]:
            return i + 2
        if (
            self.tokens[i] in ("what", "which")
            and self._nounish(i + 1)
            and self.tokens[i + 1] not in words.VERBS
        ):
            return i + 1  # "which car": the noun follows
        return self._add(Kind.QUESTION, i)

    def _verb(self, i: int) -> int:
        token = self.tokens[i]
        verb = words.VERBS.get(token, token)
        form = words.VERB_FORMS.get(token) or (
            "ing" if token.endswith("ing") else "ed" if token.endswith("ed") else "s"
        )
        self.items.append(Chunk(Kind.VERB, text=token, head=verb, form=form, start=i))
        return i + 1

    def _nounish(self, i: int) -> bool:
        """Whether a word can go on a noun phrase."""
        if i >= len(self.tokens) or i in self.phrases:
            return False
        if i in self.idiom:
            return True
        token = self.tokens[i]
        return (
            token[0].isalnum()
            and not _foreign(token)
            and token not in words.CONJUNCTIONS
            and (token not in words.AUXILIARIES or (token == "can" and i > 0 and self.tokens[i - 1] in _CANS))
            and token not in words.PREPOSITIONS
            and token not in words.PRONOUNS
            and token not in words.RELATIVES
            and token not in words.DETERMINERS
            and token not in words.POSSESSIVES
            and token not in words.SUBORDINATORS
            and token not in words.NEGATORS
            and token not in words.ADVERBS
            and not self._adverbial(i)
        )

    def _adverbial(self, i: int) -> bool:
        """Whether the word at ``i`` is an adverb by its ending and describes no adjective after it."""
        token = self.tokens[i]
        if not token.endswith("ly") or len(token) <= 4 or token in words.NOUNS_IN_LY:
            return False
        following = self.tokens[i + 1] if i + 1 < len(self.tokens) and i + 1 not in self.phrases else ""
        return not (following in words.ADJECTIVES or following.endswith("ed") or following.endswith("ing"))

    def _is_verb(self, i: int, content: list[str]) -> bool:
        """Whether the word at ``i`` ends a noun phrase that so far reads ``content`` and is a verb itself."""
        token = self.tokens[i]
        form = words.VERB_FORMS.get(token)
        if not content:
            return self._first_is_verb(i, form)
        if all(word in words.ADJECTIVES for word in content):
            doing = (
                form in ("ing", "ed") and token not in words.NOUNS_IN_ING
            )  # "an orange lying under a chair"
            return doing and (
                not self._nounish(i + 1) or (not self._determined and self._after(Kind.AUXILIARY))
            )
        ends = not self._nounish(i + 1)
        if token == "left":
            return True
        if form == "ing" or (form is None and token.endswith("ing") and len(token) > 4):
            if token in words.NOUNS_IN_ING:
                return False
            return not (i + 1 < len(self.tokens) and self.tokens[i + 1] in words.COMPOUND_HEADS)
        if form == "ed" or (form is None and token.endswith("ed") and len(token) > 4):
            return token not in words.NOUNS_IN_ED and (ends or form is not None)
        if form in ("s", "base"):
            return self._is_finite(i, form, content, ends=ends)
        if i in self.verbs:
            return True
        if (
            ends
            and i + 1 in self.phrases
            and content[0] not in words.COUNTS
            and (token.endswith("s") or _plural(content[-1]))
        ):
            self.doubtful.append(i)
        return False

    def _is_finite(self, i: int, form: str, content: list[str], *, ends: bool) -> bool:
        """Whether "stands" or "stand" after a noun agrees with it as a verb does."""
        plural, person = _plural(content[-1]), content[-1] in nouns.PEOPLE or content[-1] in nouns.ANIMALS
        followed = i + 1 < len(self.tokens) and (
            ends or (i + 2 in self.phrases and self.tokens[i + 1] in words.ADJECTIVES)
        )
        if self.tokens[i] in words.NOUN_VERBS and not person and not (form == "s" and self._one):
            return False
        if form == "s":
            return (followed or self._one or person) and not plural and content[0] not in words.COUNTS
        joined = len(self.items) > 1 and self._after(Kind.CONJUNCTION)
        return (followed and (plural or joined) and not self._one) or content[-1] in words.PLURALS

    def _first_is_verb(self, i: int, form: str | None) -> bool:
        """Whether the word at ``i``, with no noun phrase begun, is a verb."""
        token, ends = self.tokens[i], not self._nounish(i + 1)
        if form is None:
            doing = token.endswith(("ing", "ed")) and len(token) > 4
            nouns_too = token in words.NOUNS_IN_ING or token in words.NOUNS_IN_ED
            return doing and not nouns_too and ends and self._after(Kind.NOUN, Kind.AUXILIARY, Kind.VERB)
        if self._after(Kind.AUXILIARY):
            if form in ("ing", "ed"):
                return ends or [item.kind for item in self.items[-2:-1]] == [Kind.NOUN]
            return form == "base" and self.items[-1].head in words.MODALS
        if self._after(*_BEFORE_VERB):
            return not self._expects_object() and not (
                token in words.NOUN_VERBS and form in ("s", "base") and self._after(Kind.THERE, Kind.VERB)
            )
        return form in ("ing", "ed") and ends and bool(self.items)

    def _expects_object(self) -> bool:
        """Whether a place phrase stands before that a noun phrase must follow."""
        phrase = self.items[-1].phrase
        return phrase is not None and not phrase.owner and phrase.entry.role is not Role.POSITION

    def _noun(self, start: int) -> int:
        tokens, i = self.tokens, start
        negative = self._one = False
        while (
            i < len(tokens)
            and (tokens[i] in words.DETERMINERS or tokens[i] in words.POSSESSIVES or tokens[i] == "no")
            and i not in self.phrases
        ):
            negative |= tokens[i] == "no"
            self._one |= tokens[i] in ("a", "an", "one", "this", "that", "each", "every", "another")
            i += 1
        if tokens[start] == "one" and i == start and self._nounish(i + 1):
            self._one = True
        self._determined = i > start
        if (
            self._determined
            and tokens[i - 1] in ("another", "each")
            and i < len(tokens)
            and words.VERB_FORMS.get(tokens[i]) == "s"
        ):
            self.items.append(
                Chunk(
                    Kind.NOUN,
                    text=tokens[i - 1],
                    full=tokens[i - 1],
                    head=tokens[i - 1],
                    nameless=True,
                    start=start,
                )
            )
            return i
        content: list[str] = []
        first = i
        head = ""
        while i < len(tokens) and i not in self.phrases:
            token = tokens[i]
            if i in self.idiom:
                if token != '"':
                    content.append(token)
            elif token == "of" and content and self._of(i):
                head = head or content[-1]
                content.append(token)
                i += 1
                while i < len(tokens) and (tokens[i] in words.DETERMINERS or tokens[i] in words.POSSESSIVES):
                    content.append(tokens[i])
                    i += 1
                continue
            elif self._paired(i, content):
                content.append(token)
            elif (not self._nounish(i) and not self._adverb_inside(i, content)) or (
                content
                and content[-1] != "of"
                and content[-1] not in words.DETERMINERS
                and self._is_verb(i, content)
            ):
                break
            else:
                content.append(token)
            i += 1
        if (
            content
            and first == start
            and self._after(Kind.AUXILIARY)
            and len(self.items) > 1
            and self._predicate(content)
        ):
            return i
        if not content:
            if i == start:
                return i + 1
            if negative:
                self.items.append(Chunk(Kind.NEGATOR, text="no", head="no", start=start))
            return i
        self.items.append(
            Chunk(
                Kind.NOUN,
                text=" ".join(content),
                full=" ".join(tokens[start:i]),
                head=head or content[-1],
                negative=negative,
                start=first,
            )
        )
        return i

    def _predicate(self, content: list[str]) -> bool:
        """Whether the words after "is" only describe: "the dog is black and left of a car"."""
        return all(word in words.ADJECTIVES and word not in words.COUNTS for word in content)

    def _of(self, i: int) -> bool:
        """Whether the "of" at ``i`` goes on the noun phrase."""
        j = i + 1
        while j < len(self.tokens) and (
            self.tokens[j] in words.DETERMINERS or self.tokens[j] in words.POSSESSIVES
        ):
            j += 1
        return (
            i not in self.phrases and all(k not in self.phrases for k in range(i, j + 1)) and self._nounish(j)
        )

    def _paired(self, i: int, content: list[str]) -> bool:
        """Whether the "and" at ``i`` joins two adjectives ("red and white bus") or a set pair."""
        if self.tokens[i] not in ("and", "&") or not content or not self._nounish(i + 1):
            return False
        pair = (content[-1], self.tokens[i + 1])
        if pair in _PAIRS:
            return True
        return (
            all(word in words.ADJECTIVES for word in content)
            and pair[1] in words.ADJECTIVES
            and self._nounish(i + 2)
        )

    def _adverb_inside(self, i: int, content: list[str]) -> bool:
        """Whether the adverb at ``i`` belongs to an adjective of the noun phrase ("a half open door")."""
        if self.tokens[i] not in words.ADVERBS or i in self.phrases:
            return False
        return (
            all(word in words.ADJECTIVES for word in content)
            and self._nounish(i + 1)
            and self.tokens[i + 1] in words.ADJECTIVES
        )


_PAIRS = {("salt", "pepper"), ("black", "white"), ("mac", "cheese"), ("ham", "cheese"), ("fish", "chips"), ("bed", "breakfast"),
          ("macaroni", "cheese"), ("peanut butter", "jelly")}  # fmt: skip
