"""Inner products in float64 whose order of summation is written down, so that every CPU gives the same bits.

Component j goes to lane ``j mod 64``, from the first to the last, and the lanes are then added half to half. Products
of float32 values are exact in float64, so that it does not matter whether a CPU rounds them before it adds them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexer.compiled import LINE, emit_prefetch

LANES = 64
"""Enough for the widest registers that CPUs have."""

Dot = Callable[[NDArray[np.float32], NDArray[np.float64], NDArray[np.float32]], float]


def _make_dot() -> Dot:
    try:
        from llvmlite import ir  # noqa: PLC0415
        from numba.core import cgutils, types  # noqa: PLC0415
        from numba.extending import intrinsic  # noqa: PLC0415
    except ImportError:

        def plain(row: NDArray[np.float32], query: NDArray[np.float64], _next: NDArray[np.float32]) -> float:
            lanes = np.zeros(LANES)
            for products in (row.astype(np.float64) * query).reshape(-1, LANES):
                lanes += products
            while len(lanes) > 1:
                lanes = lanes[: len(lanes) // 2] + lanes[len(lanes) // 2 :]
            return float(lanes[0])

        return plain

    wide, single = ir.VectorType(ir.DoubleType(), LANES), ir.VectorType(ir.FloatType(), LANES)

    def generate(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        row, query, following = (
            context.make_array(kind)(context, builder, value)
            for kind, value in zip(signature.args, given, strict=True)
        )
        width = builder.extract_value(query.shape, 0)
        start, step = (context.get_constant(types.intp, number) for number in (0, LANES))
        sums = cgutils.alloca_once_value(builder, ir.Constant(wide, [0.0] * LANES))

        def loaded(array: Any, at: Any, kind: Any) -> Any:
            pointer = builder.bitcast(builder.gep(array.data, [at]), kind.as_pointer())
            return builder.load(pointer, align=1, typ=kind)

        with cgutils.for_range_slice(builder, start, width, step) as (at, _):
            for line in range(0, LANES * 4, LINE):
                place = builder.add(
                    builder.mul(at, context.get_constant(types.intp, 4)),
                    context.get_constant(types.intp, line),
                )
                emit_prefetch(builder, following.data, place)
            some = builder.fpext(loaded(row, at, single), wide)
            product = builder.fmul(some, loaded(query, at, wide), flags=("contract",))
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
    def dot(typing: Any, row: Any, query: Any, following: Any) -> Any:
        return types.float64(row, query, following), generate

    made: Dot = dot
    return made


dot = _make_dot()
"""``dot(row, query, following)``, in compiled functions: of (D,) float32 with (D,) float64, D being whole lanes.

Meanwhile the memory is asked for a following row, bit by bit: more at once than a core can wait for would hold it up.
"""
