from __future__ import annotations

import json
import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest

from indexer.encoder import EncoderMismatch
from indexer.store import open_index
from service.errors import (
    BadCursor,
    EmptyQuery,
    ImageGone,
    OutOfRange,
    QueryTooLong,
    SearchError,
    UnknownImage,
)
from service.query import Mode, Readout, SearchRequest
from service.results import Ranking
from service.search import Searcher
from tests.support import Placed, SmallParser, TinyEncoder, draw, index_folder, lane_sums

PLAIN = ["red", "a photo of a blue thing", "yellow and green", "nothing at all", "purple orange"]
SPATIAL = [
    "a red square to the left of a blue square",
    "a green square above a yellow square",
    "red on the left",
]


def bits(result):
    return [
        (h.id, h.rank, np.float32(h.score).tobytes(), np.float32(h.native_score).tobytes())
        for h in result.hits
    ]


def test_the_picture_that_shows_it_comes_first(tmp_path):
    images = tmp_path / "images"
    images.mkdir()
    left, right = Placed("red", 0, 3), Placed("blue", 6, 3)
    draw(left, right).save(images / "right.png")
    draw(Placed("red", 6, 3), Placed("blue", 0, 3)).save(images / "wrong.png")
    for i in range(20):
        draw(Placed("green", i % 7, i // 7), Placed("yellow", 6, 5)).save(images / f"other{i}.png")
    searcher = Searcher(index_folder(images, tmp_path / "index"), TinyEncoder(), SmallParser())
    for query, best in [("red left of blue", "right.png"), ("red right of blue", "wrong.png")]:
        result = searcher.search(query, k=3)
        assert result.mode is Ranking.SPATIAL
        assert result.hits[0].path == best
        assert result.hits[0].spatial_score > 0
    for readout in (Readout.MOMENT, Readout.CENTROID):
        hits = [
            searcher.search(f"red {side} of blue", k=22, readout=readout).hits for side in ("left", "right")
        ]
        score = [{h.path: h.spatial_score for h in one} for one in hits]
        assert score[0]["right.png"] == score[1]["wrong.png"]
        assert score[0]["right.png"] > score[0]["wrong.png"] == score[1]["right.png"]
        if readout is Readout.MOMENT:
            assert score[0]["right.png"] == -score[0]["wrong.png"]


def test_most_queries_with_a_true_answer_find_it(searcher, gallery):
    found = asked = 0
    for i, (a, b) in enumerate(gallery[1]):
        if abs(a.column - b.column) < 2:
            continue
        words = "left of" if a.column < b.column else "right of"
        hits = searcher.search(f"a {a.colour} square {words} a {b.colour} square", k=60).hits
        asked += 1
        same = [
            h.path for h in hits if {a.colour, b.colour} == {s.colour for s in gallery[1][int(h.path[:4])]}
        ]
        found += f"{i:04d}.png" in same[: max(1, math.ceil(len(same) * 0.75))]
    assert asked > 20
    assert found / asked > 0.85


@pytest.mark.parametrize("query", PLAIN)
def test_a_query_without_a_relation_is_the_native_ranking(searcher, query):
    auto, native = searcher.search(query, k=60), searcher.search(query, k=60, mode=Mode.NATIVE)
    assert auto.mode is native.mode is Ranking.NATIVE
    assert bits(auto) == bits(native)
    assert all(
        h.native_rank == h.rank and h.spatial_score == 0 and h.score == h.native_score for h in auto.hits
    )


def test_a_relation_that_cannot_rank_leaves_the_native_ranking(searcher):
    for query in ("red in the center", "red behind blue", "red above red"):
        auto = searcher.search(query, k=60, readout=Readout.MOMENT)
        assert auto.mode is Ranking.NATIVE
        assert not auto.ranked_relations
        assert bits(auto) == bits(searcher.search(query, k=60, mode=Mode.NATIVE))


def test_a_cursor_does_not_outlive_the_table_that_filters_read(searcher):
    cursor = searcher.search("red", k=3).next_cursor
    files = dict(searcher.index.manifest.files)
    files["ledger"] = replace(files["ledger"], sha256="0" * 64)
    newer = replace(searcher.index, manifest=replace(searcher.index.manifest, files=files))
    with pytest.raises(BadCursor, match="older index"):
        Searcher(newer, TinyEncoder(), SmallParser()).search("red", k=3, cursor=cursor)


def test_native_is_the_plain_inner_product(searcher):
    query = "a photo of a blue thing"
    text = TinyEncoder().encode_texts([query]).vectors[0].astype(np.float64)
    expected = lane_sums(searcher.index.native().astype(np.float64) * text).astype(np.float32)
    hits = searcher.search(query, k=60).hits
    ids = searcher.index.images["id"].to_pylist()
    assert {h.id: h.score for h in hits} == {i: float(s) for i, s in zip(ids, expected, strict=True)}
    assert [(-h.score, h.id) for h in hits] == sorted((-h.score, h.id) for h in hits)


@pytest.mark.parametrize("query", PLAIN + SPATIAL)
def test_alone_in_a_batch_and_in_pages(searcher, query):
    whole = searcher.search(query, k=60)
    batch = searcher.search_many([*SPATIAL, query, *PLAIN], k=60)
    assert batch[len(SPATIAL)] == whole
    pages, cursor = [], None
    for _ in range(100):
        page = searcher.search(query, k=7, cursor=cursor)
        pages += page.hits
        cursor = page.next_cursor
        if cursor is None:
            break
    assert tuple(pages) == whole.hits
    assert searcher.search(query, k=10, offset=25).hits == whole.hits[25:35]


def test_native_rank_is_the_place_in_the_native_ranking(searcher):
    for query in SPATIAL:
        native = {h.id: h.rank for h in searcher.search(query, k=60, mode=Mode.NATIVE).hits}
        for hit in searcher.search(query, k=60).hits:
            assert hit.native_rank == native[hit.id]


def test_past_the_end_there_is_nothing(searcher):
    result = searcher.search("red", offset=10**6)
    assert (result.hits, result.next_cursor, result.total) == ((), None, 60)


def test_min_score_cuts_the_tail_and_ends_paging(searcher):
    whole = searcher.search(SPATIAL[0], k=60)
    limit = whole.hits[20].score
    cut = searcher.search(SPATIAL[0], k=60, min_score=limit)
    assert cut.hits == tuple(h for h in whole.hits if h.score >= limit)
    assert searcher.search(SPATIAL[0], k=30, min_score=limit).next_cursor is None


def test_weight_scales_and_zero_weight_orders_natively(searcher):
    one, two, none = (searcher.search(SPATIAL[0], k=60, weight=w) for w in (1.0, 2.0, 0.0))
    double = {h.id: h.spatial_score for h in two.hits}
    assert all(double[h.id] == pytest.approx(2 * h.spatial_score, rel=1e-6) for h in one.hits)
    native = searcher.search(SPATIAL[0], k=60, mode=Mode.NATIVE)
    assert [(h.id, h.score) for h in none.hits] == [(h.id, h.score) for h in native.hits]


def test_explained_contributions_add_up(searcher):
    result = searcher.search("red left of blue and red above green", k=20, explain=True)
    assert len(result.ranked_relations) == 2
    for hit in result.hits:
        assert len(hit.contributions) == 2
        assert sum(hit.contributions) == pytest.approx(hit.spatial_score, abs=1e-6)


def test_depth_ranks_only_when_asked(searcher):
    result = searcher.search("red behind blue", k=60, depth=True)
    assert result.mode is Ranking.SPATIAL
    assert result.to_dict()["relations"][0]["proxy"] is True
    above = {h.id: h.spatial_score for h in searcher.search("red above blue", k=60).hits}
    assert all(above[h.id] == h.spatial_score for h in result.hits)


def test_json_scores_read_back_as_the_same_bits(searcher):
    result = searcher.search(SPATIAL[0], k=60)
    read = json.loads(json.dumps(result.to_dict() | {"parsed": None}))
    for hit, values in zip(result.hits, read["hits"], strict=True):
        for name in ("score", "native_score", "spatial_score"):
            assert np.float32(values[name]).tobytes() == np.float32(getattr(hit, name)).tobytes()


def test_white_space_around_does_not_count(searcher):
    assert searcher.search(" \t red \n") == searcher.search("red")


@pytest.mark.parametrize(
    ("request_", "error", "field"),
    [
        (SearchRequest(""), EmptyQuery, "query"),
        (SearchRequest(" \n\t\u200b\x00"), EmptyQuery, "query"),
        (SearchRequest("x" * 20_001), QueryTooLong, "query"),
        (SearchRequest("red", k=0), OutOfRange, "k"),
        (SearchRequest("red", k=-1), OutOfRange, "k"),
        (SearchRequest("red", k=10**9), OutOfRange, "k"),
        (SearchRequest("red", offset=-1), OutOfRange, "offset"),
        (SearchRequest("red", weight=-0.1), OutOfRange, "weight"),
        (SearchRequest("red", weight=math.nan), OutOfRange, "weight"),
        (SearchRequest("red", min_score=math.nan), OutOfRange, "min_score"),
        (SearchRequest("red", cursor="zz"), BadCursor, "cursor"),
        (SearchRequest("red", cursor="5." + "0" * 16), BadCursor, "cursor"),
        (SearchRequest("red", cursor="5." + "0" * 16, offset=3), BadCursor, "cursor"),
    ],
)
def test_a_bad_request_is_refused_alone(searcher, request_, error, field):
    good, bad, other = searcher.answer([SearchRequest("red"), request_, SearchRequest(SPATIAL[0])])
    assert isinstance(bad, error)
    assert isinstance(bad, SearchError)
    assert bad.field == field
    assert "\n" not in str(bad)
    assert good == searcher.search("red")
    assert other == searcher.search(SPATIAL[0])


@pytest.mark.parametrize(
    "query",
    [
        "\U0001f415 left of \U0001f6b2",
        "狗在自行车左边",
        "a\x00b",
        "\ud800 red",
        "%s %n",
        "'; --",
        "x" * 10_000,
    ],
)
def test_odd_queries_are_answered(searcher, query):
    assert len(searcher.search(query).hits) == 10


def test_a_long_query_is_cut_with_a_warning(searcher):
    result = searcher.search("red " * 200)
    assert any("longer than the encoder reads" in w for w in result.warnings)


def test_texts_are_encoded_once(index_path):
    encoder = TinyEncoder()
    searcher = Searcher(open_index(index_path), encoder, SmallParser())
    searcher.search("red left of blue")
    assert sorted(encoder.text_calls) == [("a blue",), ("a red",), ("red left of blue",)]
    searcher.search_many(["red left of blue", "a red", "red right of blue"])
    assert encoder.text_calls[3:] == [("red right of blue",)]
    assert searcher.texts.facts().hits == 3


def test_threads_get_what_one_thread_gets(searcher):
    queries = (SPATIAL + PLAIN) * 6
    expected = [searcher.search(q, k=30) for q in queries]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(lambda q: searcher.search(q, k=30), queries)) == expected


def test_another_arithmetic_is_refused(index_path):
    searcher = Searcher(open_index(index_path), TinyEncoder(), SmallParser())
    searcher.check_space()
    searcher.encoder.seed = 1
    with pytest.raises(EncoderMismatch, match="elsewhere"):
        searcher.check_space()


def test_pictures(tmp_path):
    images = tmp_path / "images"
    images.mkdir()
    for name in ("a.png", "b.png", "c.png"):
        draw(Placed("red", 0, 0)).save(images / name)
    searcher = Searcher(index_folder(images, tmp_path / "index"), TinyEncoder(), SmallParser())
    ids = {h.path: h.id for h in searcher.search("red").hits}
    pictures = searcher.pictures
    assert pictures.thumbnail(pictures[ids["a.png"]], 160)[:2] == b"\xff\xd8"
    for name in ("0" * 16, "f" * 16, "../a.png", "", "a", "0" * 15 + "g"):
        with pytest.raises(UnknownImage):
            pictures[name]
    (images / "b.png").unlink()
    with pytest.raises(ImageGone, match="no such file"):
        pictures.find(pictures[ids["b.png"]])
    (images / "c.png").write_bytes(b"x" * (images / "c.png").stat().st_size)
    with pytest.raises(ImageGone, match="cannot be read"):
        pictures.thumbnail(pictures[ids["c.png"]], 160)
    (images / "a.png").write_bytes(b"other")
    with pytest.raises(ImageGone, match="changed"):
        pictures.thumbnail(pictures[ids["a.png"]], 160)


def test_a_query_that_was_asked_before_is_answered_as_the_first_time(searcher, monkeypatch):
    monkeypatch.setattr("service.search.REMEMBERED", 3)
    asked = [
        SearchRequest("red left of blue", k=k, weight=weight, mode=mode)
        for mode in (Mode.AUTO, Mode.NATIVE)
        for weight in (1.0, 0.25)
        for k in (3, 7)
    ]
    first = [bits(one) for one in searcher.answer(asked)]
    for request, before in zip(asked, first, strict=True):
        assert bits(searcher.answer([request])[0]) == before
        assert bits(searcher.answer([request])[0]) == before
    assert len(searcher._asked) == 3
