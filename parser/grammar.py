"""How a query is read."""

from __future__ import annotations

import re
from collections.abc import Iterable

from parser.chunks import chunk, doubtful
from parser.lexicon import TRIGGERS
from parser.phrases import Phrase, find_phrases
from parser.reader import read
from parser.reading import Reading
from parser.relation import ParsedQuery, Relation
from parser.spelling import SLIPS, correct
from parser.tagger import Tagger
from parser.tokens import MAX_TOKENS, fold, tokenize
from parser.wrappers import unwrap

__all__ = ["QueryParser"]

_WORD = re.compile(r"[a-z0-9]+")  # every alarm is such a word; what follows reads the others too
_ALARMS = TRIGGERS | SLIPS.keys()


class QueryParser:
    """Reads the places that a query names.

    A closed grammar over words: what the lexicon does not list, it does not read. spaCy is asked only where the word
    lists cannot tell whether a noun phrase ends in a noun or a verb follows ("a dog snoozes under a table").

    Parameters
    ----------
    use_spacy : bool or None
        Whether spaCy may be asked; None asks it where it is installed.

    Raises
    ------
    ImportError
        With ``use_spacy=True`` where spaCy or its model is missing, at the first doubtful word or at :meth:`warm`.

    Examples
    --------
    >>> QueryParser(use_spacy=False).parse("a cup to the left of a laptop").relations[0].object
    'laptop'
    """

    def __init__(self, use_spacy: bool | None = None) -> None:
        self._tagger = Tagger(use_spacy)

    def warm(self) -> None:
        """Load spaCy now rather than at the first doubtful word."""
        self._tagger.load()

    def parse(self, text: str) -> ParsedQuery:
        """Read one query.

        Parameters
        ----------
        text : str
            Anything; it is never refused.

        Returns
        -------
        ParsedQuery
            Empty but for the query where it names no place.
        """
        return self.parse_many((text,))[0]

    def parse_many(self, texts: Iterable[str]) -> list[ParsedQuery]:
        """Read many queries; the same answers as one by one, and spaCy is asked once for all of them."""
        drafts = [_Draft(text) for text in texts]
        asked = [draft for draft in drafts if draft.doubtful]
        if asked:
            for draft, verbs in zip(
                asked, self._tagger.verbs([(d.tokens, d.doubtful) for d in asked]), strict=True
            ):
                draft.verbs = verbs
        return [draft.read() for draft in drafts]


class _Draft:
    """One query between its words and its reading."""

    __slots__ = ("corrected", "doubtful", "phrases", "text", "tokens", "truncated", "verbs")

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens: list[str] = []
        self.phrases: list[Phrase] = []
        self.corrected: list[tuple[str, str]] = []
        self.doubtful: list[int] = []
        self.verbs: set[int] = set()
        self.truncated = False
        folded = fold(text)
        if _ALARMS.isdisjoint(_WORD.findall(folded)):
            return
        tokens = tokenize(folded)
        self.truncated = len(tokens) >= MAX_TOKENS
        self.tokens, self.corrected = correct(unwrap(tokens))
        self.phrases = find_phrases(self.tokens)
        if self.phrases:
            self.doubtful = doubtful(self.tokens, self.phrases)

    def read(self) -> ParsedQuery:
        reading = read(chunk(self.tokens, self.phrases, self.verbs)) if self.phrases else Reading()
        warnings = []
        if reading.relations or reading.unscored:
            warnings += [f"Read '{written}' as '{meant}'." for written, meant in self.corrected]
        depth = dict.fromkeys(
            f"'{fact.relation.replace('_', ' ')}'"
            for fact in reading.relations
            if isinstance(fact.relation, Relation) and fact.relation.is_depth
        )
        if depth:
            warnings.append(
                f"A picture has no depth: for {' and '.join(depth)} the vertical axis is only a proxy, and it does not "
                "change the ranking unless you ask for it."
            )
        warnings += [
            f"'{fact.subject}' stands on both sides of this relation, so it cannot tell pictures apart."
            for fact in reading.relations
            if fact.subject == fact.object
        ]
        if self.truncated:
            warnings.append(f"Only the first {MAX_TOKENS} words were read for places.")
        return ParsedQuery(self.text, reading.relations, tuple(reading.unscored), tuple(warnings))
