import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexer.moments import patch_centres, spatial_moments


def tokens(height: int, width: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((height, width, 5)).astype(np.float32) + 3.0


@pytest.mark.parametrize(("height", "width"), [(1, 1), (1, 7), (2, 3), (12, 12), (7, 5), (24, 24)])
def test_equals_the_slow_sum(height: int, width: int) -> None:
    grid = tokens(height, width).astype(np.float64)
    slow_x, slow_y = np.zeros(5), np.zeros(5)
    for row in range(height):
        for column in range(width):
            slow_x += ((column + 0.5) / width - 0.5) * grid[row, column] / (height * width)
            slow_y += ((row + 0.5) / height - 0.5) * grid[row, column] / (height * width)
    moments = spatial_moments(grid.astype(np.float32))
    assert moments.dtype == np.float32
    np.testing.assert_allclose(moments, [slow_x, slow_y], atol=2e-6)


@given(st.integers(1, 9), st.integers(1, 9), st.integers(0, 1000))
def test_mirroring_is_exact_to_the_last_bit(height: int, width: int, seed: int) -> None:
    grid = tokens(height, width, seed)
    here = spatial_moments(grid)
    flip_x, flip_y = spatial_moments(grid[:, ::-1]), spatial_moments(grid[::-1])
    assert np.array_equal(flip_x[0], -here[0])
    assert np.array_equal(flip_x[1], here[1])
    assert np.array_equal(flip_y[0], here[0])
    assert np.array_equal(flip_y[1], -here[1])


def test_a_quarter_turn_swaps_the_axes() -> None:
    grid = tokens(6, 6)
    here, turned = spatial_moments(grid), spatial_moments(np.rot90(grid, axes=(0, 1)))
    np.testing.assert_allclose(turned, [here[1], -here[0]], atol=1e-6)


def test_what_every_patch_shares_cancels() -> None:
    grid = tokens(4, 6)
    np.testing.assert_allclose(spatial_moments(grid + 100.0), spatial_moments(grid), atol=1e-4)


def test_a_batch_has_the_bits_of_one_by_one() -> None:
    batch = np.stack([tokens(5, 4, seed) for seed in range(7)])
    assert np.array_equal(spatial_moments(batch), np.stack([spatial_moments(one) for one in batch]))


def test_signs_follow_the_axes() -> None:
    grid = np.zeros((4, 4, 1), np.float32)
    grid[3, 0] = 1.0  # bottom left
    m_x, m_y = spatial_moments(grid)[:, 0]
    assert m_x < 0 < m_y


def test_centres_sum_to_zero_and_stay_inside() -> None:
    for n in (1, 2, 7, 12):
        x, y = patch_centres(n, n)
        assert x.sum() == pytest.approx(0, abs=1e-6)
        assert np.array_equal(x, y)
        assert np.abs(x).max() < 0.5
