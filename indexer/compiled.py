"""Loops for which numpy would take several passes, compiled by numba the first time they run.

What is compiled is kept beside the source, or in the user's cache where that cannot be written, so that only the first
process ever waits for it. Sums of floating-point numbers keep the order in which they are written, so that results are
the same on every CPU.

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
    return _compiled(function, fastmath=False)


def compiled_sums(function: Callable[P, T]) -> Callable[P, T]:
    """:func:`compiled`, for sums and maxima of whole numbers that float64 holds: those may be taken in any order."""
    return _compiled(function, fastmath={"reassoc", "nnan", "nsz"})


def _compiled(function: Callable[P, T], *, fastmath: bool | set[str]) -> Callable[P, T]:
    if njit is None:
        return function
    made: Callable[P, T]
    try:
        made = njit(cache=True, nogil=True, error_model="numpy", fastmath=fastmath)(function)
    except RuntimeError:  # neither folder can be written: compiled anew in each process
        made = njit(cache=False, nogil=True, error_model="numpy", fastmath=fastmath)(function)
    return made
