"""The index folder: what is in it, how it is opened, how a finished build replaces it.

``manifest.json`` is the commit point. It names every data file, and data files carry a part of their own checksum in
their names, so a new generation never touches the old one's files: whoever opened the old manifest keeps reading
the old files, and one rename makes the new generation the current one. ``images.parquet`` is a second name of the
current ledger, for people and other tools.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import faiss
import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet as pq
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file, save

from indexer.encoder import EncoderSpec
from indexer.errors import IndexerError
from indexer.grid import GridSketcher, Packed, grid_arrays, read_grid
from indexer.ledger import INDEXED, LEDGER_SCHEMA
from indexer.manifest import (
    FORMAT,
    MANIFEST,
    REBUILD,
    Calibration,
    DataFile,
    IndexDamaged,
    IndexMissing,
    Manifest,
    read_manifest,
    unreadable_file,
)
from indexer.scan import escape_path
from indexer.sketch import Codes, Precision, Sketcher, take_codes

LEDGER = "images.parquet"
WHOLE_CHECK_BYTES = 1 << 30
"""Up to this size, opening an index checks every byte (about half a second a GiB); beyond it, sizes and headers.
``beside verify`` always checks every byte."""

_INT8_OFFSET = 128  # FAISS stores signed bytes as unsigned ones, 128 higher.


class WriteFailed(IndexerError):
    """A file could not be written: the disk is full, say. What had its name before is untouched."""


class UnusableName(IndexerError):
    """An index folder whose path is not UTF-8."""


@dataclass(frozen=True, slots=True, eq=False)
class Index:
    """An opened index: facts in memory, vectors memory-mapped, read-only.

    Attributes
    ----------
    folder : Path
    manifest : Manifest
    ledger : pyarrow.Table
        `indexer.ledger.LEDGER_SCHEMA`, then the columns that came with a table of pictures; in id order.
    sketcher : Sketcher
    grid_sketcher : GridSketcher or None
        None for an index without grids.
    """

    folder: Path
    manifest: Manifest
    ledger: pa.Table
    images: pa.Table
    """The indexed rows of the ledger: row n here owns row n of the vectors."""
    sketcher: Sketcher
    grid_sketcher: GridSketcher | None
    _native: Any
    _sketch: Any
    _grid: Packed | None

    def __len__(self) -> int:
        return self.manifest.indexed

    @property
    def faiss_native(self) -> Any:
        """The native vectors as FAISS opened them."""
        return self._native

    def native(self) -> NDArray[np.float32]:
        """Embeddings of all images, mapped from disk.

        Returns
        -------
        native : (N, D) float32, read-only
            Unit rows in id order. Not aligned to its item size (FAISS's header is 45 bytes): copy what goes into a
            matrix product. Valid as long as this index is.
        """
        dim = self.manifest.encoder.dim
        if not len(self):
            return np.zeros((0, dim), dtype=np.float32)
        view: NDArray[np.float32] = faiss.rev_swig_ptr(self._native.get_xb(), len(self) * dim)
        view.flags.writeable = False
        return view.reshape(len(self), dim)

    def sketch(self, rows: NDArray[np.intp] | slice = slice(None)) -> Codes:
        """Quantised moments.

        Parameters
        ----------
        rows : (R,) int or slice
            Which images; all by default.

        Returns
        -------
        codes : (R, 2, K) int8 or float16
            A copy. ``sketcher.decode`` gives the moments.
        """
        k = self.manifest.k
        fp16 = self.manifest.precision is Precision.FP16
        width = 2 * k * (2 if fp16 else 1)
        if not len(self):
            return np.zeros((0, 2, k), dtype=np.float16 if fp16 else np.int8)
        stored = faiss.rev_swig_ptr(self._sketch.codes.data(), len(self) * width).reshape(len(self), width)
        if fp16:
            return np.ascontiguousarray(stored[rows]).view(np.float16).reshape(-1, 2, k)
        if isinstance(rows, slice):
            return (stored[rows] - np.uint8(_INT8_OFFSET)).view(np.int8).reshape(-1, 2, k)
        return take_codes(stored, rows, _INT8_OFFSET).reshape(-1, 2, k)

    def grid(self) -> Packed | None:
        """Packed patch grids of all images, mapped from disk.

        Returns
        -------
        packed : (N, row_bytes) uint8 or None, read-only
            For ``grid_sketcher``; None where the index has no grids.
        """
        return self._grid


def open_index(folder: Path) -> Index:
    """Open the current generation of an index.

    Parameters
    ----------
    folder : Path
        What ``beside index --out`` wrote.

    Raises
    ------
    IndexMissing
        No finished index there.
    IndexDamaged
        A file is missing, cut or changed, or of a layout this version does not read.
    UnusableName
    """
    require_name(folder)
    while True:
        manifest = read_manifest(folder)
        try:
            return _open(folder, manifest)
        except IndexDamaged:
            # A rebuild may have replaced the generation between the two reads; only a manifest that still stands
            # makes the damage real.
            if read_manifest(folder) == manifest:
                raise


def require_name(folder: Path) -> None:
    """Refuse a folder that FAISS cannot be told of: it takes text, not bytes.

    Raises
    ------
    UnusableName
    """
    try:
        str(folder).encode()
    except UnicodeEncodeError:
        raise UnusableName(
            f"{escape_path(folder)} cannot be an index folder",
            expected="a path in UTF-8",
            fix="Choose another name.",
        ) from None


def check_file(folder: Path, file: DataFile, *, whole: bool) -> None:
    """Hold a data file against the manifest.

    Parameters
    ----------
    whole : bool
        Whether to read every byte.

    Raises
    ------
    IndexDamaged
    """
    path = folder / file.name
    try:
        with path.open("rb") as file_there:
            size = os.fstat(file_there.fileno()).st_size
        if size != file.bytes:
            raise IndexDamaged(
                f"{path} is damaged", expected=f"{file.bytes} bytes", came=f"{size} bytes", fix=REBUILD
            )
        if whole and (came := sha256_of(path)) != file.sha256:
            raise IndexDamaged(
                f"{path} is damaged", expected=f"SHA-256 {file.sha256}", came=came, fix=REBUILD
            )
    except OSError as error:
        raise unreadable_file(path, error) from error


def write_index(
    folder: Path,
    *,
    image_root: Path,
    encoder: EncoderSpec,
    sketcher: Sketcher,
    calibration: Calibration,
    vectors: Iterable[tuple[NDArray[np.float32], Codes, Packed]],
    ledger: pa.Table,
    created: str,
    jpeg_reduce_to: int | None = None,
    grid: GridSketcher | None = None,
) -> Manifest:
    """Write a new generation and make it the current one.

    Parameters
    ----------
    vectors : iterable of ((B, D) float32, (B, 2, K) int8 or float16, (B, row_bytes) uint8)
        Unit rows, codes and grids (B, 0 without), N rows in all, block by block in id order.
    ledger : pyarrow.Table
        `indexer.ledger.LEDGER_SCHEMA` in id order, N rows of it with status ``indexed``; more columns may follow.
    grid : GridSketcher, optional
        What the grids were made with; None for an index without.

    Returns
    -------
    Manifest
        As it is now on disk.

    Raises
    ------
    WriteFailed
        The generation before is still the current one.
    """
    flat = faiss.IndexFlatIP(encoder.dim)
    fp16 = sketcher.precision is Precision.FP16
    kind = faiss.ScalarQuantizer.QT_fp16 if fp16 else faiss.ScalarQuantizer.QT_8bit_direct_signed
    quantised = faiss.IndexScalarQuantizer(2 * sketcher.k, kind, faiss.METRIC_INNER_PRODUCT)

    def gather(file: BinaryIO | None) -> None:
        for native, codes, packed in vectors:
            flat.add(np.ascontiguousarray(native, dtype=np.float32))
            quantised.add(codes.reshape(len(codes), 2 * sketcher.k).astype(np.float32))
            if file is not None:
                file.write(np.ascontiguousarray(packed).data)

    basis = {"components": sketcher.components, "scale": sketcher.scale} | grid_arrays(grid)
    writers: dict[str, Callable[[BinaryIO], object]] = {}
    if grid is None:
        gather(None)
    else:
        writers["grid"] = gather  # first: the grids stream to their file while the rest gathers in memory
    writers |= {
        "native": lambda f: _write_faiss(flat, f),
        "sketch": lambda f: _write_faiss(quantised, f),
        "basis": lambda f: f.write(save(basis)),
        "ledger": lambda f: pq.write_table(ledger, f, compression="zstd"),
    }
    try:
        files = {role: _add(folder, role, write) for role, write in writers.items()}
    except WriteFailed:
        tidy(folder)  # the half that was written takes room, and room is short
        raise
    status, counts = np.unique(
        ledger["reason"].drop_null().to_numpy(zero_copy_only=False), return_counts=True
    )
    manifest = Manifest(
        format=FORMAT,
        created=created,
        image_root=str(image_root),
        encoder=encoder,
        k=sketcher.k,
        precision=sketcher.precision,
        calibration=calibration,
        indexed=flat.ntotal,
        unreadable={str(reason): int(count) for reason, count in zip(status, counts, strict=True)},
        files=files,
        jpeg_reduce_to=jpeg_reduce_to,
    )
    write_atomically(folder / MANIFEST, lambda f: f.write(manifest.to_json().encode()))
    tidy(folder)
    return manifest


def tidy(folder: Path) -> None:
    """Remove what a killed build left in an index folder, and give the current ledger its plain name again.

    Only for the one builder that holds the folder: what it removes may be another builder's work.

    Raises
    ------
    WriteFailed
    """
    current: Mapping[str, DataFile] = {}
    try:
        current = read_manifest(folder).files
    except IndexDamaged:
        return
    except IndexMissing:
        pass
    keep = {file.name for file in current.values()}
    with writing(folder):
        for path in list(folder.iterdir()):
            if path.name not in keep and is_left_over(path):
                path.unlink(missing_ok=True)
        if current:
            _name_ledger(folder / current["ledger"].name, folder / LEDGER)


def is_left_over(path: Path) -> bool:
    """Whether a file is one that builds write and no manifest keeps: a half one, or one that its checksum names.

    The name alone is not enough to remove it: ``images-202311302359.parquet`` may be anyone's.
    """
    if path.name in {f"{name}{_PART}" for name in (MANIFEST, *map("".join, _DATA_FILES.values()))}:
        return True
    for stem, suffix in _DATA_FILES.values():
        if found := re.fullmatch(f"{stem}-([0-9a-f]{{12}}){re.escape(suffix)}", path.name):
            try:
                return sha256_of(path).startswith(found[1])
            except OSError:
                return not path.exists()  # another builder has just removed it
    return False


def write_atomically(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """Make a file appear whole or not at all, even if the machine stops.

    Parameters
    ----------
    path : Path
        Final name.
    write : callable
        Writes the content to the file it is given.

    Raises
    ------
    WriteFailed
        Whatever had the name before still has it.
    """
    temporary = _write_part(path.parent, path.name, write)
    with writing(path):
        temporary.replace(path)
        _sync(path.parent)


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn what the system, FAISS or Arrow say about a file or folder into `WriteFailed`, and say what to do."""
    try:
        yield
    except (OSError, RuntimeError, pa.ArrowException) as error:  # FAISS wraps what its writer meets
        match getattr(error, "errno", None):
            case errno.ENOSPC | errno.EDQUOT | errno.EFBIG:
                fix = "Make room and run the same command again."
            case errno.EACCES | errno.EPERM | errno.EROFS:
                fix = "See to it that this user may write there, and run the same command again."
            case _:
                fix = "Run the same command again once that is put right."
        raise WriteFailed(
            f"{path} cannot be written",
            came=getattr(error, "strerror", None) or str(error).splitlines()[0],
            fix=f"The index is as it was before. {fix}",
        ) from error


def sha256_of(path: Path) -> str:
    """SHA-256 of a file, as hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _open(folder: Path, manifest: Manifest) -> Index:
    files = manifest.files
    whole = sum(file.bytes for file in files.values()) <= WHOLE_CHECK_BYTES
    for file in files.values():
        check_file(folder, file, whole=whole)
    try:
        native = faiss.read_index(str(folder / files["native"].name), faiss.IO_FLAG_MMAP_IFC)
        sketch = faiss.read_index(str(folder / files["sketch"].name), faiss.IO_FLAG_MMAP_IFC)
        basis = load_file(folder / files["basis"].name)
        ledger = pq.read_table(folder / files["ledger"].name)
        images = ledger.filter(pa.compute.equal(ledger["status"], INDEXED))
        sketcher = Sketcher(basis["components"], basis["scale"], manifest.precision)
        grid_sketcher, grid = _open_grid(folder, manifest, basis)
    except (RuntimeError, OSError, SafetensorError, KeyError, ValueError, pa.ArrowException) as error:
        raise IndexDamaged(
            f"{folder} cannot be opened", came=str(error).splitlines()[0], fix=REBUILD
        ) from error
    shapes = {
        "native": ((native.ntotal, native.d), (manifest.indexed, manifest.encoder.dim)),
        "sketch": ((sketch.ntotal, sketch.d), (manifest.indexed, 2 * manifest.k)),
        "basis": (sketcher.components.shape, (manifest.k, manifest.encoder.dim)),
        "ledger": ((images.num_rows,), (manifest.indexed,)),
        "ledger columns": (ledger.schema.names[: len(LEDGER_SCHEMA)], LEDGER_SCHEMA.names),
    }
    for role, (came, expected) in shapes.items():
        if came != expected:
            raise IndexDamaged(
                f"{folder}: {role} does not fit the manifest", expected=expected, came=came, fix=REBUILD
            )
    return Index(folder, manifest, ledger, images, sketcher, grid_sketcher, native, sketch, grid)


def _open_grid(
    folder: Path, manifest: Manifest, basis: Mapping[str, NDArray[Any]]
) -> tuple[GridSketcher | None, Packed | None]:
    sketcher = read_grid(basis)
    if sketcher is None:
        return None, None
    shape = (manifest.indexed, sketcher.row_bytes)
    if not manifest.indexed:
        return sketcher, np.zeros(shape, np.uint8)
    # Raises ValueError where the file is shorter than that; longer is caught by its size in the manifest.
    return sketcher, np.asarray(np.memmap(folder / manifest.files["grid"].name, np.uint8, "r", shape=shape))


_DATA_FILES = {
    "native": ("native", ".faiss"),
    "sketch": ("sketch", ".faiss"),
    "grid": ("grid", ".bin"),
    "basis": ("basis", ".safetensors"),
    "ledger": ("images", ".parquet"),
}
_PART = ".part"
# Neither hidden nor random: what a killed build leaves is found, by people and by the next build.


def _add(folder: Path, role: str, write: Callable[[BinaryIO], object]) -> DataFile:
    """Write a data file under a name that holds a part of its checksum."""
    stem, suffix = _DATA_FILES[role]
    temporary = _write_part(folder, f"{stem}{suffix}", write)
    with writing(folder / f"{stem}{suffix}"):
        digest = sha256_of(temporary)
        file = DataFile(f"{stem}-{digest[:12]}{suffix}", temporary.stat().st_size, digest)
        temporary.replace(folder / file.name)
        _sync(folder)
    return file


def _write_part(folder: Path, name: str, write: Callable[[BinaryIO], object]) -> Path:
    temporary = folder / f"{name}{_PART}"
    try:
        with writing(folder / name), temporary.open("wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
    except WriteFailed:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
    return temporary


def _write_faiss(index: Any, file: BinaryIO) -> None:
    """Through Python's file, not FAISS's own, which does not look at what closing it says about a full disk."""
    failed: list[OSError] = []

    def write(content: bytes) -> int:
        try:
            return file.write(content)
        except OSError as error:
            failed.append(error)
            raise

    try:
        faiss.write_index(index, faiss.PyCallbackIOWriter(write))  # type: ignore[attr-defined]
    except Exception:
        if failed:
            raise failed[0] from None
        raise


def _name_ledger(path: Path, name: Path) -> None:
    """Give a file a second, plain name."""
    if name.exists() and name.samefile(path):
        return
    temporary = name.with_name(f"{name.name}{_PART}")
    try:
        temporary.hardlink_to(path)
    except OSError:  # not every file system has links
        temporary.write_bytes(path.read_bytes())
    temporary.replace(name)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
