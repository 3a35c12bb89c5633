"""The scan on a device that torch drives: the same mathematics, one copy back of row numbers alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from service.scan import Coarse, FloatError, Floats, Found, JointQuery, Rows, blocks, floor_below, stacked

if TYPE_CHECKING:
    from indexer.store import Index

SCORE_BYTES = 1 << 30
"""Memory for scores on the device; more queries than fit are taken in turns."""


class TorchScan:
    """Scores all rows at once on a device. Owns its copy of the vectors there.

    Parameters
    ----------
    index : Index
    device : str
        As torch names it. ``cpu`` works and is how the tests compare it.
    """

    def __init__(self, index: Index, device: str) -> None:
        # TF32 keeps ten bits of a float32's mantissa: far outside the error bound that exactness rests on.
        torch.set_float32_matmul_precision("highest")
        self._device = torch.device(device)
        n, dim, width = len(index), index.manifest.encoder.dim, 2 * index.manifest.k
        self._native = torch.empty((n, dim), dtype=torch.float32, device=self._device)
        self._moments = torch.empty((n, width), dtype=torch.float32, device=self._device)
        for rows, native, moments in blocks(index):
            self._native[rows] = torch.from_numpy(native).to(self._device)
            self._moments[rows] = torch.from_numpy(moments).to(self._device)
        self._error = FloatError(index)

    @property
    def name(self) -> str:
        """See :meth:`service.scan.Scan.name`."""
        return self._device.type

    def superset(self, queries: Sequence[JointQuery], counts: Sequence[int]) -> list[Found]:
        """See :meth:`service.scan.Scan.superset`."""
        rows: list[Rows] = []
        for part, scores in self._scored(queries):
            last = torch.topk(scores, max(counts[part]), dim=1).values.cpu().numpy()
            floors = [
                floor_below(float(best[count - 1]), self._error(query))
                for best, count, query in zip(last, counts[part], queries[part], strict=True)
            ]
            reached = scores >= self._put(np.array(floors, np.float32))[:, None]
            # Row by row in order, so the numbers of one query are together: one copy back.
            where = torch.nonzero(reached).cpu().numpy()
            ends = np.cumsum(np.bincount(where[:, 0], minlength=len(floors)))
            rows += np.split(where[:, 1], ends[:-1])
        return [Found(one, None) for one in rows]

    def coarse(self, queries: Sequence[JointQuery]) -> list[Coarse]:
        """See :meth:`service.scan.Scan.coarse`."""
        return [Coarse(self._error(JointQuery(query.native))) for query in queries]

    def sort_into(
        self, queries: Sequence[JointQuery], coarse: Sequence[Coarse], edges: Sequence[Floats]
    ) -> list[tuple[Rows, Rows]]:
        """See :meth:`service.scan.Scan.sort_into`."""
        found = []
        for part, scores in self._scored([JointQuery(q.native) for q in queries]):
            for line, limits in zip(scores, edges[part], strict=True):
                interval = torch.searchsorted(self._put(limits), line, right=True)
                counts = torch.bincount(interval, minlength=len(limits) + 1)
                inside = torch.nonzero(interval % 2 == 1).ravel()
                found.append((counts.cpu().numpy(), inside.cpu().numpy()))
        return found

    def _scored(self, queries: Sequence[JointQuery]) -> Iterator[tuple[slice, Tensor]]:
        step = max(1, SCORE_BYTES // (4 * max(1, len(self._native))))
        for start in range(0, len(queries), step):
            part = slice(start, start + step)
            native, joint, spatial = stacked(queries[part])
            scores = self._put(native) @ self._native.T
            if joint:
                scores[joint] += self._put(spatial) @ self._moments.T
            yield part, scores

    def _put(self, array: Floats) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(array)).to(self._device)
