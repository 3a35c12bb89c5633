"""The scan on a device: exactness against the CPU, and the time of a batch. Needs torch and numpy alone.

    python -m benchmarks.latency_device [--device cuda|cpu] [--quick] [--json FILE]

Ten minutes at most at 118,287 and 1,000,000 vectors of 512 dimensions. ``--device cpu`` runs the same code on the CPU,
which is how it is tested where there is no GPU.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.plain_scan import PlainScan
from benchmarks.record import Metric, parser, write_result
from benchmarks.synthetic import random_queries, synthetic_index
from benchmarks.timing import Times, clean_environment
from service.cuda import HalfQueries, TorchScan
from service.engine import Engine

TOP = 1000
PAGE = 10
BATCHES = (1, 8, 64)
SIZES = (118_287, 1_000_000)
MINUTES = 8.0
"""No size is begun after this; the larger one takes about two."""


def main() -> None:
    """Measure on the command line's device."""
    options = parser(__doc__ or "")
    options.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    options.add_argument("--dim", type=int, default=512)
    options.add_argument("--k", type=int, default=64)
    given = options.parse_args()
    clean_environment()
    run(given.device, quick=given.quick, path=given.json, dim=given.dim, k=given.k)


def run(device: str, *, quick: bool, path: Path | None, dim: int, k: int) -> None:
    """Measure and write."""
    if device == "cuda" and not torch.cuda.is_available():
        raise SystemExit(
            "torch sees no CUDA device; --device cpu of benchmarks.latency_device runs the same on the CPU"
        )
    begin = time.perf_counter()
    metrics: list[Metric] = []
    tables: dict[str, Any] = {}
    sizes = (20_000,) if quick else SIZES
    for rows in sizes:
        if time.perf_counter() - begin > MINUTES * 60:
            print(f"no time left for {rows} rows")
            break
        found, table = one_size(device, rows, dim, k, rounds=5 if quick or device == "cpu" else 50)
        metrics += found
        tables[str(rows)] = table
        print(f"{rows} rows done after {time.perf_counter() - begin:.0f} s", flush=True)
    named = torch.cuda.get_device_name() if device == "cuda" else "cpu"
    write_result(
        "latency_device",
        metrics,
        encoder=None,
        seed=0,
        device=named,
        path=path,
        extra={"dim": dim, "k": k, "tables": tables},
    )


def one_size(device: str, rows: int, dim: int, k: int, *, rounds: int) -> tuple[list[Metric], dict[str, Any]]:
    """Exactness, times and bandwidth at one size."""
    index: Any = synthetic_index(rows, dim, k)
    engine = Engine(index, scan=PlainScan(index))
    # As many as the largest batch: products of another shape may be made by another kernel.
    queries = [*random_queries(index, 32, joint=False), *random_queries(index, 32, joint=True)]
    expected = engine.top(queries, [TOP] * 64)
    page = [top.rows[:PAGE] for top in expected]
    ranks = engine.native_ranks(queries, page)
    scan = TorchScan(index, device)
    engine = Engine(index, scan=scan)
    alone = [engine.top([query], [TOP])[0] for query in queries]
    right = [
        np.array_equal(a.rows, b.rows)
        and np.array_equal(a.rows, c.rows)
        and all(
            getattr(a.scores, part).tobytes() == getattr(d.scores, part).tobytes()
            for part in ("total", "native", "spatial")
            for d in (b, c)
        )
        and np.array_equal(r, s)
        for a, b, c, r, s in zip(
            expected,
            engine.top(queries, [TOP] * 64),
            alone,
            ranks,
            engine.native_ranks(queries, page),
            strict=True,
        )
    ]
    metrics = [Metric(f"exact_top1000_{rows}", sum(right) / len(right), "share", n=len(right))]
    read = best_read(device, rows * dim * 2, rounds)
    metrics.append(Metric(f"memory_read_gb_per_s_{rows}", read / 1e9, "GB/s"))
    table: dict[str, Any] = {}
    for joint in (False, True):
        kind = "joint" if joint else "native"
        for batch in BATCHES:
            many = random_queries(index, batch, joint=joint, seed=batch)
            calls: dict[str, Callable[[], object]] = {
                "scores": lambda many=many: scan.scores(HalfQueries.of(many, dim + 2 * k)),  # type: ignore[misc]
                "top 10": lambda many=many: engine.top(many, [PAGE] * len(many)),  # type: ignore[misc]
                "top 1000": lambda many=many: engine.top(many, [TOP] * len(many)),  # type: ignore[misc]
                "ranks of 10": lambda many=many: engine.native_ranks(many, page[: len(many)]),  # type: ignore[misc]
            }
            times = {name: timed(device, call, rounds) for name, call in calls.items()}
            name = f"{kind} batch {batch}"
            bytes_read = rows * (dim + (2 * k if joint else 0)) * 2
            table[name] = {key: value.summary(batch) for key, value in times.items()} | {
                "bytes": bytes_read,
                "bandwidth_share": round(bytes_read / times["scores"].best / read, 3),
            }
            print(name, {key: f"{value.ms(0.5):.3f} ms" for key, value in times.items()}, flush=True)
            if joint and batch in (1, 64):
                metrics.append(
                    Metric(f"joint_b{batch}_bandwidth_share_{rows}", table[name]["bandwidth_share"], "share")
                )
            if joint and batch == 64:
                metrics += [
                    Metric(f"joint_b64_{key.replace(' ', '')}_ms_{rows}", value.ms(0.5), "ms", n=rounds)
                    for key, value in times.items()
                ]
    return metrics, table


def best_read(device: str, size: int, rounds: int) -> float:
    """Bytes a second that a plain reduction reads."""
    buffer = torch.ones(size // 4, device=device)
    return size / timed(device, buffer.sum, rounds).best


def timed(device: str, call: Callable[[], object], rounds: int) -> Times:
    """Time calls until the device is done with them."""
    wait: Callable[[], object] = torch.cuda.synchronize if device == "cuda" else (lambda: None)
    taken = []
    for number in range(rounds + 2):
        wait()
        begin = time.perf_counter()
        call()
        wait()
        if number >= 2:
            taken.append(time.perf_counter() - begin)
    return Times(tuple(taken))


if __name__ == "__main__":
    main()
