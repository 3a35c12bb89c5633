"""Which of a few dozen rows may reach a floor, as the bits of one number: a comparison of whole registers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]

TOGETHER = 32
"""Rows that are compared at a time, bit 0 being the first of them."""

Reaching = Callable[[Floats, Floats, Floats, int, np.float32, np.float32, np.float32], int]


def _make() -> tuple[Reaching, Callable[[int], int]]:
    try:
        from llvmlite import ir  # noqa: PLC0415
        from numba.core import types  # noqa: PLC0415
        from numba.extending import intrinsic  # noqa: PLC0415
    except ImportError:

        def plain(
            scores: Floats,
            residual: Floats,
            other: Floats,
            at: int,
            norm: np.float32,
            other_norm: np.float32,
            floor: np.float32,
        ) -> int:
            part = slice(at, at + TOGETHER)
            reached = scores[part] + (residual[part] * norm + other[part] * other_norm) >= floor
            return sum(1 << bit for bit in np.flatnonzero(reached).tolist())

        return plain, lambda bits: (bits & -bits).bit_length() - 1

    whole, wide = ir.IntType(64), ir.VectorType(ir.FloatType(), TOGETHER)
    some = ir.VectorType(ir.IntType(32), TOGETHER)

    def generate(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        def loaded(number: int) -> Any:
            array = context.make_array(signature.args[number])(context, builder, given[number])
            pointer = builder.gep(array.data, [given[3]])
            return builder.load(builder.bitcast(pointer, wide.as_pointer()), align=4, typ=wide)

        def all_of(number: int) -> Any:
            first = builder.insert_element(ir.Constant(wide, ir.Undefined), given[number], whole(0))
            return builder.shuffle_vector(first, first, ir.Constant(some, [0] * TOGETHER))

        slack = builder.fadd(builder.fmul(loaded(1), all_of(4)), builder.fmul(loaded(2), all_of(5)))
        reached = builder.fcmp_ordered(">=", builder.fadd(loaded(0), slack), all_of(6))
        return builder.zext(builder.bitcast(reached, ir.IntType(TOGETHER)), whole)

    @intrinsic  # type: ignore[untyped-decorator]
    def reaching(
        typing: Any, scores: Any, residual: Any, other: Any, at: Any, norm: Any, other_norm: Any, floor: Any
    ) -> Any:
        single = types.float32
        return types.int64(scores, residual, other, types.intp, single, single, single), generate

    @intrinsic  # type: ignore[untyped-decorator]
    def lowest(typing: Any, bits: Any) -> Any:
        return types.int64(types.int64), lambda _context, builder, _signature, given: builder.cttz(
            given[0], ir.IntType(1)(1)
        )

    return reaching, lowest


reaching, lowest = _make()
"""``reaching(scores, residual, other, at, norm, other_norm, floor)``, in compiled functions: of the 32 rows from ``at``
on, which have ``scores + (residual * norm + other * other_norm) >= floor``, all in float32. ``lowest(bits)``: the place
of the lowest bit of a number that has one.
"""
