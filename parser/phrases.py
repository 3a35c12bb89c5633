"""Where in a sentence the phrases of the lexicon stand."""

from __future__ import annotations

from dataclasses import dataclass

from parser.lexicon import (
    AMONG,
    CORNER_RELATIONS,
    LEXICON,
    MAX_PHRASE,
    OWN_PART,
    PLACE_AREAS,
    PLACE_DEGREES,
    PLACE_PREPOSITIONS,
    PLACE_WORDS,
    POSITIONS,
    SIDE_RELATIONS,
    SIDES,
    Entry,
    Role,
)
from parser.relation import Position
from parser.words import (
    ADVERBS,
    ARTICLES,
    AUXILIARIES,
    CONJUNCTIONS,
    COUNTS,
    DETERMINERS,
    EXCLUDING,
    NEGATORS,
    POSSESSIVES,
    PREPOSITIONS,
    PRONOUNS,
    QUESTIONS,
    RELATIVES,
    SUBORDINATORS,
    VERB_FORMS,
)

__all__ = ["Phrase", "find_phrases"]

_STARTS: dict[str, int] = {}
for _phrase in LEXICON:
    _STARTS[_phrase[0]] = max(_STARTS.get(_phrase[0], 0), len(_phrase))

_DEGREES = frozenset(
    (
        "just directly right immediately slightly far high way straight somewhat well partly almost diagonally"
    ).split()
)
_UNITS = frozenset(
    (
        "bit little tad foot feet meter meters metre metres inch inches yard yards mile miles step steps block "
        "blocks cm m ft"
    ).split()
)
_CLOSED = (
    ADVERBS | AUXILIARIES | CONJUNCTIONS | COUNTS | DETERMINERS | NEGATORS | POSSESSIVES | PREPOSITIONS | PRONOUNS
    | QUESTIONS | RELATIVES | SUBORDINATORS
)  # fmt: skip
_ALSO_ADJECTIVES = frozenset({"overhead", "nearby", "opposite", "outside", "inside"})
_JOINTS = frozenset("and or & /".split())
_OPPOSITES = (("left", "right"), ("right", "left"), ("top", "bottom"), ("bottom", "top"))
_QUOTED_WORDS = 10
_NO_START = ARTICLES | POSSESSIVES | PLACE_WORDS.keys() | PLACE_DEGREES  # "the upper left corner" is a noun
_OWNER_WORDS = 5  # words between "to the" and "laptop's left"


@dataclass(frozen=True, slots=True)
class Phrase:
    """One phrase found in a sentence.

    Attributes
    ----------
    start, end : int
        Its words, ``tokens[start:end]``; words of degree before it ("just", "a bit") belong to it.
    entry : Entry
        What it means.
    owner : tuple of str
        Words of the object where the phrase holds it ("to a laptop's left", "on its left"); else empty.
    prefix : str
        Preposition that a side phrase begins with; empty where it has none.
    """

    start: int
    end: int
    entry: Entry
    owner: tuple[str, ...] = ()
    prefix: str = ""


def find_phrases(tokens: list[str]) -> list[Phrase]:
    """Find the phrases of the lexicon, longest first, from left to right, none overlapping another."""
    found: list[Phrase] = []
    i = floor = 0
    while i < len(tokens):
        phrase = _quoted(tokens, i) or _fixed(tokens, i)
        place = _place(tokens, i)
        if place is not None and (phrase is None or place.end > phrase.end):
            phrase = place
        if phrase is None:
            i += 1
            continue
        if phrase.entry.role not in (Role.IDIOM, Role.ASIDE):
            phrase = _with_degree(tokens, phrase, floor)
        found.append(phrase)
        i = floor = phrase.end
    return sorted([*found, *_bare_sides(tokens, found)], key=lambda phrase: phrase.start)


def _fixed(tokens: list[str], i: int) -> Phrase | None:
    if tokens[i] in _ALSO_ADJECTIVES and i and tokens[i - 1] in ARTICLES:
        return None  # "an overhead projector"
    for length in range(min(_STARTS.get(tokens[i], 0), MAX_PHRASE, len(tokens) - i), 0, -1):
        entry = LEXICON.get(tuple(tokens[i : i + length]))
        if entry is not None:
            return Phrase(i, i + length, entry)
    return None


def _quoted(tokens: list[str], i: int) -> Phrase | None:
    """Read a name in quotes as one word: a "Keep Left" sign says nothing about where it stands."""
    if tokens[i] != '"' or '"' not in tokens[i + 1 : i + _QUOTED_WORDS]:
        return None
    return Phrase(i, tokens.index('"', i + 1) + 1, Entry(Role.IDIOM))


def _with_degree(tokens: list[str], phrase: Phrase, floor: int) -> Phrase:
    start = phrase.start
    while start > floor:
        word = tokens[start - 1]
        if word in _DEGREES:
            start -= 1
        elif (
            word in _UNITS
            and tokens[phrase.start] != "over"  # "raising a foot over a case"
            and start - 2 >= floor
            and (tokens[start - 2] in COUNTS | {"a", "one"} or tokens[start - 2].isdigit())
        ):
            start -= 2
            if start > floor and tokens[start - 1] == "a":
                start -= 1
        else:
            break
    return Phrase(start, phrase.end, phrase.entry, phrase.owner, phrase.prefix)


def _place(tokens: list[str], i: int) -> Phrase | None:  # noqa: PLR0911 - parts in the order they are said
    """Read a side, end, corner or centre: preposition, article, degree, place words, area, "of"."""
    word = tokens[i]
    if word not in PLACE_PREPOSITIONS and word not in PLACE_WORDS and word not in PLACE_DEGREES:
        return None
    n, at = len(tokens), i
    prefix = word if word in PLACE_PREPOSITIONS else ""
    at += bool(prefix)
    owner = _owner(tokens, at) if prefix in ("to", "on", "at") else ()
    at += len(owner) or (at < n and tokens[at] == "the")
    own = bool(owner) and at < n and tokens[at] == "own"
    at += own
    while at < n and tokens[at] in PLACE_DEGREES:
        at += 1
    names: list[str] = []
    while at < n and len(names) < 2 and tokens[at] in PLACE_WORDS:
        names.append(tokens[at])
        at += 1
    if not names:
        return None
    other = _other_side(tokens, at, names[-1])
    if other:
        return _either_side(tokens, i, other, prefix)
    at = _without_excluded(tokens, at)
    hand = at < n and tokens[at] == "hand" and at + 1 < n and tokens[at + 1] in ("side", "corner", "of")
    at += hand
    area = tokens[at] if at < n and tokens[at] in PLACE_AREAS else ""
    at += bool(area)
    of = at < n and tokens[at] in ("of", "from") and (tokens[at] == "of" or (prefix != "" and not area))
    position = POSITIONS.get(frozenset(PLACE_WORDS[name] for name in names))
    if position is None or (not prefix and i > 0 and tokens[i - 1] in _NO_START):
        return None
    if owner:
        relation = SIDE_RELATIONS.get(position)
        own |= prefix == "on" and bool(area or hand)
        if relation is None or of:
            return None
        entry = Entry(Role.UNSCORED, reason=OWN_PART) if own else Entry(Role.RELATION, relation)
        return Phrase(i, at, entry, owner, prefix)
    side = area or ("hand" if hand else "")
    if of and _can_take_of(position, prefix):
        return Phrase(i, at + 1, _place_of(position, prefix, side), (), prefix)
    if (
        not of
        and _can_stand_alone(position, prefix, names[0], side, word)
        and not _describes_next(tokens, at)
    ):
        return Phrase(i, at, Entry(Role.POSITION, position=position), (), prefix)
    return None


def _other_side(tokens: list[str], at: int, name: str) -> int:
    """Find the end of "or the left" after "right"; 0 where no opposite side is named there."""
    end = at + 2 + (tokens[at + 1 : at + 2] == ["the"])
    if end > len(tokens) or tokens[at] not in _JOINTS:
        return 0
    if end < len(tokens) and _fixed(tokens, end) is not None:
        return 0  # "on the left and right behind it": no side
    return end if (PLACE_WORDS[name], PLACE_WORDS.get(tokens[end - 1])) in _OPPOSITES else 0


def _either_side(tokens: list[str], i: int, at: int, prefix: str) -> Phrase | None:
    """Read "on the left or right" up to ``at`` and what may go on it; no place where a noun does."""
    n = len(tokens)
    side = at
    at += at < n and tokens[at] == "hand"
    at += at < n and tokens[at].removesuffix("s") in PLACE_AREAS
    of = at < n and tokens[at] == "of"
    if (i > 0 and not prefix and tokens[i - 1] in _NO_START) or not (prefix or of or at > side):
        return None
    if not of and _describes_next(tokens, at):
        return None
    return Phrase(i, at + of, Entry(Role.UNSCORED, reason=SIDES), (), prefix)


def _without_excluded(tokens: list[str], at: int) -> int:
    """Skip "(not left)" before "of", where the side that is meant has been named."""
    closing = {"(": ")", ",": ","}.get(tokens[at]) if at < len(tokens) else None
    end = at + (closing is not None)
    for excluding in (["not"], *EXCLUDING):
        if tokens[end : end + len(excluding)] == excluding:
            end += len(excluding)
            end += tokens[end : end + 1] == ["the"]
            if end < len(tokens) and tokens[end] in PLACE_WORDS:
                end += 1
                rest = [closing, "of"] if closing is not None else ["of"]
                return end + len(rest) - 1 if tokens[end : end + len(rest)] == rest else at
    return at


def _can_take_of(position: Position, prefix: str) -> bool:
    """Whether "of" and a thing may follow: not after a bare "top"."""
    return bool(prefix) or position in SIDE_RELATIONS or position in CORNER_RELATIONS


def _place_of(position: Position, prefix: str, side: str) -> Entry:
    """Say what a place phrase with "of" means, before it is known what follows."""
    if position in SIDE_RELATIONS and side in ("", "side", "hand"):
        role = Role.RELATION if prefix in ("", "to") else Role.OWN_SIDE
        return Entry(role, SIDE_RELATIONS[position], position)
    if position in CORNER_RELATIONS and prefix == "to":
        sideways, upright = CORNER_RELATIONS[position]
        return Entry(Role.RELATION, sideways, position, also=upright)
    return Entry(Role.PART, position=position, reason=AMONG if position is Position.AT_CENTER else OWN_PART)


def _can_stand_alone(position: Position, prefix: str, name: str, side: str, first: str) -> bool:
    """Whether a place phrase without "of" is a position, rather than an adjective or a direction."""
    if position in CORNER_RELATIONS:
        return True
    if position in SIDE_RELATIONS:
        return (
            prefix in ("on", "at", "to", "in", "near")
            or (bool(prefix) and bool(side))
            or side in ("side", "hand")
            or first == "far"
        )
    if not prefix or side:
        return bool(prefix)
    reaching = prefix in ("to", "along", "by") or (prefix == "on" and name != "bottom")
    return name not in ("upper", "lower", "uppermost") and not reaching


def _owner(tokens: list[str], at: int) -> tuple[str, ...]:
    """Words that say whose side it is: "its" left, "a laptop's" left."""
    if at < len(tokens) and tokens[at] in POSSESSIVES and tokens[at] != "whose":
        return (tokens[at],)
    for end in range(at, min(at + _OWNER_WORDS, len(tokens))):
        word = tokens[end]
        if word.endswith(("'s", "s'")):
            return tuple(tokens[at : end + 1])
        if not word[0].isalnum() or word in PREPOSITIONS:
            break
    return ()


def _describes_next(tokens: list[str], at: int) -> bool:
    """Whether a noun follows that the place words describe: "on the right lane", "in the top drawer"."""
    if at >= len(tokens):
        return False
    word = tokens[at]
    if word == "by":  # "flanked on the left by a bus": the place is the bus's
        return True
    if not word[0].isalnum() or word in _CLOSED or word.endswith("ing"):
        return False
    form = VERB_FORMS.get(word)
    return form is None or (
        form == "base" and tokens[at + 1 : at + 2] not in (["a"], ["the"], ["two"], ["three"], ["some"])
    )


def _bare_sides(tokens: list[str], found: list[Phrase]) -> list[Phrase]:
    """Positions in shorthand, read only where both sides are named: "dog left, cat right"."""
    covered = {i for phrase in found for i in range(phrase.start, phrase.end)}
    bare: dict[str, list[int]] = {"left": [], "right": []}
    for i, token in enumerate(tokens):
        if token not in bare or i in covered:
            continue
        before = tokens[i - 1] if i else ","
        after = tokens[i + 1] if i + 1 < len(tokens) else ","
        if before == "(" and after == ")" and i > 1:
            before, after = tokens[i - 2], ","
        noun = before[0].isalnum() and before not in _CLOSED and before not in VERB_FORMS
        if (noun and after in (",", ";", ".", "and", "&", "|", "/")) or (
            after == ":" and not before[0].isalnum()
        ):
            bare[token].append(i)
    if len(bare["left"]) != 1 or len(bare["right"]) != 1:
        return []
    sides = {"left": Position.AT_LEFT, "right": Position.AT_RIGHT}
    return [Phrase(at[0], at[0] + 1, Entry(Role.POSITION, position=sides[side])) for side, at in bare.items()]
