"""What holds for every sentence."""

from __future__ import annotations

import time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from parser import ParsedQuery, QueryParser, Relation
from tests.parser.conftest import facts

NOUNS = [
    "a cup", "the old dog", "two red apples", "a fire hydrant", "a man in a blue shirt", "a glass of wine", "hot dog",
    "a dining table", "the tv", "a woman with a hat", "three people", "a parking meter", "my bicycle", "a t-shirt",
    "a group of tourists", "a man riding a horse", "a wine glass", "an orange", "a bus", "some sheep",
]  # fmt: skip
PHRASES = {
    Relation.LEFT_OF: ["left of", "to the left of", "on the left side of", "just to the left of"],
    Relation.RIGHT_OF: ["right of", "to the right of", "at the right side of", "on the right-hand side of"],
    Relation.ABOVE: ["above", "directly above"],
    Relation.BELOW: ["below", "beneath", "underneath"],
    Relation.IN_FRONT_OF: ["in front of"],
    Relation.BEHIND: ["behind"],
}
CLAUSES = [
    " in a sunny kitchen", " at night", " on a rainy day", ", black and white", " while it is raining", " in Paris",
    ", taken with a phone", " with trees in the background", ", high resolution", " during a festival", " in winter",
]  # fmt: skip
ALL = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])

noun = st.sampled_from(NOUNS)
said = st.sampled_from([(relation, phrase) for relation, phrases in PHRASES.items() for phrase in phrases])
verb = st.sampled_from([" ", " is ", " standing ", " that is ", ", "])


def the_same(one: ParsedQuery, two: ParsedQuery) -> bool:
    return one.relations == two.relations


@ALL
@given(noun, noun, said, verb, st.data())
def test_swapping_and_inverting_is_the_same_fact(
    parser: QueryParser, one: str, two: str, what: tuple[Relation, str], link: str, data: st.DataObject
) -> None:
    relation, phrase = what
    inverse = data.draw(st.sampled_from(PHRASES[relation.inverse]))
    [there] = parser.parse(f"{one}{link}{phrase} {two}").relations
    [back] = parser.parse(f"{two}{link}{inverse} {one}").relations
    assert there.relation is relation
    assert back.relation is relation.inverse
    assert (there.subject, there.object) == (back.object, back.subject)


@ALL
@given(noun, noun, said, st.sampled_from(CLAUSES))
def test_a_clause_without_a_place_changes_nothing(
    parser: QueryParser, one: str, two: str, what: tuple[Relation, str], clause: str
) -> None:
    query = f"{one} {what[1]} {two}"
    assert the_same(parser.parse(query), parser.parse(query + clause))


@ALL
@given(noun, noun, said, st.sampled_from(["", ".", "!", "...", " ?", " !!"]), st.randoms())
def test_case_spaces_and_punctuation_change_nothing(
    parser: QueryParser, one: str, two: str, what: tuple[Relation, str], end: str, random: st.random_module
) -> None:
    query = f"{one} {what[1]} {two}"
    odd = "".join(random.choice([letter.lower(), letter.upper()]) for letter in query)  # type: ignore[attr-defined]
    assert the_same(parser.parse(query), parser.parse("  " + odd.replace(" ", " \t  ") + end))


@ALL
@given(noun, said)
def test_a_negated_fact_is_not_scored(parser: QueryParser, one: str, what: tuple[Relation, str]) -> None:
    assert parser.parse(f"{one} that is not {what[1]} a lamp").relations == ()
    assert parser.parse(f"no lamp {what[1]} {one}").relations == ()


PIECES = st.sampled_from(
    "left right of to the on top in a its his above over under side hand corner picture and , . ' \" 's - cat who that "
    "is not no with between it them same-old 3 🐶 狗 \u0131 \ufdfa".split(" ")
)


@ALL
@given(st.lists(PIECES, max_size=30).map(" ".join))
def test_any_row_of_words_is_read(parser: QueryParser, text: str) -> None:
    parsed = parser.parse(text)
    assert parsed.query == text
    assert all(fact.subject and fact.object != "" for fact in parsed.relations)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(max_size=400))
def test_any_text_is_read(parser: QueryParser, text: str) -> None:
    assert parser.parse(text).query == text


LONG = [
    "a" * 10_000,
    "left of " * 1_250,
    "a cat left of a dog and " * 400,
    "l" + "e" * 9_000 + "ft of",
    "(" * 10_000,
    "a-" * 5_000,
    "a'" * 5_000,
    " " * 9_990 + "left of",
    "the " * 2_500,
    "to the left of the a " * 476,
    "\ufdfa" * 10_000,
    "a\ufdfb" * 5_000,
    "a dog's " * 1_250,
    "of " * 3_333,
    "and " * 2_500,
    "on the far far far " * 500,
    "cat, " * 2_000 + "left of a dog",
    "\x00" * 10_000,
    "🐶left of" * 1_000,
]


@pytest.mark.parametrize("text", LONG, ids=lambda text: ascii(text[:12]))
def test_long_texts_take_no_time(parser: QueryParser, text: str) -> None:
    parser.warm()
    took = []
    for _ in range(3):
        start = time.perf_counter()
        parser.parse(text)
        took.append(time.perf_counter() - start)
    assert min(took) < 0.05


def test_shorthand() -> None:
    assert facts(QueryParser().parse("dog left, cat right")) == [("dog", "at_left"), ("cat", "at_right")]
