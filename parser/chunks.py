"""A sentence as a short row of items: noun phrases, verbs, place phrases and the small words between them."""

from __future__ import annotations

from collections.abc import Collection

from parser import nouns, words
from parser.items import Chunk, Kind
from parser.lexicon import Role
from parser.phrases import Phrase
from parser.sentence import Sentence, foreign, is_plural

__all__ = ["chunk", "doubtful"]

_SIGNS = {sign: Kind.COMMA for sign in ",-\u2013\u2014:()"} | {"+": Kind.CONJUNCTION}
_BEFORE_VERB = (
    Kind.NOUN, Kind.RELATIVE, Kind.QUESTION, Kind.SUBORDINATOR, Kind.THERE, Kind.PLACE, Kind.NEGATOR, Kind.VERB
)  # fmt: skip
_DETERMINERS = words.DETERMINERS | words.POSSESSIVES | {"no"}
_ONE = frozenset("a an one this that each every another".split())
_UNNAMED = frozenset('",')  # signs inside a noun phrase that are no part of its name
_BREAKS = frozenset(".;!?|/…")


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


class _Cutter(Sentence):
    """Goes over the words once.

    Attributes
    ----------
    doubtful : list of int
        Words that the word lists can take for a noun or a verb.
    items : list of Chunk
        What was cut so far.
    """

    def __init__(self, tokens: list[str], phrases: list[Phrase], verbs: Collection[int]) -> None:
        super().__init__(tokens, phrases)
        self.verbs = verbs
        self.doubtful: list[int] = []
        self.items: list[Chunk] = []
        self._one = False  # the noun phrase being read began with "a"
        self._determined = False  # it began with an article or possessive
        self._ended = -1  # the word after the last noun phrase

    def run(self) -> list[Chunk]:
        i = 0
        while i < len(self.tokens):
            i = self._step(i)
        return self.items

    def _add(self, kind: Kind, i: int, head: str = "") -> int:
        self.items.append(Chunk(kind, text=self.tokens[i], head=head or self.tokens[i], start=i))
        return i + 1

    def _stand_in(self, token: str, i: int, *, pronoun: bool = False, nameless: bool = False) -> int:
        """Add a word that stands for a noun phrase."""
        self.items.append(Chunk(Kind.NOUN, token, token, token, pronoun=pronoun, nameless=nameless, start=i))
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
        if token in _BREAKS or foreign(token):
            return self._add(Kind.BREAK, i)
        if token in words.CONJUNCTIONS:
            return self._add(Kind.CONJUNCTION, i)
        if not token[0].isalnum():
            return i + 1
        for excluding in words.EXCLUDING:
            if token == excluding[0] and self.tokens[i : i + len(excluding)] == excluding:
                return self._add(Kind.NEGATOR, i) - 1 + len(excluding)
        if token == "as":
            dressed = self._after(Kind.VERB) and self.items[-1].head == "dress"
            return self._add(Kind.PREPOSITION if dressed else Kind.SUBORDINATOR, i)
        if token in words.SUBORDINATORS:
            return self._add(Kind.SUBORDINATOR, i)
        if token == "no":
            return self._noun(i)
        if token in words.NEGATORS:
            return self._add(Kind.NEGATOR, i)
        if token in words.AUXILIARIES and not self.is_can(i):
            return self._add(Kind.AUXILIARY, i)
        if token == "there":
            return self._add(Kind.THERE, i)
        if token in words.RELATIVES and self._relative(token):
            return self._add(Kind.RELATIVE, i)
        if token in words.QUESTIONS or token == "which":
            return self._question(i)
        if (token in words.PRONOUNS and token != "her") or (token == "her" and not self.nounish(i + 1)):
            return self._stand_in(token, i, pronoun=True)
        if token in words.INDEFINITE and not (token in ("one", "all", "other") and self.nounish(i + 1)):
            if self.tokens[i : i + 2] == ["one", "another"]:
                return self._stand_in("one another", i, nameless=True) + 1
            return self._stand_in(token, i, nameless=True)
        if token in words.PREPOSITIONS and not (token == "like" and self._after(Kind.AUXILIARY)):
            return self._add(Kind.PREPOSITION, i)
        if (
            token in words.ADVERBS
            or self.adverbial(i)
            or (token in words.AFTER_NOUNS and not self.nounish(i + 1))
        ):
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
            and self.nounish(i + 1)
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

    def _is_verb(self, i: int, content: list[str]) -> bool:  # noqa: PLR0911 - one answer for each form
        """Whether the word at ``i`` ends a noun phrase that so far reads ``content`` and is a verb itself."""
        token = self.tokens[i]
        form = words.VERB_FORMS.get(token)
        if i in self.verbs:
            return True
        if not content:
            return self._first_is_verb(i, form)
        if all(word in words.ADJECTIVES for word in content):
            return self._ends_adjectives(i, form, content)
        ends = not self.nounish(i + 1)
        if token == "left" or (token == "shows" and content[-1] in nouns.FRAMES):
            return True  # "left side of the photo shows a dog"
        if form == "ing" or (form is None and token.endswith("ing") and len(token) > 4):
            if token in words.NOUNS_IN_ING:
                return False
            return not (i + 1 < len(self.tokens) and self.tokens[i + 1] in words.COMPOUND_HEADS)
        if form == "ed" or (form is None and token.endswith("ed") and len(token) > 4):
            return token not in words.NOUNS_IN_ED and (ends or form is not None)
        if form in ("s", "base"):
            return self._is_finite(i, form, content, ends=ends)
        if (
            ends
            and i + 1 in self.phrases
            and content[0] not in words.COUNTS
            and (token.endswith("s") or is_plural(content[-1]))
        ):
            self.doubtful.append(i)
        return False

    def _ends_adjectives(self, i: int, form: str | None, content: list[str]) -> bool:
        """Whether a verb follows a noun that could be an adjective: "an orange lying", "a man in black stands"."""
        token, ends = self.tokens[i], not self.nounish(i + 1)
        if form in ("ing", "ed") and token not in words.NOUNS_IN_ING:
            return ends or (not self._determined and self._after(Kind.AUXILIARY))
        if form != "s" or token in words.NOUN_VERBS or not ends or content[-1] in words.COUNTS:
            return False
        return self._one or not self._determined or content[-1] == "orange"

    def _is_finite(self, i: int, form: str, content: list[str], *, ends: bool) -> bool:
        """Whether "stands" or "stand" after a noun agrees with it as a verb does."""
        noun = content[content.index("of") - 1] if "of" in content else content[-1]
        plural, person = is_plural(noun), content[-1] in nouns.PEOPLE or content[-1] in nouns.ANIMALS
        followed = i + 1 < len(self.tokens) and (
            ends or (i + 2 in self.phrases and self.tokens[i + 1] in words.ADJECTIVES)
        )
        if form == "s" and self.tokens[i] in words.NOUN_VERBS and not person and not self._one:
            return False
        if form == "s":
            return (followed or self._one or person) and not plural and content[0] not in words.COUNTS
        if self._after(Kind.AUXILIARY) and self.items[-1].head in words.MODALS:  # "does the spoon lie"
            return ends
        joined = len(self.items) > 1 and self._after(Kind.CONJUNCTION)
        return (followed and (plural or joined or is_plural(content[-1])) and not self._one) or content[
            -1
        ] in words.PLURALS

    def _first_is_verb(self, i: int, form: str | None) -> bool:
        """Whether the word at ``i``, with no noun phrase begun, is a verb."""
        token, ends = self.tokens[i], not self.nounish(i + 1)
        if form is None:
            doing = token.endswith(("ing", "ed")) and len(token) > 4
            nouns_too = token in words.NOUNS_IN_ING or token in words.NOUNS_IN_ED
            passive = self.tokens[i + 1 : i + 2] == ["by"] and self._after(
                Kind.COMMA
            )  # "a house, bordered by"
            known = passive or self._after(Kind.NOUN, Kind.AUXILIARY, Kind.VERB)
            acting = self._ended == i and [item.kind for item in self.items[-2:-1]] != [Kind.PLACE]
            return doing and not nouns_too and known and (ends or acting)  # "a man frying eggs"
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
        """Read a noun phrase that begins at ``start``; returns the word after it."""
        first = self._determiners(start)
        negative = "no" in self.tokens[start:first]
        if first < len(self.tokens) and self._is_ellipsis(first):
            self._stand_in(self.tokens[first - 1], start, nameless=True)  # "while another passes"
            return first
        content: list[str] = []
        head = ""
        i = first
        while i < len(self.tokens) and i not in self.phrases:
            if self.tokens[i] == "of" and content and self.goes_on_with_of(i) and i not in self.idiom:
                head = head or content[-1]
                end = self._determiners(i + 1)
                content += self.tokens[i:end]
                i = end
                continue
            if not self._grows(i, content):
                break
            if self.tokens[i] not in _UNNAMED:
                content.append(self.tokens[i])
            i += 1
        if not content:
            if negative:
                self.items.append(Chunk(Kind.NEGATOR, text="no", head="no", start=start))
            return max(i, start + 1)
        if (
            first == start
            and len(self.items) > 1
            and self._after(Kind.AUXILIARY)
            and self._predicate(content)
        ):
            return i
        self._ended = i
        content[-1] = content[-1].removesuffix("'s")  # "the cat's left of the dog"
        full = " ".join(token for token in self.tokens[start:i] if token not in _UNNAMED).removesuffix("'s")
        noun = Chunk(Kind.NOUN, " ".join(content), full, head or content[-1], start=first, negative=negative)
        noun.nameless = len(content) == 1 and content[0] in words.INDEFINITE
        self.items.append(noun)
        return i

    def _determiners(self, start: int) -> int:
        """Skip articles and possessives from ``start`` on, and note what they say of number."""
        i = start
        while i < len(self.tokens) and i not in self.phrases and self.tokens[i] in _DETERMINERS:
            i += 1
        one = i == start and self.tokens[start : start + 1] == ["one"] and self.nounish(i + 1)
        self._one = one or not _ONE.isdisjoint(self.tokens[start:i])
        self._determined = i > start
        return i

    def _is_ellipsis(self, first: int) -> bool:
        """Whether "another" stands without its noun, before a verb."""
        before = self.tokens[first - 1] if self._determined else ""
        return before in ("another", "each") and words.VERB_FORMS.get(self.tokens[first]) == "s"

    def _grows(self, i: int, content: list[str]) -> bool:
        """Whether the noun phrase that so far reads ``content`` takes in the word at ``i``."""
        if i in self.idiom or self.paired(i, content):
            return True
        begun = self._determined or not self._after(Kind.PREPOSITION, Kind.VERB, Kind.AUXILIARY)
        if begun and self.listed(i, content):  # but "in red, small dogs", "is black, white dogs"
            return True
        if not self.nounish(i):
            return self.adverb_inside(i, content)
        if not content or content[-1] == "of" or content[-1] in words.DETERMINERS:
            return True
        if self.tokens[i] in words.AFTER_NOUNS and not self.nounish(i + 1):
            return False
        return not self._is_verb(i, content)

    def _predicate(self, content: list[str]) -> bool:
        """Whether the words after "is" only describe: "the dog is black and left of a car"."""
        return all(word in words.ADJECTIVES and word not in words.COUNTS for word in content)
