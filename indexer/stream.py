"""From files to vectors, in order, on this machine: decoded ahead in processes, encoded in batches."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from indexer.decode import Decoded, DecodeJob, DecodeSetup
from indexer.encoder import Encoder, Pixels
from indexer.pipeline import DecodePool
from indexer.scan import ScannedFile

Floats = NDArray[np.float32]

Jobs = Iterable[tuple[ScannedFile, DecodeJob | None]]
"""Files in id order; no job where the scan has already found what is wrong."""


@dataclass(frozen=True, slots=True, eq=False)
class Encoded:
    """A file and what became of it.

    Attributes
    ----------
    file : ScannedFile
    decoded : Decoded or None
        Without its pixels; None where there was no job.
    pooled : (D,) float32 or None
    tokens : (H, W, D) float32 or None
        Both None where the file is unreadable, or its content was known.
    """

    file: ScannedFile
    decoded: Decoded | None = None
    pooled: Floats | None = None
    tokens: Floats | None = None


Encoding = Callable[[Jobs, DecodeSetup, int], Generator[Encoded, None, None]]
"""Jobs, setup and batch size to files with what became of them. Pictures come in the order of their jobs; what
needs no encoding may come earlier."""


def encode_here(encoder: Encoder, workers: int) -> Encoding:
    """Encode in this process, decoding in others.

    Parameters
    ----------
    encoder : Encoder
    workers : int
        Decoding processes, see `indexer.pipeline.DecodePool`.
    """

    def run(jobs: Jobs, setup: DecodeSetup, batch: int) -> Generator[Encoded, None, None]:
        open_batch: list[tuple[ScannedFile, Decoded, Pixels]] = []
        # Two batches ahead: one is decoded while the encoder has the other.
        with (
            DecodePool(setup, workers) as pool,
            closing(pool.in_order(jobs, ahead=workers + 2 * batch)) as stream,
        ):
            for file, decoded in stream:
                if decoded is None or decoded.pixels is None:
                    yield Encoded(file, decoded)
                    continue
                open_batch.append((file, replace(decoded, pixels=None), decoded.pixels))
                if len(open_batch) >= batch:
                    yield from _encode(encoder, open_batch)
                    open_batch = []
            yield from _encode(encoder, open_batch)

    return run


def _encode(encoder: Encoder, batch: list[tuple[ScannedFile, Decoded, Pixels]]) -> Iterator[Encoded]:
    if batch:
        features = encoder.encode_images([pixels for _, _, pixels in batch])
        for (file, decoded, _), pooled, tokens in zip(batch, features.pooled, features.tokens, strict=True):
            yield Encoded(file, decoded, pooled, tokens)
