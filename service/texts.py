"""Text vectors, remembered: the text tower is the largest part of a query."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from threading import Lock

import numpy as np
from numpy.typing import NDArray

from indexer.encoder import Encoder
from service.cores import each
from service.recent import Recent

Floats = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class CacheFacts:
    """How a cache does: entries and capacity, hits and misses since the start."""

    entries: int
    capacity: int
    hits: int
    misses: int


class TextVectors:
    """Encodes texts once and keeps the most recently used. Thread-safe.

    Parameters
    ----------
    encoder : Encoder
        Called by several threads, each with a text of its own.
    capacity : int
        Texts kept; 4096 of 512 dimensions are 8 MiB.
    """

    def __init__(self, encoder: Encoder, capacity: int = 4096) -> None:
        self._encoder = encoder
        self._capacity = capacity
        self._kept: Recent[str, tuple[Floats, bool]] = Recent()
        self._hits = self._misses = 0
        self._lock = Lock()

    def __call__(self, texts: Sequence[str]) -> list[tuple[Floats, bool]]:
        """Vectors of texts.

        Parameters
        ----------
        texts : sequence of B str

        Returns
        -------
        encoded : list of B ((D,) float32, bool)
            Unit vector, and whether the text was longer than the tower reads. Do not write to it.
        """
        wanted = list(dict.fromkeys(texts))
        known = self._look_up(wanted)
        missing = [text for text in wanted if text not in known]
        with self._lock:
            self._hits += len(known)
            self._misses += len(missing)
        for text, vector in zip(missing, each(self._encode, [(text,) for text in missing]), strict=True):
            known[text] = vector
            self._kept.put(text, vector, most=self._capacity)
        return [known[text] for text in texts]

    def _look_up(self, texts: Sequence[str]) -> dict[str, tuple[Floats, bool]]:
        found = ((text, self._kept.get(text)) for text in texts)
        return {text: one for text, one in found if one is not None}

    def _encode(self, text: str) -> tuple[Floats, bool]:
        features = self._encoder.encode_texts([text])
        return features.vectors[0].copy(), features.truncated[0]

    def facts(self) -> CacheFacts:
        """Count hits and misses."""
        with self._lock:
            return CacheFacts(len(self._kept), self._capacity, self._hits, self._misses)
