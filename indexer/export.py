"""An index for any engine with an inner product: one joint vector an image, ``[e ; lambda M_x ; lambda M_y]``.

The moments are the sketch's own, decoded, in the coordinates of its basis, which is exported too. A query is
``[t ; d]`` with ``d = [B u_x (s - o) ; B u_y (s - o)]`` in units of its own spread over the collection, which is
``sqrt(d' S d)`` for the exported matrix S; relations add. Its inner product with the joint vector is the score of the
moment readout, the first stage; a second look at patch grids needs the index itself.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from indexer.encoder import Encoder, Pixels
from indexer.errors import IndexerError
from indexer.moments import spatial_moments
from indexer.store import Index, write_atomically

Floats = NDArray[np.float32]

ABOUT = "export.json"
REFERENCE_IMAGES = 512
_ROWS_AT_ONCE = 4096


class ExportFormat(StrEnum):
    """How the vectors are written."""

    NPY = "npy"
    PARQUET = "parquet"


class ExportRefused(IndexerError):
    """A folder that holds something else."""


RECIPE = """\
import json, numpy as np
from indexer.encoder import EncoderSpec, phrase_text
from indexer.load import load_encoder_for
encoder = load_encoder_for(EncoderSpec.from_dict(json.load(open("export.json"))["encoder"]))
vectors, basis, spread = map(np.load, ("vectors.npy", "basis.npy", "spread.npy"))
def joint_query(text, subject, object, x, y):  # left (-1, 0), right (1, 0), above (0, -1), below (0, 1)
    t, s, o = encoder.encode_texts([text] + [phrase_text(encoder.spec.template, p) for p in (subject, object)]).vectors
    d = np.outer((x, y), basis @ (s - o)).ravel()
    return np.concatenate([t, d / max(np.sqrt(d @ spread @ d), 0.5)])
best = np.argsort(-vectors @ joint_query("a cup to the left of a laptop", "cup", "laptop", -1, 0), kind="stable")[:10]
"""
"""Searching an export by one inner product. The last line is what a vector database does; never let it use cosine,
whose denominator mixes the two parts."""


def joint_vectors(index: Index) -> Iterator[Floats]:
    """Joint vectors of all images in id order, some at a time.

    Yields
    ------
    vectors : (B, D + 2 K) float32
        ``[e ; lambda M_x ; lambda M_y]``; not of unit length.
    """
    native = index.native()
    for start in range(0, len(index), _ROWS_AT_ONCE):
        rows = slice(start, start + _ROWS_AT_ONCE)
        yield _joint(index, native[rows], index.sketcher.decode(index.sketch(rows)))


def joint_vector(index: Index, encoder: Encoder, pixels: Pixels) -> Floats:
    """Joint vector of one picture, as it would be exported if it were in the index.

    Parameters
    ----------
    index : Index
    encoder : Encoder
        The index's own.
    pixels : Pixels
        From ``encoder.prepare``.

    Returns
    -------
    vector : (D + 2 K,) float32
    """
    features = encoder.encode_images([pixels])
    codes = index.sketcher.encode(spatial_moments(features.tokens[0])[None])
    joint: Floats = _joint(index, features.pooled, index.sketcher.decode(codes))[0]
    return joint


def displacement_spread(index: Index) -> Floats:
    """What every direction's displacement varies by between images, as a multiple of what the native score does.

    Returns
    -------
    spread : (2 K, 2 K) float32
        Covariance of ``[lambda M_x ; lambda M_y]`` over the fixed sample that a search takes its units from, divided
        by the variance of the native score. Zeros where there is nothing to measure.
    """
    size = 2 * index.manifest.k
    native_std = index.manifest.calibration.native_std
    if len(index) < 2 or native_std <= 0:
        return np.zeros((size, size), dtype=np.float32)
    rows = np.unique(np.linspace(0, len(index) - 1, min(len(index), REFERENCE_IMAGES)).astype(int))
    moments = index.sketcher.decode(index.sketch(rows)).reshape(len(rows), size).astype(np.float64)
    scaled = np.cov(moments * (index.manifest.calibration.lam / native_std), rowvar=False, bias=True)
    return scaled.astype(np.float32)


def export_index(index: Index, out: Path, kind: ExportFormat) -> None:
    """Write joint vectors, ids, what a query needs (basis, spread), and a recipe to a folder.

    Parameters
    ----------
    index : Index
    out : Path
        New, empty, or an earlier export, which is replaced.
    kind : ExportFormat
        ``npy``: ``vectors.npy`` and ``images.parquet``, row by row. ``parquet``: ``vectors.parquet``, the images with
        a column ``vector``.

    Raises
    ------
    ExportRefused
        ``out`` holds something else.
    WriteFailed
        A full disk.
    """
    try:
        out.mkdir(parents=True, exist_ok=True)
        foreign = next(out.iterdir(), None)
    except OSError as error:
        raise ExportRefused(f"{out} cannot be used as a folder", came=error.strerror) from error
    if foreign is not None and not _is_export(out):
        raise ExportRefused(f"{out} holds something else", came=foreign.name, fix="Choose a new folder.")
    basis = index.sketcher.components
    write_atomically(out / ABOUT, lambda file: file.write(json.dumps(_about(index, kind), indent=2).encode()))
    write_atomically(out / "basis.npy", lambda file: np.save(file, basis))
    spread = displacement_spread(index)
    write_atomically(out / "spread.npy", lambda file: np.save(file, spread))
    write_atomically(out / "README.md", lambda file: file.write(_readme(kind).encode()))
    if kind is ExportFormat.NPY:
        write_atomically(out / "images.parquet", lambda file: pq.write_table(_images(index), file))
        write_atomically(out / "vectors.npy", lambda file: _write_npy(index, file))
    else:
        write_atomically(out / "vectors.parquet", lambda file: _write_parquet(index, file))


def _is_export(folder: Path) -> bool:
    """Whether a folder holds an export: others write files of these names too."""
    try:
        about = json.loads((folder / ABOUT).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(about, dict) and {"layout", "generation"} <= about.keys()


def _joint(index: Index, native: Floats, moments: Floats) -> Floats:
    lam = np.float32(index.manifest.calibration.lam)
    return np.concatenate([native, lam * moments[:, 0], lam * moments[:, 1]], axis=1)


def _about(index: Index, kind: ExportFormat) -> dict[str, Any]:
    manifest = index.manifest
    return {
        "format": kind.value,
        "images": len(index),
        "dim": manifest.encoder.dim,
        "k": manifest.k,
        "lambda": manifest.calibration.lam,
        "layout": "[e ; lambda M_x ; lambda M_y], x right, y down; score by inner product",
        "encoder": manifest.encoder.to_dict(),
        "generation": manifest.files["native"].sha256,
    }


def _readme(kind: ExportFormat) -> str:
    read = (
        ""
        if kind is ExportFormat.NPY
        else "\nHere the vectors are the column `vector` of `vectors.parquet`.\n"
    )
    return f"# Search it by one inner product\n\n```python\n{RECIPE}```\n{read}"


def _images(index: Index) -> pa.Table:
    """What a vector database keeps beside a vector: name, facts, and columns that came with the pictures."""
    return index.images.drop_columns(["status", "reason", "detail"])


def _write_npy(index: Index, file: BinaryIO) -> None:
    shape = (len(index), index.manifest.encoder.dim + 2 * index.manifest.k)
    header = {"descr": "<f4", "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, header)
    for vectors in joint_vectors(index):
        file.write(vectors.astype("<f4", copy=False).tobytes())


def _write_parquet(index: Index, file: BinaryIO) -> None:
    images = _images(index)
    width = index.manifest.encoder.dim + 2 * index.manifest.k
    schema = images.schema.append(pa.field("vector", pa.list_(pa.float32(), width)))
    with pq.ParquetWriter(file, schema, compression="zstd") as writer:
        start = 0
        for vectors in joint_vectors(index):
            part = images.slice(start, len(vectors))
            column = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), width)
            writer.write_table(part.append_column("vector", column).cast(schema))
            start += len(vectors)
