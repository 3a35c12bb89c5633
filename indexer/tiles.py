"""Products of a few rows of eight bits with a few queries of sixteen at a time, exact.

Every number that a tile loads serves several products, which is what many queries at once are bounded by. LLVM turns
sums of products of sixteen bits into one instruction for a whole register, but not where a factor is used twice; so the
innermost loops are given to it in the form that it makes of such a sum. What that becomes is up to the CPU; the
integers are the same on every one.

Axes: B queries, N rows, W components, of which there are whole steps.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexer.compiled import LINE, emit_prefetch

Codes = NDArray[np.int8]
Wide = NDArray[np.int16]
Sums = NDArray[np.int32]

try:
    from llvmlite import binding, ir
    from numba.core import cgutils, types
    from numba.extending import intrinsic
except ImportError:
    intrinsic = None


def _lanes() -> int:
    """Numbers of 32 bits that a register of this CPU holds."""
    wide = intrinsic is not None and binding.get_host_cpu_features().get("avx512bw")
    return 16 if wide else 8


LANES = _lanes()
STEP = 32
"""Rows and queries are padded with zeros to whole steps of so many components."""

GROUPS = 2
"""Of :data:`LANES` queries in a tile of many."""
MANY = GROUPS * LANES
MANY_ROWS = LANES // GROUPS
"""Of such a tile: its sums take half of the registers."""

Tile = Callable[[Codes, int, Wide, int, Sums], None]
TileOfMany = Callable[[Wide, int, Wide, int, Sums], None]


def interleaved(queries: Wide) -> Wide:
    """Queries (B, W) as a tile of many reads them, by pairs of components.

    Returns
    -------
    interleaved : (B / LANES, W * LANES) int16
        B being whole :data:`MANY`.
    """
    pairs = queries.reshape(-1, LANES, queries.shape[1] // 2, 2).transpose(0, 2, 1, 3)
    return np.ascontiguousarray(pairs).reshape(-1, queries.shape[1] * LANES)


def make_tile(rows: int, queries: int, *, nibbles: bool = False, ahead: int = 0) -> Tile:
    """Make a function of (codes (N, W or less), first row, queries (B, W), first query, sums), all C-contiguous.

    It writes to ``sums`` (queries, rows) int32 the products of some queries with some rows, one query with eight or as
    many in all as there are :data:`LANES`. Of shorter rows, what comes after them is multiplied too, with what should
    be zeros of the queries. With ``nibbles`` the rows have W / 2 bytes or less: the first half of the queries is for
    their low nibbles, which count from 0 to 15, the second for the high ones. With ``ahead`` it asks the memory, line
    by line as it goes, for as many rows that lie so many behind its own: asked for all at once, they would hold it up.
    """
    if intrinsic is None:

        def plain(codes: Codes, row: int, wide: Wide, query: int, sums: Sums) -> None:
            some = codes[row : row + rows]
            parts = (some & 15, some.view(np.uint8) >> 4) if nibbles else (some,)
            others = np.split(wide[query : query + queries].astype(np.int32), len(parts), axis=1)
            width = codes.shape[1]
            sums[:] = sum(
                other[:, :width] @ part.T.astype(np.int32) for part, other in zip(parts, others, strict=True)
            )

        return plain

    def generate(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        codes, wide, sums = (
            context.make_array(signature.args[n])(context, builder, given[n]) for n in (0, 2, 4)
        )
        width = builder.extract_value(wide.shape, 1)
        halves = [_whole(0)]
        if nibbles:
            width = builder.lshr(width, _whole(1))
            halves.append(width)

        def loaded(array: Any, at: Any, number: int, place: Any) -> Any:
            line = builder.mul(builder.add(at, _whole(number)), builder.extract_value(array.shape, 1))
            return _load(builder, array, builder.add(line, place))

        def parts(some: Any) -> list[Any]:
            if not nibbles:
                return [_widened(builder, some)]
            fifteen, four = (ir.Constant(some.type, [number] * some.type.count) for number in (15, 4))
            whole = ir.VectorType(ir.IntType(32), some.type.count)
            return [
                builder.zext(part, whole) for part in (builder.and_(some, fifteen), builder.lshr(some, four))
            ]

        def ask(array: Any, at: Any, place: Any) -> None:
            steps = LINE // (2 * LANES)  # to a line: each asks for a line of some of the rows
            turn = builder.urem(builder.udiv(place, _whole(2 * LANES)), _whole(steps))
            for number in range(0, rows, steps):
                row = builder.add(builder.add(at, _whole(number)), turn)
                line = builder.mul(row, builder.extract_value(array.shape, 1))
                emit_prefetch(builder, array.data, builder.add(line, place), soon=False)

        totals = _zeros(builder, queries * rows)
        with cgutils.for_range_slice(builder, _whole(0), width, _whole(2 * LANES)) as (place, _):
            others = [
                [
                    _widened(builder, loaded(wide, given[3], number, builder.add(half, place)))
                    for half in halves
                ]
                for number in range(queries)
            ]
            if ahead:
                ask(codes, builder.add(given[1], _whole(ahead)), place)
            for row in range(rows):
                some = parts(loaded(codes, given[1], row, place))
                for total, other in zip(totals[row::rows], others, strict=True):
                    for one, factor in zip(some, other, strict=True):
                        _add_products(builder, one, factor, total)
        left, lanes = [builder.load(total) for total in totals], LANES
        while lanes > rows * queries:
            lanes //= 2
            left = [
                builder.add(*(builder.shuffle_vector(a, a, _order(at, at + lanes)) for at in (0, lanes)))
                for a in left
            ]
        while len(left) > 1:  # in the end one vector holds all sums
            left = [_neighbours(builder, a, b, 2 * lanes) for a, b in zip(left[::2], left[1::2], strict=True)]
        builder.store(left[0], builder.bitcast(sums.data, left[0].type.as_pointer()), align=4)
        return context.get_dummy_value()

    @intrinsic  # type: ignore[untyped-decorator]
    def tile(typing: Any, codes: Any, row: Any, wide: Any, query: Any, sums: Any) -> Any:
        return types.void(codes, types.intp, wide, types.intp, sums), generate

    made: Tile = tile
    return made


def make_tile_of_many() -> TileOfMany:
    """Make a function of (rows (N, W), first row, interleaved queries, first group, sums), all C-contiguous.

    It writes to ``sums`` (MANY, MANY_ROWS) int32 the products of many queries with a few rows. Each lane of a register
    belongs to one query, so that nothing has to be added up across lanes in the end.
    """
    if intrinsic is None:

        def plain(wide: Wide, row: int, queries: Wide, group: int, sums: Sums) -> None:
            some = wide[row : row + MANY_ROWS].astype(np.int32)
            pairs = queries[group : group + GROUPS].reshape(GROUPS, -1, LANES, 2).transpose(0, 2, 1, 3)
            sums[:] = pairs.reshape(MANY, -1).astype(np.int32) @ some.T

        return plain

    pair, lanes = ir.IntType(32), ir.VectorType(ir.IntType(32), LANES)

    def generate(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        wide, queries, sums = (
            context.make_array(signature.args[n])(context, builder, given[n]) for n in (0, 2, 4)
        )
        width, line = builder.extract_value(wide.shape, 1), builder.extract_value(queries.shape, 1)
        totals = _zeros(builder, MANY_ROWS * GROUPS)
        with cgutils.for_range_slice(builder, _whole(0), width, _whole(2)) as (place, _):
            others = []
            for number in range(GROUPS):
                start = builder.mul(builder.add(given[3], _whole(number)), line)
                at = builder.add(start, builder.mul(place, _whole(LANES)))
                others.append(_widened(builder, _load(builder, queries, at)))
            for row in range(MANY_ROWS):
                start = builder.mul(builder.add(given[1], _whole(row)), width)
                pointer = builder.gep(wide.data, [builder.add(start, place)])
                one = builder.load(builder.bitcast(pointer, pair.as_pointer()), align=2, typ=pair)
                first = builder.insert_element(ir.Constant(lanes, ir.Undefined), one, pair(0))
                same = builder.shuffle_vector(first, first, ir.Constant(lanes, [0] * LANES))
                some = _widened(builder, builder.bitcast(same, ir.VectorType(ir.IntType(16), 2 * LANES)))
                for number, other in enumerate(others):
                    _add_products(builder, some, other, totals[number * MANY_ROWS + row])
        for number in range(GROUPS):
            left = [builder.load(one) for one in totals[number * MANY_ROWS : (number + 1) * MANY_ROWS]]
            for _ in range(
                MANY_ROWS.bit_length() - 1
            ):  # as cards are shuffled, which turns rows into columns
                left = [
                    builder.shuffle_vector(one, other, _riffled(start))
                    for one, other in zip(left[: MANY_ROWS // 2], left[MANY_ROWS // 2 :], strict=True)
                    for start in (0, LANES // 2)
                ]
            for place, vector in enumerate(left):
                pointer = builder.gep(sums.data, [_whole((number * MANY_ROWS + place) * LANES)])
                builder.store(vector, builder.bitcast(pointer, lanes.as_pointer()), align=4)
        return context.get_dummy_value()

    @intrinsic  # type: ignore[untyped-decorator]
    def tile(typing: Any, wide: Any, row: Any, queries: Any, group: Any, sums: Any) -> Any:
        return types.void(wide, types.intp, queries, types.intp, sums), generate

    made: TileOfMany = tile
    return made


def _zeros(builder: Any, count: int) -> list[Any]:
    """Registers of sums."""
    zero = ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES)
    return [cgutils.alloca_once_value(builder, zero) for _ in range(count)]


def _load(builder: Any, array: Any, at: Any) -> Any:
    """As many components as a register holds in 16 bits."""
    kind = ir.VectorType(array.data.type.pointee, 2 * LANES)
    pointer = builder.bitcast(builder.gep(array.data, [at]), kind.as_pointer())
    return builder.load(pointer, align=1, typ=kind)


def _widened(builder: Any, vector: Any) -> Any:
    """Each number in 32 bits."""
    return builder.sext(vector, ir.VectorType(ir.IntType(32), 2 * LANES))


def _add_products(builder: Any, some: Any, others: Any, total: Any) -> None:
    """Add products of components, those of neighbours to the same lane."""
    product = builder.mul(some, others)
    pairs = _neighbours(builder, product, product, 2 * LANES)
    builder.store(builder.add(builder.load(total), pairs), total)


def _riffled(start: int) -> Any:
    """One of each of two vectors in turn, from a place on."""
    some = [start + place + side * LANES for place in range(LANES // 2) for side in (0, 1)]
    return ir.Constant(ir.VectorType(ir.IntType(32), LANES), some)


def _whole(number: int) -> Any:
    return ir.IntType(64)(number)


def _order(start: int, stop: int, by: int = 1) -> Any:
    some = list(range(start, stop, by))
    return ir.Constant(ir.VectorType(ir.IntType(32), len(some)), some)


def _neighbours(builder: Any, some: Any, others: Any, count: int) -> Any:
    """Sums of neighbours of two vectors, the first's before the other's; of the first alone where they are the same."""
    return builder.add(*(builder.shuffle_vector(some, others, _order(side, count, 2)) for side in (0, 1)))
