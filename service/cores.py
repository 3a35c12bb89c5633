"""All cores for one query: compiled loops and numpy's own let other threads run meanwhile."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any, TypeVar

T = TypeVar("T")

CORES = os.cpu_count() or 1
_POOL = ThreadPoolExecutor(max(1, CORES - 1), thread_name_prefix="core")


def each(call: Callable[..., T], jobs: Sequence[tuple[Any, ...]]) -> list[T]:
    """Call with the arguments of each job, on all cores where there are several."""
    made: dict[int, T] = {}
    waiting = iter(range(len(jobs)))

    def work() -> None:
        for n in waiting:
            made[n] = call(*jobs[n])

    # Who asks works too: that saves waking a thread, which costs as much as a short job.
    helpers = [_POOL.submit(work) for _ in range(min(CORES, len(jobs)) - 1)]
    try:
        work()
    finally:
        for helper in helpers:
            if not helper.cancel():  # those that no thread was free for have nothing left to do
                helper.result()
    return [made[n] for n in range(len(jobs))]


def split(count: int) -> list[tuple[int, int]]:
    """Rows from and to for each core, none without rows."""
    edges = [count * core // CORES for core in range(CORES + 1)]
    return [(start, end) for start, end in pairwise(edges) if start < end]
