"""An index of random vectors in memory, of any size. Needs numpy alone, so that it runs where little is installed."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexer.sketch import Precision, Sketcher, take_codes
from service.canonical import Floats, JointQuery


@dataclass(frozen=True, slots=True, eq=False)
class SyntheticIndex:
    """What an engine reads of an index.

    Attributes
    ----------
    vectors : (N, D) float32
        Unit rows.
    codes : (N, 2, K) int8
    sketcher : Sketcher
    manifest : namespace
        ``k`` and ``encoder.dim``.
    """

    vectors: Floats
    codes: NDArray[np.int8]
    sketcher: Sketcher
    manifest: Any

    def __len__(self) -> int:
        return len(self.vectors)

    def native(self) -> Floats:
        """See :meth:`indexer.store.Index.native`."""
        return self.vectors

    def sketch(self, rows: Any = slice(None)) -> NDArray[np.int8]:
        """See :meth:`indexer.store.Index.sketch`."""
        if isinstance(rows, slice):
            codes: NDArray[np.int8] = self.codes[rows]
            return codes
        stored = self.codes.view(np.uint8).reshape(len(self), -1)
        return take_codes(stored, rows, 0).reshape(-1, *self.codes.shape[1:])


def synthetic_index(rows: int, dim: int, k: int, *, seed: int = 0) -> SyntheticIndex:
    """Make vectors that lie in a cone, as those of image encoders do, with a few duplicates.

    Notes
    -----
    Independent components around a common direction: no structure that a quantiser, a graph or clusters could use
    beyond what any collection has.
    """
    random = np.random.default_rng(seed)
    centre = random.standard_normal(dim, dtype=np.float32)
    vectors = np.empty((rows, dim), np.float32)
    codes = np.empty((rows, 2, k), np.int8)
    for start in range(0, rows, 65_536):
        part = slice(start, min(start + 65_536, rows))
        some = random.standard_normal((part.stop - start, dim), dtype=np.float32) + np.float32(0.7) * centre
        vectors[part] = some / np.linalg.norm(some, axis=1, keepdims=True)
        spread = random.standard_normal((part.stop - start, 2, k), dtype=np.float32) * np.float32(28)
        codes[part] = np.clip(np.rint(spread), -127, 127)
    if rows >= 100:
        vectors[rows // 2] = vectors[rows // 3] = vectors[1]
        codes[rows // 2] = codes[rows // 3] = codes[1]
    basis = np.linalg.qr(random.standard_normal((dim, min(k, dim))))[0].T.astype(np.float32)
    scale = np.geomspace(4e-4, 1e-4, k).astype(np.float32)
    sketcher = Sketcher(np.ascontiguousarray(np.resize(basis, (k, dim))), scale, Precision.INT8)
    return SyntheticIndex(vectors, codes, sketcher, SimpleNamespace(k=k, encoder=SimpleNamespace(dim=dim)))


def random_queries(index: Any, count: int, *, joint: bool, seed: int = 1) -> list[JointQuery]:
    """Text vectors at random, and displacements that weigh as much as the native score does."""
    random = np.random.default_rng(seed)
    dim, k = index.manifest.encoder.dim, index.manifest.k
    made = []
    sample = np.array(index.native()[: min(len(index), 4096)])
    moments = index.sketcher.decode(index.sketch(slice(0, len(sample)))).reshape(len(sample), -1)
    for _ in range(count):
        native = random.standard_normal(dim).astype(np.float32)
        native /= np.linalg.norm(native)
        spatial = random.standard_normal((2, k)).astype(np.float32)
        spread = float((moments @ spatial.ravel()).std())
        spatial *= np.float32((sample @ native).std() / spread if spread else 1.0)
        made.append(JointQuery(native, spatial if joint else None))
    return made
