from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexer.moments import spatial_moments
from indexer.sketch import Precision, fit_sketcher
from parser.relation import Position, Relation, SpatialRelation
from service.readout import UNIT, displacement_direction, is_proxy, phrases, select
from tests.support import DIM, word_vector

WORDS = {w: word_vector(w) for w in ("cup", "laptop", "lamp", "sun")}
PLANE = [Relation.LEFT_OF, Relation.RIGHT_OF, Relation.ABOVE, Relation.BELOW]


@pytest.fixture(scope="module")
def grids():
    return np.random.default_rng(2).standard_normal((20, 6, 7, DIM)).astype(np.float32)


@pytest.fixture(scope="module", params=list(Precision))
def sketcher(request, grids):
    return fit_sketcher(grids.reshape(-1, DIM), spatial_moments(grids), k=16, precision=request.param)


def displacements(grids, sketcher, *relations):
    moments = sketcher.decode(sketcher.encode(spatial_moments(grids))).astype(np.float64)
    return (moments * displacement_direction(relations, WORDS, sketcher)).reshape(len(grids), -1).sum(axis=1)


def test_the_direction_is_the_formula(grids, sketcher):
    relation = SpatialRelation("cup", Relation.LEFT_OF, "laptop")
    moments = sketcher.decode(sketcher.encode(spatial_moments(grids)))
    expected = -moments[:, 0] @ sketcher.project(WORDS["cup"] - WORDS["laptop"])
    assert np.allclose(displacements(grids, sketcher, relation), expected, atol=1e-5)
    position = SpatialRelation("sun", Position.AT_TOP_RIGHT)
    along = (moments[:, 0] - moments[:, 1]) @ sketcher.project(WORDS["sun"]) / np.sqrt(2)
    assert np.allclose(displacements(grids, sketcher, position), along, atol=1e-5)


@pytest.mark.parametrize("relation", PLANE)
def test_swapping_sides_and_inverting_keeps_every_bit(sketcher, relation):
    one = displacement_direction([SpatialRelation("cup", relation, "laptop")], WORDS, sketcher)
    other = displacement_direction([SpatialRelation("laptop", relation.inverse, "cup")], WORDS, sketcher)
    assert np.array_equal(one, other)


@pytest.mark.parametrize(("relation", "axis"), [(r, 2 if r in PLANE[:2] else 1) for r in PLANE])
def test_mirroring_and_swapping_the_word_keeps_every_bit(grids, sketcher, relation, axis):
    mirrored = np.ascontiguousarray(np.flip(grids, axis))
    one = displacements(grids, sketcher, SpatialRelation("cup", relation, "laptop"))
    other = displacements(mirrored, sketcher, SpatialRelation("cup", relation.inverse, "laptop"))
    assert one.tobytes() == other.tobytes()


def test_mirroring_leaves_the_other_axis_alone(grids, sketcher):
    above = SpatialRelation("cup", Relation.ABOVE, "laptop")
    mirrored = np.ascontiguousarray(grids[:, :, ::-1])
    assert (
        displacements(grids, sketcher, above).tobytes() == displacements(mirrored, sketcher, above).tobytes()
    )


def test_relations_add(grids, sketcher):
    a = SpatialRelation("cup", Relation.LEFT_OF, "laptop")
    b = SpatialRelation("lamp", Relation.ABOVE, "laptop")
    both = displacements(grids, sketcher, a, b)
    assert np.allclose(
        both, displacements(grids, sketcher, a) + displacements(grids, sketcher, b), atol=1e-12
    )


def test_every_direction_has_unit_length_and_an_opposite():
    for relation, (x, y) in UNIT.items():
        assert x * x + y * y == pytest.approx(1.0)
        if isinstance(relation, Relation):
            assert UNIT[relation.inverse] == (-x, -y)


def test_what_does_not_rank_says_why():
    relations = [
        SpatialRelation("cup", Relation.BEHIND, "laptop"),
        SpatialRelation("cup", Position.AT_CENTER),
        SpatialRelation("cup", Relation.ABOVE, "cup"),
        SpatialRelation("cup", Relation.LEFT_OF, "laptop"),
    ]
    chosen = select(relations)
    assert chosen.ranked == (relations[3],)
    assert [w.split(":")[0] for w in chosen.warnings] == [
        "cup at center",
    ]
    deep = select(relations, depth=True)
    assert deep.ranked == (relations[0], relations[3])
    assert is_proxy(relations[0])
    assert not is_proxy(relations[3])


@given(st.lists(st.sampled_from(["a", "b", "c"]), min_size=2, max_size=8))
def test_phrases_are_unique_and_in_order(words):
    relations = [SpatialRelation(s, Relation.ABOVE, o) for s, o in zip(words[::2], words[1::2], strict=False)]
    found = phrases(relations)
    assert list(found) == list(dict.fromkeys(words[: 2 * len(relations)]))
