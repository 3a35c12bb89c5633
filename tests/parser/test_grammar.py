"""What is read out of a sentence, and what is left alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from parser import QueryParser, Relation
from tests.parser.conftest import SENTENCES, facts, rows

Table = Callable[[str], list[dict[str, Any]]]
TABLE = rows(SENTENCES)
DEPTH = ("in_front_of", "behind")


@pytest.mark.parametrize("row", TABLE, ids=lambda row: f"{row['kind']}: {row['query']}"[:70])
def test_sentence(parser: QueryParser, row: dict[str, Any]) -> None:
    parsed = parser.parse(row["query"])
    assert facts(parsed) == [tuple(fact.values()) for fact in row["relations"]]
    if row["unscored"]:
        assert [note.phrase for note in parsed.unscored] == row["unscored"]
    assert all(note.reason.endswith(".") for note in parsed.unscored)


def test_table_is_large_and_half_of_it_names_no_place() -> None:
    assert len(TABLE) >= 300
    assert sum(not row["relations"] for row in TABLE) >= 150
    assert len({row["query"] for row in TABLE}) == len(TABLE)


def test_a_batch_reads_like_one_by_one(parser: QueryParser) -> None:
    queries = [row["query"] for row in TABLE]
    assert parser.parse_many(queries) == [parser.parse(query) for query in queries]


@pytest.mark.data
def test_given_queries(parser: QueryParser, table: Table) -> None:
    given = table("../cases/queries.jsonl")
    wrong = [
        row["query"] for row in given if parser.parse(row["query"]).to_dict()["relations"] != row["relations"]
    ]
    assert len(given) > 50
    assert wrong == []


@pytest.mark.data
def test_visual_spatial_reasoning(parser: QueryParser, table: Table) -> None:
    statements = table("phrases/vsr.jsonl")
    parsed = parser.parse_many(row["text"] for row in statements)
    ours = [(row, facts(p)) for row, p in zip(statements, parsed, strict=True) if row["relation"]]
    exact = sum(said == [(row["subject"], row["relation"], row["object"])] for row, said in ours)
    assert exact / len(ours) >= 0.995
    others = [
        row["phrase"]
        for row, p in zip(statements, parsed, strict=True)
        if not row["relation"] and p.relations
    ]
    assert Counter(others) == {}


@pytest.mark.data
def test_captions_seldom_name_a_place(parser: QueryParser, table: Table) -> None:
    captions = [caption for photo in table("coco/train/photos.jsonl") for caption in photo["captions"]]
    scored = [p for p in parser.parse_many(captions) if any(f.relation not in DEPTH for f in p.relations)]
    assert 0 < len(scored) / len(captions) < 0.05


class TestWarnings:
    def test_depth_is_a_proxy_and_does_not_rank(self, parser: QueryParser) -> None:
        parsed = parser.parse("a bike in front of a shop")
        assert parsed.relations[0].relation is Relation.IN_FRONT_OF
        assert "proxy" in parsed.warnings[0]
        assert "'in front of'" in parsed.warnings[0]

    @pytest.mark.parametrize(
        ("written", "meant"), [("lefft", "left"), ("rigth", "right"), ("rihgt", "right")]
    )
    def test_a_typo_names_what_was_read(self, parser: QueryParser, written: str, meant: str) -> None:
        parsed = parser.parse(f"a jug to the {written} of a pan")
        assert parsed.relations[0].relation == f"{meant}_of"
        assert parsed.warnings == (f"Read '{written}' as '{meant}'.",)

    @pytest.mark.parametrize(
        "word", ["lift", "loft", "light", "night", "might", "fight", "sight", "eight", "tight"]
    )
    def test_another_word_is_no_typo(self, parser: QueryParser, word: str) -> None:
        parsed = parser.parse(f"a jug to the {word} of a pan")
        assert parsed.relations == () and parsed.warnings == ()

    @pytest.mark.parametrize(
        "word", ["abode", "bellow", "billow", "thunder", "wonder", "hinder", "blunder", "sunder"]
    )
    def test_a_word_near_a_relation_is_no_typo(self, parser: QueryParser, word: str) -> None:
        assert parser.parse(f"a jug {word} a pan").relations == ()

    def test_the_end_of_a_long_text_is_not_read(self, parser: QueryParser) -> None:
        parsed = parser.parse("a jug " + "in a kitchen " * 200 + "left of a pan")
        assert parsed.relations == ()
        parsed = parser.parse("a jug left of a pan " + "in a kitchen " * 200)
        assert facts(parsed) == [("jug", "left_of", "pan")]
        assert "first 300 words" in parsed.warnings[-1]

    def test_one_thing_on_both_sides(self, parser: QueryParser) -> None:
        assert "tell pictures apart" in parser.parse("a person left of a person").warnings[0]

    def test_a_plain_query_is_silent(self, parser: QueryParser) -> None:
        parsed = parser.parse("a red car")
        assert (parsed.query, parsed.relations, parsed.unscored, parsed.warnings) == ("a red car", (), (), ())


class TestDict:
    def test_relation_and_position(self, parser: QueryParser) -> None:
        assert parser.parse("A cup left of a jug and a fork on the right, near a pan").to_dict() == {
            "query": "A cup left of a jug and a fork on the right, near a pan",
            "relations": [
                {"subject": "cup", "relation": "left_of", "object": "jug"},
                {"subject": "fork", "relation": "at_right"},
            ],
            "unscored": [{"phrase": "near", "reason": "How near two things are is not measured."}],
            "warnings": [],
        }
