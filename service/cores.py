"""All cores for one query: compiled loops and numpy's own let other threads run meanwhile."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any, TypeVar

T = TypeVar("T")

CORES = os.cpu_count() or 1
_TURNS = 4
_POOL = ThreadPoolExecutor(CORES, thread_name_prefix="core")


def each(call: Callable[..., T], jobs: Sequence[tuple[Any, ...]]) -> list[T]:
    """Call with the arguments of each job, on all cores where there are several.

    Not from within such a call: it would wait for a thread that waits for it.
    """
    if len(jobs) < 2:
        return [call(*job) for job in jobs]
    # A thread costs as much as a short job does: several jobs go to one, but not so many that one core is left waiting.
    size = max(1, len(jobs) // (_TURNS * CORES))
    parts = [jobs[start : start + size] for start in range(0, len(jobs), size)]
    return [made for part in _POOL.map(lambda part: [call(*job) for job in part], parts) for made in part]


def split(count: int) -> list[tuple[int, int]]:
    """Rows from and to for each core, none without rows."""
    edges = [count * core // CORES for core in range(CORES + 1)]
    return [(start, end) for start, end in pairwise(edges) if start < end]
