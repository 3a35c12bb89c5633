"""Timing on a machine that others use too: interleaved rounds, medians and minima, ratios within one run.

Needs numpy alone.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from service.cores import CORES, each

Call = Callable[[], object]


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds of one call, round by round.

    Attributes
    ----------
    seconds : tuple of float
        In the order of the rounds, so that two calls of one run can be compared round by round.
    """

    seconds: tuple[float, ...]

    @property
    def best(self) -> float:
        """The fastest round: what the call costs where nobody else takes the machine."""
        return min(self.seconds)

    def ms(self, quantile: float) -> float:
        """A quantile in milliseconds."""
        return float(np.quantile(self.seconds, quantile)) * 1000

    def summary(self, queries: int = 1) -> dict[str, float | int]:
        """What goes into a result file."""
        return {
            "best_ms": round(self.best * 1000, 4),
            "p50_ms": round(self.ms(0.5), 4),
            "p95_ms": round(self.ms(0.95), 4),
            "p99_ms": round(self.ms(0.99), 4),
            "queries_per_s": round(queries / float(np.median(self.seconds)), 1),
            "n": len(self.seconds),
        }


def interleave(calls: Mapping[str, Call], *, rounds: int, seconds: float = 1e9) -> dict[str, Times]:
    """Time calls in turns, so that whatever disturbs one disturbs all.

    Parameters
    ----------
    rounds : int
        Of all calls, after one to warm up.
    seconds : float
        Stop after the round in which so much time has passed; three rounds at least.
    """
    taken: dict[str, list[float]] = {name: [] for name in calls}
    for call in calls.values():
        call()
    begin = time.perf_counter()
    for done in range(rounds):
        if done >= 3 and time.perf_counter() - begin > seconds:
            break
        for name, call in calls.items():
            start = time.perf_counter()
            call()
            taken[name].append(time.perf_counter() - start)
    return {name: Times(tuple(values)) for name, values in taken.items()}


def ratio(one: Times, other: Times, *, seed: int = 0) -> tuple[float, float, float]:
    """How much of the other's time one takes: median over the rounds, with its 95 % bootstrap interval.

    Notes
    -----
    Within a round both ran on the same busy machine, so their quotient varies less than either.
    """
    quotients = np.array(one.seconds) / np.array(other.seconds)
    draws = np.random.default_rng(seed).integers(0, len(quotients), (2000, len(quotients)))
    low, high = np.quantile(np.median(quotients[draws], axis=1), [0.025, 0.975])
    return float(np.median(quotients)), float(low), float(high)


def readers(buffer: NDArray[np.uint8]) -> dict[str, Call]:
    """Ways to read a buffer once with all cores and do next to nothing else; the fastest is the memory's speed."""
    words = buffer[: len(buffer) // 64 * 64].view(np.int64)
    parts = [(part,) for part in np.array_split(words, CORES)]
    calls: dict[str, Call] = {
        "read: numpy, all cores": lambda: each(np.max, parts),
        "read: numpy, one core": words.max,
    }
    torch = sys.modules.get("torch")
    if torch is not None:
        tensor = torch.from_numpy(words)
        calls["read: torch, all cores"] = tensor.max
    return calls


def clean_environment() -> None:
    """Start this process again as the command line sets itself up, without variables that hold a baseline back.

    Waits do not spin, and numpy's BLAS has one thread, as for everything the command line starts. FAISS brings another
    one, which heeds ``OMP_NUM_THREADS`` and is left all cores. ``OPENBLAS_CORETYPE`` and its like choose a kernel for
    another CPU.
    """
    held_back = ("OPENBLAS_", "OMP_", "MKL_")
    wanted = {k: v for k, v in os.environ.items() if not k.startswith(held_back)}
    wanted |= {"OMP_WAIT_POLICY": "PASSIVE", "OPENBLAS_NUM_THREADS": "1"}
    if wanted != dict(os.environ):
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], wanted)


def kernels() -> list[dict[str, object]]:
    """Which BLAS kernels run, as far as threadpoolctl is installed to tell."""
    try:
        from threadpoolctl import threadpool_info  # noqa: PLC0415
    except ImportError:
        return []
    keep = ("internal_api", "version", "architecture", "num_threads")
    return [{k: v for k, v in one.items() if k in keep} for one in threadpool_info()]
