"""What belongs to a noun phrase ("man in a blue shirt") and what only tells of the scene ("in the sky")."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from parser import nouns
from parser.items import Chunk, Kind
from parser.lexicon import Role
from parser.phrases import Phrase

__all__ = ["fold"]

# Contact and place words that lead on to more of the scene, not to another thing that could be the subject.
_LIKE_PREPOSITIONS = frozenset({"on", "onto", "off", "into", "along", "around", "out of", "across", "past"})
# Participles of things that stay somewhere: "by" after one is near. Those that the word lists lack stand as they are.
_STAYING = frozenset(
    (
        "park seat perch gather place position locate station stop tie leave stand sit docked moored "
        "anchored situated"
    ).split()
)


def fold(items: list[Chunk], unscored: Callable[[Chunk], None]) -> list[Chunk]:  # noqa: PLR0912 - one for each kind
    """Join modifiers to their noun phrase and drop the scene.

    Parameters
    ----------
    items : list of Chunk
        The items of a sentence.
    unscored : callable
        Told of every place phrase that is dropped with the scene.
    """
    out: list[Chunk] = []
    dropped: Chunk | None = None
    i = 0
    while i < len(items):
        item = items[i]
        following = items[i + 1] if i + 1 < len(items) else None
        noun = following if following is not None and following.kind is Kind.NOUN else None
        previous = out[-1] if out else None
        host = (
            previous if previous is not None and previous.kind is Kind.NOUN and not previous.pronoun else None
        )
        if item.kind is Kind.PLACE and item.head in _LIKE_PREPOSITIONS and noun is not None:
            if noun.head not in nouns.TIMES:
                unscored(item)
            item = replace(item, kind=Kind.PREPOSITION)
        if item.kind is Kind.PREPOSITION:
            if noun is None:
                i += 1  # a particle: "sitting down in"
            elif not out and item.head == "with":
                i += 1
            elif item.head == "with" and _has_own_place(items, i + 2, noun, previous):
                out.append(replace(item, near=dropped))
                i += 1
            elif host is not None and _modifies(
                item.head, noun, items[i + 2 : i + 4], host if _is_object(out) else None
            ):
                out[-1] = _joined(host, item, noun)
                i += 2
            elif item.head in ("up", "down") and previous is not None and previous.kind is Kind.VERB:
                i += 1
            else:
                if item.head == "by" and _is_passive(previous):
                    out.append(item)
                dropped = noun
                i += 2
            continue
        if (
            item.kind is Kind.VERB
            and item.form == "ing"
            and host is not None
            and _takes_object(items, i + 1, out)
        ):
            particle = items[i + 1].kind is Kind.PREPOSITION
            thing = items[i + 1 + particle]
            out[-1] = replace(_joined(host, item, thing), inner=(thing,), action=item)
            i += 2 + particle
            continue
        if item.kind is Kind.CONJUNCTION and host is not None and noun is not None and _belongs(host, noun):
            out[-1] = replace(_joined(host, item, noun), inner=(*host.inner, noun) if host.inner else ())
            i += 2
            continue
        if item.kind in (Kind.NOUN, Kind.BREAK):
            dropped = None
        out.append(item)
        i += 1
    return out


def _joined(host: Chunk, link: Chunk, thing: Chunk) -> Chunk:
    tail = f" {link.text} {thing.full}"
    return replace(host, text=host.text + tail, full=host.full + tail, modified=True)


def _is_passive(verb: Chunk | None) -> bool:
    """Whether "by" names who does it, and not what is near: "bordered by trees", not "parked by a tree"."""
    if verb is None or verb.kind is not Kind.VERB or verb.form != "ed":
        return False
    return verb.head not in _STAYING


def _is_object(out: list[Chunk]) -> bool:
    """Whether the last item is the object of a place phrase."""
    return len(out) > 1 and out[-2].kind is Kind.PLACE


def _belongs(host: Chunk, noun: Chunk) -> bool:
    """Whether "and noun" goes on the modifier before it: "a man in boots and jeans"."""
    bare = noun.full == noun.text and not noun.pronoun and not noun.nameless
    return host.modified and bare and noun.head not in nouns.PEOPLE


def _takes_object(items: list[Chunk], i: int, out: list[Chunk]) -> bool:
    """Whether the verb before ``i`` has an object and describes the noun before it: "a man holding an umbrella"."""
    if i + 1 < len(items) and items[i].kind is Kind.PREPOSITION and items[i].head in ("up", "out"):
        i += 1
    if i >= len(items) or items[i].kind is not Kind.NOUN or items[i].pronoun:
        return False
    if len(out) > 1 and out[-2].kind is Kind.AUXILIARY:
        return False
    return not _is_object(out) or out[-1].head in nouns.PEOPLE or out[-1].head in nouns.ANIMALS


def _has_own_place(items: list[Chunk], after: int, thing: Chunk, before: Chunk | None) -> bool:
    """Whether the thing after "with" is itself placed: "with a cup on its left", "with a cup standing above it"."""
    verb = False
    for k in range(after, min(after + 6, len(items))):
        item = items[k]
        if item.kind is Kind.PLACE and item.phrase is not None:
            if item.head in _LIKE_PREPOSITIONS:
                continue
            if item.phrase.entry.role is Role.UNSCORED:
                return verb
            target = items[k + 1] if k + 1 < len(items) and items[k + 1].kind is Kind.NOUN else None
            if len(item.phrase.owner) == 1 or (target is not None and target.pronoun):
                return True
            return thing.head not in nouns.CLOTHING and _stands_apart(before, item.phrase, target, verb=verb)
        if item.kind in (Kind.VERB, Kind.AUXILIARY, Kind.RELATIVE):
            verb = True
        elif item.kind in (Kind.COMMA, Kind.BREAK, Kind.SUBORDINATOR):
            return False
    return False


def _stands_apart(before: Chunk | None, phrase: Phrase, target: Chunk | None, *, verb: bool) -> bool:
    """Whether the place is of the thing after "with" alone, rather than of its host with it."""
    if target is not None and target.full.split()[0] in ("his", "her", "its", "their"):
        return True  # "a lady with an umbrella over her head"
    if before is None or before.pronoun or before.kind not in (Kind.NOUN, Kind.COMMA, Kind.PLACE):
        return False  # "filled with flowers on top of a table"
    if before.kind is not Kind.NOUN:
        return True  # "a desk, with a lamp left of a monitor", "a man on the left with a dog on the right"
    if target is not None and target.full == f"the {before.text}":
        return True  # "a car with a dog left of the car"
    scene = before.head in nouns.SCENERY or before.head in nouns.REGIONS
    return verb or scene or phrase.entry.role in (Role.POSITION, Role.PART)


def _modifies(preposition: str, thing: Chunk, tail: list[Chunk], target: Chunk | None) -> bool:
    """Whether "preposition thing" describes the noun before it (``target`` where that is an object), not the scene."""
    if thing.pronoun or thing.nameless:
        return False
    living = target is None or target.head in nouns.PEOPLE or target.head in nouns.ANIMALS
    if preposition == "in":
        return thing.head in nouns.CLOTHING or thing.head in nouns.CONTAINERS
    if preposition == "on":
        return thing.head in nouns.RIDEABLE and living
    if preposition == "with":
        if thing.head in nouns.SCENERY or (target is not None and thing.head in nouns.PEOPLE):
            return False
        return not (len(tail) > 1 and tail[0].head in ("in", "on") and tail[1].head in nouns.BACKDROP)
    return preposition == "of"
