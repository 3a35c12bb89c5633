"""Loops for which numpy would take several passes, compiled by numba the first time they run.

What is compiled is kept beside the source, or in the user's cache where that cannot be written, so that only the first
process ever waits for it. Nothing here may reorder floating-point sums: results are the same on every CPU.

Without numba the loops run in the interpreter, with the same results and a thousand times as slow. That is for
``benchmarks.latency_device`` alone, whose machine may have no more than torch and numpy.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar

try:
    from numba import njit
except ImportError:
    njit = None

P = ParamSpec("P")
T = TypeVar("T")


def compiled(function: Callable[P, T]) -> Callable[P, T]:
    """Compile a function of arrays and numbers; it runs without the interpreter's lock.

    Parameters
    ----------
    function : callable
        In the part of Python that numba knows. It must not leave the bounds of its arrays: nobody checks.
    """
    if njit is None:
        return function
    try:
        return _compiled(function, keep=True)
    except RuntimeError:  # neither folder can be written: compiled anew in each process
        return _compiled(function, keep=False)


def _compiled(function: Callable[P, T], *, keep: bool) -> Callable[P, T]:
    made: Callable[P, T] = njit(cache=keep, nogil=True, error_model="numpy")(function)
    return made
