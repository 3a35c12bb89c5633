from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from indexer.grid import GridSketcher, fit_grid, grid_arrays, pool_tokens, read_grid

DIM = 24
RNG = np.random.default_rng(4)
GRIDS = RNG.standard_normal((40, 8, 9, DIM)).astype(np.float32)
TOKENS = GRIDS.reshape(-1, DIM)
WORDS = TOKENS[:9]


def cells(side: int = 4) -> np.ndarray:
    return np.stack([pool_tokens(grid, side) for grid in GRIDS])


@pytest.fixture(params=[(4, 10), (4, 7), (8, 10), (4, 99)], ids=lambda p: f"{p[0]}bit-k{p[1]}")
def sketcher(request) -> GridSketcher:
    bits, k = request.param
    return fit_grid(TOKENS, cells(), WORDS, k=k, side=4, bits=bits)


def test_pooling_is_the_average_over_areas() -> None:
    pooled = pool_tokens(GRIDS[0], 4).reshape(4, 4, DIM)
    unit = GRIDS[0] / np.linalg.norm(GRIDS[0], axis=-1, keepdims=True)
    fine = np.repeat(np.repeat(unit, 9, axis=0), 8, axis=1)  # 72 x 72, which 4 divides
    expected = fine.reshape(4, 18, 4, 18, DIM).mean(axis=(1, 3))
    assert np.allclose(pooled, expected, atol=1e-6)


def test_a_coarse_grid_is_stretched() -> None:
    assert np.allclose(pool_tokens(GRIDS[0, :1, :1], 3), pool_tokens(GRIDS[0, :1, :1], 1))


def test_packing_loses_nothing(sketcher) -> None:
    packed = sketcher.encode(cells())
    assert packed.shape == (40, sketcher.row_bytes)
    codes = sketcher.codes(packed)
    expected = (cells() @ sketcher.components.T - sketcher.centre) / sketcher.scale
    assert np.array_equal(codes, np.clip(np.rint(expected), -sketcher.limit, sketcher.limit))
    assert np.abs(codes).max() <= sketcher.limit


def test_similarities_are_whole_exact_and_near_the_truth(sketcher) -> None:
    words = RNG.standard_normal((3, DIM)).astype(np.float32)
    packed, query = sketcher.encode(cells()), sketcher.query(words)
    maps = sketcher.similarities(packed, query)
    assert maps.shape == (40, 3, 16)
    slow = np.einsum("npk,kw->nwp", sketcher.codes(packed).astype(np.int64), query.integers.astype(np.int64))
    assert np.array_equal(maps, slow)
    assert np.abs(slow).max() < 1 << 24
    decoded = sketcher.codes(packed) * sketcher.scale + sketcher.centre
    truth = np.einsum("npk,wk->nwp", decoded, words @ sketcher.components.T)
    assert np.allclose(maps * query.unit[:, None] + query.offset[:, None], truth, atol=2e-3)


@pytest.mark.parametrize("row", [-1, 40])
def test_a_picture_that_is_not_there_is_refused(sketcher, row) -> None:
    with pytest.raises(IndexError, match=f"{row}.*0 to 39"):
        sketcher.similarities(sketcher.encode(cells()), sketcher.query(WORDS), np.array([3, row]))


def test_alone_is_as_in_a_batch(sketcher) -> None:
    packed = sketcher.encode(cells())
    query = sketcher.query(RNG.standard_normal((2, DIM)).astype(np.float32))
    together = sketcher.similarities(packed, query)
    for n in range(len(packed)):
        assert together[n].tobytes() == sketcher.similarities(packed[n : n + 1], query)[0].tobytes()


def test_the_opposite_word_has_the_opposite_integers(sketcher) -> None:
    words = RNG.standard_normal((2, DIM)).astype(np.float32)
    assert np.array_equal(sketcher.query(words).integers, -sketcher.query(-words).integers)


def test_more_components_keep_more() -> None:
    words = RNG.standard_normal((8, DIM)).astype(np.float32)
    truth = np.einsum("npd,wd->nwp", cells(), words)
    errors = []
    for k in (4, 12, 24):
        sketcher = fit_grid(TOKENS, cells(), WORDS, k=k, side=4, bits=8)
        query = sketcher.query(words)
        maps = sketcher.similarities(sketcher.encode(cells()), query)
        errors.append(np.abs(maps * query.unit[:, None] + query.offset[:, None] - truth).mean())
    assert errors[0] > errors[1] > errors[2]


def test_a_flat_collection_is_stored_as_zeros() -> None:
    flat = np.ones((3, 16, DIM), np.float32)
    sketcher = fit_grid(flat.reshape(-1, DIM), flat, WORDS, k=4, side=4)
    assert not sketcher.codes(sketcher.encode(flat)).any()


def test_arrays_read_back(sketcher) -> None:
    again = read_grid(grid_arrays(sketcher))
    assert again is not None
    assert again.encode(cells()).tobytes() == sketcher.encode(cells()).tobytes()
    assert read_grid(grid_arrays(None)) is None


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("k", [5, 32])
def test_maps_are_whole_products_of_codes_and_words(sketcher, k, bits) -> None:
    rng = np.random.default_rng(5)
    components = np.linalg.qr(rng.standard_normal((40, 40)))[0][:k].astype(np.float32)
    other = replace(
        sketcher,
        components=components,
        centre=np.zeros(k, np.float32),
        scale=np.ones(k, np.float32),
        bits=bits,
    )
    packed = rng.integers(0, 256, (150, other.row_bytes)).astype(np.uint8)
    if k % 2:  # what fills an odd number up is a zero
        packed = other.encode(rng.standard_normal((150, other.side**2, 40)).astype(np.float32))
    query = other.query(rng.standard_normal((3, 40)).astype(np.float32))
    products = np.einsum("npk,kw->nwp", other.codes(packed).astype(float), query.integers)
    assert np.array_equal(other.similarities(packed, query), products)
    some = np.array([149, 3, 3])
    assert np.array_equal(other.similarities(packed, query, some), products[some])
