from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.plain_scan import PlainScan
from indexer.sketch import Precision
from service import engine as engine_module
from service import scan as scan_module
from service.canonical import JointQuery, canonical_scores
from service.cuda import TorchScan
from service.engine import Engine
from service.int8 import Int8Scan
from service.scan import scan_error
from tests.support import DIM, lane_sums, vector_index


@pytest.fixture(scope="module", params=[Precision.INT8, Precision.FP16], ids=["int8", "fp16"])
def index(request, tmp_path_factory):
    return vector_index(tmp_path_factory.mktemp("vectors"), 3000, precision=request.param)


SCANS = {"int8": Int8Scan, "torch": lambda index: TorchScan(index, "cpu"), "plain": PlainScan}


@pytest.fixture(params=SCANS)
def engine(request, index, monkeypatch):
    monkeypatch.setattr(scan_module, "BLOCK_ROWS", 700)  # several blocks, the last one short
    return Engine(index, scan=SCANS[request.param](index))


def queries(index, count: int, seed: int = 1) -> list[JointQuery]:
    rng = np.random.default_rng(seed)
    made = []
    for b in range(count):
        native = rng.standard_normal(DIM).astype(np.float32)
        native /= np.linalg.norm(native)
        spatial = rng.standard_normal((2, index.manifest.k)).astype(np.float32) * np.float32(3)
        made.append(JointQuery(native, spatial if b % 2 else None))
    return made


def brute_force(index, query):
    """Every score by its definition: float64 products, summed in lanes."""
    native = lane_sums(index.native().astype(np.float64) * query.native)
    spatial = np.zeros(len(index))
    if query.spatial is not None:
        moments = index.sketcher.decode(index.sketch(slice(None))).reshape(len(index), -1)
        spatial = lane_sums(moments.astype(np.float64) * query.spatial.ravel())
    return (native + spatial).astype(np.float32), native.astype(np.float32)


def order(scores):
    return np.lexsort((np.arange(len(scores)), -scores))


def test_top_equals_a_slow_loop_for_every_k(index, engine):
    for query in queries(index, 4):
        total, native = brute_force(index, query)
        for k in (1, 2, 17, 999, len(index), len(index) + 5):
            top = engine.top([query], [k])[0]
            assert np.array_equal(top.rows, order(total)[:k])
            assert np.array_equal(top.scores.total, total[top.rows])
            assert np.array_equal(top.scores.native, native[top.rows])


def test_native_ranks_equal_a_slow_loop(index, engine):
    for query in queries(index, 4):
        _, native = brute_force(index, query)
        place = np.empty(len(index), np.int64)
        place[order(native)] = np.arange(1, len(index) + 1)
        rows = np.random.default_rng(3).permutation(len(index))[:300]
        rows = np.r_[rows, [1, len(index) // 2, len(index) // 3, len(index) // 4]]  # the duplicates
        assert np.array_equal(engine.native_ranks([query], [rows])[0], place[rows])
        everything = np.arange(len(index))
        assert np.array_equal(engine.native_ranks([query], [everything])[0], place)


def test_a_batch_is_its_queries_alone(index, engine):
    many = queries(index, 64)
    counts = [1 + 13 * b for b in range(64)]
    together = engine.top(many, counts)
    for query, count, top in zip(many, counts, together, strict=True):
        alone = engine.top([query], [count])[0]
        assert np.array_equal(alone.rows, top.rows)
        assert alone.scores.total.tobytes() == top.scores.total.tobytes()
    ranks = engine.native_ranks(many, [top.rows for top in together])
    again = engine.native_ranks(many, [top.rows for top in together], [top.coarse for top in together])
    assert all(np.array_equal(a, b) for a, b in zip(ranks, again, strict=True))
    kept = engine.top(many, counts, ranks_follow=True)
    again = engine.native_ranks(many, [top.rows for top in kept], [top.coarse for top in kept])
    assert all(np.array_equal(a, b) for a, b in zip(ranks, again, strict=True))
    for query, top, rank in zip(many, together, ranks, strict=True):
        assert np.array_equal(engine.native_ranks([query], [top.rows])[0], rank)


def test_exact_duplicates_tie_by_row(index, engine):
    first = index.native()[1].copy()
    top = engine.top([JointQuery(first)], [4])[0]
    twins = [1, len(index) // 3, len(index) // 2]
    assert [r for r in top.rows.tolist() if r in twins] == twins
    assert len({float(s) for s, r in zip(top.scores.total, top.rows, strict=True) if r in twins}) == 1


def test_score_bits_do_not_depend_on_the_selection(index):
    query = queries(index, 2)[1]
    whole = canonical_scores(index, query, np.arange(len(index)))
    for rows in ([5], [5, 6], list(range(100)), list(range(7, 3000, 3))):
        part = canonical_scores(index, query, np.array(rows))
        assert part.total.tobytes() == whole.total[rows].tobytes()
        assert part.spatial.tobytes() == whole.spatial[rows].tobytes()


@given(
    n=st.integers(1, 400),
    seed=st.integers(0, 2**32 - 1),
    scale=st.sampled_from([1e-30, 1e-3, 1.0, 1e4]),
    alike=st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_the_scan_stays_within_its_bound(n, seed, scale, alike):
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((50, n)).astype(np.float32)
    query = (rows[0] if alike else rng.standard_normal(n).astype(np.float32)) * np.float32(scale)
    exact = (rows.astype(np.float64) * query.astype(np.float64)).sum(axis=1)
    norms = np.linalg.norm(rows.astype(np.float64), axis=1), np.linalg.norm(query.astype(np.float64))
    bound = scan_error(n, norms[1] * norms[0].max())
    backwards = np.zeros(50, np.float32)
    for i in reversed(range(n)):  # the worst order there is
        backwards += rows[:, i] * query[i]
    for approximate in (rows @ query, backwards, (query[None] @ rows.T)[0]):
        assert np.abs(approximate.astype(np.float64) - exact.astype(np.float32)).max() <= bound


class Worst(PlainScan):
    """A scan that may be as wrong as its bound allows, and is."""

    ERROR = 1e-2

    def __init__(self, index):
        super().__init__(index)
        self._wrong = np.random.default_rng(0).choice([-0.99, 0.99], size=len(index)) * self.ERROR

    def scores(self, query):
        return super().scores(query) + self._wrong

    def error(self, query):
        return self.ERROR


def test_a_scan_at_its_bound_still_gives_exact_answers(index):
    query = queries(index, 1)[0]
    total, native = brute_force(index, query)
    engine = Engine(index, scan=Worst(index))
    for k in (1, 10, 500):
        assert np.array_equal(engine.top([query], [k])[0].rows, order(total)[:k])
    rows = np.arange(0, len(index), 7)
    place = np.empty(len(index), np.int64)
    place[order(native)] = np.arange(1, len(index) + 1)
    assert np.array_equal(engine.native_ranks([query], [rows])[0], place[rows])


@pytest.mark.parametrize("n", [0, 1, 2])
def test_tiny_indexes(n, tmp_path):
    index = vector_index(tmp_path, n)
    engine = Engine(index, "cpu")
    for query in queries(index, 2):
        top = engine.top([query], [10])[0]
        assert sorted(top.rows.tolist()) == list(range(n))
        assert sorted(engine.native_ranks([query], [top.rows])[0].tolist()) == list(range(1, n + 1))


@pytest.mark.gpu
def test_cuda_gives_the_same_bits(index):
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    many = queries(index, 8)
    cpu, cuda = Engine(index, "cpu"), Engine(index, "cuda")
    for a, b in zip(cpu.top(many, [50] * 8), cuda.top(many, [50] * 8), strict=True):
        assert np.array_equal(a.rows, b.rows)
        assert a.scores.total.tobytes() == b.scores.total.tobytes()


@given(st.lists(st.floats(width=32, allow_nan=False) | st.sampled_from([0.0, -0.0, 1.0]), max_size=40))
def test_the_best_come_first_and_equals_in_their_order(scores):
    given_scores = np.array(scores, np.float32)
    expected = np.lexsort((np.arange(len(scores)), -given_scores))
    assert np.array_equal(engine_module._best_first(given_scores), expected)
