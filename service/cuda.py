"""The scan on a device that torch drives: half precision over the whole index, exact scores for what may win.

What this module holds to:

- all rows are scored by one matrix product of 16-bit numbers with 32-bit sums; what the rounding of rows, queries and
  sums may do is bounded (:meth:`TorchScan.half_error`), and checked on this device when the scan is made;
- the best are found by the maxima of blocks of rows: k blocks have maxima of at least t, so the k-th best score is at
  least t, and everything that reaches t less twice the bound is looked at again;
- those rows are scored in float64 on the device. Its sums run in another order than canonical ones, so a score counts
  only where every number within the difference rounds to the same float32; the few others are scored canonically;
- what comes back to the host is the ranking, in one copy.

Axes: B queries, N images, D embedding, S joint components (D + 2K), P pairs of a query and a row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from service.canonical import Floats, JointQuery, Rows, Scores, canonical_scores, order_error
from service.errors import InexactDevice
from service.scan import Coarse, FloatError, Found, blocks

if TYPE_CHECKING:
    from indexer.store import Index

Doubles = NDArray[np.float64]

SCORE_BYTES = 1 << 30
"""Memory for scores on the device; more queries than fit are taken in turns."""

BLOCK = 16
"""Rows whose maximum is looked at first. With eight times as many blocks as places in the ranking, as at 118,287 rows
and a thousand places, one candidate in fourteen is there in vain."""

PAIRS = 32_768
"""Pairs scored in float64 at a time: 170 MB at 640 components."""

_CHECKED = 64


@dataclass(frozen=True, slots=True, eq=False)
class HalfQueries:
    """Queries scaled by powers of two, which moves no order, so that their largest component fits a float16.

    Attributes
    ----------
    full : (B, S) float32, or (B, D) where no query has a spatial part
        Native queries among joint ones have zeros there: two products would read the vectors twice.
    half : the same, float16
    norm, remainder : (B, 2) float64
        Of ``full``, and of what ``half`` leaves of it: the native part and the spatial one.
    scale : (B,) float64
        What scores are to be multiplied by.
    """

    full: Floats
    half: NDArray[np.float16]
    norm: Doubles
    remainder: Doubles
    scale: Doubles

    @classmethod
    def of(cls, queries: Sequence[JointQuery], width: int) -> HalfQueries:
        """Stack queries; `width` is S."""
        dim = len(queries[0].native)
        joint = any(query.spatial is not None for query in queries)
        full = np.zeros((len(queries), width if joint else dim), np.float32)
        for line, query in zip(full, queries, strict=True):
            line[:dim] = query.native
            if query.spatial is not None:
                line[dim:] = query.spatial.ravel()
        exponent = np.frexp(np.abs(full).max(axis=1, initial=0.0))[1]
        full = np.ldexp(full, -exponent[:, None])
        half = full.astype(np.float16)
        wide = full.astype(np.float64)
        return cls(full, half, _norms(wide, dim), _norms(wide - half, dim), np.ldexp(1.0, exponent))


def _norms(rows: Doubles, dim: int) -> Doubles:
    parts = [np.linalg.norm(part, axis=1) for part in (rows[:, :dim], rows[:, dim:])]
    return np.stack(parts, axis=1) * (1 + 2.0**-40)  # for their own rounding


class TorchScan:
    """Scores all rows at once on a device. Owns its copies of the vectors there: six bytes a component.

    Parameters
    ----------
    index : Index
    device : str
        As torch names it. ``cpu`` works and is how the tests compare it.

    Raises
    ------
    InexactDevice
        Where the device's products are further from the truth than they should be.
    """

    def __init__(self, index: Index, device: str) -> None:
        # TF32 keeps ten bits of a float32's mantissa, and 16-bit sums as many: far outside the bounds.
        torch.set_float32_matmul_precision("highest")
        torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
        self._index = index
        self._device = torch.device(device)
        n, self._dim, width = len(index), index.manifest.encoder.dim, 2 * index.manifest.k
        self._rows = torch.empty((n, self._dim + width), dtype=torch.float32, device=self._device)
        self._half = torch.zeros(
            (-(-n // BLOCK) * BLOCK, self._dim + width), dtype=torch.float16, device=self._device
        )
        self._lost = np.zeros(2)
        self._error = FloatError(self._dim, width)
        for rows, native, moments in blocks(index):
            self._error.add(native, moments)
            both = torch.cat([torch.from_numpy(native), torch.from_numpy(moments)], dim=1).to(self._device)
            self._rows[rows], self._half[rows] = both, both.half()
            lost = (both.double() - both.half().double()).square()
            for at, part in enumerate((lost[:, : self._dim], lost[:, self._dim :])):
                self._lost[at] = max(self._lost[at], float(part.sum(dim=1).max().sqrt()))
        self._check()

    @property
    def name(self) -> str:
        """See :meth:`service.scan.Scan.name`."""
        return self._device.type

    def superset(
        self, queries: Sequence[JointQuery], counts: Sequence[int], *, ranks_follow: bool = False
    ) -> list[Found]:
        """See :meth:`service.scan.Scan.superset`: the ranking itself, canonical scores and all."""
        found = []
        for part in self._turns(len(queries)):
            found += self._best(queries[part], counts[part])
        return found

    def coarse(self, queries: Sequence[JointQuery]) -> list[Coarse]:
        """See :meth:`service.scan.Scan.coarse`."""
        return [Coarse(self._error(JointQuery(query.native))) for query in queries]

    def sort_into(
        self, queries: Sequence[JointQuery], coarse: Sequence[Coarse], edges: Sequence[Floats]
    ) -> list[tuple[Rows, Rows]]:
        """See :meth:`service.scan.Scan.sort_into`. In float32: near ties of a page are few then."""
        found = []
        for part in self._turns(len(queries)):
            native = np.stack([query.native for query in queries[part]])
            scores = self._put(native) @ self._rows[:, : self._dim].T
            for line, limits in zip(scores, edges[part], strict=True):
                interval = torch.searchsorted(self._put(limits), line, right=True)
                counts = torch.bincount(interval, minlength=len(limits) + 1)
                inside = torch.nonzero(interval % 2 == 1).ravel()
                found.append((counts.cpu().numpy(), inside.cpu().numpy()))
        return found

    def scores(self, batch: HalfQueries) -> Tensor:
        """Score the whole index in half precision.

        Returns
        -------
        scores : (B, N rounded up to whole blocks) float32, on the device
            In the scale of the batch; rows that are not there score -inf.
        """
        half, rows = self._put(batch.half), self._half[:, : batch.half.shape[1]]
        if self._device.type == "cuda":
            scores = torch.mm(half, rows.T, out_dtype=torch.float32)
        else:  # where 16-bit products are rounded to 16 bits
            scores = half.float() @ rows.T.float()
        scores[:, len(self._rows) :] = -torch.inf
        return scores

    def half_error(self, batch: HalfQueries) -> Doubles:
        """Bound how far :meth:`scores` may be from canonical scores in the scale of the batch, (B,).

        By Cauchy and Schwarz, for native vectors and moments apart: moments are small, and what multiplies them is not.
        Products of 11-bit numbers are exact in float32; their sum is bounded as in :func:`service.scan.scan_error`,
        with four times the unit roundoff, for tensor cores cut where others round.
        """
        row = np.array([self._error.native, self._error.moment])
        n = batch.half.shape[1] + 4
        gamma = n * 2.0**-22 / (1 - n * 2.0**-22)
        sums = gamma * (batch.norm + batch.remainder) * (row + self._lost)
        error: Doubles = (batch.remainder * (row + self._lost) + batch.norm * self._lost + sums).sum(axis=1)
        error *= 1.01
        error += n * 2.0**-100
        return error

    def _best(self, queries: Sequence[JointQuery], counts: Sequence[int]) -> list[Found]:
        batch = HalfQueries.of(queries, self._rows.shape[1])
        scores = self.scores(batch)
        query, row = self._candidates(scores, self._put(self.half_error(batch)), counts)
        exact = self._exact(queries, batch, query, row)
        # Pairs come query by query and row by row: a stable sort breaks ties as it should.
        many = torch.bincount(query, minlength=len(queries))
        place = torch.arange(len(query), device=self._device) - (many.cumsum(0) - many)[query]
        table = torch.full((3, len(queries), int(many.max())), -torch.inf, device=self._device)
        table[:, query, place] = exact
        rows = torch.zeros(table.shape[1:], dtype=torch.int32, device=self._device)
        rows[query, place] = row.int()
        # Adding nothing turns -0 into 0, which some sorts would put below it.
        order = torch.sort(table[0] + 0.0, dim=1, descending=True, stable=True).indices[:, : max(counts)]
        numbers = rows.gather(1, order).view(torch.float32)
        chosen = torch.cat([table.gather(2, order.expand(3, -1, -1)), numbers[None]]).cpu().numpy()
        return [
            Found(
                chosen[3, b, :count].view(np.int32).astype(np.int64),
                None,
                Scores(chosen[0, b, :count], chosen[1, b, :count], chosen[2, b, :count]),
            )
            for b, count in enumerate(counts)
        ]

    def _candidates(self, scores: Tensor, error: Tensor, counts: Sequence[int]) -> tuple[Tensor, Tensor]:
        """Pairs (P,) and (P,) of a query and a row that may be among its best, in ascending order."""
        blocked = scores.view(len(scores), -1, BLOCK)
        maxima = blocked.amax(dim=2)
        most = max(counts)
        # Few blocks for many places would let almost everything through.
        by_block = 4 * most <= maxima.shape[1]
        best = torch.topk(maxima if by_block else scores, most, dim=1).values
        last = best.gather(1, torch.tensor(counts, device=self._device)[:, None] - 1).ravel()
        floor = (last.double() - 2 * error).float()
        floor = torch.nextafter(floor, torch.full_like(floor, -torch.inf))
        query, block = torch.nonzero(maxima >= floor[:, None], as_tuple=True)
        pair, inside = torch.nonzero(blocked[query, block] >= floor[query, None], as_tuple=True)
        return query[pair], block[pair] * BLOCK + inside

    def _exact(self, queries: Sequence[JointQuery], batch: HalfQueries, query: Tensor, row: Tensor) -> Tensor:
        """Canonical total, native and spatial scores of pairs, (3, P) float32."""
        terms = batch.full.shape[1]
        wide, scale = self._put(batch.full).double(), self._put(batch.scale)
        joint = torch.tensor([one.spatial is not None for one in queries], device=self._device)
        size = batch.norm @ np.array([self._error.native, self._error.moment])
        bound = self._put(size * order_error(terms))
        made, unsure = [], []
        for start in range(0, len(query), PAIRS):
            q, r = query[start : start + PAIRS], row[start : start + PAIRS]
            products = self._rows[r, :terms].double() * wide[q]
            native, spatial = products[:, : self._dim].sum(dim=1), products[:, self._dim :].sum(dim=1)
            sums = torch.stack([native + spatial, native, spatial])
            low, high = (((sums + side * bound[q]) * scale[q]).float() for side in (-1, 1))
            low[2], high[2] = low[2] * joint[q], high[2] * joint[q]
            made.append(low + 0.0)
            unsure.append(start + torch.nonzero((low != high).any(dim=0)).ravel())
        exact = torch.cat(made, dim=1)
        for pair in torch.cat(unsure).tolist():
            one = canonical_scores(self._index, queries[int(query[pair])], row[pair : pair + 1].cpu().numpy())
            exact[:, pair] = torch.tensor([one.total[0], one.native[0], one.spatial[0]], device=self._device)
        return exact

    def _check(self) -> None:
        """Compare some scores with their truth, so that no device is trusted unseen."""
        some = np.arange(0, len(self._rows), max(1, len(self._rows) // _CHECKED))
        rows = self._rows[torch.from_numpy(some)].cpu().numpy()
        for line in rows[:4]:
            batch = HalfQueries.of([JointQuery(line[: self._dim], line[self._dim :])], len(line))
            truth = rows.astype(np.float64) @ batch.full[0]
            off = float(np.abs(self.scores(batch)[0].cpu().numpy()[some] - truth).max())
            if off > self.half_error(batch)[0]:
                raise InexactDevice(self._device.type, off, float(self.half_error(batch)[0]))

    def _turns(self, count: int) -> Iterator[slice]:
        step = max(1, SCORE_BYTES // (4 * max(1, len(self._half))))
        return (slice(start, start + step) for start in range(0, count, step))

    def _put(self, array: NDArray[Any]) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(array)).to(self._device)
