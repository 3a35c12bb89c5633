"""Photographs after the image tower, and as an index that can be searched.

Axes: N photographs, H x W patches, D embedding, P cells of a pooled grid.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from PIL import Image, ImageOps

from benchmarks.data import Photo
from indexer.calibrate import calibrate, vocabulary
from indexer.encoder import Encoder, Pixels
from indexer.errors import IndexerError
from indexer.grid import fit_grid, pool_tokens
from indexer.images import open_image
from indexer.ledger import LedgerRow, to_table
from indexer.load import load_encoder
from indexer.moments import patch_centres, spatial_moments
from indexer.sketch import fit_sketcher
from indexer.store import Index, open_index, write_index

Floats = NDArray[np.float32]

SEED = 0
K = 64
SAMPLE_TOKENS = 64
_BATCH = 16


@dataclass(frozen=True, slots=True, eq=False)
class Seen:
    """Photographs after the image tower.

    Attributes
    ----------
    pooled : (N, D) float32
    tokens : sequence of N arrays (H, W, D) float16
        Half the memory; their rounding is far below that of any sketch.
    """

    pooled: Floats
    tokens: Sequence[NDArray[np.float16]]

    def grid(self, photo: int) -> Floats:
        """Patch tokens of one photograph, (H, W, D) float32."""
        return self.tokens[photo].astype(np.float32)

    def moments(self) -> Floats:
        """First moments of all, (N, 2, D)."""
        return np.stack([spatial_moments(self.grid(n)) for n in range(len(self.tokens))])

    def shuffled(self, photo: int, times: int) -> Floats:
        """Moments of one photograph's tokens in random places, (S, 2, D)."""
        tokens = self.grid(photo)
        height, width = tokens.shape[:2]
        x, y = patch_centres(height, width)
        places = np.stack([np.tile(x, height), np.repeat(y, width)], axis=1)  # (P, 2)
        rng = np.random.default_rng([SEED, photo])
        order = rng.permuted(np.tile(np.arange(len(places)), (times, 1)), axis=1)
        flat = tokens.reshape(len(places), -1)
        moments: Floats = np.einsum("spa,pd->sad", places[order], flat) / np.float32(len(places))
        return moments

    def sample(self) -> Floats:
        """Some patch tokens of each, for a basis (T, D)."""
        rng = np.random.default_rng(SEED)
        parts = []
        for n in range(len(self.tokens)):
            tokens = self.grid(n)
            parts.append(rng.permutation(tokens.reshape(-1, tokens.shape[-1]))[:SAMPLE_TOKENS])
        return np.concatenate(parts)

    def cells(self, side: int) -> Floats:
        """Unit tokens averaged over a coarse grid, (N, P, D)."""
        return np.stack([pool_tokens(self.grid(n), side) for n in range(len(self.tokens))])

    def __getitem__(self, rows: Sequence[int] | NDArray[np.intp]) -> Seen:
        return Seen(self.pooled[np.asarray(rows)], [self.tokens[row] for row in rows])

    def __add__(self, other: Seen) -> Seen:
        return Seen(np.concatenate([self.pooled, other.pooled]), [*self.tokens, *other.tokens])


def look(
    encoder: Encoder, photos: Sequence[Photo], *, mirrored: bool = False, cache: Path | None = None
) -> Seen:
    """Run the image tower over photographs, decoding ahead.

    Parameters
    ----------
    encoder : Encoder
    photos : sequence of Photo
    mirrored : bool
        Whether left and right change sides first.
    cache : Path, optional
        Folder for what was seen: it holds for this encoder and these files alone.
    """
    path = None if cache is None else cache / _cache_name(encoder, photos, mirrored)
    if path is not None and path.exists():
        with np.load(path) as kept:
            return Seen(kept["pooled"], [kept[f"tokens{n}"] for n in range(len(photos))])

    def read(photo: Photo) -> Image.Image:
        image = open_image(photo.path).image
        return ImageOps.mirror(image) if mirrored else image

    seen = look_at(encoder, (partial(read, photo) for photo in photos))
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        arrays: dict[str, Any] = {f"tokens{n}": one for n, one in enumerate(seen.tokens)}
        np.savez(path, pooled=seen.pooled, **arrays)
    return seen


def look_at(encoder: Encoder, pictures: Iterable[Callable[[], Image.Image]]) -> Seen:
    """Run the image tower over pictures that are read or drawn when their turn comes, one batch ahead."""
    waiting = iter(pictures)
    pooled: list[Floats] = []
    tokens: list[NDArray[np.float16]] = []

    def prepare() -> list[Pixels]:
        return [encoder.prepare(make()) for make in islice(waiting, _BATCH)]

    with ThreadPoolExecutor(1) as pool:
        ahead = pool.submit(prepare)
        while batch := ahead.result():
            ahead = pool.submit(prepare)
            features = encoder.encode_images(batch)
            pooled.append(features.pooled)
            tokens += [one.astype(np.float16) for one in features.tokens]
    return Seen(np.concatenate(pooled), tokens)


def open_encoder(name: str, pretrained: str | None, *, device: str = "auto") -> Encoder:
    """`indexer.load.load_encoder` for a benchmark, whose user gets a line and not a traceback.

    Raises
    ------
    SystemExit
    """
    try:
        return load_encoder(name, pretrained, device=device)
    except IndexerError as error:
        raise SystemExit(str(error)) from None


def index_of(seen: Seen, encoder: Encoder, folder: Path, *, k: int = K) -> Index:
    """Write what was seen as an index, as a build would, and open it: row n is photograph n."""
    moments, sample = seen.moments(), seen.sample()
    sketcher = fit_sketcher(sample, moments, k=k)
    words = vocabulary(encoder)
    codes = sketcher.encode(moments)
    cells = seen.cells(6)
    grid = fit_grid(sample, cells, words)
    rows = [LedgerRow(n, f"{n:06d}.jpg", "", 0, 1, 1, 1, "JPEG") for n in range(len(seen.pooled))]
    ledger: pa.Table = to_table(rows)
    folder.mkdir(parents=True, exist_ok=True)
    write_index(
        folder,
        image_root=folder,
        encoder=encoder.spec,
        sketcher=sketcher,
        calibration=calibrate(encoder, seen.pooled, codes, sketcher, words),
        vectors=[(seen.pooled, codes, grid.encode(cells))],
        grid=grid,
        ledger=ledger,
        created="1970-01-01T00:00:00+00:00",
    )
    return open_index(folder)


def _cache_name(encoder: Encoder, photos: Sequence[Photo], mirrored: bool) -> str:
    side = "mirrored" if mirrored else "plain"
    key = hashlib.sha256(repr((encoder.spec, side)).encode())
    for photo in photos:
        about = photo.path.stat()
        key.update(repr((str(photo.path.resolve()), about.st_size, about.st_mtime_ns)).encode())
    return f"{encoder.spec.name}-{len(photos)}-{side}-{key.hexdigest()[:16]}.npz"
