from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from indexer.sketch import Precision, Sketcher
from indexer.tiles import STEP
from service import int8 as int8_module
from service import scan as scan_module
from service.canonical import JointQuery
from service.engine import Engine
from service.int8 import Int8Scan
from service.products import SPARE, score, stacked
from service.quantised import CodedRows, WholeQuery, sort_rows
from tests.support import lane_sums


class Vectors:
    """What an engine reads of an index; the native vectors lie across the bounds of their items, as mapped ones do."""

    def __init__(self, native: np.ndarray, codes: np.ndarray, scale: np.ndarray) -> None:
        native = np.ascontiguousarray(native, np.float32)
        raw = bytearray(45) + bytearray(native.tobytes())
        self._native = np.frombuffer(raw, np.uint8)[45:].view(np.float32).reshape(native.shape)
        self._codes = codes
        k = codes.shape[2]
        self.sketcher = Sketcher(np.eye(k, native.shape[1], dtype=np.float32), scale, Precision.INT8)
        self.manifest = SimpleNamespace(k=k, encoder=SimpleNamespace(dim=native.shape[1]))

    def __len__(self) -> int:
        return len(self._native)

    def native(self) -> np.ndarray:
        return self._native

    def sketch(self, rows=slice(None)) -> np.ndarray:
        return self._codes[rows].copy()


def slow(index, query):
    """By definition: float64 products summed in lanes, rounded once; ties by row."""
    scores = lane_sums(index.native().astype(np.float64) * query.native)
    if query.spatial is not None:
        moments = index.sketcher.decode(index.sketch()).reshape(len(index), -1).astype(np.float64)
        scores = scores + lane_sums(moments * query.spatial.ravel())
    scores = scores.astype(np.float32)
    return scores, np.lexsort((np.arange(len(scores)), -scores))


SHAPES = (
    "random",
    "near ties",
    "duplicates",
    "zeros",
    "one hot",
    "outlier row",
    "outlier column",
    "tiny",
    "mixed",
)


def collection(shape: str, n: int, dim: int, k: int, random: np.random.Generator) -> Vectors:
    native = random.standard_normal((n, dim))
    if shape == "near ties":
        native = native[:1] + random.integers(-2, 3, (n, dim)) * 2.0**-23
    elif shape == "duplicates":
        native = native[random.integers(0, min(n, 3), n)]
    elif shape == "zeros":
        native[random.random(n) < 0.7] = 0
    elif shape == "one hot":
        native = np.eye(dim)[random.integers(0, dim, n)]
    elif shape == "outlier row":
        native[0] *= 1e4
    elif shape == "outlier column":
        native[:, 0] += 300
    elif shape == "tiny":
        native *= 1e-30
    elif shape == "mixed":
        native *= 10.0 ** random.integers(-6, 3, (n, 1))
    codes = random.integers(-127, 128, (n, 2, k)).astype(np.int8)
    if shape in ("near ties", "duplicates"):
        codes[:] = codes[:1]
    return Vectors(native, codes, random.uniform(1e-4, 1e-2, k).astype(np.float32))


@given(
    shape=st.sampled_from(SHAPES),
    n=st.integers(1, 700),
    dim=st.integers(1, 90),
    k=st.integers(1, 20),
    batch=st.sampled_from([1, 2, 3, 4, 5, 6, 15, 33]),
    scale=st.sampled_from([1e-20, 1e-3, 1.0, 1e4]),
    seed=st.integers(0, 2**32 - 1),
)
@example(shape="near ties", n=600, dim=64, k=8, batch=3, scale=1.0, seed=0)
@example(shape="zeros", n=600, dim=64, k=8, batch=3, scale=1.0, seed=0)
@settings(max_examples=60, deadline=None)
def test_every_collection_gives_what_a_slow_loop_gives(shape, n, dim, k, batch, scale, seed):
    random = np.random.default_rng(seed)
    index = collection(shape, n, dim, k, random)
    queries = []
    for b in range(batch):
        native = index.native()[0] if b == 0 else random.standard_normal(dim)
        native = (native / (np.linalg.norm(native) or 1)).astype(np.float32)
        if b == 3:
            native[:] = 0
        spatial = (random.standard_normal((2, k)) * scale).astype(np.float32) if b % 2 else None
        queries.append(JointQuery(native, spatial))
    counts = [int(c) for c in random.integers(1, n + 3, batch)]
    engine = Engine(index)
    tops = engine.top(queries, counts)
    ranks = engine.native_ranks(queries, [t.rows for t in tops], [t.coarse for t in tops])
    for query, count, top, rank in zip(queries, counts, tops, ranks, strict=True):
        scores, order = slow(index, query)
        assert np.array_equal(top.rows, order[:count])
        assert top.scores.total.tobytes() == scores[order[:count]].tobytes()
        _, native_order = slow(index, JointQuery(query.native))
        place = np.empty(n, np.int64)
        place[native_order] = np.arange(1, n + 1)
        assert np.array_equal(rank, place[top.rows])


def scored(codes: np.ndarray, scale: np.ndarray, queries: list[WholeQuery], steps: list[float]) -> np.ndarray:
    """Rows (N, D) scored for queries, (B, N)."""
    n, width = codes.shape
    rows = np.pad(codes, ((0, SPARE), (0, -width % STEP)))
    out = np.full((len(queries), n), np.nan, np.float32)
    score(rows, scale, *stacked([q.codes for q in queries], rows.shape[1]), np.array(steps), 0, n, out)
    return out


@given(
    n=st.integers(1, 600), dim=st.integers(1, 80), batch=st.integers(1, 70), seed=st.integers(0, 2**32 - 1)
)
@settings(max_examples=40, deadline=None)
def test_products_of_tiles_are_whole_numbers(n, dim, batch, seed):
    random = np.random.default_rng(seed)
    codes = random.integers(-127, 128, (n, dim)).astype(np.int8)
    queries = WholeQuery.of(random.standard_normal((batch, dim)))
    found = scored(codes, np.ones(n, np.float32), queries, [1.0] * batch)
    whole = np.stack([q.codes for q in queries]).astype(np.int64) @ codes.astype(np.int64).T
    assert np.array_equal(found, whole.astype(np.float32))


@given(
    shape=st.sampled_from(SHAPES),
    n=st.integers(1, 200),
    dim=st.integers(1, 700),
    seed=st.integers(0, 2**32 - 1),
)
@settings(max_examples=80, deadline=None)
def test_bounds_hold(shape, n, dim, seed):
    random = np.random.default_rng(seed)
    rows = collection(shape, n, dim, 1, random).native()
    centre = rows.mean(axis=0, dtype=np.float64)
    stored = CodedRows(n, dim)
    stored.put(np.arange(n), np.array(rows), centre)
    for vector in (rows[0].astype(np.float64), random.standard_normal(dim), np.zeros(dim)):
        query = WholeQuery.of(vector[None])[0]
        exact = (rows.astype(np.float64) - centre) @ vector
        rounding = 1e-12 * np.abs(rows).max() * (1 + np.abs(vector).sum())  # of this comparison
        scores = []
        for codes, step in ((stored.high[:n, :dim], query.step), (stored.low[:, :dim], query.step / 254)):
            whole = codes.astype(np.int64) @ query.codes.astype(np.int64)
            assert np.abs(whole).max() < 2**31
            scores.append(scored(codes, stored.scale, [query], [step])[0].astype(np.float64))
            assert np.allclose(
                scores[-1], step * stored.scale.astype(np.float64) * whole, rtol=1e-6, atol=1e-40
            )
        coarse = scores[0]
        slack = query.norm * stored.residual + query.error(stored) + rounding
        assert (np.abs(exact - coarse) <= slack).all()
        assert (np.abs(exact - coarse - scores[1]) <= query.fine_error(stored) + rounding).all()


@given(
    n=st.integers(1, 300),
    places=st.integers(1, 30),
    spread=st.sampled_from([1e-4, 1e-2, 1.0]),
    seed=st.integers(0, 2**32 - 1),
)
@settings(max_examples=60, deadline=None)
def test_doubtful_rows_alone_are_looked_at_closer(n, places, spread, seed):
    random = np.random.default_rng(seed)
    rows = random.standard_normal((n, 48)).astype(np.float32)
    stored = CodedRows(n, 48)
    stored.put(np.arange(n), rows, np.zeros(48))
    query = WholeQuery.of(random.standard_normal((1, 48)))[0]
    high = scored(stored.high[:n, :48], stored.scale, [query], [query.step])
    low = scored(stored.low[:, :48], stored.scale, [query], [query.step / 254])
    centres = np.unique(random.choice(high[0], places)).astype(np.float64)
    edges = np.unique(np.stack([centres - spread, centres + spread], axis=1).astype(np.float32))
    edges = edges[: len(edges) // 2 * 2]
    counts, inside = np.zeros(len(edges) + 1, np.int64), np.empty(n, np.int64)
    reach = query.norm + query.rest
    found = sort_rows(
        (stored.low, stored.scale, stored.residual), high[0], query.codes, query.step / 254, reach,
        reach * stored.largest_rest + 1e-5, 0.0, edges, (0, n), counts, inside,
    )  # fmt: skip
    fine = (high[0].astype(np.float64) + low[0]).astype(np.float32)
    interval = np.searchsorted(edges, fine, side="right")
    # A fine score is rounded in another place here: whoever stands within that of an edge may go either way.
    near = np.abs(fine[:, None].astype(np.float64) - edges).min(axis=1) < 1e-5
    assert counts.sum() == n
    assert np.abs(counts - np.bincount(interval, minlength=len(counts))).sum() <= 2 * near.sum()
    assert set(inside[:found]) ^ set(np.flatnonzero(interval % 2)) <= set(np.flatnonzero(near))


def unit_index(n: int, dim: int, k: int) -> Vectors:
    random = np.random.default_rng(0)
    native = random.standard_normal((n, dim)).astype(np.float32)
    native /= np.linalg.norm(native, axis=1, keepdims=True)
    codes = random.integers(-90, 91, (n, 2, k)).astype(np.int8)
    return Vectors(native, codes, np.full(k, 1e-3, np.float32))


def some_queries(index: Vectors, count: int) -> list[JointQuery]:
    """Native and joint ones in turns."""
    spatial = np.ones((2, index.manifest.k), np.float32)
    return [JointQuery(v, spatial if n % 2 else None) for n, v in enumerate(np.array(index.native()[:count]))]


def test_candidates_stay_few_on_ordinary_vectors(monkeypatch):
    monkeypatch.setattr(scan_module, "BLOCK_ROWS", 5000)
    index = unit_index(20_000, 128, 16)
    scan, queries = Int8Scan(index), some_queries(index, 32)
    alone = scan.superset(queries[:1], [100])[0]
    assert 100 <= len(alone.rows) <= 400
    for found in scan.superset(queries, [1000] * 32):
        assert 1000 <= len(found.rows) <= 1600


@pytest.mark.parametrize("share", [1.0, 0.5, 0.1])
def test_a_guess_that_was_too_high_is_made_up_for(share, monkeypatch):
    """The best for one query come first, where an order is not random."""
    index = unit_index(3000, 48, 8)
    queries, counts = some_queries(index, 7), [1, 5, 40, 300, 1500, 2999, 3000]
    for query, count in zip(queries, counts, strict=True):
        best = slow(index, query)[1]
        first = best[: round(share * count)]
        order = np.r_[first, np.setdiff1d(best, first)]
        monkeypatch.setattr(int8_module, "shuffled", lambda _, order=order: order)
        tops = Engine(index).top(queries, counts)
        for other, wanted, top in zip(queries, counts, tops, strict=True):
            assert np.array_equal(top.rows, slow(index, other)[1][:wanted])


def test_scores_too_many_to_keep_are_made_in_turns(monkeypatch):
    index = unit_index(3000, 48, 8)
    queries, engine = some_queries(index, 9), Engine(index)
    tops = engine.top(queries, [20] * 9, ranks_follow=True)
    assert [top.coarse is not None for top in tops] == [query.spatial is not None for query in queries]
    rows = [top.rows for top in tops]
    kept = engine.native_ranks(queries, rows, [top.coarse for top in tops])
    monkeypatch.setattr(int8_module, "KEPT_BYTES", 4 * 3000 * 2)
    bare = engine.top(queries, [20] * 9, ranks_follow=True)
    assert {top.coarse for top in bare} == {None}
    for one, other in zip(kept, engine.native_ranks(queries, rows), strict=True):
        assert np.array_equal(one, other)


def test_the_cpu_scans_in_eight_bits():
    assert Engine(unit_index(60, 16, 4)).scan == "int8"
