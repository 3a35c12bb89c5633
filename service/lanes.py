"""Inner products in float64 whose order of summation is written down, so that every CPU gives the same bits.

Component j goes to lane ``j mod 64``, from the first to the last, and the lanes are then added half to half. Products
of float32 values are exact in float64, so that it does not matter whether a CPU rounds them before it adds them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

LANES = 64
"""Enough for the widest registers that CPUs have."""

Dot = Callable[[NDArray[np.float32], int, NDArray[np.float64]], float]


def _make_dot() -> Dot:
    try:
        from llvmlite import ir  # noqa: PLC0415
        from numba.core import cgutils, types  # noqa: PLC0415
        from numba.extending import intrinsic  # noqa: PLC0415
    except ImportError:

        def plain(rows: NDArray[np.float32], row: int, query: NDArray[np.float64]) -> float:
            lanes = np.zeros(LANES)
            for products in (rows[row].astype(np.float64) * query).reshape(-1, LANES):
                lanes += products
            while len(lanes) > 1:
                lanes = lanes[: len(lanes) // 2] + lanes[len(lanes) // 2 :]
            return float(lanes[0])

        return plain

    wide, single = ir.VectorType(ir.DoubleType(), LANES), ir.VectorType(ir.FloatType(), LANES)

    def generate(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        rows, query = (context.make_array(signature.args[n])(context, builder, given[n]) for n in (0, 2))
        width = builder.extract_value(query.shape, 0)
        # The array and a number instead of a row: numba counts references to each part of an array.
        own = builder.mul(builder.extract_value(rows.strides, 0), given[1])
        start, step = (context.get_constant(types.intp, number) for number in (0, LANES))
        sums = cgutils.alloca_once_value(builder, ir.Constant(wide, [0.0] * LANES))

        def loaded(data: Any, at: Any, kind: Any) -> Any:
            pointer = builder.bitcast(builder.gep(data, [at]), kind.as_pointer())
            return builder.load(pointer, align=1, typ=kind)

        row = builder.gep(builder.bitcast(rows.data, ir.IntType(8).as_pointer()), [own])
        row = builder.bitcast(row, rows.data.type)

        with cgutils.for_range_slice(builder, start, width, step) as (at, _):
            some = builder.fpext(loaded(row, at, single), wide)
            product = builder.fmul(some, loaded(query.data, at, wide), flags=("contract",))
            builder.store(builder.fadd(builder.load(sums), product, flags=("contract",)), sums)
        left, lanes = builder.load(sums), LANES
        while lanes > 1:
            lanes //= 2
            low, high = (
                ir.Constant(ir.VectorType(ir.IntType(32), lanes), list(range(at, at + lanes)))
                for at in (0, lanes)
            )
            left = builder.fadd(
                builder.shuffle_vector(left, left, low), builder.shuffle_vector(left, left, high)
            )
        return builder.extract_element(left, ir.IntType(32)(0))

    @intrinsic  # type: ignore[untyped-decorator]
    def dot(typing: Any, rows: Any, row: Any, query: Any) -> Any:
        return types.float64(rows, types.intp, query), generate

    made: Dot = dot
    return made


dot = _make_dot()
"""``dot(rows, n, query)``, in compiled functions: of row n of (N, D) float32 with (D,) float64, D being whole lanes."""
