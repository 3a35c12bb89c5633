"""The state of a build on disk: ``build/`` in the index folder.

Until the basis is fitted, pictures gather in a *sample* that keeps what a fit needs; from then on they go to *shards*
that hold codes only. Each file appears whole or not at all and names the plan it belongs to, so a run that stops
anywhere goes on from what is there. Vectors stay on disk; memory holds one ledger row an image.
"""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from indexer.calibrate import calibrate, vocabulary
from indexer.encoder import Encoder, EncoderSpec
from indexer.errors import IndexerError
from indexer.grid import GridSketcher, Packed, fit_grid, grid_arrays, pool_tokens, read_grid
from indexer.ledger import LedgerRow, from_table, row_values
from indexer.manifest import Calibration, IndexDamaged
from indexer.moments import spatial_moments
from indexer.sketch import Codes, Precision, Sketcher, fit_sketcher
from indexer.store import Index, write_atomically, writing

Floats = NDArray[np.float32]

BUILD = "build"
DEFAULT_K = 64
SAMPLE_IMAGES = 512
"""Images the basis and lambda are fitted on: the first in id order."""
SAMPLE_TOKENS = 64
"""Patch tokens taken from each of them."""
SHARD_IMAGES = 1024
SHARD_SECONDS = 60.0
"""What a killed build loses at most."""

_BASIS = "basis.safetensors"
_SAMPLE = "sample.safetensors"
_OURS = re.compile(r"(basis|sample|shard-\d{6,})\.safetensors(\.part)?")


class OtherSketch(IndexerError):
    """An index whose basis has another size or number format than asked for."""


class Source(Protocol):
    """Where vectors are until the next generation is written."""

    def vectors(self, rows: Sequence[int]) -> tuple[Floats, Codes, Packed]:
        """Embeddings (R, D), codes (R, 2, K) and grids (R, row_bytes, 0 without) of some of its rows."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Known:
    """An image that has been encoded: its ledger row, and which row of what its vectors are."""

    row: LedgerRow
    source: Source
    number: int


@dataclass(frozen=True, slots=True, eq=False)
class _Encoded:
    """An image of the open shard: ``codes`` and ``grid``, or what they are made from while there is no basis."""

    row: LedgerRow
    native: Floats
    codes: Codes | None = None
    grid: Packed | None = None
    moments: Floats | None = None
    tokens: Floats | None = None
    """(T, D), a sample."""
    cells: Floats | None = None
    """(P, D), pooled."""


class Workspace:
    """What is known of a collection, its basis, and the open shard.

    Parameters
    ----------
    folder : Path
        ``build/``; made where it is missing.
    encoder : Encoder
    previous : Index or None
        The finished index to bring up to date: its vectors are known, its basis stays. None starts anew.
    k, precision : optional
        Of the sketch; by default those of ``previous``, else 64 and int8.
    collection : int
        Files in the collection, kept beside the basis.
    reduce_to : int or None
        How JPEGs are decoded; two ways do not mix.

    Attributes
    ----------
    known : dict of int to Known
        By image id.
    sketcher, calibration : or None
        None until the sample is complete.
    grid : GridSketcher or None
        None until then, and where ``previous`` has no grids.

    Raises
    ------
    OtherSketch
        ``previous`` has another one.
    IndexDamaged
        A file of ``build/`` cannot be read.
    WriteFailed
    """

    def __init__(
        self,
        folder: Path,
        encoder: Encoder,
        previous: Index | None,
        *,
        k: int | None,
        precision: Precision | None,
        collection: int,
        reduce_to: int | None,
    ) -> None:
        self.folder = folder
        self.known: dict[int, Known] = {}
        self.sketcher: Sketcher | None = None
        self.calibration: Calibration | None = None
        self.grid: GridSketcher | None = None
        self._encoder = encoder
        self._collection = collection
        self._open: list[_Encoded] = []
        self._saved = time.monotonic()
        self._k, self._precision = k or DEFAULT_K, precision or Precision.INT8
        if previous is not None:
            _require_same_sketch(previous, k, precision)
            self._k, self._precision = previous.manifest.k, previous.manifest.precision
            self.sketcher, self.calibration = previous.sketcher, previous.manifest.calibration
            self.grid = previous.grid_sketcher
            self._learn(from_table(previous.images), _Previous(previous))
        self._plan = _plan(encoder.spec, self.sketcher, self.grid, self._k, self._precision, reduce_to)
        with writing(folder):
            folder.mkdir(parents=True, exist_ok=True)
        self._next_shard = 0
        self._resume()

    def add(self, row: LedgerRow, pooled: Floats, tokens: Floats) -> None:
        """Take one encoded picture: pooled (D,), tokens (H, W, D)."""
        # One append an image, so that a Ctrl-C cannot leave half of one.
        moments = spatial_moments(tokens)
        if self.sketcher is None:
            flat = tokens.reshape(-1, tokens.shape[-1])
            pick = np.random.default_rng(row.id).permutation(len(flat))[:SAMPLE_TOKENS]
            cells = pool_tokens(tokens)
            self._open.append(_Encoded(row, pooled, moments=moments, tokens=flat[pick], cells=cells))
            full = len(self._open) >= SAMPLE_IMAGES
        else:
            packed = _no_grid() if self.grid is None else self._pack(pool_tokens(tokens, self.grid.side))
            codes = self.sketcher.encode(moments[None])[0]
            self._open.append(_Encoded(row, pooled, codes, packed))
            full = len(self._open) >= SHARD_IMAGES
        if full:
            self.commit()
        elif time.monotonic() - self._saved > SHARD_SECONDS:
            self.save()

    def save(self) -> None:
        """Put what is encoded on disk, without deciding on a basis."""
        self._saved = time.monotonic()
        if self.sketcher is not None:
            self.commit()
        elif self._open:
            tokens = [one.tokens for one in self._open if one.tokens is not None]
            arrays = {
                "native": np.stack([one.native for one in self._open]),
                "moments": np.stack([one.moments for one in self._open if one.moments is not None]),
                "cells": np.stack([one.cells for one in self._open if one.cells is not None]),
                "tokens": np.concatenate(tokens),
                "tokens_each": np.array([len(each) for each in tokens]),
            }
            self._write(_SAMPLE, arrays, rows=[row_values(one.row) for one in self._open])

    def commit(self) -> None:
        """Write the open shard; fit the basis first where there is none."""
        self._saved = time.monotonic()
        if not self._open:
            return
        native = np.stack([one.native for one in self._open])
        if self.sketcher is None:
            self._fit(native)
        codes = np.stack([self._codes(one) for one in self._open])
        grid = np.stack([self._grid(one) for one in self._open])
        rows = [one.row for one in self._open]
        name = f"shard-{self._next_shard:06d}.safetensors"
        self._write(
            name, {"native": native, "codes": codes, "grid": grid}, rows=[row_values(row) for row in rows]
        )
        # Stopped from here on, this shard is written once more, under one name or two: the same images either way.
        self._learn(rows, _Shard(self.folder / name))
        self._next_shard += 1
        self._open = []
        (self.folder / _SAMPLE).unlink(missing_ok=True)

    def blocks(self, ids: Sequence[int]) -> Iterator[tuple[Floats, Codes, Packed]]:
        """Vectors of known images in the order asked for, some at a time."""
        for start in range(0, len(ids), SHARD_IMAGES):
            images = [self.known[id_] for id_ in ids[start : start + SHARD_IMAGES]]
            places: dict[Source, list[int]] = {}
            for place, image in enumerate(images):
                places.setdefault(image.source, []).append(place)
            parts = [source.vectors([images[p].number for p in at]) for source, at in places.items()]
            order = np.argsort(np.concatenate([np.array(at) for at in places.values()]))
            native, codes, grid = (np.concatenate(arrays)[order] for arrays in zip(*parts, strict=True))
            yield native, codes, grid

    def remove(self) -> None:
        """Delete the folder: everything that builds have put there is in a finished index."""
        _load_shard.cache_clear()
        with writing(self.folder):
            for path in _own_files(self.folder):
                path.unlink()
        with suppress(OSError):  # whatever came in the meantime is not ours to delete
            self.folder.rmdir()

    def _codes(self, one: _Encoded) -> Codes:
        if one.codes is not None:
            return one.codes
        assert self.sketcher is not None
        assert one.moments is not None
        codes: Codes = self.sketcher.encode(one.moments[None])[0]
        return codes

    def _grid(self, one: _Encoded) -> Packed:
        if one.grid is not None:
            return one.grid
        assert one.cells is not None
        return self._pack(one.cells)

    def _pack(self, cells: Floats) -> Packed:
        assert self.grid is not None
        packed: Packed = self.grid.encode(cells[None])[0]
        return packed

    def _fit(self, native: Floats) -> None:
        """Fit basis, quantiser and lambda on the sample, and keep them for a run that goes on from here."""
        moments = np.stack([one.moments for one in self._open if one.moments is not None])
        tokens = np.concatenate([one.tokens for one in self._open if one.tokens is not None])
        sketcher = fit_sketcher(tokens, moments, k=self._k, precision=self._precision)
        codes = np.stack([sketcher.encode(one[None])[0] for one in moments])
        words = vocabulary(self._encoder)
        calibration = calibrate(self._encoder, native, codes, sketcher, words)
        calibration = replace(calibration, collection=self._collection)
        cells = np.stack([one.cells for one in self._open if one.cells is not None])
        self.grid = fit_grid(tokens, cells, words)
        arrays = {"components": sketcher.components, "scale": sketcher.scale} | grid_arrays(self.grid)
        self._write(_BASIS, arrays, calibration=asdict(calibration))
        self.sketcher, self.calibration = sketcher, calibration

    def _resume(self) -> None:
        """Read what an interrupted run left; what another encoder or sketch left is of no use and goes."""
        with writing(self.folder):
            for path in _own_files(self.folder):
                if path.suffix == ".part":
                    path.unlink()
        if self.sketcher is None and (basis := self._read(_BASIS)):
            arrays, facts = basis
            self.sketcher = Sketcher(arrays["components"], arrays["scale"], self._precision)
            self.calibration = Calibration(**facts["calibration"])
            self.grid = read_grid(arrays)
        for path in _own_files(self.folder, "shard-"):
            # A shard needs the basis it was made with, which is written first.
            if self.sketcher is not None and (shard := self._read(path.name)):
                self._learn((LedgerRow(*values) for values in shard[1]["rows"]), _Shard(path))
                self._next_shard = int(path.stem.removeprefix("shard-")) + 1
        if sample := self._read(_SAMPLE):
            arrays, facts = sample
            tokens = np.split(arrays["tokens"], np.cumsum(arrays["tokens_each"])[:-1])
            rows = (LedgerRow(*values) for values in facts["rows"])
            gathered = zip(rows, arrays["native"], arrays["moments"], tokens, arrays["cells"], strict=True)
            self._open = [
                _Encoded(row, native, moments=moments, tokens=patch, cells=cells)
                for row, native, moments, patch, cells in gathered
                if row.id not in self.known
            ]
            source = _OpenShard()
            for one in self._open:
                self.known[one.row.id] = Known(one.row, source, -1)

    def _learn(self, rows: Iterable[LedgerRow], source: Source) -> None:
        for number, row in enumerate(rows):
            self.known[row.id] = Known(row, source, number)

    def _write(self, name: str, arrays: dict[str, NDArray[Any]], **facts: object) -> None:
        metadata = {"plan": self._plan, "facts": json.dumps(facts)}
        write_atomically(self.folder / name, lambda file: file.write(save(arrays, metadata)))

    def _read(self, name: str) -> tuple[dict[str, Any], dict[str, Any]] | None:
        """Arrays and facts of a file of this plan; None where it is missing, or of another plan and removed."""
        path = self.folder / name
        if not path.exists():
            return None
        arrays, metadata = _load(path)
        if metadata.get("plan") != self._plan:
            path.unlink()
            return None
        return arrays, json.loads(metadata["facts"])


def foreign_files(folder: Path) -> list[str]:
    """What no build can have put where a workspace is to be, under names that start with the folder's.

    Hidden files, which systems put anywhere, say nothing about whose folder it is.
    """
    try:
        found = sorted(folder.iterdir())
    except FileNotFoundError:
        return []
    except NotADirectoryError:
        return [folder.name]
    return [
        f"{folder.name}/{path.name}" for path in found if not (path.name.startswith(".") or _is_ours(path))
    ]


class _Previous:
    def __init__(self, index: Index) -> None:
        self._index = index
        self._native = index.native()

    def vectors(self, rows: Sequence[int]) -> tuple[Floats, Codes, Packed]:
        picked = np.asarray(rows)
        grid = self._index.grid()
        packed = _no_grid(len(rows)) if grid is None else grid[picked]
        return self._native[picked], self._index.sketch(picked), packed


class _Shard:
    def __init__(self, path: Path) -> None:
        self._path = path

    def vectors(self, rows: Sequence[int]) -> tuple[Floats, Codes, Packed]:
        arrays = _load_shard(self._path)
        picked = np.asarray(rows)
        return arrays["native"][picked], arrays["codes"][picked], arrays["grid"][picked]


class _OpenShard:
    """Of a sample that was read again: its images are learnt a second time when their shard is written."""

    def vectors(self, rows: Sequence[int]) -> tuple[Floats, Codes, Packed]:
        raise AssertionError("the open shard has not been committed")


def _no_grid(*images: int) -> Packed:
    return np.zeros((*images, 0), np.uint8)


def _own_files(folder: Path, prefix: str = "") -> list[Path]:
    return sorted(path for path in folder.glob(f"{prefix}*") if _OURS.fullmatch(path.name))


def _is_ours(path: Path) -> bool:
    if not _OURS.fullmatch(path.name):
        return False
    try:
        with safe_open(path, framework="numpy") as file:
            return "plan" in (file.metadata() or {})
    except (SafetensorError, OSError):
        return path.suffix == ".part" or not path.exists()  # another builder has just removed it


@lru_cache(maxsize=4)
def _load_shard(path: Path) -> dict[str, Any]:
    return _load(path)[0]


def _load(path: Path) -> tuple[dict[str, Any], dict[str, str]]:
    try:
        with safe_open(path, framework="numpy") as file:
            arrays = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118  (not a mapping)
            return arrays, file.metadata() or {}
    except (SafetensorError, OSError) as error:
        raise IndexDamaged(f"{path} is damaged", came=str(error), fix=f"Remove it: rm {path}") from error


def _require_same_sketch(previous: Index, k: int | None, precision: Precision | None) -> None:
    manifest = previous.manifest
    k = min(k or manifest.k, manifest.encoder.dim)  # a basis has no more components than its space
    precision = precision or manifest.precision
    if (k, precision) != (manifest.k, manifest.precision):
        raise OtherSketch(
            f"{previous.folder} has another sketch",
            expected=f"k {manifest.k}, {manifest.precision}",
            came=f"k {k}, {precision}",
            fix="Leave the options out, or add --refit, which encodes every picture again.",
        )


def _plan(
    spec: EncoderSpec,
    sketcher: Sketcher | None,
    grid: GridSketcher | None,
    k: int,
    precision: Precision,
    reduce_to: int | None,
) -> str:
    """What two runs must share for one to go on with the other's shards."""
    digest = hashlib.sha256(json.dumps([spec.to_dict(), k, precision, reduce_to], sort_keys=True).encode())
    if sketcher is not None:
        digest.update(sketcher.components.tobytes() + sketcher.scale.tobytes())
        for array in grid_arrays(grid).values():
            digest.update(array.tobytes())
    return digest.hexdigest()
