from __future__ import annotations

import time
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from indexer.sketch import Precision, Sketcher
from service import engine as engine_module
from service import int8 as int8_module
from service import quantised
from service.canonical import JointQuery, canonical_scores
from service.engine import Engine, ScanKind
from service.int8 import Int8Scan
from service.quantised import Int8Rows, Planes, int8_is_exact, unit
from service.scan import CpuScan
from tests.support import vector_index

pytestmark = pytest.mark.skipif(not int8_is_exact(), reason="this CPU or torch has no exact int8 product")


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
    """Plain float64, one image at a time, rounded once; ties by row."""
    scores = []
    for row in range(len(index)):
        native = (index.native()[row].astype(np.float64) * query.native.astype(np.float64)).sum()
        spatial = 0.0
        if query.spatial is not None:
            moments = index.sketcher.decode(index.sketch(slice(row, row + 1))).ravel().astype(np.float64)
            spatial = (moments * query.spatial.ravel().astype(np.float64)).sum()
        scores.append(np.float32(native + spatial))
    scores = np.array(scores)
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
    batch=st.integers(1, 6),
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
    engine = Engine(index, scan=ScanKind.INT8)
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


@given(
    shape=st.sampled_from(SHAPES),
    n=st.integers(1, 200),
    dim=st.integers(1, 700),
    batch=st.integers(1, 5),
    seed=st.integers(0, 2**32 - 1),
)
@settings(max_examples=80, deadline=None)
def test_bounds_hold(shape, n, dim, batch, seed):
    random = np.random.default_rng(seed)
    rows = collection(shape, n, dim, 1, random).native().astype(np.float64)
    stored = Int8Rows(dim)
    stored.add(rows)
    units, _ = unit(np.r_[rows[:1], random.standard_normal((batch, dim))])
    planes = Planes.of(units)
    upper, error = stored.upper(planes).astype(np.float64), stored.error(planes)
    exact = units @ rows.T
    rounding = 1e-13 * np.abs(rows).max()  # of this comparison
    assert (exact <= upper + error + rounding).all()
    assert (exact >= upper - (2 + 1 / 256) * stored.residual - error - rounding).all()


def test_candidates_stay_few_on_ordinary_vectors(monkeypatch):
    monkeypatch.setattr(int8_module, "BLOCK_ROWS", 5000)
    monkeypatch.setattr(quantised, "PACK_ROWS", 7000)
    monkeypatch.setattr(quantised, "TURN", 5)
    random = np.random.default_rng(0)
    native = random.standard_normal((20_000, 128)).astype(np.float32)
    native /= np.linalg.norm(native, axis=1, keepdims=True)
    index = Vectors(
        native, random.integers(-90, 91, (20_000, 2, 16)).astype(np.int8), np.full(16, 1e-3, np.float32)
    )
    scan = Int8Scan(index)
    queries = [
        JointQuery(v, s) for v, s in zip(native[:32], [None, np.ones((2, 16), np.float32)] * 16, strict=True)
    ]
    alone = scan.superset(queries[:1], [100])[0]
    assert 100 <= len(alone.rows) <= 400
    for found in scan.superset(queries, [1000] * 32):  # by the residuals
        assert 1000 <= len(found.rows) <= 1200
    rows = scan.superset(queries[:1], [1000])[0].rows  # by the vectors themselves
    assert 1000 <= len(rows) <= 1050


def test_the_rule_that_chooses(tmp_path, monkeypatch):
    index = vector_index(tmp_path, 60)
    assert isinstance(Engine(index)._scan, CpuScan)
    assert Engine(index, scan=ScanKind.INT8).scan == "int8"
    monkeypatch.setattr(engine_module, "INT8_ROWS", 50)
    monkeypatch.setattr(quantised, "int8_pays", lambda dim: True)
    assert Engine(index).scan == "int8"
    monkeypatch.setattr(quantised, "int8_pays", lambda dim: False)
    assert Engine(index).scan == "float32"


def test_a_single_row_is_no_slower_than_two():
    stored = Int8Rows(256)
    stored.add_codes(np.ones((20_000, 256), np.int8))
    taken = {1: [], 2: []}
    for count in [1, 2] * 5:
        begin = time.perf_counter()
        stored.products(np.ones((count, 256), np.int8), [1.0] * count)
        taken[count].append(time.perf_counter() - begin)
    assert min(taken[1]) < 50 * min(taken[2])  # a plain loop takes 500 times as long


def test_a_saturating_cpu_is_found_out(monkeypatch):
    int8_is_exact.cache_clear()
    right = quantised._product

    def saturating(queries, step, block, *, bias):
        return right(queries, step, block, bias=bias).clamp(-(2**15), 2**15 - 1)

    monkeypatch.setattr(quantised, "_product", saturating)
    assert not int8_is_exact()
    int8_is_exact.cache_clear()


def test_bits_are_those_of_the_float_scan():
    random = np.random.default_rng(5)
    index = collection("random", 3000, 48, 8, random)
    queries = [
        JointQuery(
            random.standard_normal(48).astype(np.float32), random.standard_normal((2, 8)).astype(np.float32)
        )
        for _ in range(40)
    ]
    one, other = Engine(index, scan=ScanKind.INT8), Engine(index, scan=ScanKind.FLOAT32)
    for a, b in zip(one.top(queries, [900] * 40), other.top(queries, [900] * 40), strict=True):
        assert np.array_equal(a.rows, b.rows)
        assert a.scores.total.tobytes() == b.scores.total.tobytes()
        whole = canonical_scores(index, queries[0], a.rows)
        assert whole.total.dtype == np.float32
