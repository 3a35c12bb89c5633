"""Text vectors, remembered: the text tower is the largest part of a query."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from threading import Lock

import numpy as np
from numpy.typing import NDArray

from indexer.encoder import Encoder
from service.cores import each
from service.recent import Recent

Floats = NDArray[np.float32]
Encoded = tuple[Floats, bool]
"""Unit vector (D,), and whether the text was longer than the tower reads."""


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
        self._kept: Recent[str, Encoded] = Recent()
        self._under_way: dict[str, Future[Encoded]] = {}
        self._hits = self._misses = 0
        self._lock = Lock()

    def __call__(self, texts: Sequence[str]) -> list[Encoded]:
        """Vectors of texts.

        Parameters
        ----------
        texts : sequence of B str

        Returns
        -------
        encoded : list of B ((D,) float32, bool)
            Unit vector, and whether the text was longer than the tower reads. Do not write to it.
        """
        with self._lock:
            known = self._look_up(dict.fromkeys(texts))
            missing = [text for text in dict.fromkeys(texts) if text not in known]
            self._hits += len(known)
            self._misses += len(missing)
            ours: dict[str, Future[Encoded]] = {
                text: Future() for text in missing if text not in self._under_way
            }
            self._under_way |= ours
            awaited = {text: self._under_way[text] for text in missing}
        each(self._encode, list(ours.items()))
        known |= {text: future.result() for text, future in awaited.items()}
        return [known[text] for text in texts]

    def _look_up(self, texts: Iterable[str]) -> dict[str, Encoded]:
        found = ((text, self._kept.get(text)) for text in texts)
        return {text: one for text, one in found if one is not None}

    def _encode(self, text: str, future: Future[Encoded]) -> None:
        """Encode a text for all who wait for it."""
        try:
            features = self._encoder.encode_texts([text])
            encoded = features.vectors[0].copy(), features.truncated[0]
            self._kept.put(text, encoded, most=self._capacity)
            future.set_result(encoded)
        except Exception as error:  # it is theirs who asked
            future.set_exception(error)
        finally:
            with self._lock:
                del self._under_way[text]

    def facts(self) -> CacheFacts:
        """Count hits and misses."""
        with self._lock:
            return CacheFacts(len(self._kept), self._capacity, self._hits, self._misses)
