from __future__ import annotations

import itertools

import numpy as np
import pytest

from indexer.store import open_index
from parser.relation import Position, Relation, SpatialRelation
from service import rerank, search
from service.query import Mode, Readout
from service.search import Searcher
from tests.support import Placed, SmallParser, TinyEncoder, draw, index_folder

QUERIES = ["red left of blue", "green above yellow", "red on the left", "blue in the center", "purple"]
GRID_READOUTS = [r for r in Readout if r is not Readout.MOMENT]


@pytest.fixture(scope="module")
def scenes(tmp_path_factory):
    """Two colours side by side in both orders, one colour alone, one colour in three places."""
    images = tmp_path_factory.mktemp("scenes")
    draw(Placed("red", 1, 3), Placed("blue", 6, 3)).save(images / "right.png")
    draw(Placed("red", 6, 3), Placed("blue", 1, 3)).save(images / "wrong.png")
    draw(Placed("red", 0, 3)).save(images / "alone.png")
    draw(Placed("blue", 6, 3)).save(images / "other alone.png")
    draw(Placed("yellow", 3, 3)).save(images / "middle.png")
    draw(Placed("yellow", 0, 0)).save(images / "corner.png")
    draw(Placed("yellow", 6, 3)).save(images / "side.png")
    for i in range(24):
        draw(Placed("green", i % 7, i // 7), Placed("purple", 6, 5)).save(images / f"more{i}.png")
    return index_folder(images, tmp_path_factory.mktemp("scenes-index"))


@pytest.fixture(scope="module")
def searcher(scenes):
    return Searcher(scenes, TinyEncoder(), SmallParser())


@pytest.mark.parametrize("readout", GRID_READOUTS)
def test_the_true_order_is_first(searcher, readout):
    hits = searcher.search("red left of blue", k=3, readout=readout).hits
    assert hits[0].path == "right.png"
    assert hits[0].readout is readout


def test_one_thing_alone_does_not_win_on_its_place(searcher):
    hits = searcher.search("red left of blue", k=40).hits
    rank = {h.path: h.rank for h in hits}
    assert rank["right.png"] < rank["alone.png"]
    assert rank["right.png"] < rank["other alone.png"]


def test_positions_go_by_the_centroid(searcher):
    best = {q: searcher.search(q, k=1).hits[0].path for q in ("yellow on the left", "yellow in the center")}
    assert best == {"yellow on the left": "corner.png", "yellow in the center": "middle.png"}
    assert searcher.search("yellow on the right", k=1).hits[0].path == "side.png"


@pytest.mark.parametrize("query", QUERIES)
@pytest.mark.parametrize("candidates", [5, 7, 16, 1000])
def test_pages_and_batches_agree_across_the_join(scenes, query, candidates):
    searcher = Searcher(scenes, TinyEncoder(), SmallParser(), candidates=candidates)
    whole = searcher.search(query, k=40, explain=True)
    assert len({h.id for h in whole.hits}) == len(scenes)
    scores = [h.score for h in whole.hits]
    assert scores == sorted(scores, reverse=True)
    for size in (1, 3, 11):
        pages, cursor = [], None
        while True:
            page = searcher.search(query, k=size, cursor=cursor, explain=True)
            pages += page.hits
            if (cursor := page.next_cursor) is None:
                break
        assert tuple(pages) == whole.hits
    assert searcher.search_many([*QUERIES, query], k=40, explain=True)[-1] == whole
    if query == "purple":
        assert all(h.readout is None for h in whole.hits)
        return
    second = [h.readout is Readout.CENTROID for h in whole.hits]
    assert second == [i < candidates for i in range(len(second))]
    for hit in whole.hits:
        assert hit.score == pytest.approx(hit.native_score + hit.spatial_score, abs=1e-6)
        assert sum(hit.contributions) == pytest.approx(hit.spatial_score, abs=1e-6)


@pytest.mark.parametrize("candidates", [1, 5, 7, 16])
def test_ties_break_by_id_at_the_join_too(scenes, candidates):
    searcher = Searcher(scenes, TinyEncoder(), SmallParser(), candidates=candidates)
    colours = ("red", "green", "blue", "yellow", "purple")
    for one, other in itertools.permutations(colours, 2):
        hits = searcher.search(f"{one} left of {other}", k=40).hits
        assert list(hits) == sorted(hits, key=lambda hit: (-hit.score, hit.id))


def test_one_word_alone_has_no_coupling(searcher):
    coupled = searcher.search("red on the left", k=40, readout=Readout.ADR)
    assert coupled.readout is Readout.ADR_DENSE
    assert "weighs words against each other" in coupled.warnings[0]
    assert coupled.hits == searcher.search("red on the left", k=40, readout=Readout.ADR_DENSE).hits
    assert searcher.search("red left of blue", readout=Readout.ADR).warnings == ()


def test_the_candidates_are_the_first_stage(scenes):
    searcher = Searcher(scenes, TinyEncoder(), SmallParser(), candidates=9)
    first = searcher.search("red left of blue", k=40, readout=Readout.MOMENT).hits
    both = searcher.search("red left of blue", k=40).hits
    assert {h.id for h in first[:9]} == {h.id for h in both[:9]}
    assert [h.id for h in first[9:]] == [h.id for h in both[9:]]


def test_a_picture_has_the_same_score_alone_and_among_others(searcher):
    vectors = {w: v for w, (v, _) in zip(("red", "blue"), searcher.texts(["a red", "a blue"]), strict=True)}
    for readout in GRID_READOUTS:
        reading = searcher.reranker.read(
            [SpatialRelation("red", Relation.LEFT_OF, "blue"), SpatialRelation("red", Position.AT_TOP_LEFT)],
            vectors,
            readout,
        )
        rows = np.arange(len(searcher.index))
        together = searcher.reranker.parts(reading, rows)
        alone = np.concatenate([searcher.reranker.parts(reading, rows[n : n + 1]) for n in rows])
        assert together.tobytes() == alone.tobytes()


def test_the_reference_is_measured_once_and_the_oldest_forgotten(scenes, monkeypatch):
    monkeypatch.setattr(rerank, "REMEMBERED", 2)
    searcher = Searcher(scenes, TinyEncoder(), SmallParser())
    first = [searcher.search(query, k=40).hits for query in QUERIES]
    assert len(searcher.reranker._known) == 2
    monkeypatch.setattr(rerank, "REMEMBERED", 512)
    for _ in range(2):
        assert [searcher.search(query, k=40).hits for query in QUERIES] == first


@pytest.mark.parametrize("relation", ["left of", "above"])
def test_swapping_sides_and_inverting_leaves_the_score(searcher, relation):
    inverse = {"left of": "right of", "above": "below"}[relation]
    vectors = {w: v for w, (v, _) in zip(("red", "blue"), searcher.texts(["a red", "a blue"]), strict=True)}
    rows = np.arange(len(searcher.index))

    def score(subject, words, thing):
        one = SpatialRelation(subject, Relation(words.replace(" ", "_")), thing)
        return searcher.reranker.parts(searcher.reranker.read([one], vectors, Readout.CENTROID), rows)

    assert np.array_equal(score("red", relation, "blue"), score("blue", inverse, "red"))


def test_an_index_without_grids_ends_with_the_moment(tmp_path):
    images = tmp_path / "images"
    images.mkdir()
    draw(Placed("red", 0, 3), Placed("blue", 6, 3)).save(images / "a.png")
    draw(Placed("red", 6, 3), Placed("blue", 0, 3)).save(images / "b.png")
    index = index_folder(images, tmp_path / "index", grids=False)
    searcher = Searcher(open_index(index.folder), TinyEncoder(), SmallParser())
    result = searcher.search("red left of blue")
    assert result.readout is Readout.MOMENT
    assert result.warnings == ()
    assert result.hits == searcher.search("red left of blue", readout=Readout.MOMENT).hits
    (warning,) = searcher.search("red left of blue", readout=Readout.ADR).warnings
    assert "no patch grids" in warning
    assert searcher.search("red in the center").ranked_relations == ()


def test_native_is_untouched(searcher):
    for query in QUERIES:
        native = searcher.search(query, k=40, mode=Mode.NATIVE)
        assert native.readout is None
        expected = searcher.engine.top([search.JointQuery(searcher.texts([query])[0][0])], [40])[0]
        assert [h.score for h in native.hits] == expected.scores.total.tolist()
