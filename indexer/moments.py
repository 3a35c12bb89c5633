"""The spatial moments: where in the picture each direction of the joint space has its weight.

Pure functions on arrays. Axes: B images, H x W patch grid, P = H * W patches, D embedding; x runs right, y runs
down, and patch centres lie in [-0.5, 0.5] with their mean at zero.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
AnyFloats = NDArray[np.floating[Any]]


def patch_centres(height: int, width: int) -> tuple[Floats, Floats]:
    """Centres of the columns and rows of a patch grid.

    Parameters
    ----------
    height, width : int
        Patches down and across.

    Returns
    -------
    x : (W,) float32
        Columns from left to right.
    y : (H,) float32
        Rows from top to bottom.

    Examples
    --------
    >>> patch_centres(1, 4)[0].tolist()
    [-0.375, -0.125, 0.125, 0.375]
    """
    return _centres(width), _centres(height)


def spatial_moments(tokens: Floats) -> Floats:
    """First moments of the patch tokens over the grid.

    ``M_x = mean_p x_p v_p`` and ``M_y = mean_p y_p v_p``. A constant added to every token cancels, because the
    centres sum to zero.

    Parameters
    ----------
    tokens : (..., H, W, D) float32
        Patch tokens in the joint space, rows from top to bottom, columns from left to right.

    Returns
    -------
    moments : (..., 2, D) float32
        ``M_x`` then ``M_y``.

    Notes
    -----
    Opposite columns and rows are paired before anything is summed. Mirroring the grid then only swaps the operands
    of one addition and one subtraction, so ``M_x`` changes its sign and ``M_y`` keeps every bit: the mirror property
    is exact, not a matter of rounding.

    Examples
    --------
    >>> grid = np.zeros((2, 2, 1), np.float32)
    >>> grid[0, 1] = 1.0  # something at the top right
    >>> spatial_moments(grid).ravel().tolist()
    [0.0625, -0.0625]
    """
    tokens = np.ascontiguousarray(tokens, dtype=np.float32)
    height, width = tokens.shape[-3], tokens.shape[-2]
    x, y = patch_centres(height, width)
    across = paired_differences(paired_sums(tokens, -3), -2).sum(
        axis=-3
    )  # (..., W // 2, D), right minus left
    down = paired_differences(paired_sums(tokens, -2), -3).sum(axis=-2)  # (..., H // 2, D), lower minus upper
    m_x = (x[(width + 1) // 2 :, None] * across).sum(axis=-2)
    m_y = (y[(height + 1) // 2 :, None] * down).sum(axis=-2)
    return np.stack([m_x, m_y], axis=-2) * np.float32(1.0 / (height * width))


def _centres(n: int) -> Floats:
    return ((np.arange(n, dtype=np.float64) + 0.5) / n - 0.5).astype(np.float32)


def _halves(grid: AnyFloats, axis: int) -> tuple[AnyFloats, AnyFloats]:
    """Both halves along an axis, each ordered from the middle outwards; the middle of an odd count is left out."""
    grid = np.moveaxis(grid, axis, 0)
    half = len(grid) // 2
    return grid[:half][::-1], grid[len(grid) - half :]


def paired_sums(grid: AnyFloats, axis: int) -> AnyFloats:
    """Sums of mirrored partners along an axis, from the middle outwards: a mirrored grid gives the same bits."""
    near, far = _halves(grid, axis)
    total = near + far
    length = grid.shape[axis]
    if length % 2:
        total = np.concatenate([np.moveaxis(grid, axis, 0)[length // 2][None], total])
    return np.moveaxis(total, 0, axis)


def paired_differences(grid: AnyFloats, axis: int) -> AnyFloats:
    """Differences of mirrored partners along an axis, far minus near: a mirrored grid gives their opposites."""
    near, far = _halves(grid, axis)
    return np.moveaxis(far - near, 0, axis)
