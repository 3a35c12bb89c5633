"""Scores of rows of eight bits for queries of sixteen, exact, and of which rows they are worth a closer look.

Axes: B queries, N rows, R rows of a block, W components, of which there are whole steps (:data:`indexer.tiles.STEP`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from indexer.compiled import compiled, prefetch
from indexer.tiles import (
    GROUPS,
    LANES,
    MANY,
    MANY_ROWS,
    Codes,
    Sums,
    Wide,
    interleaved,
    make_tile,
    make_tile_of_many,
)
from service.canonical import Doubles, Floats, Rows

BLOCK = 128
"""Rows that all queries score while they are in the cache."""
SPARE = 7
"""Rows that a tile may read beyond the last, whatever they hold."""
FINER = 254.0
"""Steps of a finer code in one of a code: what the first leaves is at most half a step, 127 of the second."""
_AHEAD = 4
"""Rows between those that are multiplied and those that the memory is asked for."""
_AT_A_TIME = 32

_QUERIES = 4
_ROWS = LANES // _QUERIES
_LONE_ROWS = 8
_FILLED = 3 * MANY // 4
"""Queries that are worth a tile of many."""
_tile, _lone_tile, _tile_of_many = make_tile(_ROWS, _QUERIES), make_tile(_LONE_ROWS, 1), make_tile_of_many()


def stacked(queries: Sequence[Wide], width: int) -> tuple[Wide, Wide]:
    """Queries (D,) as :func:`score` wants them.

    Returns
    -------
    queries : (B and some zeros, W) int16
    interleaved : int16
        The first of them, as many as go into tiles of many: see :func:`indexer.tiles.interleaved`.
    """
    many = (len(queries) + MANY - _FILLED) // MANY * MANY
    whole = max(many, -(-len(queries) // _QUERIES) * _QUERIES)
    made = np.zeros((whole, width), np.int16)
    for line, query in zip(made, queries, strict=False):
        line[: len(query)] = query
    return made, interleaved(made[:many])


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
    codes: Codes,
    scale: Floats,
    queries: Wide,
    many: Wide,
    steps: Doubles,
    first: int,
    last: int,
    out: Floats,
) -> None:
    """Score up to a block of rows for all queries: ``step * scale * <codes, query>``.

    Parameters
    ----------
    codes : (N + SPARE, W) int8
    scale : (N,) float32
    queries, many : int16
        From :func:`stacked`.
    steps : (B,) float64
    first, last : int
        Which rows.
    out : (B, R) float32
        Written to.
    """
    count, rows = len(steps), last - first
    found = np.empty((len(queries), BLOCK + SPARE), np.int32)
    if len(many):
        _products_of_many(codes, many, first, rows, found)
    some, lone = np.empty((_QUERIES, _ROWS), np.int32), np.empty((1, _LONE_ROWS), np.int32)
    for b in range(len(many) * LANES, count, _QUERIES):
        if b == count - 1:
            for n in range(0, rows, _LONE_ROWS):
                for i in range(_LONE_ROWS):
                    if b == 0:
                        prefetch(codes, first + n + i + _AHEAD)
                _lone_tile(codes, first + n, queries, b, lone)
                found[b : b + 1, n : n + _LONE_ROWS] = lone
        else:
            for n in range(0, rows, _ROWS):
                for i in range(_ROWS):
                    if b == 0:
                        prefetch(codes, first + n + i + _AHEAD)
                _tile(codes, first + n, queries, b, some)
                found[b : b + _QUERIES, n : n + _ROWS] = some
    for b in range(count):
        line, numbers, step = out[b], found[b], steps[b]
        for n in range(rows):
            line[n] = np.float32(step * scale[first + n] * numbers[n])


@compiled
def _products_of_many(codes: Codes, many: Wide, first: int, rows: int, found: Sums) -> None:
    """Write the products of the first queries with some rows to (B, R)."""
    width = codes.shape[1]
    wide, sums = np.empty((BLOCK + SPARE, width), np.int16), np.empty((MANY, MANY_ROWS), np.int32)
    for n in range(-(-rows // MANY_ROWS) * MANY_ROWS):
        prefetch(codes, first + n + _AHEAD)
        for j in range(width):
            wide[n, j] = codes[first + n, j]
    for group in range(0, len(many), GROUPS):
        for n in range(0, rows, MANY_ROWS):
            _tile_of_many(wide, n, many, group, sums)
            found[group * LANES : (group + GROUPS) * LANES, n : n + MANY_ROWS] = sums


@compiled
def score(
    codes: Codes,
    scale: Floats,
    queries: Wide,
    many: Wide,
    steps: Doubles,
    first: int,
    last: int,
    out: Floats,
) -> None:
    """:func:`score_block` for any number of rows; ``out`` (B, N) is written to from ``first`` to ``last``."""
    for start in range(first, last, BLOCK):
        end = min(start + BLOCK, last)
        score_block(codes, scale, queries, many, steps, start, end, out[:, start:end])


Side = tuple[Codes, Floats, Floats, Codes, Wide, Wide, Doubles, Floats]
"""Rows of one kind and the queries against them: (codes, scale, residual, finer, queries, many, steps, norms).

As in :func:`score_block`, with residuals (N,) of the rows and norms (B,) of the queries: a true score is at most
``norm * residual`` above the one that codes give. Finer codes (N, W) int8 of what those leave, in steps of
``1 / FINER``, bring it nearer; (0, W) where nothing is left.
"""


@compiled
def keep(
    native: Side,
    moments: Side,
    of: Rows,
    floors: Floats,
    first: int,
    last: int,
    kept: Floats,
    rows: Rows,
    scores: Floats,
    held: Rows,
) -> int:
    """Score rows for all queries and keep those that may reach the floor of a query, with their finer scores.

    Parameters
    ----------
    native, moments : Side
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
    codes, scale, residual, finer, queries, many, steps, norms = native
    other_codes, other_scale, other_residual, _, other_queries, other_many, other_steps, other_norms = moments
    count = len(steps)
    own = np.empty((count, BLOCK), np.float32)
    others = np.empty((len(other_steps), BLOCK), np.float32)
    fresh = held.copy()
    none = np.float32(0.0)
    start = first
    while start < last and held.max() + BLOCK <= rows.shape[1]:
        end = min(start + BLOCK, last)
        score_block(codes, scale, queries, many, steps, start, end, own)
        score_block(other_codes, other_scale, other_queries, other_many, other_steps, start, end, others)
        for b in range(count):
            line, s, other_norm = own[b, : end - start], of[b], none
            if s >= 0:
                if len(kept):
                    kept[s, start:end] = line
                for i in range(len(line)):
                    line[i] += others[s, i]
                other_norm = other_norms[s]
            # Those of the block before: what has been asked for since then is there by now.
            if held[b] > fresh[b]:
                fresh[b] = _refine(native, moments, b, s, floors[b], rows[b], scores[b], fresh[b], held[b])
            held[b] = _append(
                line, residual[start:end], norms[b], other_residual[start:end], other_norm,
                floors[b], start, finer, rows[b], scores[b], fresh[b],
            )  # fmt: skip
        start = end
    for b in range(count):
        held[b] = _refine(native, moments, b, of[b], floors[b], rows[b], scores[b], fresh[b], held[b])
    return start


@compiled
def _append(
    line: Floats,
    residual: Floats,
    norm: np.float32,
    other_residual: Floats,
    other_norm: np.float32,
    floor: np.float32,
    first: int,
    finer: Codes,
    rows: Rows,
    scores: Floats,
    at: int,
) -> int:
    """Append the rows from ``first`` on that may reach a floor, with their scores; return where the next would go."""
    begin = at
    for start in range(0, len(line), _AT_A_TIME):
        # Hardly any row reaches: a count of several at once costs less than a look at each.
        part = slice(start, min(start + _AT_A_TIME, len(line)))
        some, one, other, reaching = line[part], residual[part], other_residual[part], np.int32(0)
        for i in range(len(some)):
            reaching += np.int32(some[i] + (one[i] * norm + other[i] * other_norm) >= floor)
        if reaching:
            for i in range(len(some)):  # without a branch, which would often be guessed wrong
                rows[at], scores[at] = first + start + i, some[i]
                at += int(some[i] + (one[i] * norm + other[i] * other_norm) >= floor)
    if len(finer):
        for i in range(begin, at):
            prefetch(finer, rows[i])
    return at


@compiled
def _refine(
    native: Side,
    moments: Side,
    query: int,
    other_query: int,
    floor: np.float32,
    rows: Rows,
    scores: Floats,
    start: int,
    end: int,
) -> int:
    """Look closer at rows from ``start`` to ``end``, keep what reaches a floor; return where that ends."""
    _, scale, _, finer, queries, _, steps, _ = native
    _, other_scale, _, other_finer, other_queries, _, other_steps, _ = moments
    at = start
    for i in range(start, end):
        n, score = rows[i], np.float64(scores[i])
        if len(finer):
            score += steps[query] / FINER * scale[n] * whole_product(finer[n], queries[query])
        if other_query >= 0 and len(other_finer):
            product = whole_product(other_finer[n], other_queries[other_query])
            score += other_steps[other_query] / FINER * other_scale[n] * product
        if np.float32(score) >= floor:
            rows[at], scores[at] = n, np.float32(score)
            at += 1
    return at
