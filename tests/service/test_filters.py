from __future__ import annotations

import contextlib
import datetime
import time
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from indexer.store import open_index
from service.errors import SearchError
from service.filters import BadFilter, Condition, read_condition, rows_where
from service.query import Mode, Readout, SearchRequest
from service.search import Searcher
from tests.support import SmallParser, TinyEncoder

TABLE = pa.table(
    {
        "year": pa.array([2019, 2020, None, 2021]),
        "camera": ["Nikon", "a = b", "", None],
        "good": [True, False, True, None],
        "taken": [datetime.date(2020, 1, day) for day in (1, 2, 3, 4)],
        "tags": pa.array([["a"], [], None, ["b"]]),
    }
)


@pytest.mark.parametrize(
    ("conditions", "rows"),
    [
        ([], [0, 1, 2, 3]),
        (["year>=2020"], [1, 3]),
        (["year != 2020"], [0, 3]),
        (["year>2018", "year<2021"], [0, 1]),
        (["camera=Nikon"], [0]),
        (["camera=a = b"], [1]),
        (["camera="], [2]),
        (["good=true"], [0, 2]),
        (["taken<=2020-01-02"], [0, 1]),
        (["year=1066"], []),
    ],
)
def test_rows_are_those_that_meet_all_conditions(conditions, rows):
    assert rows_where(TABLE, conditions).tolist() == rows


@pytest.mark.parametrize(
    ("condition", "says"),
    [
        ("year", "operators are: =, !=, <"),
        ("", "operators are"),
        (">=2020", "operators are"),
        ("lens=50", "there are: year, camera, good, taken, tags"),
        ("year=last", "year holds int64"),
        ("taken>yesterday", "taken holds date32"),
        ("tags=a", "tags holds list"),
        ("camera=\ud800", "camera holds string"),
        ("camera\ud800=a", "there are: year, camera"),
        (" " * 1000, "operators are"),
        ("year>" + "2" * 1000, "a condition of 1005 characters, where at most 1000 are read"),
    ],
)
def test_what_cannot_be_met_is_refused_by_name(condition, says):
    with pytest.raises(BadFilter) as refused:
        rows_where(TABLE, [condition])
    assert says in refused.value.detail
    assert refused.value.field == "where"


def test_a_condition_keeps_what_its_value_holds():
    assert read_condition(" name != a<b ") == Condition("name", "!=", "a<b")
    assert read_condition("last name\n=\n a  b ") == Condition("last name", "=", "a  b")


@pytest.mark.parametrize("text", [" " * 999, "a" * 999, "a=" + "x " * 499, "a\t" * 499 + "!"])
def test_no_condition_takes_long_to_read(text):
    begun = time.perf_counter()
    with contextlib.suppress(BadFilter):
        read_condition(text)
    assert time.perf_counter() - begun < 0.01


@pytest.fixture(scope="module")
def searcher(index_path) -> Searcher:
    index = open_index(index_path)
    numbers = pa.array([n % 7 for n in range(len(index))])
    index = replace(index, images=index.images.append_column("number", numbers))
    return Searcher(index, TinyEncoder(), SmallParser())


@pytest.mark.parametrize("query", ["a photo of a red thing", "red left of blue"])
@pytest.mark.parametrize("readout", [Readout.MOMENT, Readout.CENTROID])
def test_a_filtered_search_is_the_whole_one_without_the_others(searcher, query, readout):
    number = dict(zip(*(searcher.index.images[name].to_pylist() for name in ("id", "number")), strict=True))
    whole = [hit for hit in searcher.search(query, k=60, readout=readout).hits if number[hit.id] >= 4]
    native = [hit.id for hit in searcher.search(query, k=60, mode=Mode.NATIVE).hits if number[hit.id] >= 4]
    found = searcher.search(query, k=60, readout=readout, where=("number>=4",))
    assert found.total == len(whole) == len(found.hits)
    assert found.next_cursor is None
    assert [(hit.id, hit.score) for hit in found.hits] == [(hit.id, hit.score) for hit in whole]
    assert [hit.native_rank for hit in found.hits] == [1 + native.index(hit.id) for hit in found.hits]
    first = searcher.search(query, k=5, readout=readout, where=("number>=4",))
    second = searcher.search(query, k=5, readout=readout, where=("number>=4",), cursor=first.next_cursor)
    assert [hit.id for hit in (*first.hits, *second.hits)] == [hit.id for hit in found.hits[:10]]
    with pytest.raises(SearchError, match="another query"):
        searcher.search(query, k=5, readout=readout, cursor=first.next_cursor)


def test_filters_do_not_show_in_a_batch(searcher):
    asked = [
        SearchRequest("red left of blue", where=where)
        for where in ((), ("number=1",), ("number=9",), ("number<3",), ("colour=1",))
    ]
    together = searcher.answer(asked)
    for request, one in zip(asked, together, strict=True):
        alone = searcher.answer([request])[0]
        if isinstance(one, SearchError):
            assert "colour" in one.detail
            continue
        assert [(h.id, np.float32(h.score).tobytes(), h.native_rank) for h in one.hits] == [
            (h.id, np.float32(h.score).tobytes(), h.native_rank) for h in alone.hits
        ]
    assert [getattr(one, "total", None) for one in together[:4]][2] == 0
