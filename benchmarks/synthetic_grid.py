"""Patch grids at random, in the shape that an index keeps them, to time the second stage on."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from indexer.grid import BITS, COMPONENTS, SIDE, GridSketcher, Packed


def grids_like(index: Any, *, seed: int = 0) -> Any:
    """The index with grids.

    Parameters
    ----------
    index : Index or SyntheticIndex
        Its N and D are taken.

    Returns
    -------
    namespace
        What a reranker reads of an index.
    """
    random = np.random.default_rng(seed)
    dim = index.manifest.encoder.dim
    k = min(COMPONENTS, dim)
    basis = np.linalg.qr(random.standard_normal((dim, k)))[0].T
    vocabulary = random.standard_normal((80, dim)).astype(np.float32)
    vocabulary /= np.linalg.norm(vocabulary, axis=1, keepdims=True)
    grids = GridSketcher(
        np.ascontiguousarray(basis, np.float32),
        np.zeros(k, np.float32),
        np.full(k, 0.01, np.float32),
        vocabulary,
        SIDE,
        BITS,
    )
    packed = random.integers(0, 256, (len(index), grids.row_bytes), dtype=np.uint8)

    class Gridded:
        grid_sketcher = grids
        manifest = SimpleNamespace(
            k=index.manifest.k,
            encoder=index.manifest.encoder,
            calibration=SimpleNamespace(native_std=0.04, displacement_std=0.01, lam=4.0),
        )
        sketch = staticmethod(index.sketch)
        native = staticmethod(index.native)
        sketcher = index.sketcher

        def __len__(self) -> int:
            return len(index)

        def grid(self) -> Packed:
            return packed

    return Gridded()
