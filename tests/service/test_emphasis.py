from __future__ import annotations

import pytest

from parser import QueryParser
from service.emphasis import emphasis

ALL_PLACE = [
    "a person to the left of a bicycle",
    "Photo of a red cup directly above the laptop",
    "a dog on the left",
    "show me a cat sitting on top of a sofa",
    "sun in the top right corner",
]
MORE = [
    "A baseball player swings his bat while a ball floats above his head towards the catcher and umpire.",
    "Two planes fly over a bridge in Sydney, Australia, with the Sydney Opera House in the background.",
]


@pytest.fixture(scope="module")
def parser():
    return QueryParser()


@pytest.mark.parametrize("query", ALL_PLACE)
def test_a_spatial_query_has_full_weight(parser, query):
    parsed = parser.parse_many([query])[0]
    assert parsed.relations
    assert emphasis(query, parsed.relations) == 1.0


@pytest.mark.parametrize("query", MORE)
def test_a_caption_has_less(parser, query):
    parsed = parser.parse_many([query])[0]
    assert parsed.relations
    assert 0 < emphasis(query, parsed.relations) < 0.5


def test_without_words_nothing_fails():
    assert emphasis("", []) == 1.0
