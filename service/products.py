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
from service.reach import TOGETHER, lowest, reaching

BLOCK = 256
"""Rows that all queries score while they are in the cache."""
SPARE = 7
"""Rows that a tile may read beyond the last, whatever they hold."""
FINER = 254.0
"""Steps of a finer code in one of a code: what the first leaves is at most half a step, 127 of the second."""
_AHEAD, _LONE_AHEAD = 4, 64
"""Rows between those that are multiplied and those that the memory is asked for; a lone query is soon done with one."""
_FIRST, _RISE = 64, 4
"""Rows seen when floors first rise, and how many times as many for the next time."""

_QUERIES = 4
_ROWS = LANES // _QUERIES
_LONE_ROWS = 4
_FILLED = 3 * MANY // 4
"""Queries that are worth a tile of many."""
_tile, _tile_of_many = make_tile(_ROWS, _QUERIES), make_tile_of_many()
_lone_tile = make_tile(_LONE_ROWS, 1, ahead=_LONE_AHEAD)


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
def whole_product(codes: Codes, row: int, query: Wide) -> int:
    """Inner product of a row of whole numbers (N, D) with others (D,) that adds up within 32 bits."""
    total = np.int32(0)
    for j in range(len(query)):
        # Kept to 32 bits at each step, the loop becomes one instruction for sixteen products.
        total = np.int32(total + np.int32(np.int32(codes[row, j]) * np.int32(query[j])))
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
    found: Sums,
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
    found : (B or more, BLOCK + SPARE) int32
        For the products; written to.
    out : (B, R) float32
        Written to.
    """
    count, rows = len(steps), last - first
    if len(many):
        _products_of_many(codes, many, first, rows, found)
    for b in range(len(many) * LANES, count, _QUERIES):
        if b == count - 1:
            for n in range(0, rows, _LONE_ROWS):
                _lone_tile(codes, first + n, queries, b, found[b, n:])
        else:
            some = np.empty((_QUERIES, _ROWS), np.int32)
            for n in range(0, rows, _ROWS):
                for i in range(_ROWS):
                    if b == 0:
                        prefetch(codes, first + n + i + _AHEAD)
                _tile(codes, first + n, queries, b, some)
                found[b : b + _QUERIES, n : n + _ROWS] = some
    for b in range(count):
        line, numbers, step, some_scales = out[b], found[b], steps[b], scale[first:last]
        for n in range(rows):
            line[n] = np.float32(step * some_scales[n] * numbers[n])


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
    found = np.empty((len(queries), BLOCK + SPARE), np.int32)
    for start in range(first, last, BLOCK):
        end = min(start + BLOCK, last)
        score_block(codes, scale, queries, many, steps, start, end, found, out[:, start:end])


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
    counts: Rows,
    floors: Floats,
    part: tuple[int, int],
    first: int,
    kept: Floats,
    rows: Rows,
    scores: Floats,
    held: Rows,
) -> int:
    """Score rows for all queries and keep those that may reach the floor of a query, with their finer scores.

    The rows looked at so far say about where the last of a ranking will be: floors rise when they have become
    :data:`_RISE` times as many. Rows are in a random order, so that the first of them are a sample of all.

    Parameters
    ----------
    native, moments : Side
    of : (B,) int64
        Which of the S queries of ``moments`` belongs to a query, -1 for none.
    counts : (B,) int64
        How many are wanted of all rows; 0 where the floor is to stay as it is.
    floors : (B,) float32
        Raised.
    part : int, int
        From and to which row.
    first : int
        Where in the part to go on.
    kept : (S, N) float32, or (0, 0)
        Written to: native scores of queries that have moments.
    rows, scores : (B, M) int64, (B, M) float32
        Written to, from ``held`` on.
    held : (B,) int64
        Changed.

    Returns
    -------
    next : int
        The first row not looked at: less than the part's last where there was no room for another block.
    """
    codes, scale, residual, finer, queries, many, steps, norms = native
    other_codes, other_scale, other_residual, _, other_queries, other_many, other_steps, other_norms = moments
    count, last = len(steps), part[1]
    own = np.empty((count, BLOCK), np.float32)
    others = np.empty((len(other_steps), BLOCK), np.float32)
    found = np.empty((max(len(queries), len(other_queries)), BLOCK + SPARE), np.int32)
    fresh = held.copy()
    none, start, rise = np.float32(0.0), first, part[0] + _FIRST
    while rise <= start:
        rise += (rise - part[0]) * (_RISE - 1)
    while start < last and held.max() + BLOCK <= rows.shape[1]:
        end = min(start + BLOCK, rise, last)
        score_block(codes, scale, queries, many, steps, start, end, found, own)
        if len(other_steps):
            score_block(
                other_codes, other_scale, other_queries, other_many, other_steps, start, end, found, others
            )
        for b in range(count):
            line, s, other_norm = own[b, : end - start], of[b], none
            if s >= 0:
                if len(kept):
                    kept[s, start:end] = line
                more, other_norm = others[s], other_norms[s]
                for i in range(len(line)):
                    line[i] += more[i]
            # Those of the block before: what has been asked for since then is there by now.
            if held[b] > fresh[b]:
                fresh[b] = _refine(native, moments, b, s, floors[b], rows[b], scores[b], fresh[b], held[b])
            held[b] = _append(
                line, residual[start:end], norms[b], other_residual[start:end], other_norm,
                floors[b], start, finer, rows[b], scores[b], fresh[b],
            )  # fmt: skip
        start = end
        if start == rise:
            seen = rise - part[0]
            for b in range(count):
                held[b] = _refine(native, moments, b, of[b], floors[b], rows[b], scores[b], fresh[b], held[b])
                if counts[b]:
                    held[b] = _raise(counts[b], seen, len(scale), floors[b:], rows[b], scores[b], held[b])
                fresh[b] = held[b]
            rise += seen * (_RISE - 1)
    for b in range(count):
        held[b] = _refine(native, moments, b, of[b], floors[b], rows[b], scores[b], fresh[b], held[b])
    return start


@compiled
def _likely_share(count: int, rows: int, total: int) -> int:
    """How many of the best ``count`` of ``total`` are among so many random ones of them, or fewer, nearly always."""
    expected = count * rows / max(1, total)
    return int(min(rows, np.ceil(expected + 5 * np.sqrt(expected) + 5)))


@compiled
def _raise(count: int, seen: int, total: int, floors: Floats, rows: Rows, scores: Floats, held: int) -> int:
    """Raise the first floor to where the last of a ranking will be, going by the rows seen; drop those below."""
    place = _likely_share(count, seen, total)
    if place > held:
        return held
    likely = np.partition(scores[:held], held - place)[held - place]
    if likely <= floors[0]:
        return held
    floors[0], at = likely, 0
    for i in range(held):
        if scores[i] >= likely:
            rows[at], scores[at] = rows[i], scores[i]
            at += 1
    return at


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
    for start in range(0, len(line), TOGETHER):
        bits = 0
        if start + TOGETHER <= len(line):
            bits = reaching(line, residual, other_residual, start, norm, other_norm, floor)
        else:
            for i in range(len(line) - start):
                n = start + i
                if line[n] + (residual[n] * norm + other_residual[n] * other_norm) >= floor:
                    bits |= 1 << i
        while bits:
            n = start + lowest(bits)
            rows[at], scores[at] = first + n, line[n]
            if len(finer):
                prefetch(finer, first + n)
            at += 1
            bits &= bits - 1
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
    at, own, step = start, queries[query], steps[query] / FINER
    for i in range(start, end):
        n, score = rows[i], np.float64(scores[i])
        if len(finer):
            score += step * scale[n] * whole_product(finer, n, own)
        if other_query >= 0 and len(other_finer):
            product = whole_product(other_finer, n, other_queries[other_query])
            score += other_steps[other_query] / FINER * other_scale[n] * product
        if np.float32(score) >= floor:
            rows[at], scores[at] = n, np.float32(score)
            at += 1
    return at
