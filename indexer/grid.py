"""A small copy of the patch grid: what a second look at the best candidates reads.

A moment says on which side a direction of the joint space has its weight; it cannot say how large a thing is or whether
it is there at all. For that the patch tokens are kept, but few and coarse: normalised, averaged to a square grid,
projected on the leading principal components and rounded to four bits.

Axes: N images, H x W patch grid, G cells down and across the sketch, P = G * G cells, D embedding, K components, W
words.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexer.compiled import LINE, ask_for, checked_rows, compiled
from indexer.sketch import pca_components
from indexer.tiles import LANES, STEP, Sums, make_tile

Floats = NDArray[np.float32]
Packed = NDArray[np.uint8]
Integers = NDArray[np.int16]

SIDE = 6
COMPONENTS = 128
BITS = 4
_REACH = 4.0
"""Largest code in standard deviations of a component: wider wastes the few steps there are, narrower cuts more."""
_TINY = 1e-12
_EXACT = 1 << 24
"""Up to here float32 holds every integer, so that a matrix product of small integers is exact in any order."""
_WORDS = 2
_CELLS = LANES // _WORDS
_AHEAD = 3
"""Grids between the one that is read and the one that the memory is asked for."""
_LARGEST = 127 * 256 + 127
"""Integer of a query, which two signed bytes or a word of 16 bits hold."""

_byte_tile, _nibble_tile = make_tile(_CELLS, _WORDS), make_tile(_CELLS, _WORDS, nibbles=True)


@dataclass(frozen=True, slots=True, eq=False)
class GridQuery:
    """Words as integers, ready for the codes of a grid.

    Attributes
    ----------
    integers : (K, W) int16
        Their inner products with codes are exact.
    unit, offset : (W,) float64
        ``unit * <codes, integers> + offset`` approximates the inner product of a cell and a word.
    """

    integers: Integers
    unit: NDArray[np.float64]
    offset: NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class GridSketcher:
    """Makes small grids of patch tokens, and reads them.

    Attributes
    ----------
    components : (K, D) float32
        Orthonormal rows.
    centre : (K,) float32
        Mean cell of the collection, projected.
    scale : (K,) float32
        Size of one step.
    vocabulary : (V, D) float32
        Text vectors of everyday nouns, from `indexer.calibrate.vocabulary`. A cell is like any noun more than like
        none; only what it has in excess of the mean noun tells words apart.
    side : int
        G.
    bits : int
        4 or 8, of one code.
    """

    components: Floats
    centre: Floats
    scale: Floats
    vocabulary: Floats
    side: int = SIDE
    bits: int = BITS

    @property
    def k(self) -> int:
        """Components kept of each cell."""
        return len(self.components)

    @property
    def row_bytes(self) -> int:
        """Bytes an image takes."""
        return int(self.side * self.side * -(-self.k * self.bits // 8))

    @property
    def limit(self) -> int:
        """Largest code."""
        return int(2 ** (self.bits - 1) - 1)

    def encode(self, cells: Floats) -> Packed:
        """Quantise and pack.

        Parameters
        ----------
        cells : (N, P, D) float32
            From :func:`pool_tokens`.

        Returns
        -------
        packed : (N, row_bytes) uint8
        """
        steps = np.rint((cells @ self.components.T - self.centre) / self.scale)
        codes = np.clip(steps, -self.limit, self.limit).astype(np.int8)
        if self.bits == 8:
            whole: Packed = codes.view(np.uint8).reshape(len(codes), -1)
            return whole
        nibbles = (codes + np.int8(8)).view(np.uint8)
        if self.k % 2:
            nibbles = np.concatenate([nibbles, np.full((*nibbles.shape[:2], 1), 8, np.uint8)], axis=-1)
        half = nibbles.shape[-1] // 2
        packed: Packed = nibbles[..., :half] | nibbles[..., half:] << 4
        return packed.reshape(len(codes), -1)

    def codes(self, packed: Packed) -> NDArray[np.int8]:
        """Unpack.

        Parameters
        ----------
        packed : (N, row_bytes) uint8

        Returns
        -------
        codes : (N, P, K) int8
        """
        rows = packed.reshape(len(packed), self.side * self.side, -1)
        if self.bits == 8:
            return rows.view(np.int8)
        nibbles = np.concatenate([rows & np.uint8(15), rows >> 4], axis=-1)[..., : self.k]
        return nibbles.view(np.int8) - np.int8(8)

    def query(self, vectors: Floats) -> GridQuery:
        """Turn joint-space directions into integers.

        Parameters
        ----------
        vectors : (W, D) float32

        Returns
        -------
        GridQuery
            The opposite vector gives the opposite integers.
        """
        projected = (self.components[:, None].astype(np.float64) * vectors).sum(axis=-1)
        stretched = projected * self.scale[:, None]
        largest = np.abs(stretched).max(axis=0) + _TINY
        # The squares of a map, too, add up to what float64 holds: its spread is then exact in any order.
        most = min(_EXACT - 1, math.isqrt((1 << 53) // self.side**2))
        reach = min(most // (self.limit * self.k), _LARGEST)
        integers = np.rint(stretched / largest * reach).astype(np.int16)
        offset = (projected * self.centre[:, None]).sum(axis=0)
        return GridQuery(integers, largest / reach, offset)

    def similarities(
        self, packed: Packed, query: GridQuery, rows: NDArray[np.int64] | None = None
    ) -> NDArray[np.float64]:
        """Similarity of every cell to every word, exact for the codes: the same bits alone and in any batch.

        Parameters
        ----------
        packed : (N, row_bytes) uint8
            May be mapped: only what is asked for is read.
        query : GridQuery
        rows : (R,) int64, optional
            Which pictures; all by default.

        Returns
        -------
        maps : (R, W, P) float64
            Whole numbers; see :class:`GridQuery` for what they stand for.

        Raises
        ------
        IndexError
            There is no such picture.
        """
        rows = checked_rows(np.arange(len(packed)) if rows is None else rows, len(packed))
        words, width = query.integers.shape[1], self.row_bytes // self.side**2
        halves = 8 // self.bits
        integers = np.zeros((words + words % _WORDS, halves, -(-width // STEP) * STEP), np.int16)
        for half in range(halves):
            some = query.integers[half * width : (half + 1) * width]
            integers[:words, half, : len(some)] = some.T
        # A nibble is a code plus eight.
        bias = 8 * integers.sum(axis=(1, 2), dtype=np.int64) * (halves - 1)
        maps = np.empty((len(rows), words, self.side**2))
        cells = np.ascontiguousarray(packed).view(np.int8).reshape(-1, width)
        grid_products(cells, rows, halves > 1, integers.reshape(len(integers), -1), bias, maps)
        return maps


@compiled
def grid_products(
    codes: NDArray[np.int8],
    rows: NDArray[np.int64],
    nibbles: bool,
    integers: Integers,
    bias: NDArray[np.int64],
    maps: NDArray[np.float64],
) -> None:
    """Inner products of words with the codes of some grids.

    Parameters
    ----------
    codes : (N * P, bytes of a cell) int8
    rows : (R,) int64
    nibbles : bool
        Whether each byte holds two codes: see :func:`indexer.tiles.make_tile`.
    integers : (W and some, K and some zeros) int16
    bias : (W and some,) int64
        Taken off.
    maps : (R, W, P) float64
        Written to.
    """
    words, cells = maps.shape[1:]
    sums, last = np.empty((_WORDS, _CELLS), np.int32), _with_room(codes, cells)
    share = _share(codes, words, cells)
    for r in range(len(rows)):
        own, first = _place(codes, last, rows[r], cells)
        ahead, asked = rows[min(r + _AHEAD, len(rows) - 1)] * cells, 0
        for w in range(0, words, _WORDS):
            for p in range(0, cells, _CELLS):
                for at in range(asked, asked + share, LINE):
                    ask_for(codes, ahead, at)
                asked += share
                if nibbles:
                    _nibble_tile(own, first + p, integers, w, sums)
                else:
                    _byte_tile(own, first + p, integers, w, sums)
                _put(sums, bias, maps[r], w, p)


@compiled
def _with_room(codes: NDArray[np.int8], cells: int) -> NDArray[np.int8]:
    """The last cells with room behind them, for a tile reads beyond those that it is asked for."""
    beyond = _CELLS + STEP
    some = min(len(codes), cells + beyond)
    last = np.zeros((some + beyond, codes.shape[1]), np.int8)
    last[:some] = codes[len(codes) - some :]
    return last


@compiled
def _place(
    codes: NDArray[np.int8], last: NDArray[np.int8], row: int, cells: int
) -> tuple[NDArray[np.int8], int]:
    """Where a grid may be read with what comes after it: an array, and its first cell there."""
    first, beyond = row * cells, _CELLS + STEP
    if first + cells + beyond <= len(codes):
        return codes, first
    return last, first - len(codes) + len(last) - beyond


@compiled
def _share(codes: NDArray[np.int8], words: int, cells: int) -> int:
    """Bytes of the next grid to ask for at each tile: more at once than a core can wait for would hold it up."""
    tiles = -(-words // _WORDS) * -(-cells // _CELLS)
    lines: int = -(-cells * codes.shape[1] // (LINE * tiles))
    return lines * LINE


@compiled
def _put(sums: Sums, bias: NDArray[np.int64], maps: NDArray[np.float64], word: int, cell: int) -> None:
    """Write what a tile found."""
    for i in range(min(_WORDS, len(maps) - word)):
        for c in range(min(_CELLS, maps.shape[1] - cell)):
            maps[word + i, cell + c] = sums[i, c] - bias[word + i]


def pool_tokens(tokens: Floats, side: int = SIDE) -> Floats:
    """Average unit tokens over a coarse square grid.

    Parameters
    ----------
    tokens : (H, W, D) float32
        Patch tokens of one picture; their length does not count.
    side : int
        G. A patch that several cells share counts in each by the part inside.

    Returns
    -------
    cells : (G * G, D) float32
        Rows from top to bottom, in each from left to right.

    Examples
    --------
    >>> pool_tokens(np.array([[[2.0], [3.0]], [[-1.0], [-4.0]]], np.float32), 1).tolist()
    [[0.0]]
    """
    tokens = np.asarray(tokens, dtype=np.float32)
    unit = tokens / (np.linalg.norm(tokens, axis=-1, keepdims=True) + np.float32(_TINY))
    height, width, dim = unit.shape
    down = _overlaps(side, height) @ unit.reshape(height, -1)
    across = _overlaps(side, width) @ down.reshape(side, width, dim)
    cells: Floats = across.reshape(side * side, dim)
    return cells


def fit_grid(
    tokens: Floats,
    cells: Floats,
    vocabulary: Floats,
    *,
    k: int = COMPONENTS,
    side: int = SIDE,
    bits: int = BITS,
) -> GridSketcher:
    """Fit components on patch tokens and steps on pooled cells, both of the collection itself.

    Parameters
    ----------
    tokens : (T, D) float32
        A sample of patch tokens, as for the moments.
    cells : (N, P, D) float32
        Of a sample of images.
    vocabulary : (V, D) float32
    k, side, bits : int
        At most D components.
    """
    components = pca_components(tokens, min(k, tokens.shape[1]))
    projected = cells.reshape(-1, cells.shape[-1]) @ components.T
    spread = projected.std(axis=0, dtype=np.float64)
    largest = 2 ** (bits - 1) - 1
    scale = np.where(spread > 0, spread * _REACH / largest, 1.0)
    return GridSketcher(
        components,
        projected.mean(axis=0, dtype=np.float64).astype(np.float32),
        scale.astype(np.float32),
        vocabulary,
        side,
        bits,
    )


def grid_arrays(grid: GridSketcher | None) -> dict[str, NDArray[Any]]:
    """A grid sketcher as named arrays, to lie beside the moments' basis; none for None."""
    if grid is None:
        return {}
    return {
        "grid_components": grid.components,
        "grid_centre": grid.centre,
        "grid_scale": grid.scale,
        "grid_vocabulary": grid.vocabulary,
        "grid_layout": np.array([grid.side, grid.bits]),
    }


def read_grid(arrays: Mapping[str, NDArray[Any]]) -> GridSketcher | None:
    """Read what :func:`grid_arrays` wrote; None where there is none."""
    if "grid_layout" not in arrays:
        return None
    side, bits = (int(value) for value in arrays["grid_layout"])
    return GridSketcher(
        arrays["grid_components"],
        arrays["grid_centre"],
        arrays["grid_scale"],
        arrays["grid_vocabulary"],
        side,
        bits,
    )


def _overlaps(cells: int, patches: int) -> Floats:
    """Share of each cell (row) that each patch (column) covers; rows sum to one."""
    edges, lines = np.arange(cells + 1) / cells, np.arange(patches + 1) / patches
    common = np.minimum(edges[1:, None], lines[1:]) - np.maximum(edges[:-1, None], lines[:-1])
    shares: Floats = (np.clip(common, 0.0, None) * cells).astype(np.float32)
    return shares
