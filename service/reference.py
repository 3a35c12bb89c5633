"""What is usual in a collection: the yardstick for what one picture shows.

A displacement means little by itself. The moment of a frequent thing that fills pictures ("person") varies several
times as much from picture to picture as that of a rare, small one, so one lambda for all words lets the first push
the native score aside and leaves the second without a voice. The unit is therefore taken for the very query, over a
fixed sample of the index, and is the same for every engine, batch and page.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from indexer.store import Index

REFERENCE_IMAGES = 512
"""A standard deviation over so many pictures is known to about three per cent."""
LEAST_SPREAD = 0.5
"""Spreads below this share of the usual one count as this: where nothing of the kind is in the collection, what
varies is noise, and must not be made as loud as the native score."""
_MIN_IMAGES = 2


def reference_rows(index: Index) -> NDArray[np.intp]:
    """Rows of the sample: ids are hashes of paths, so that evenly spaced ones are a fair part of the collection."""
    last = max(len(index) - 1, 0)
    return np.unique(np.linspace(0, last, min(len(index), REFERENCE_IMAGES)).astype(np.intp))


class Reference:
    """Statistics over a fixed sample of an index.

    Parameters
    ----------
    index : Index
    """

    def __init__(self, index: Index) -> None:
        self._calibration = index.manifest.calibration
        rows = reference_rows(index)
        moments = index.sketcher.decode(index.sketch(rows))
        self._moments = moments.reshape(len(rows), 2 * index.manifest.k).astype(np.float64)

    def displacement_unit(self, direction: NDArray[np.float64]) -> float:
        """Lambda of one relation: what makes its displacement vary as the native score does.

        Parameters
        ----------
        direction : (2, K) float64
            From `service.readout.displacement_direction`; the opposite direction has the same unit to the last bit.

        Returns
        -------
        unit : float
            ``std(native) / std(displacement)``, the second over this collection and for this direction. The index's
            own lambda, which is the same for an average pair of words, where there is nothing to measure.
        """
        usual = self._calibration.displacement_std
        if len(self._moments) < _MIN_IMAGES or usual <= 0:
            return self._calibration.lam
        displacement = (self._moments * direction.ravel()).sum(axis=-1)
        return self._calibration.lam * usual / max(float(displacement.std()), LEAST_SPREAD * usual)
