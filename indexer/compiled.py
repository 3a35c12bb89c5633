"""Loops for which numpy would take several passes, compiled by numba the first time they run.

What is compiled is kept beside the source, or in the user's cache where that cannot be written, so that only the first
process ever waits for it. Sums of floating-point numbers keep the order in which they are written, so that results are
the same on every CPU.

Without numba the loops run in the interpreter, with the same results and a thousand times as slow. That is for
``benchmarks.latency_device`` alone, whose machine may have no more than torch and numpy.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

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


def checked_rows(rows: ArrayLike, count: int) -> NDArray[np.int64]:
    """Rows (R,) for a compiled function, which does not look whether they are there.

    Raises
    ------
    IndexError
        One is not among 0 to ``count - 1``.
    """
    numbers = np.asarray(rows, dtype=np.int64)
    if len(numbers) and not 0 <= numbers.min() <= numbers.max() < count:
        raise IndexError(f"rows {numbers.min()} to {numbers.max()}: allowed are 0 to {count - 1}")
    return numbers


LINE = 64
"""Bytes of a cache line."""


def emit_prefetch(builder: Any, data: Any, at: Any, *, soon: bool = True) -> None:
    """Give LLVM a prefetch, to read, of what lies so many bytes behind a pointer.

    What is not wanted soon goes no nearer than the second cache, where more of it has room.
    """
    from llvmlite import ir  # noqa: PLC0415

    byte, word = ir.IntType(8).as_pointer(), ir.IntType(32)
    kind = ir.FunctionType(ir.VoidType(), [byte, word, word, word])
    ask = builder.module.declare_intrinsic("llvm.prefetch", [byte], kind)
    to_read, locality, not_code = word(0), word(3 if soon else 2), word(1)
    builder.call(ask, [builder.gep(builder.bitcast(data, byte), [at]), to_read, locality, not_code])


def _make_ask_for() -> Callable[[NDArray[Any], int, int], None]:
    try:
        from numba.core import types  # noqa: PLC0415
        from numba.extending import intrinsic  # noqa: PLC0415
    except ImportError:
        return lambda _rows, _row, _at: None

    def generate(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        rows = context.make_array(signature.args[0])(context, builder, given[0])
        start = builder.mul(builder.extract_value(rows.strides, 0), given[1])
        emit_prefetch(builder, rows.data, builder.add(start, given[2]))
        return context.get_dummy_value()

    @intrinsic  # type: ignore[untyped-decorator]
    def ask_for(typing: Any, rows: Any, row: Any, at: Any) -> Any:
        return types.void(rows, types.intp, types.intp), generate

    made: Callable[[NDArray[Any], int, int], None] = ask_for
    return made


ask_for = _make_ask_for()
"""``ask_for(rows, n, at)``, in compiled functions: ask the memory for the line of row n of ``rows`` that holds its byte
``at``, which nothing waits for and which may lie beyond the end.

Where many rows are looked at, each for a moment only, the memory's latency is what costs, and the CPU's own prefetching
does not know which row is next.
"""


@compiled
def prefetch(rows: NDArray[Any], row: int) -> None:
    """:func:`ask_for` a whole row of ``rows`` (N, ...), whose rows lie one after the other."""
    for at in range(0, rows.strides[0], LINE):
        ask_for(rows, row, at)
