"""The scan on a device: exactness against the CPU, and the time of a batch. Needs torch and numpy alone.

    python -m benchmarks.latency_device [--device cuda|cpu] [--quick] [--json FILE]

Ten minutes at most at 118,287 and 1,000,000 vectors of 512 dimensions. ``--device cpu`` runs the same code on the CPU,
which is how it is tested where there is no GPU.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.record import Metric, parser, write_result
from benchmarks.synthetic import random_queries, synthetic_index
from benchmarks.timing import Times, clean_environment
from service.cuda import TorchScan
from service.engine import Engine, ScanKind
from service.scan import JointQuery

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
    engine = Engine(index, "cpu", scan=ScanKind.FLOAT32)
    on_cpu = engine._scan
    queries = [*random_queries(index, 4, joint=False), *random_queries(index, 4, joint=True)]
    expected = engine.top(queries, [TOP] * 8)
    ranks = engine.native_ranks(queries, [t.rows for t in expected])
    del on_cpu
    engine._scan = scan = TorchScan(index, device)
    came = engine.top(queries, [TOP] * 8)
    came_ranks = engine.native_ranks(queries, [t.rows for t in expected])
    right = [
        np.array_equal(a.rows, b.rows)
        and a.scores.total.tobytes() == b.scores.total.tobytes()
        and np.array_equal(r, s)
        for a, b, r, s in zip(expected, came, ranks, came_ranks, strict=True)
    ]
    metrics = [Metric(f"exact_top1000_{rows}", sum(right) / len(right), "share", n=len(right))]
    read = best_read(device, rows * dim * 4, rounds)
    metrics.append(Metric(f"memory_read_gb_per_s_{rows}", read / 1e9, "GB/s"))
    table: dict[str, Any] = {}
    for joint in (False, True):
        kind = "joint" if joint else "native"
        for batch in BATCHES:
            many = random_queries(index, batch, joint=joint, seed=batch)
            scoring = timed(device, lambda many=many: scores_alone(scan, many), rounds)  # type: ignore[misc]
            whole = timed(device, lambda many=many: engine.top(many, [PAGE] * len(many)), rounds)  # type: ignore[misc]
            scanned = timed(device, lambda many=many: scan.superset(many, [PAGE] * len(many)), rounds)  # type: ignore[misc]
            name = f"{kind} batch {batch}"
            bytes_read = rows * (dim + (2 * k if joint else 0)) * 4
            table[name] = {
                "scores": scoring.summary(batch),
                "scan": scanned.summary(batch),
                "top 10": whole.summary(batch),
                "bytes": bytes_read,
                "bandwidth_share": round(bytes_read / scoring.best / read, 3),
            }
            print(
                name, {key: value for key, value in table[name]["scores"].items() if key != "n"}, flush=True
            )
            if batch == 64 and joint:
                metrics.append(Metric(f"joint_b64_scores_ms_{rows}", scoring.ms(0.5), "ms", n=rounds))
                metrics.append(Metric(f"joint_b64_scan_ms_{rows}", scanned.ms(0.5), "ms", n=rounds))
    return metrics, table


def scores_alone(scan: TorchScan, queries: Sequence[JointQuery]) -> None:
    """The matrix products of a scan and nothing after them."""
    for _ in scan._scored(queries):
        pass


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
