"""What a client of the running server waits for: 1, 8 and 32 of them, in another process than the server.

    python -m benchmarks.http [--quick] [--json FILE] [--index DIR] [--rows N] [--no-grid]

Starts ``beside serve`` on an index (by default random vectors in the shape of the built-in encoder's, 118,287 of them),
asks queries whose texts it remembers and queries it has never seen, and watches ``/livez`` all the while. Overhead is
what a client waits beyond what the server itself counts for encoding and scoring.
"""

from __future__ import annotations

import http.client
import itertools
import json
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from benchmarks.record import Metric, parser, write_result
from benchmarks.synthetic_folder import write_synthetic
from benchmarks.timing import clean_environment

CLIENTS = (1, 8, 32)
QUERIES = (
    "a cup to the left of a laptop",
    "a kite above a person",
    "a dog on the left",
    "two dogs play on the beach",
    "a red bus in the rain",
    "a bicycle to the right of a car",
    "people at a long table",
    "a bird above a boat and a tree on the right",
)


def main() -> None:
    """Measure and write."""
    options = parser(__doc__ or "")
    options.add_argument("--index", type=Path, help="a real index instead")
    options.add_argument("--rows", type=int, default=118_287)
    options.add_argument(
        "--no-grid", action="store_true", help="a synthetic index without grids: no second stage"
    )
    given = options.parse_args()
    clean_environment()
    with tempfile.TemporaryDirectory() as scratch:
        folder = given.index or write_synthetic(Path(scratch) / "index", given.rows, grid=not given.no_grid)
        with served(folder) as (host, port):
            metrics, tables = measure(host, port, seconds=4.0 if given.quick else 15.0)
    write_result(
        "http",
        metrics,
        encoder="compact",
        seed=0,
        path=given.json,
        extra={"rows": given.rows, "tables": tables},
    )


def measure(host: str, port: int, *, seconds: float) -> tuple[list[Metric], dict[str, Any]]:
    """All loads, one after another."""
    tables: dict[str, Any] = {}
    metrics: list[Metric] = []
    for query in QUERIES:
        ask(http.client.HTTPConnection(host, port, timeout=60), query)
    for clients in CLIENTS:
        seen, alive = load(host, port, clients, seconds, fresh=False)
        table = summary(seen, alive)
        tables[f"{clients} clients"] = table
        print(f"{clients} clients", table, flush=True)
        tail = table["p99_ms"] / table["p50_ms"]
        metrics += [
            Metric(f"cached_p50_ms_c{clients}", table["p50_ms"], "ms", n=table["n"]),
            Metric(f"cached_p99_over_p50_c{clients}", tail, "ratio", n=table["n"]),
            Metric(f"errors_c{clients}", table["errors"], "count", n=table["n"]),
            Metric(f"livez_max_ms_c{clients}", table["livez_max_ms"], "ms"),
        ]
        if clients == 1:
            metrics += [
                Metric("overhead_p50_ms", table["overhead_p50_ms"], "ms", n=table["n"]),
                Metric("native_cached_p50_ms", table["native_p50_ms"], "ms"),
                Metric("spatial_cached_p50_ms", table["spatial_p50_ms"], "ms"),
            ]
    seen, alive = load(host, port, 1, seconds, fresh=True)
    tables["1 client, new texts"] = summary(seen, alive)
    metrics.append(Metric("new_text_p50_ms", tables["1 client, new texts"]["p50_ms"], "ms"))
    return metrics, tables


def load(
    host: str, port: int, clients: int, seconds: float, *, fresh: bool
) -> tuple[list[tuple[float, dict[str, Any] | None]], list[float]]:
    """Ask from a number of connections, and ask whether the server lives from one more."""
    seen: list[tuple[float, dict[str, Any] | None]] = []
    alive: list[float] = []
    end = time.perf_counter() + seconds
    numbers = itertools.count()

    def client(first: int) -> None:
        connection = http.client.HTTPConnection(host, port, timeout=60)
        for at in itertools.count(first):
            if time.perf_counter() > end:
                return
            query = QUERIES[at % len(QUERIES)]
            begin = time.perf_counter()
            answer = ask(connection, f"{query} {next(numbers)}" if fresh else query)
            seen.append((time.perf_counter() - begin, answer))

    def watch() -> None:
        connection = http.client.HTTPConnection(host, port, timeout=60)
        while time.perf_counter() < end:
            begin = time.perf_counter()
            connection.request("GET", "/livez")
            connection.getresponse().read()
            alive.append(time.perf_counter() - begin)
            time.sleep(0.05)

    threads = [threading.Thread(target=client, args=(n,)) for n in range(clients)]
    threads.append(threading.Thread(target=watch))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return seen, alive


def ask(connection: http.client.HTTPConnection, query: str) -> dict[str, Any] | None:
    """One search; None where the answer is an error."""
    try:
        connection.request("GET", f"/v1/search?q={quote(query)}&k=10")
        response = connection.getresponse()
        body = response.read()
    except (OSError, http.client.HTTPException):
        connection.close()
        return None
    if response.status != 200:
        return None
    answer: dict[str, Any] = json.loads(body)
    return answer


def summary(seen: list[tuple[float, dict[str, Any] | None]], alive: list[float]) -> dict[str, Any]:
    """Milliseconds, overhead, errors."""
    answered = [(1000 * seconds, answer) for seconds, answer in seen if answer is not None]
    waited = np.array([ms for ms, _ in answered])
    stages: dict[str, list[float]] = {}
    overhead, by_mode = [], {"native": [0.0], "spatial": [0.0]}
    for ms, answer in answered:
        took = answer["took_ms"]
        for stage, value in took.items():
            stages.setdefault(stage, []).append(value)
        scored = sum(took.get(stage, 0.0) for stage in ("encode", "scan", "rerank", "native_rank"))
        overhead.append(ms - scored)
        by_mode[answer["mode"]].append(ms)
    return {
        "n": len(seen),
        "errors": len(seen) - len(answered),
        **{f"p{q}_ms": round(float(np.percentile(waited, q)), 3) for q in (50, 95, 99)},
        "overhead_p50_ms": round(float(np.median(overhead)), 3),
        "stages_p50_ms": {stage: round(float(np.median(values)), 3) for stage, values in stages.items()},
        **{
            f"{mode}_p50_ms": round(float(np.median(values[1:] or values)), 3)
            for mode, values in by_mode.items()
        },
        "livez_p50_ms": round(float(np.median(alive)) * 1000, 3),
        "livez_max_ms": round(max(alive) * 1000, 3),
    }


@contextmanager
def served(folder: Path) -> Iterator[tuple[str, int]]:
    """The real server in a process of its own."""
    process = subprocess.Popen(
        [sys.executable, "-m", "service.cli", "serve", str(folder), "--port", "0", "--device", "cpu"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout is not None
    address, told = None, []
    try:
        for line in process.stdout:
            told.append(line)
            if match := re.search(r"http://([\d.]+):(\d+)", line):
                address = match[1], int(match[2])
            if line.startswith("Ready"):
                break
        else:
            raise SystemExit(f"the server did not start:\n{''.join(told)}")
        assert address is not None
        threading.Thread(target=process.stdout.read, daemon=True).start()
        yield address
    finally:
        process.terminate()
        process.wait(20)


if __name__ == "__main__":
    main()
