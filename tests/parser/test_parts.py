"""The lexicon, the values and the small parts."""

from __future__ import annotations

import doctest
import sys
from importlib import import_module

import pytest

import parser as package
from parser import SAYINGS, ParsedQuery, Position, QueryParser, Relation, Saying, SpatialRelation
from parser.lexicon import LEXICON, TRIGGERS, Role
from parser.spelling import SLIPS
from parser.tokens import fold, tokenize
from parser.wrappers import unwrap


@pytest.mark.parametrize("saying", SAYINGS, ids=lambda saying: saying.name)
def test_what_is_listed_can_be_said(saying: Saying) -> None:
    parsed = QueryParser(use_spacy=False).parse(saying.example)
    names = {str(name) for kinds in (Relation, Position) for name in kinds}
    if saying.name in names:
        assert [str(fact.relation) for fact in parsed.relations] == [saying.name]
    else:
        assert parsed.relations == () and parsed.unscored
    assert saying.scored == (saying.name in names and saying.name not in ("in_front_of", "behind"))
    assert saying.scored or saying.note


def test_every_relation_and_position_is_listed() -> None:
    listed = {saying.name for saying in SAYINGS}
    assert listed >= {str(relation) for relation in Relation} | {str(position) for position in Position}


def test_every_phrase_has_a_trigger() -> None:
    missing = [
        phrase
        for phrase, entry in LEXICON.items()
        if entry.role not in (Role.IDIOM, Role.ASIDE) and TRIGGERS.isdisjoint(phrase)
    ]
    assert missing == []


def test_an_inverse_is_its_own_inverse() -> None:
    for relation in Relation:
        assert relation.inverse is not relation
        assert relation.inverse.inverse is relation


def test_a_relation_needs_an_object_and_a_position_takes_none() -> None:
    with pytest.raises(ValueError, match="a relation has an object"):
        SpatialRelation("cup", Relation.LEFT_OF)
    with pytest.raises(ValueError, match="a position none"):
        SpatialRelation("cup", Position.AT_LEFT, "jug")


def test_an_empty_query_is_an_empty_dict() -> None:
    assert ParsedQuery("").to_dict() == {"query": "", "relations": [], "unscored": [], "warnings": []}


def test_spacy_is_not_loaded_by_a_plain_query(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("parser.tagger._model", lambda: pytest.fail("spaCy was loaded"))
    parser = QueryParser(use_spacy=True)
    assert parser.parse("a dog on a beach").relations == ()
    assert parser.parse("a cup left of a laptop").relations


def test_without_spacy_a_doubtful_word_is_a_noun(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "spacy", None)
    with pytest.raises(ImportError, match="beside\\[spacy\\]"):
        import_module("parser.tagger")._model.__wrapped__()
    assert (
        QueryParser(use_spacy=False).parse("a gnu blorps under a tree").relations[0].subject == "gnu blorps"
    )


def test_slips_are_no_relation_words() -> None:
    assert not SLIPS.keys() & TRIGGERS
    assert SLIPS["rigth"] == "right" and SLIPS["undreneath"] == "underneath"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "It\u2019s a cat \u2014 left\u2011hand SIDE",
            ["it", "is", "a", "cat", "\u2014", "left", "hand", "side"],
        ),
        ("left-handed", ["left-handed"]),
        ("top-right", ["top", "right"]),
        ("\uff4c\uff45\uff46\uff54", ["left"]),
        ("", []),
    ],
)
def test_words(text: str, words: list[str]) -> None:
    assert tokenize(fold(text)) == words


def test_a_picture_in_the_picture_is_no_wrapper() -> None:
    assert unwrap("a picture above a sofa".split()) == "a picture above a sofa".split()
    assert unwrap("please show me pictures where a dog".split()) == ["a", "dog"]


@pytest.mark.parametrize("name", ["tokens", "wrappers", "grammar"])
def test_examples_in_the_text(name: str) -> None:
    results = doctest.testmod(import_module(f"{package.__name__}.{name}"))
    assert results.attempted and not results.failed
