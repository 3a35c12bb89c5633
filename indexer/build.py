"""From a folder of pictures to an index folder: resumable, incremental, bounded in memory.

Pictures are worked on in id order. Ids are hashes of paths, so whatever comes first is a fair sample of the
collection: the basis and lambda are fitted on the first pictures encoded, and all later ones go straight from tokens
to sketch. Encoded pictures are committed to shards in ``build/``; a killed run loses at most the open shard, and the
next run encodes only what no shard and no finished index already holds under the same content hash.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import filelock
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from indexer.calibrate import calibrate
from indexer.encoder import Encoder, EncoderSpec, Pixels, require_same_encoder
from indexer.errors import IndexerError, UnreadableImage, UnreadableReason
from indexer.images import open_image
from indexer.moments import spatial_moments
from indexer.scan import ScannedFile, format_id, open_regular, scan_folder
from indexer.sketch import Codes, Precision, Sketcher, fit_sketcher
from indexer.store import (
    LEDGER_SCHEMA,
    MANIFEST,
    Calibration,
    Index,
    IndexDamaged,
    IndexMissing,
    open_index,
    write_atomically,
    write_index,
)

Floats = NDArray[np.float32]

DEFAULT_K = 64
SAMPLE_IMAGES = 512
"""Images the basis and lambda are fitted on: the first in id order."""
SAMPLE_TOKENS = 64
"""Patch tokens taken from each of them."""
SHARD_IMAGES = 1024
SHARD_SECONDS = 60.0
"""What a killed build loses at most."""
BATCH = 16

_BUILD = "build"
_BASIS = "basis.safetensors"
_SAMPLE = "sample.safetensors"


class NoImages(IndexerError):
    """A folder in which nothing can be indexed."""


class BuildRefused(IndexerError):
    """An output folder that must not be written to."""


class BuildInterrupted(IndexerError):
    """The user stopped the build; what was encoded is kept."""


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a build stands.

    Attributes
    ----------
    done, total : int
        Files looked at, of files found.
    images_per_s : float
        Encoded in this run, smoothed over the whole run.
    seconds_left : float or None
        None while nothing is known.
    unreadable : int
        Files without an embedding so far.
    """

    done: int
    total: int
    images_per_s: float
    seconds_left: float | None
    unreadable: int


@dataclass(frozen=True, slots=True)
class BuildSummary:
    """What a build did.

    Attributes
    ----------
    indexed : int
        Images in the finished index.
    encoded, reused, removed : int
        Encoded in this run; taken over unchanged; gone since the last run.
    unreadable : Mapping[str, tuple of str]
        Relative paths by reason.
    seconds, images_per_s : float
        Wall time of the run, and encoded images over it.
    """

    indexed: int
    encoded: int
    reused: int
    removed: int
    unreadable: Mapping[str, tuple[str, ...]]
    seconds: float
    images_per_s: float


def build_index(
    images: Path,
    out: Path,
    encoder: Encoder,
    *,
    workers: int | None = None,
    k: int | None = None,
    precision: Precision | None = None,
    batch: int = BATCH,
    progress: Callable[[Progress], None] = lambda _: None,
) -> BuildSummary:
    """Build an index, go on with an interrupted one, or bring one up to date.

    Parameters
    ----------
    images : Path
        Folder of pictures, walked to its depths.
    out : Path
        Index folder: new, empty, or one this function made.
    encoder : Encoder
    workers : int, optional
        Decoding threads; by default one a core.
    k, precision : optional
        Of the sketch; by default those of the existing index, else 64 and int8.
    batch : int
        Pictures in one encoder pass.
    progress : callable
        Told after every batch.

    Raises
    ------
    UnusableFolder, NoImages
        Nothing to index.
    BuildRefused
        ``out`` holds something else, another sketch, or another build is running.
    EncoderMismatch, IndexDamaged
        ``out`` holds an index that cannot be continued.
    BuildInterrupted
        Ctrl-C; run the same command to go on.
    """
    started = time.monotonic()
    files = _files(images, out)
    _claim(out)
    with _locked(out):
        previous = _previous(out, encoder.spec)
        work = _Work(out / _BUILD, encoder, previous, k, precision)
        run = _Run(work, total=len(files), progress=progress)
        with contextlib.closing(
            _loaded(files, work.known, encoder, workers or os.cpu_count() or 1)
        ) as stream:
            try:
                for item in stream:
                    run.take(item)
                    if len(run.batch) >= batch:
                        run.encode()
                run.encode()
                work.commit()
            except KeyboardInterrupt:
                work.save()
                raise BuildInterrupted(
                    f"stopped after {run.done} of {len(files)} files; what was encoded is kept in {out}",
                    fix="Run the same command again to go on.",
                ) from None
        if not run.indexed:
            raise NoImages(
                f"no picture in {images} could be read",
                came=", ".join(f"{len(p)} {reason}" for reason, p in sorted(run.unreadable.items())),
            )
        removed = _finish(out, images, encoder.spec, work, run.rows, previous)
    seconds = time.monotonic() - started
    return BuildSummary(
        indexed=run.indexed,
        encoded=run.encoded,
        reused=run.indexed - run.encoded,
        removed=removed,
        unreadable={reason: tuple(paths) for reason, paths in sorted(run.unreadable.items())},
        seconds=seconds,
        images_per_s=run.encoded / seconds,
    )


Row = dict[str, Any]
"""One ledger row, see :data:`indexer.store.LEDGER_SCHEMA`."""


@dataclass(frozen=True, slots=True, eq=False)
class _Loaded:
    """A file after decoding: pixels to encode, or none where the ledger row says all."""

    row: Row
    pixels: Pixels | None = None


@dataclass(frozen=True, slots=True)
class _Vectors:
    """Where the vectors of a known image are: row of an array pair."""

    native: Floats
    codes: Codes
    row: int


class _Work:
    """The state of a build on disk: what is known, the basis, and the open shard.

    Until the basis is fitted, pictures gather in a *sample* that keeps what a fit needs; from then on they go to
    shards that hold codes only. Both are files of ``build/``, so a run that stops in either phase goes on from there.
    """

    def __init__(
        self,
        folder: Path,
        encoder: Encoder,
        previous: Index | None,
        k: int | None,
        precision: Precision | None,
    ) -> None:
        self.encoder = encoder
        self.folder = folder
        self.sketcher: Sketcher | None = None
        self.calibration: Calibration | None = None
        self.known: dict[str, Row] = {}
        self.vectors: dict[str, _Vectors] = {}
        self._rows: list[Row] = []
        self._native: list[Floats] = []
        self._codes: list[Codes] = []
        self._moments: list[Floats] = []
        self._tokens: list[Floats] = []
        self._saved = time.monotonic()
        if previous is not None:
            self.sketcher, self.calibration = previous.sketcher, previous.manifest.calibration
            _require_same_sketch(previous, k, precision)
            self._learn(previous.images.to_pylist(), previous.native(), previous.sketch())
        self._k = k or DEFAULT_K
        self._precision = precision or Precision.INT8
        self._plan = _plan(encoder.spec, self.sketcher, self._k, self._precision)
        self._shards = self._resume()

    def add(self, row: Row, pooled: Floats, tokens: Floats) -> None:
        """Take one encoded picture: pooled (D,), tokens (H, W, D)."""
        moments = spatial_moments(tokens)
        self._rows.append(row)
        self._native.append(pooled)
        if self.sketcher is None:
            flat = tokens.reshape(-1, tokens.shape[-1])
            pick = np.random.default_rng(int(row["id"], 16)).permutation(len(flat))[:SAMPLE_TOKENS]
            self._moments.append(moments)
            self._tokens.append(flat[pick])
            full = len(self._rows) >= SAMPLE_IMAGES
        else:
            self._codes.append(self.sketcher.encode(moments[None])[0])
            full = len(self._rows) >= SHARD_IMAGES
        if full:
            self.commit()
        elif time.monotonic() - self._saved > SHARD_SECONDS:
            self.save()

    def save(self) -> None:
        """Put what is encoded on disk, without deciding on a basis."""
        self._saved = time.monotonic()
        if self.sketcher is not None:
            self.commit()
        elif self._rows:
            arrays = {
                "native": np.stack(self._native),
                "moments": np.stack(self._moments),
                "tokens": np.concatenate(self._tokens),
                "tokens_each": np.array([len(tokens) for tokens in self._tokens]),
            }
            self._write(_SAMPLE, arrays, rows=self._rows)

    def commit(self) -> None:
        """Write the open shard; fit the basis first where there is none."""
        self._saved = time.monotonic()
        if not self._rows:
            return
        native = np.stack(self._native)
        codes = self._fit(native) if self.sketcher is None else np.stack(self._codes)
        self._write(
            f"shard-{self._shards:06d}.safetensors", {"native": native, "codes": codes}, rows=self._rows
        )
        self._learn(self._rows, native, codes)
        self._shards += 1
        self._rows, self._native, self._codes = [], [], []

    def _fit(self, native: Floats) -> Codes:
        """Fit basis, quantiser and lambda on the sample, and keep them for a run that goes on from here."""
        moments = np.stack(self._moments)
        sketcher = fit_sketcher(np.concatenate(self._tokens), moments, k=self._k, precision=self._precision)
        codes = sketcher.encode(moments)
        calibration = calibrate(self.encoder, native, codes, sketcher)
        arrays = {"components": sketcher.components, "scale": sketcher.scale}
        self._write(_BASIS, arrays, calibration=asdict(calibration))
        self.sketcher, self.calibration = sketcher, calibration
        self._moments, self._tokens = [], []
        return codes

    def _resume(self) -> int:
        """Read what an interrupted run left; what another encoder or sketch left is of no use and goes."""
        self.folder.mkdir(parents=True, exist_ok=True)
        if self.sketcher is None and (basis := self._read(_BASIS)):
            arrays, facts = basis
            self.sketcher = Sketcher(arrays["components"], arrays["scale"], self._precision)
            self.calibration = Calibration(**facts["calibration"])
        next_shard = 0
        for path in sorted(self.folder.glob("shard-*.safetensors")):
            if self.sketcher is not None and (shard := self._read(path.name)):
                arrays, facts = shard
                self._learn(facts["rows"], arrays["native"], arrays["codes"])
                next_shard = int(path.stem.removeprefix("shard-")) + 1
        if self.sketcher is None and (sample := self._read(_SAMPLE)):
            arrays, facts = sample
            self._rows = facts["rows"]
            self._native, self._moments = list(arrays["native"]), list(arrays["moments"])
            self._tokens = np.split(arrays["tokens"], np.cumsum(arrays["tokens_each"])[:-1])
            self.known |= {row["id"]: row for row in self._rows}
        return next_shard

    def _learn(self, rows: Sequence[Row], native: Floats, codes: Codes) -> None:
        for number, row in enumerate(rows):
            self.known[row["id"]] = row
            self.vectors[row["id"]] = _Vectors(native, codes, number)

    def _write(self, name: str, arrays: dict[str, NDArray[Any]], **facts: object) -> None:
        metadata = {"plan": self._plan, "facts": json.dumps(facts)}
        write_atomically(self.folder / name, lambda path: save_file(arrays, path, metadata=metadata))

    def _read(self, name: str) -> tuple[dict[str, Any], dict[str, Any]] | None:
        """Arrays and facts of a file of this plan; None where it is missing, or of another plan and removed."""
        path = self.folder / name
        if not path.exists():
            return None
        try:
            with safe_open(path, framework="numpy") as file:
                arrays = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118  (not a mapping)
                metadata = file.metadata() or {}
        except (SafetensorError, OSError) as error:
            raise IndexDamaged(f"{path} is damaged", came=str(error), fix=f"Remove it: rm {path}") from error
        if metadata.get("plan") != self._plan:
            path.unlink()
            return None
        return arrays, json.loads(metadata["facts"])


class _Run:
    """The counts of one run, and its open batch."""

    def __init__(self, work: _Work, *, total: int, progress: Callable[[Progress], None]) -> None:
        self._work = work
        self._total = total
        self._progress = progress
        self._started = time.monotonic()
        self.batch: list[_Loaded] = []
        self.rows: list[Row] = []
        self.unreadable: dict[str, list[str]] = {}
        self.done = self.encoded = self.indexed = 0

    def take(self, item: _Loaded) -> None:
        self.rows.append(item.row)
        if item.row["status"] == "unreadable":
            self.unreadable.setdefault(item.row["reason"], []).append(item.row["path"])
        else:
            self.indexed += 1
        if item.pixels is not None:
            self.batch.append(item)
        else:
            self.done += 1
            if self.done % 256 == 0 or self.done == self._total:
                self._tell()

    def encode(self) -> None:
        if not self.batch:
            return
        features = self._work.encoder.encode_images([item.pixels for item in self.batch if item.pixels])
        for item, pooled, tokens in zip(self.batch, features.pooled, features.tokens, strict=True):
            self._work.add(item.row, pooled, tokens)
        self.done += len(self.batch)
        self.encoded += len(self.batch)
        self.batch = []
        self._tell()

    def _tell(self) -> None:
        rate = self.encoded / max(time.monotonic() - self._started, 1e-9)
        left = (self._total - self.done) / rate if rate else None
        self._progress(Progress(self.done, self._total, rate, left, sum(map(len, self.unreadable.values()))))


def _files(images: Path, out: Path) -> list[ScannedFile]:
    """Everything to look at, in id order."""
    files = sorted(scan_folder(images, exclude=out), key=lambda file: file.id)
    if not files:
        raise NoImages(
            f"no pictures in {images}",
            expected="files with a picture's extension, at any depth",
            fix="Name the folder that holds them.",
        )
    for one, other in pairwise(files):
        if one.id == other.id:
            raise NoImages(
                f"two names have one id ({format_id(one.id)})",
                came=f"{one.relative_path} and {other.relative_path}",
                fix="Rename one of them.",
            )
    return files


def _claim(out: Path) -> None:
    """Make the output folder, and refuse one that holds something else."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        foreign = [p.name for p in out.iterdir() if p.name not in (_BUILD, ".lock")]
    except OSError as error:
        raise BuildRefused(f"{out} cannot be used as an index folder", came=error.strerror) from error
    if foreign and not (out / MANIFEST).exists() and not (out / _BUILD).exists():
        raise BuildRefused(
            f"{out} holds something else",
            came=f"{foreign[0]} and {len(foreign) - 1} more",
            fix="Choose a new folder.",
        )


@contextlib.contextmanager
def _locked(out: Path) -> Iterator[None]:
    """Hold the folder for one builder; the system lets go of the lock when a process dies."""
    lock = filelock.FileLock(out / ".lock")
    try:
        with lock.acquire(timeout=0):
            yield
    except filelock.Timeout:
        raise BuildRefused(f"another build is writing to {out}", fix="Wait for it, or stop it.") from None


def _previous(out: Path, spec: EncoderSpec) -> Index | None:
    try:
        index = open_index(out)
    except IndexMissing:
        return None
    require_same_encoder(index.manifest.encoder, spec)
    return index


def _require_same_sketch(previous: Index, k: int | None, precision: Precision | None) -> None:
    manifest = previous.manifest
    if (k or manifest.k, precision or manifest.precision) != (manifest.k, manifest.precision):
        raise BuildRefused(
            f"{previous.folder} has another sketch",
            expected=f"k {manifest.k}, {manifest.precision}",
            came=f"k {k or manifest.k}, {precision or manifest.precision}",
            fix="Leave the options out, or build a new index.",
        )


def _plan(spec: EncoderSpec, sketcher: Sketcher | None, k: int, precision: Precision) -> str:
    """What two runs must share for one to go on with the other's shards."""
    digest = hashlib.sha256(json.dumps([spec.to_dict(), k, precision.value], sort_keys=True).encode())
    if sketcher is not None:
        digest.update(sketcher.components.tobytes() + sketcher.scale.tobytes())
    return digest.hexdigest()


def _loaded(
    files: Iterable[ScannedFile], known: Mapping[str, Row], encoder: Encoder, workers: int
) -> Generator[_Loaded, None, None]:
    """Decode ahead in threads, in order, holding a bounded number of pictures.

    Pillow and the transforms let go of the interpreter while they work, so threads are enough to keep the encoder
    fed, and they share its preprocessing without a copy.
    """
    ahead: deque[Future[_Loaded]] = deque()
    with ThreadPoolExecutor(workers, thread_name_prefix="decode") as pool:
        try:
            for file in files:
                ahead.append(pool.submit(_load, file, known.get(format_id(file.id)), encoder))
                if len(ahead) > workers + BATCH:
                    yield ahead.popleft().result()
            while ahead:
                yield ahead.popleft().result()
        finally:
            for future in ahead:
                future.cancel()


def _load(file: ScannedFile, known: Row | None, encoder: Encoder) -> _Loaded:
    row: Row = {name: None for name in LEDGER_SCHEMA.names}
    row |= {"id": format_id(file.id), "path": file.relative_path, "bytes": file.size}
    try:
        if file.problem is not None:
            raise UnreadableImage(file.problem, file.detail)
        with open_regular(file.path) as opened_file:
            content = opened_file.read()
        row |= {"content_hash": hashlib.sha256(content).hexdigest(), "bytes": len(content)}
        if known is not None and known["content_hash"] == row["content_hash"]:
            return _Loaded(known)
        opened = open_image(content)
        pixels = encoder.prepare(opened.image)
    except UnreadableImage as error:
        return _Loaded(row | {"status": "unreadable", "reason": error.reason.value, "detail": error.detail})
    except OSError as error:  # a disk that fails while the file is read
        detail = error.strerror or str(error)
        return _Loaded(
            row | {"status": "unreadable", "reason": UnreadableReason.BROKEN.value, "detail": detail}
        )
    return _Loaded(
        row
        | {
            "width": opened.width,
            "height": opened.height,
            "orientation": opened.orientation,
            "format": opened.format,
            "status": "indexed",
            "detail": "; ".join(opened.warnings) or None,
        },
        pixels,
    )


def _finish(
    out: Path, images: Path, spec: EncoderSpec, work: _Work, rows: list[Row], previous: Index | None
) -> int:
    """Merge old and new into the next generation; returns how many images left."""
    assert work.sketcher is not None
    assert work.calibration is not None
    ledger = pa.Table.from_pylist(rows, schema=LEDGER_SCHEMA)
    old = set() if previous is None else set(previous.images["id"].to_pylist())
    indexed = [row for row in rows if row["status"] == "indexed"]
    removed = len(old - {row["id"] for row in indexed})
    root = images.resolve()
    unchanged = (
        previous is not None and ledger.equals(previous.ledger) and previous.manifest.image_root == str(root)
    )
    if not unchanged:
        native = np.empty((len(indexed), spec.dim), dtype=np.float32)
        codes = np.empty((len(indexed), 2, work.sketcher.k), dtype=_code_type(work.sketcher))
        for number, row in enumerate(indexed):
            vectors = work.vectors[row["id"]]
            native[number], codes[number] = vectors.native[vectors.row], vectors.codes[vectors.row]
        write_index(
            out,
            image_root=root,
            encoder=spec,
            sketcher=work.sketcher,
            calibration=work.calibration,
            native=native,
            codes=codes,
            ledger=ledger,
            created=datetime.now(UTC).isoformat(timespec="seconds"),
        )
    shutil.rmtree(work.folder)
    return removed


def _code_type(sketcher: Sketcher) -> type[np.int8] | type[np.float16]:
    return np.float16 if sketcher.precision is Precision.FP16 else np.int8
