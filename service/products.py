"""Products of rows of eight bits with queries of sixteen, exact, a tile of rows and queries at a time.

Every number that a tile loads serves several products, which is what many queries at once are bounded by. LLVM turns
sums of products of sixteen bits into one instruction for sixteen of them, but not where a factor is used twice; so the
innermost loop is given to it in the form that it makes of such a sum. What that becomes is up to the CPU; the integers
are the same on every one.

Axes: B queries, N rows, R rows of a block, W components, of which there are whole steps.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexer.compiled import compiled
from service.canonical import Doubles, Floats, Rows

Codes = NDArray[np.int8]
Wide = NDArray[np.int16]
Sums = NDArray[np.int32]

STEP = 16
"""Components taken at a time; rows and queries are padded with zeros to whole steps."""
BLOCK = 256
"""Rows that all queries score while they are in the cache."""
SPARE = 1
"""Rows that a tile may read beyond the last, whatever they hold."""
_ROWS, _QUERIES = 2, 4
"""Of a tile: its sums fill one vector of half a step, and all that it holds fits the registers of any CPU."""
_AT_A_TIME = 32
_LINE = 64
"""Bytes of a cache line."""

Tile = Callable[[Codes, int, Wide, int, Sums], None]


def _make_tile() -> Tile:
    """Make a function of (codes (N, W), first row, queries (B, W), first query, sums), all C-contiguous.

    It writes to ``sums`` (_ROWS * _QUERIES,) int32 the products of each row of a tile with its queries, row by row.
    """
    try:
        from llvmlite import ir  # noqa: PLC0415
        from numba.core import cgutils, types  # noqa: PLC0415
        from numba.extending import intrinsic  # noqa: PLC0415
    except ImportError:

        def plain(codes: Codes, row: int, wide: Wide, query: int, sums: Sums) -> None:
            some, others = codes[row : row + _ROWS].astype(np.int32), wide[query : query + _QUERIES]
            sums[:] = (some @ others.astype(np.int32).T).ravel()

        return plain

    whole, half = ir.VectorType(ir.IntType(32), STEP), ir.VectorType(ir.IntType(32), STEP // 2)

    def generate(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        codes, wide, sums = (
            context.make_array(kind)(context, builder, value)
            for kind, value in zip(signature.args[::2], given[::2], strict=True)
        )
        width = builder.extract_value(codes.shape, 1)
        start = context.get_constant(types.intp, 0)

        def loaded(array: Any, at: Any, number: int, place: Any) -> Any:
            """A step of one row, each number in 32 bits."""
            line = builder.add(at, context.get_constant(types.intp, number))
            pointer = builder.gep(array.data, [builder.add(builder.mul(line, width), place)])
            kind = ir.VectorType(array.data.type.pointee, STEP)
            return builder.sext(
                builder.load(builder.bitcast(pointer, kind.as_pointer()), align=1, typ=kind), whole
            )

        zero = ir.Constant(half, [0] * (STEP // 2))
        totals = [cgutils.alloca_once_value(builder, zero) for _ in range(_ROWS * _QUERIES)]
        even, odd = (
            ir.Constant(ir.VectorType(ir.IntType(32), STEP // 2), list(range(side, STEP, 2)))
            for side in (0, 1)
        )
        step = context.get_constant(types.intp, STEP)
        with cgutils.for_range_slice(builder, start, width, step) as (place, _):
            others = [loaded(wide, given[3], number, place) for number in range(_QUERIES)]
            for row in range(_ROWS):
                some = loaded(codes, given[1], row, place)
                for query, other in enumerate(others):
                    product = builder.mul(some, other)
                    pairs = builder.add(
                        builder.shuffle_vector(product, product, even),
                        builder.shuffle_vector(product, product, odd),
                    )
                    total = totals[row * _QUERIES + query]
                    builder.store(builder.add(builder.load(total), pairs), total)
        left = [builder.load(total) for total in totals]
        while len(left) > 1:  # neighbours are added, of two vectors at a time: in the end one holds all sums
            left = [
                builder.add(builder.shuffle_vector(a, b, even), builder.shuffle_vector(a, b, odd))
                for a, b in zip(left[::2], left[1::2], strict=True)
            ]
        builder.store(left[0], builder.bitcast(sums.data, half.as_pointer()), align=4)
        return context.get_dummy_value()

    @intrinsic  # type: ignore[untyped-decorator]
    def tile(typing: Any, codes: Any, row: Any, wide: Any, query: Any, sums: Any) -> Any:
        return types.void(codes, types.intp, wide, types.intp, sums), generate

    made: Tile = tile
    return made


_tile = _make_tile()


def stacked(queries: list[Wide], width: int) -> Wide:
    """Queries (D,) as :func:`score` wants them, (B and some zeros, W)."""
    made = np.zeros((-(-len(queries) // _QUERIES) * _QUERIES, width), np.int16)
    for line, query in zip(made, queries, strict=False):
        line[: len(query)] = query
    return made


@compiled
def whole_product(codes: Codes, query: Wide) -> int:
    """Inner product of whole numbers (D,) that adds up within 32 bits."""
    total = np.int32(0)
    for j in range(len(query)):
        # Kept to 32 bits at each step, the loop becomes one instruction for sixteen products.
        total = np.int32(total + np.int32(np.int32(codes[j]) * np.int32(query[j])))
    return int(total)


@compiled
def score_block(
    codes: Codes, scale: Floats, queries: Wide, steps: Doubles, first: int, last: int, out: Floats
) -> None:
    """Score up to a block of rows for all queries: ``step * scale * <codes, query>``.

    Parameters
    ----------
    codes : (N + SPARE, W) int8
    scale : (N,) float32
    queries : (B and some zeros, W) int16
    steps : (B,) float64
    first, last : int
        Which rows.
    out : (B, R) float32
        Written to.
    """
    count = len(steps)
    sums = np.empty(_ROWS * _QUERIES, np.int32)
    if count > 1:
        # A tile asks for little at a time; this asks for the block as fast as the memory gives it.
        touched = np.int32(0)
        for n in range(first, last):
            for j in range(0, codes.shape[1], _LINE):
                touched ^= np.int32(codes[n, j])
        sums[0] = touched
    for b in range(0, count, _QUERIES):
        if b == count - 1:
            for n in range(first, last):
                out[b, n - first] = np.float32(steps[b] * scale[n] * whole_product(codes[n], queries[b]))
        else:
            for n in range(first, last, _ROWS):
                _tile(codes, n, queries, b, sums)
                for i in range(min(_ROWS, last - n)):
                    for c in range(min(_QUERIES, count - b)):
                        value = steps[b + c] * scale[n + i] * sums[i * _QUERIES + c]
                        out[b + c, n + i - first] = np.float32(value)


@compiled
def score(
    codes: Codes, scale: Floats, queries: Wide, steps: Doubles, first: int, last: int, out: Floats
) -> None:
    """:func:`score_block` for any number of rows; ``out`` (B, N) is written to from ``first`` to ``last``."""
    for start in range(first, last, BLOCK):
        end = min(start + BLOCK, last)
        score_block(codes, scale, queries, steps, start, end, out[:, start:end])


@compiled
def keep(
    native: tuple[Codes, Floats, Floats, Wide, Doubles, Floats],
    moments: tuple[Codes, Floats, Floats, Wide, Doubles, Floats],
    of: Rows,
    floors: Floats,
    first: int,
    last: int,
    kept: Floats,
    rows: Rows,
    scores: Floats,
    held: Rows,
) -> int:
    """Score rows for all queries and keep those that may reach the floor of a query.

    Parameters
    ----------
    native, moments : (codes, scale, residual, queries, steps, norms)
        As in :func:`score_block`, with residuals (N,) of the rows and norms (B,) and (S,) of the queries: a true score
        is at most ``norm * residual`` above the one that codes give.
    of : (B,) int64
        Which of the S queries of ``moments`` belongs to a query, -1 for none.
    floors : (B,) float32
    first, last : int
        Which rows.
    kept : (S, N) float32, or (0, 0)
        Written to: native scores of queries that have moments.
    rows, scores : (B, M) int64, (B, M) float32
        Written to, from ``held`` on.
    held : (B,) int64
        Added to.

    Returns
    -------
    next : int
        The first row not looked at: less than ``last`` where there was no room for another block.
    """
    codes, scale, residual, queries, steps, norms = native
    other_codes, other_scale, other_residual, other_queries, other_steps, other_norms = moments
    count = len(steps)
    own = np.empty((count, BLOCK), np.float32)
    others = np.empty((len(other_steps), BLOCK), np.float32)
    none = np.float32(0.0)
    for start in range(first, last, BLOCK):
        if held.max() + BLOCK > rows.shape[1]:
            return start
        end = min(start + BLOCK, last)
        score_block(codes, scale, queries, steps, start, end, own)
        score_block(other_codes, other_scale, other_queries, other_steps, start, end, others)
        for b in range(count):
            line, s, other_norm = own[b, : end - start], of[b], none
            if s >= 0:
                if len(kept):
                    kept[s, start:end] = line
                for i in range(len(line)):
                    line[i] += others[s, i]
                other_norm = other_norms[s]
            held[b] = _append(
                line, residual[start:end], norms[b], other_residual[start:end], other_norm,
                floors[b], start, rows[b], scores[b], held[b],
            )  # fmt: skip
    return last


@compiled
def _append(
    line: Floats,
    residual: Floats,
    norm: np.float32,
    other_residual: Floats,
    other_norm: np.float32,
    floor: np.float32,
    first: int,
    rows: Rows,
    scores: Floats,
    at: int,
) -> int:
    """Append the rows from ``first`` on that may reach a floor, with their scores; return where the next would go."""
    for start in range(0, len(line), _AT_A_TIME):
        # Hardly any row reaches: a count of several at once costs less than a look at each.
        part = slice(start, min(start + _AT_A_TIME, len(line)))
        some, one, other, reaching = line[part], residual[part], other_residual[part], np.int32(0)
        for i in range(len(some)):
            reaching += np.int32(some[i] + (one[i] * norm + other[i] * other_norm) >= floor)
        if reaching:
            for i in range(len(some)):
                if some[i] + (one[i] * norm + other[i] * other_norm) >= floor:
                    rows[at], scores[at] = first + start + i, some[i]
                    at += 1
    return at
