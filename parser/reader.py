"""From a row of items to the relations a sentence names."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

from parser import nouns, words
from parser.ahead import JOINTS, goes_on, listed, placed, turns_round
from parser.items import Chunk, Kind
from parser.lexicon import AMONG, SIDE_RELATIONS, Role
from parser.meaning import UNCLEAR, Meaning, meaning, naming
from parser.modifiers import fold
from parser.phrases import Phrase
from parser.reading import Reading
from parser.relation import Position, Relation, SpatialRelation
from parser.sentence import is_plural

__all__ = ["read"]

NEGATED = "It is negated, and Beside does not search for what is absent."
NO_SUBJECT = "Nothing is named that stands there: say what to look for, as in 'a cup left of a laptop'."
NO_ANTECEDENT = "It is not clear what the pronoun stands for."

_FEW = 3  # place phrases that several noun phrases may answer, lest long texts take their time
_SIDEWAYS = (Relation.LEFT_OF, Relation.RIGHT_OF)
_CARRYING = frozenset(words.CARRYING.split())


def read(items: list[Chunk]) -> Reading:
    """Read the relations and positions that a row of items names."""
    reading = Reading()
    folded = fold(items, lambda place: reading.ignore(place, _phrase(place).entry.reason))
    _Reader(folded, reading).run()
    reading.drop_contradictions()
    return reading


def _phrase(item: Chunk) -> Phrase:
    if item.phrase is None:
        raise TypeError(f"{item.kind} has no place phrase")
    return item.phrase


def _is_thing(target: Chunk) -> bool:
    """Whether an object is a thing that may have a place itself: "the one", not "each other"."""
    if target.nameless:
        return target.full not in ("each other", "one another")
    return target.head not in nouns.ABSTRACT


def _owner(owner: tuple[str, ...]) -> Chunk:
    """Make a noun phrase of "the man's"."""
    first = 1 if len(owner) > 1 and owner[0] in words.DETERMINERS | words.POSSESSIVES else 0
    text = " ".join(owner[first:]).removesuffix("'s").removesuffix("'")
    return Chunk(Kind.NOUN, text, text, text.split()[-1])


class _Reader:
    """Goes over the items once, keeping whom the next place phrase is about.

    Attributes
    ----------
    subjects : list of Chunk
        Whom the next place phrase is about.
    anchors : list of Chunk
        Whom the last one was about; "and above a bench" goes back to them.
    target : Chunk or None
        The object of the last place phrase, until something shows whom the next one is about.
    waiting : list of (Chunk, Chunk or None)
        Place phrases that came before their subject, with their objects.
    """

    def __init__(self, items: list[Chunk], reading: Reading) -> None:
        self.items = items
        self.reading = reading
        self.host: Chunk | None = None
        self.near: Chunk | None = None
        self.named: list[Chunk] = []
        self._clear()

    def _clear(self) -> None:
        self.subjects: list[Chunk] = []
        self.anchors: list[Chunk] = []
        self.target: Chunk | None = None
        self.waiting: list[tuple[Chunk, Chunk | None]] = []
        self.answered: list[tuple[Chunk, Chunk | None]] = []  # place phrases whose subject was just named
        self.sideways = False  # the last place phrase said left or right
        self.stated = False  # the clause has had its place phrase
        self.finite = False
        self.negated = False
        self.amid = False  # among the things that "between" names
        self.question = False
        self.unclear = False
        self.verb: Chunk | None = None
        self.last: Kind | None = None

    def run(self) -> None:
        """Read all items."""
        i = 0
        while i < len(self.items):
            i = self._step(i)
        self._give_up()

    def _give_up(self) -> None:
        for place, _ in self.waiting:
            self.reading.ignore(place, NO_SUBJECT)
        self.waiting = []

    def _back_to_anchors(self) -> None:
        if self.target is not None:
            self.subjects, self.target = self.anchors, None

    def _step(self, i: int) -> int:  # noqa: PLR0912 - one branch for each kind of item
        item = self.items[i]
        following = self.items[i + 1].kind if i + 1 < len(self.items) else None
        used = i
        if item.kind not in (Kind.COMMA, Kind.CONJUNCTION, Kind.NOUN, Kind.PLACE):
            self.answered = []
        match item.kind:
            case Kind.BREAK:
                self._give_up()
                self._clear()
            case Kind.SUBORDINATOR:
                self.negated = False
                self._back_to_anchors()
            case Kind.COMMA | Kind.CONJUNCTION:
                if following is Kind.NOUN and (item.kind is Kind.COMMA or self.target is not None):
                    self.negated = False
                elif following not in (Kind.NOUN, Kind.RELATIVE):
                    self._back_to_anchors()
                    self.unclear = False
            case Kind.NEGATOR:
                self.negated = True
            case Kind.QUESTION:
                self.question = True
            case Kind.THERE if not self.waiting:
                self.subjects = []
            case Kind.RELATIVE:
                if self.target is not None:
                    self.subjects, self.target = [self.target], None
                self.verb, self.unclear = None, False
            case Kind.AUXILIARY:
                self._back_to_anchors()
                self.finite, self.unclear = True, False
            case Kind.VERB:
                if self.target is not None and item.form == "ing":
                    self.subjects, self.target = [self.target], None
                self._back_to_anchors()
                self.verb, self.unclear = item, False
            case Kind.PREPOSITION if item.head == "by":
                self.unclear = True  # "a house bordered by trees on the right"
            case Kind.PREPOSITION:  # "with" before a thing that has its own place; fold leaves no other
                self.host = self.target or (self.subjects[0] if self.subjects else self.host)
                self.near = item.near
            case Kind.NOUN:
                self._noun(i)
            case Kind.PLACE:
                used = self._place(i)
        self.last = self.items[used].kind
        return used + 1

    def _noun(self, i: int) -> None:
        item = self.items[i]
        self.negated |= item.negative
        if not item.pronoun and not item.nameless:
            self.named.append(item)
        joined = self.last is Kind.CONJUNCTION
        if self.waiting and not joined:
            self._answer(i)
            return
        if self.answered and goes_on(self.items, i):
            self._answer_too(item)
            return
        if joined and self.target is not None and not placed(self.items, i):
            return  # "left of a car and a dog": the second object is not read
        if (
            self.subjects
            and not self.stated
            and not self.finite
            and self.verb is None
            and (joined or (self.last is Kind.COMMA and listed(self.items, i)))
        ):
            self._take([*self.subjects, item])
        elif self.last is Kind.VERB and self.verb is not None and self.subjects:
            if self.verb.head in _CARRYING:
                self._take([item])
            else:
                self.unclear = True
        else:
            if joined:
                self.negated = item.negative
            self._take([item])

    def _answer(self, i: int) -> None:
        """Take the noun phrase at ``i`` for the subject of the place phrases that came before it."""
        item = self.items[i]
        if self.last in (Kind.NOUN, Kind.PLACE) and item.full == item.text:
            self._give_up()  # "left of center politics": what follows is no subject
        waiting, self.waiting = self.waiting, []
        self._take([item])
        acts = [following.kind for following in self.items[i + 1 : i + 3]] == [Kind.VERB, Kind.NOUN]
        for place, target in waiting:
            if acts and target is not None:  # "above the door, visitors read a sign"
                self.reading.ignore(place, UNCLEAR)
            else:
                self._state(place, target)
        self.anchors, self.stated = [item], True
        self.answered = waiting if len(waiting) <= _FEW else []

    def _answer_too(self, item: Chunk) -> None:
        """Say of one more noun phrase what was said of the answer."""
        subjects, self.subjects = self.subjects, [item]
        for place, target in self.answered:
            self._state(place, target)
        self.subjects = self.anchors = [*subjects, item]

    def _take(self, subjects: list[Chunk]) -> None:
        self.subjects = subjects
        self.target = self.verb = None
        self.answered = []
        self.stated = self.finite = self.unclear = False

    def _place(self, i: int) -> int:
        """Read one place phrase, or several joined by "and" that share an object; returns the last item used."""
        group = self._group(i)
        used = i + 2 * (len(group) - 1)
        either = any(item.text == "or" for item in self.items[max(i - 1, 0) : used])
        following = self.items[used + 1] if used + 1 < len(self.items) else None
        last = _phrase(group[-1])
        takes = last.entry.role in (Role.RELATION, Role.OWN_SIDE, Role.PART, Role.UNSCORED) and not last.owner
        target = following if takes and following is not None and following.kind is Kind.NOUN else None
        amid = self.amid and (target is None or not target.pronoun) and last.entry.role is not Role.POSITION
        if last.entry.role is Role.UNSCORED and group[0].text in ("between", "in between"):
            target, self.amid = None, True
        used += target is not None
        target = target or self._of_excluded(last, used + 1)
        joined = self.items[used + 1 : used + 3]
        either |= [item.kind for item in joined] == [Kind.CONJUNCTION, Kind.PLACE] and joined[0].text == "or"
        if self._starts_anew(i, used):
            self._take([])
            self.negated = False
        sideways = all(item.phrase is not None and item.phrase.entry.relation in _SIDEWAYS for item in group)
        chained = self.target is not None and self.last is Kind.NOUN
        unclear = self.unclear or either or (amid and not last.owner)
        if chained and sideways and self.sideways and self.target is not None:
            self.subjects, self.target = [self.target], None
        elif chained:
            unclear = True
        for place in group:
            if _phrase(place).entry.role is Role.UNSCORED:
                self.reading.ignore(place, _phrase(place).entry.reason)
            elif unclear:
                self.reading.ignore(place, UNCLEAR)
            elif self.subjects:
                self._state(place, target)
            elif self.question:
                self.reading.ignore(place, NO_SUBJECT)
            elif self._allowed(place, target):
                self.waiting.append((place, target))
        self.anchors = self.subjects
        self.answered = []
        self.stated = True
        self.sideways = sideways
        self.verb = None
        if target is not None and _is_thing(target):
            self.target = target
            if not target.pronoun and not target.nameless and target.head not in nouns.FRAMES:
                self.named.append(target)
        return used

    def _group(self, i: int) -> list[Chunk]:
        """Place phrases from ``i`` on that share the object of the last: "above and to the left of a tower"."""
        group = [self.items[i]]
        while _phrase(group[-1]).entry.role is not Role.UNSCORED:
            joined = self.items[i + 1 : i + 3]
            if [item.kind for item in joined] != [Kind.CONJUNCTION, Kind.PLACE]:
                break
            i += 2
            group.append(self.items[i])
        takes = _phrase(group[-1]).entry.role in (Role.RELATION, Role.OWN_SIDE)
        shared = takes and i + 1 < len(self.items) and self.items[i + 1].kind is Kind.NOUN
        # "a dog is on the left and under a tree is a cat": only the second is of the tree
        apart = bool(self.subjects) and self.last not in JOINTS and turns_round(self.items, i + 2)
        return group if shared and not apart else group[:1]

    def _of_excluded(self, phrase: Phrase, i: int) -> Chunk | None:
        """Find the object that a place shares with its opposite at ``i``: "above rather than below the table"."""
        ahead = self.items[i : i + 3]
        if [item.kind for item in ahead] != [Kind.NEGATOR, Kind.PLACE, Kind.NOUN]:
            return None
        said = phrase.entry.relation or SIDE_RELATIONS.get(phrase.entry.position or Position.AT_CENTER)
        return ahead[2] if said is not None and _phrase(ahead[1]).entry.relation is said.inverse else None

    def _starts_anew(self, i: int, used: int) -> bool:
        """Whether the place phrases from ``i`` to ``used`` stand before their subject in a clause of its own."""
        if self.last not in JOINTS:
            return False
        if turns_round(self.items, used + 1):
            return True
        after = self.items[used + 1 : used + 3]
        if self.answered and [item.kind for item in after] == [Kind.COMMA, Kind.NOUN]:
            return after[1].full != after[1].text  # "on the left, a dog, on the right, a cat"
        following = self.items[i + 1] if i + 1 < len(self.items) else None
        return (  # "and on the right a doctor"
            (_phrase(self.items[i]).entry.role is Role.POSITION or len(_phrase(self.items[i]).owner) == 1)
            and following is not None
            and ((following.kind is Kind.NOUN and following.full != following.text) or following.text == ":")
        )

    def _allowed(self, place: Chunk, target: Chunk | None) -> bool:
        """Whether a place phrase without a subject so far says something, so that a subject may follow."""
        if _phrase(place).owner:
            return True
        said = meaning(_phrase(place), place.text, target)
        if said.says is None and said.reason:
            self.reading.ignore(place, said.reason)
        return said.says is not None and (self.verb is None)

    def _state(self, place: Chunk, target: Chunk | None) -> None:
        """Note what a place phrase says of the subjects."""
        phrase = _phrase(place)
        if len(phrase.owner) == 1 or (target is not None and target.pronoun):
            target = self._pointed_at(phrase, target)
            if target is None:
                self.reading.ignore(place, NO_ANTECEDENT)
                return
        elif phrase.owner:
            target = _owner(phrase.owner)
        said = meaning(phrase, place.text, target)
        if said.says is Position.AT_CENTER and target is None and self.host is not None:
            said = Meaning(reason=AMONG)  # "bread with cheese in the middle"
        if said.says is None:
            if said.reason:
                self.reading.ignore(place, said.reason)
            return
        if self.negated or (target is not None and target.negative):
            self.reading.ignore(place, NEGATED)
            return
        for subject in self.subjects:
            one = self._antecedent(subject.head) if subject.pronoun else None if subject.nameless else subject
            if one is None:
                self.reading.ignore(place, NO_SUBJECT)
                continue
            names, reason = naming(one, said.says, phrase, place.text, self.verb)
            if reason:
                self.reading.ignore(place, reason)
            thing = target.text if target is not None and isinstance(said.says, Relation) else None
            also = phrase.entry.also if thing is not None else None
            for name, says in product(names, (said.says, also) if also is not None else (said.says,)):
                self.reading.phrases.setdefault(SpatialRelation(name, says, thing), place)

    def _pointed_at(self, phrase: Phrase, target: Chunk | None) -> Chunk | None:
        """Find the object that a pronoun or possessive goes back to."""
        if self.host is None and len(self.subjects) > 1:  # "a sofa and a dog under it"
            self.named[:0], self.subjects = self.subjects[:1], self.subjects[-1:]
        return self._antecedent(
            _PERSONAL.get(phrase.owner[0], "") if phrase.owner else target.head if target else ""
        )

    def _antecedent(self, pronoun: str) -> Chunk | None:
        """Find what a pronoun stands for, other than the subjects of the phrase at hand."""
        fits = _FITS.get(pronoun)
        if fits is None:
            return None
        host = (
            self.host
            if self.host is not None and self.host not in self.subjects and fits(self.host)
            else None
        )
        near = self.near if pronoun == "it" and self.near is not None and fits(self.near) else None
        if host is not None:  # "cut into a cake with fruit on top of it": the cake or the knife
            in_scene = near is None or near.head in nouns.REGIONS or near.head in nouns.SCENERY
            return host if in_scene else None
        named = {thing.text: thing for thing in self.named if thing not in self.subjects and fits(thing)}
        if len(named) > 1 and pronoun not in ("it", "they", "them"):
            named = {text: thing for text, thing in named.items() if thing.head in nouns.PEOPLE}
        return next(iter(named.values())) if len(named) == 1 else None


_WOMEN = frozenset("woman women girl girls lady ladies bride female".split())
_MEN = frozenset("man men boy boys guy guys groom male".split())
_FITS: dict[str, Callable[[Chunk], bool]] = {
    "it": lambda noun: noun.action is None and (noun.head not in nouns.PEOPLE or noun.head in nouns.MAYBE_IT),
    "he": lambda noun: noun.head not in _WOMEN,
    "him": lambda noun: noun.head not in _WOMEN,
    "she": lambda noun: noun.head not in _MEN,
    "her": lambda noun: noun.head not in _MEN,
    "they": lambda noun: noun.head in nouns.PEOPLE or noun.head in nouns.GROUPS or is_plural(noun.head),
    "them": lambda noun: noun.head in nouns.PEOPLE or noun.head in nouns.GROUPS or is_plural(noun.head),
}
_PERSONAL = {"its": "it", "his": "him", "her": "her", "their": "them", "my": "me", "your": "you", "our": "us"}
