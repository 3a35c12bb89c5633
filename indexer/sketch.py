"""Moments made small: a shared basis and quantisation.

Axes: N images, T sampled tokens, D embedding, K components kept an axis of the picture.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from indexer.compiled import checked_rows, compiled, prefetch

Floats = NDArray[np.float32]
Codes = NDArray[np.int8 | np.float16]

_INT8_LIMIT = 127
_HEADROOM = 1.5
"""How far beyond the largest moment of the fitting sample int8 still reaches. Later images are drawn from the same
collection but their largest value is not bounded by the sample's; half as much again costs half a bit."""

_AHEAD = 8
"""Rows between the one that is copied and the one that the memory is asked for."""


class Precision(StrEnum):
    """Number format of the sketch on disk."""

    INT8 = "int8"
    FP16 = "fp16"


@dataclass(frozen=True, slots=True, eq=False)
class Sketcher:
    """Projects moments on a basis and quantises them.

    Attributes
    ----------
    components : (K, D) float32
        Orthonormal rows, largest variance first.
    scale : (K,) float32
        Size of one int8 step a component, in units of the projected moment; ones for fp16.
    precision : Precision
        Number format of the codes.
    """

    components: Floats
    scale: Floats
    precision: Precision

    @property
    def k(self) -> int:
        """Components kept for each of the two axes of the picture."""
        return len(self.components)

    def project(self, vectors: Floats) -> Floats:
        """Coordinates of joint-space vectors in the basis.

        Parameters
        ----------
        vectors : (..., D) float32

        Returns
        -------
        coordinates : (..., K) float32
        """
        return np.asarray(vectors, dtype=np.float32) @ self.components.T

    def encode(self, moments: Floats) -> Codes:
        """Quantise moments.

        Parameters
        ----------
        moments : (N, 2, D) float32

        Returns
        -------
        codes : (N, 2, K) int8 or float16
            int8 saturates at +-127.
        """
        projected = self.project(moments) / self.scale
        if self.precision is Precision.FP16:
            return projected.astype(np.float16)
        codes: Codes = np.clip(np.rint(projected), -_INT8_LIMIT, _INT8_LIMIT).astype(np.int8)
        return codes

    def decode(self, codes: Codes) -> Floats:
        """Projected moments that codes stand for.

        Parameters
        ----------
        codes : (N, 2, K) int8 or float16

        Returns
        -------
        moments : (N, 2, K) float32
        """
        return codes.astype(np.float32) * self.scale


def fit_sketcher(
    tokens: Floats, moments: Floats, *, k: int = 64, precision: Precision = Precision.INT8
) -> Sketcher:
    """Fit the basis on patch tokens and the quantiser on moments, both of the collection itself.

    Patch tokens rather than moments, because they show the directions in which *things* differ and there are a
    hundred times as many of them; at equal size such a basis loses less.

    Parameters
    ----------
    tokens : (T, D) float32
        A sample of patch tokens.
    moments : (N, 2, D) float32
        Moments of a sample of images.
    k : int
        Components kept; at most D.
    precision : Precision
        Number format of the codes.

    Returns
    -------
    Sketcher
        Deterministic: the same sample gives the same bits on the same machine.
    """
    return _quantised(pca_components(tokens, min(k, tokens.shape[1])), moments, precision)


def pca_components(tokens: Floats, k: int) -> Floats:
    """Leading principal components of a sample.

    Parameters
    ----------
    tokens : (T, D) float32
    k : int
        At most D.

    Returns
    -------
    components : (K, D) float32
        Orthonormal rows, largest variance first, each with its largest entry positive.
    """
    centred = tokens.astype(np.float64) - tokens.mean(axis=0, dtype=np.float64)
    _, vectors = np.linalg.eigh(centred.T @ centred)
    components = vectors.T[::-1][:k]
    peak = np.take_along_axis(components, np.abs(components).argmax(axis=1)[:, None], axis=1)
    return np.ascontiguousarray(components * np.where(peak < 0, -1.0, 1.0), dtype=np.float32)


def random_components(dim: int, k: int, *, seed: int) -> Floats:
    """A random orthonormal basis: the baseline that a fitted one has to beat.

    Returns
    -------
    components : (K, D) float32
    """
    gaussian = np.random.default_rng(seed).standard_normal((dim, k))
    return np.ascontiguousarray(np.linalg.qr(gaussian)[0].T, dtype=np.float32)


def _quantised(components: Floats, moments: Floats, precision: Precision) -> Sketcher:
    ones = np.ones(len(components), dtype=np.float32)
    if precision is Precision.FP16:
        return Sketcher(components, ones, precision)
    reach = np.abs(np.asarray(moments, dtype=np.float32) @ components.T).max(axis=(0, 1), initial=0.0)
    scale = (reach * _HEADROOM / _INT8_LIMIT).astype(np.float32)
    # A component in which nothing varies is stored as zeros; its step only must not be zero.
    return Sketcher(components, np.where(scale > 0, scale, np.float32(1.0)), precision)


def take_codes(stored: NDArray[np.uint8], rows: NDArray[np.intp], offset: int) -> NDArray[np.int8]:
    """Some rows of int8 codes.

    Parameters
    ----------
    stored : (N, W) uint8
        Codes with their offset added.
    rows : (R,) int
    offset : int

    Returns
    -------
    codes : (R, W) int8

    Raises
    ------
    IndexError
        There is no such row.
    """
    numbers = checked_rows(rows, len(stored))
    taken = np.empty((len(numbers), stored.shape[1]), np.uint8)
    _take(stored, numbers, offset, taken)
    return taken.view(np.int8)


@compiled
def _take(stored: NDArray[np.uint8], rows: NDArray[np.int64], offset: int, taken: NDArray[np.uint8]) -> None:
    for i in range(len(rows)):
        if i + _AHEAD < len(rows):
            prefetch(stored, rows[i + _AHEAD])
        row, own = stored[rows[i]], taken[i]
        for j in range(len(row)):
            own[j] = row[j] - offset
