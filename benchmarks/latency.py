"""How fast a query is answered, stage by stage, against what else could be used.

    python -m benchmarks.latency [--quick] [--json FILE] [--rows N] [--dim D] [--k K] [--index DIR] [--device cuda]

A synthetic index of 118,287 vectors (as many as COCO's training photographs) of 512 dimensions, or a real index.
Everything is timed in turns in one run; figures are ratios of medians within it. ``--device cuda`` hands over to
:mod:`benchmarks.latency_device`, which needs torch and numpy alone.

What is exact is held against float64 brute force, ties by row. The memory's speed is what the fastest of several
plain readers reaches with all cores on as many bytes.
"""

from __future__ import annotations

import argparse
import copy
import itertools
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from benchmarks import timing
from benchmarks.record import Metric, parser, write_result
from benchmarks.synthetic import random_queries, synthetic_index
from benchmarks.timing import Call, Times, interleave, ratio
from service import rerank
from service.canonical import JointQuery, canonical_scores, moment_scores
from service.cores import each, split
from service.engine import Engine

BATCHES = (1, 8, 64)
TOP = 1000
PAGE = 10
SEED = 0


def main() -> None:
    """Measure and write."""
    options = parser(__doc__ or "")
    options.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    options.add_argument("--rows", type=int, default=118_287)
    options.add_argument("--dim", type=int, default=512)
    options.add_argument("--k", type=int, default=64, help="sketch components an axis")
    options.add_argument("--index", type=Path, help="a real index instead")
    options.add_argument(
        "--no-graphs", action="store_true", help="leave out HNSW and IVF, which take long to build"
    )
    given = options.parse_args()
    timing.clean_environment()
    if given.device == "cuda":
        from benchmarks.latency_device import run  # noqa: PLC0415

        run("cuda", quick=given.quick, path=given.json, dim=given.dim, k=given.k)
        return
    run_cpu(given)


def run_cpu(given: argparse.Namespace) -> None:
    """Measure on the CPU."""
    index = _open(given)
    engine = Engine(index)
    print(
        f"{len(index)} x {index.manifest.encoder.dim}, k {index.manifest.k}, scan {engine.scan}", flush=True
    )
    seconds = 8.0 if given.quick else 40.0
    native = random_queries(index, 64, joint=False, seed=SEED + 1)
    joint = random_queries(index, 64, joint=True, seed=SEED + 2)
    metrics, tables = [], {}

    exact = exactness(engine, [*native[:4], *joint[:4]] if given.quick else [*native[:16], *joint[:16]])
    metrics.append(exact)
    others = baselines(index, native, graphs=not (given.quick or given.no_graphs))
    batch1, found = at_batch_one(engine, native, joint, others, seconds)
    metrics += found
    tables["batch 1"] = batch1
    for batch in BATCHES[1:]:
        table, found = at_batch(engine, native[:batch], joint[:batch], others, seconds)
        tables[f"batch {batch}"], metrics = table, metrics + found
    table, found = reranks(index, joint[0], seconds / 4)
    tables["rerank"], metrics = table, metrics + found
    tables["text"] = texts(given.quick)
    sizes = (10_000, 30_000) if given.quick else (10_000, 30_000, 100_000, 300_000, 1_000_000)
    growth = [] if given.index else [one_size(n, given.dim, given.k, seconds / 4) for n in sizes]
    path = write_result(
        "latency",
        metrics,
        encoder=None if given.index is None else index.manifest.encoder.name,
        seed=SEED,
        path=given.json,
        extra={
            "rows": len(index),
            "dim": index.manifest.encoder.dim,
            "k": index.manifest.k,
            "scan": engine.scan,
            "kernels": timing.kernels(),
            "recall": {name: round(share, 4) for name, (_, share) in others.items()},
            "tables": tables,
            "growth": growth,
        },
    )
    plot(path, tables, growth)


def exactness(engine: Engine, queries: Sequence[JointQuery]) -> Metric:
    """Share of queries whose first thousand are those of float64 brute force, in its order, with its scores."""
    right = 0
    everything = np.arange(len(engine))
    for query, top in zip(queries, engine.top(queries, [TOP] * len(queries)), strict=True):
        scores = canonical_scores(engine.index, query, everything).total
        best = np.lexsort((everything, -scores))[:TOP]
        right += np.array_equal(best, top.rows) and np.array_equal(scores[best], top.scores.total)
    return Metric("exact_top1000", right / len(queries), "share", n=len(queries))


def baselines(index: Any, queries: Sequence[JointQuery], *, graphs: bool) -> dict[str, tuple[Any, float]]:
    """What else could be used, each with its recall of the true first thousand (ten for graphs)."""
    import faiss  # noqa: PLC0415

    vectors, dim = np.array(index.native()), index.manifest.encoder.dim
    inner, kinds = faiss.METRIC_INNER_PRODUCT, faiss.ScalarQuantizer
    made: dict[str, Any] = {
        "faiss flat fp32": faiss.IndexFlatIP(dim),
        "faiss flat fp16": faiss.IndexScalarQuantizer(dim, kinds.QT_fp16, inner),
        "faiss flat SQ8": faiss.IndexScalarQuantizer(dim, kinds.QT_8bit, inner),
    }
    if graphs:
        made["faiss IVF1024, 32 probes"] = faiss.index_factory(dim, "IVF1024,Flat", inner)
        made["faiss HNSW32, ef 256"] = faiss.index_factory(dim, "HNSW32", inner)
    stacked = np.stack([q.native for q in queries])
    for name, one in made.items():
        if not one.is_trained:
            one.train(vectors[:: max(1, len(vectors) // 40_000)])
        one.add(vectors)
        if "IVF" in name:
            one.nprobe = 32
        if "HNSW" in name:
            one.hnsw.efSearch = 256
        print(f"built {name}", flush=True)
    top = min(TOP, len(vectors))
    truth = made["faiss flat fp32"].search(stacked, top)[1]
    found: dict[str, tuple[Any, float]] = {}
    for name, one in made.items():
        depth = 10 if "HNSW" in name or "IVF" in name else top
        came = one.search(stacked, depth)[1]
        hits = [len(np.intersect1d(a, b[:depth])) for a, b in zip(came, truth, strict=True)]
        found[name] = one, float(np.mean(hits)) / depth
    return found


def at_batch_one(
    engine: Engine,
    native: Sequence[JointQuery],
    joint: Sequence[JointQuery],
    others: dict[str, tuple[Any, float]],
    seconds: float,
) -> tuple[dict[str, Any], list[Metric]]:
    """One query at a time: stages, baselines and the memory's speed, in turns."""
    index, scan = engine.index, engine._scan
    size = len(index) * index.manifest.encoder.dim
    flat = others["faiss flat fp32"][0]
    turn = _Turn(native, joint)
    calls: dict[str, Call] = {}

    def add(top: int) -> None:
        calls[f"native top {top}"] = lambda: engine.top([turn.native], [top])
        calls[f"joint top {top}"] = lambda: engine.top([turn.joint], [top])
        calls[f"joint top {top} and native ranks"] = lambda: joint_page(engine, [turn.joint], top)
        calls[f"faiss flat fp32 top {top}"] = lambda: flat.search(turn.vector, top)

    def add_other(name: str, one: Any) -> None:
        calls[f"{name} top {PAGE}"] = lambda: one.search(turn.vector, PAGE)

    add(PAGE)
    add(TOP)
    for name, (one, _) in others.items():
        if one is not flat:
            add_other(name, one)
    calls |= {
        "stage: scan, native": lambda: scan.superset([turn.native], [PAGE]),
        "stage: scan, joint": lambda: scan.superset([turn.joint], [PAGE]),
        "stage: scan, native top 1000": lambda: scan.superset([turn.native], [TOP]),
    }
    buffer = np.ones(size, np.uint8)
    read = timing.readers(buffer)
    calls |= read
    calls["next query"] = turn
    times = interleave(calls, rounds=400, seconds=seconds)
    fastest = min(read, key=lambda name: times[name].best)
    metrics = [
        _ratio("native_b1_vs_faiss_flat", times, f"native top {TOP}", f"faiss flat fp32 top {TOP}"),
        _ratio("joint_b1_vs_faiss_flat", times, f"joint top {TOP}", f"faiss flat fp32 top {TOP}"),
        _ratio("native_b1_top10_vs_faiss_flat", times, f"native top {PAGE}", f"faiss flat fp32 top {PAGE}"),
        _ratio("joint_b1_top10_vs_faiss_flat", times, f"joint top {PAGE}", f"faiss flat fp32 top {PAGE}"),
    ]
    bytes_read = len(index) * _row_bytes(index.manifest.encoder.dim)
    joint_bytes = bytes_read + len(index) * _row_bytes(2 * index.manifest.k)
    share, low, high = ratio(times[fastest], times["stage: scan, native"])
    times_more = bytes_read / size
    rounds = len(times[fastest].seconds)
    metrics += [
        Metric(
            "bandwidth_share_b1", share * times_more, "share", low * times_more, high * times_more, rounds
        ),
        Metric("memory_read_gb_per_s", size / times[fastest].best / 1e9, "GB/s"),
        Metric("native_scan_bytes", bytes_read, "bytes"),
        Metric("joint_scan_bytes", joint_bytes, "bytes"),
    ]
    return {name: one.summary() for name, one in times.items() if name != "next query"}, metrics


def _row_bytes(width: int) -> int:
    """Bytes that a scan reads of a row of so many components; int8 rows have a scale and a residual."""
    return width + 8


def at_batch(
    engine: Engine,
    native: Sequence[JointQuery],
    joint: Sequence[JointQuery],
    others: dict[str, tuple[Any, float]],
    seconds: float,
) -> tuple[dict[str, Any], list[Metric]]:
    """Queries together."""
    count = len(native)
    flat, vectors = others["faiss flat fp32"][0], np.stack([q.native for q in native])
    matrix = np.array(engine.index.native())

    def numpy_top(top: int) -> None:
        # A product a core: threads of BLAS would go on spinning into whatever is timed next.
        parts = each(lambda first, last: vectors @ matrix[first:last].T, split(len(matrix)))
        for line in np.concatenate(parts, axis=1):
            np.argpartition(line, len(line) - top)[-top:]

    calls: dict[str, Call] = {}
    for top in (PAGE, TOP):
        calls[f"native top {top}"] = partial(engine.top, native, [top] * count)
        calls[f"joint top {top}"] = partial(engine.top, joint, [top] * count)
        calls[f"joint top {top} and native ranks"] = partial(joint_page, engine, joint, top)
        calls[f"faiss flat fp32 top {top}"] = partial(flat.search, vectors, top)
    calls |= {
        f"{name} top {PAGE}": partial(one.search, vectors, PAGE)
        for name, (one, _) in others.items()
        if one is not flat and count < 64
    }
    calls["numpy, argpartition top 1000"] = lambda: numpy_top(TOP)
    times = interleave(calls, rounds=40, seconds=seconds)
    metrics = [
        _ratio(
            f"{kind}_b{count}_throughput_vs_faiss_flat{suffix}",
            times,
            f"faiss flat fp32 top {top}",
            f"{kind} top {top}",
        )
        for kind in ("native", "joint")
        for top, suffix in ((TOP, ""), (PAGE, "_top10"))
    ]
    return {name: one.summary(count) for name, one in times.items()}, metrics


def joint_page(engine: Engine, queries: Sequence[JointQuery], top: int) -> None:
    """What a spatial search asks of the engine: the best, and the native ranks of a page of them."""
    tops = engine.top(queries, [top] * len(queries), ranks_follow=True)
    engine.native_ranks(queries, [t.rows[:PAGE] for t in tops], [t.coarse for t in tops])


def reranks(index: Any, query: JointQuery, seconds: float) -> tuple[dict[str, Any], list[Metric]]:
    """A thousand candidates by moment and, where the index keeps grids, by centroid, on one core."""
    from threadpoolctl import threadpool_limits  # noqa: PLC0415

    from indexer.openclip import one_core  # noqa: PLC0415

    assert query.spatial is not None
    random = np.random.default_rng(SEED)
    chosen = [random.choice(len(index), min(TOP, len(index)), replace=False) for _ in range(16)]
    turn, spatial = itertools.cycle(chosen), query.spatial
    calls: dict[str, Call] = {
        "moment": lambda: moment_scores(index, spatial, next(turn)),
        "moment and native, canonical": lambda: canonical_scores(index, query, next(turn)),
    }
    names = {"moment": "rerank1000_moment_ms"}
    reader = _centroids(index)
    if reader is not None:
        calls["centroid"] = lambda: reader(next(turn))
        names["centroid"] = "rerank1000_centroid_ms"
    with threadpool_limits(1), one_core(), patch.object(rerank, "SHARED_ROWS", TOP + 1):
        times = interleave(calls, rounds=300, seconds=seconds)
    metrics = [
        Metric(
            metric,
            times[name].ms(0.5),
            "ms",
            times[name].ms(0.025),
            times[name].ms(0.975),
            len(times[name].seconds),
        )
        for name, metric in names.items()
    ]
    return {name: one.summary() for name, one in times.items()}, metrics


def _centroids(index: Any) -> Any:
    """The second stage over candidates; of a synthetic index over grids of its shape."""
    from benchmarks.synthetic_grid import grids_like  # noqa: PLC0415
    from parser.relation import Relation, SpatialRelation  # noqa: PLC0415
    from service.query import Readout  # noqa: PLC0415
    from service.rerank import Reranker  # noqa: PLC0415

    kept = index if getattr(index, "grid_sketcher", None) is not None else grids_like(index, seed=SEED)
    reranker = Reranker(kept)
    random = np.random.default_rng(SEED)
    words = random.standard_normal((2, index.manifest.encoder.dim)).astype(np.float32)
    words /= np.linalg.norm(words, axis=1, keepdims=True)
    relation = SpatialRelation("cup", Relation.LEFT_OF, "laptop")
    reading = reranker.read([relation], {"cup": words[0], "laptop": words[1]}, Readout.CENTROID)
    return lambda rows: reranker.parts(reading, rows)


def texts(quick: bool) -> dict[str, Any]:
    """Parsing and encoding by the built-in encoder, cold and remembered, and its text tower by other means.

    Those are bfloat16 and ONNX Runtime.
    """
    import torch  # noqa: PLC0415

    from indexer.compact import load_compact  # noqa: PLC0415
    from indexer.onnx_texts import OnnxTexts  # noqa: PLC0415
    from indexer.openclip import one_core  # noqa: PLC0415
    from parser import QueryParser  # noqa: PLC0415
    from service.texts import TextVectors  # noqa: PLC0415

    reader, encoder = QueryParser(), load_compact(device="cpu")
    tower = copy.deepcopy(encoder.model.text).bfloat16()

    def by_bfloat16(text: str) -> torch.Tensor:
        with torch.inference_mode(), one_core():
            found: torch.Tensor = tower(encoder.tokenise([text]))
        return torch.nn.functional.normalize(found.float(), dim=-1)[0]

    reader.warm()
    remembered = TextVectors(encoder)
    numbers = iter(range(10**9))
    spatial, plain = "a cup to the left of a laptop", "two dogs play on the beach"
    calls: dict[str, Call] = {
        "parse, spatial": lambda: reader.parse_many([f"{spatial} {next(numbers)}"]),
        "parse, plain": lambda: reader.parse_many([f"{plain} {next(numbers)}"]),
        "encode, one new text": lambda: remembered([f"{plain} {next(numbers)}"]),
        "encode, a new spatial query": lambda: remembered(
            [f"{spatial} {(n := next(numbers))}", f"a cup {n}", f"a laptop {n}"]
        ),
        "encode, remembered": lambda: remembered([spatial, "a cup", "a laptop"]),
    }
    others: dict[str, Callable[[str], Any]] = {"bfloat16": by_bfloat16}
    by_onnx = OnnxTexts(encoder)
    others["ONNX Runtime"] = lambda text: by_onnx.encode_texts([text]).vectors[0]
    for name, way in others.items():
        calls[f"encode, one new text, {name}"] = lambda way=way: way(f"{plain} {next(numbers)}")  # type: ignore[misc]
    times = interleave(calls, rounds=200, seconds=4 if quick else 20)
    exact = encoder.encode_texts([spatial]).vectors[0]
    cosines = {name: round(float(exact @ np.asarray(way(spatial))), 6) for name, way in others.items()}
    return {name: one.summary() for name, one in times.items()} | {"cosine": cosines}


def one_size(rows: int, dim: int, k: int, seconds: float) -> dict[str, Any]:
    """One point of the growth curve."""
    import faiss  # noqa: PLC0415

    index: Any = synthetic_index(rows, dim, k, seed=SEED)
    engine = Engine(index)
    native, joint = random_queries(index, 64, joint=False), random_queries(index, 64, joint=True)
    flat = faiss.IndexFlatIP(dim)
    flat.add(index.native())
    turn = _Turn(native, joint)
    calls: dict[str, Call] = {
        "native": lambda: engine.top([turn.native], [PAGE]),
        "joint": lambda: joint_page(engine, [turn.joint], PAGE),
        "faiss flat fp32": lambda: flat.search(turn.vector, PAGE),
        "native, 64": lambda: engine.top(native, [PAGE] * 64),
        "next query": turn,
    }
    times = interleave(calls, rounds=40, seconds=seconds)
    print(f"{rows} rows: native {times['native'].ms(0.5):.2f} ms", flush=True)
    return {"rows": rows, "scan": engine.scan} | {
        name: one.summary(64 if "64" in name else 1) for name, one in times.items() if name != "next query"
    }


def plot(path: Path, tables: dict[str, Any], growth: Sequence[dict[str, Any]]) -> None:
    """Draw batch 1 and the growth curve beside the result file."""
    try:
        import matplotlib as mpl  # noqa: PLC0415
    except ImportError:
        print("no plot: pip install matplotlib")
        return
    mpl.use("agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415

    figure, axes = plt.subplots(1, 2, figsize=(12, 4.5), layout="constrained")
    bars = {n: t["p50_ms"] for n, t in tables["batch 1"].items() if not n.startswith(("read", "stage"))}
    axes[0].barh(
        list(bars)[::-1],
        list(bars.values())[::-1],
        color=["#4a78a8" if "faiss" in n else "#c8553d" for n in list(bars)[::-1]],
    )
    axes[0].set_xlabel("ms a query, batch 1, median")
    for name in ("native", "joint", "faiss flat fp32") if growth else ():
        axes[1].loglog(
            [g["rows"] for g in growth], [g[name]["p50_ms"] for g in growth], marker="o", label=name
        )
    axes[1].set_xlabel("images")
    axes[1].set_ylabel(f"ms a query, batch 1, top {PAGE}, median")
    if growth:
        axes[1].legend()
    figure.savefig(path.with_suffix(".png"), dpi=120)
    plt.close(figure)


class _Turn:
    """A query for everyone in a round, another one in the next: caches of the last one's rows help nobody."""

    def __init__(self, native: Sequence[JointQuery], joint: Sequence[JointQuery]) -> None:
        self._native, self._joint, self._at = native, joint, 0
        self()

    def __call__(self) -> None:
        self._at = (self._at + 1) % len(self._native)
        self.native, self.joint = self._native[self._at], self._joint[self._at]
        self.vector = self.native.native[None]


def _ratio(name: str, times: dict[str, Times], one: str, other: str) -> Metric:
    value, low, high = ratio(times[one], times[other])
    return Metric(name, value, "ratio", low, high, len(times[one].seconds))


def _open(given: argparse.Namespace) -> Any:
    if given.index is None:
        return synthetic_index(given.rows, given.dim, given.k, seed=SEED)
    from indexer.store import open_index  # noqa: PLC0415

    return open_index(given.index)


if __name__ == "__main__":
    main()
