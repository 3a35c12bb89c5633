"""From pictures to an index folder: resumable, incremental, bounded in memory.

Pictures are worked on in id order. Ids are hashes of paths, so whatever comes first is a fair sample of the
collection: the basis and lambda are fitted on the first pictures encoded, and all later ones go straight from tokens
to sketch. Encoded pictures are committed to shards in ``build/``; a killed run loses at most the open shard, and the
next run encodes only what no shard and no finished index already holds under the same content hash.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import filelock

from indexer.decode import DRAFT_MARGIN, Decoded, DecodeJob, DecodeSetup
from indexer.encoder import Encoder, require_same_encoder
from indexer.errors import IndexerError
from indexer.ledger import INDEXED, UNREADABLE, LedgerRow, from_table, to_table
from indexer.manifest import IndexDamaged, IndexMissing, Manifest, read_manifest
from indexer.scan import ScannedFile, escape_path
from indexer.sketch import Precision
from indexer.sources import Collection, NoImages, find_pictures
from indexer.store import Index, is_left_over, open_index, require_name, tidy, write_index
from indexer.stream import Encoded, Encoding, encode_here
from indexer.workspace import BUILD, Workspace, foreign_files

BATCH = 16
FILE_SECONDS = 60.0
"""How long reading and decoding one file may take."""
_RATE_SECONDS = 30.0


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
    encoded : int
        Pictures encoded in this run.
    images_per_s : float
        Encoded over the last half minute.
    seconds_left : float or None
        At the rate of the last half minute; None while nothing is known.
    unreadable : Mapping[str, int]
        Files without an embedding so far, by reason.
    """

    done: int
    total: int
    encoded: int
    images_per_s: float
    seconds_left: float | None
    unreadable: Mapping[str, int]


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
    refit_due : bool
        Whether the collection has outgrown its basis, see `indexer.manifest.Manifest.refit_due`.
    """

    indexed: int
    encoded: int
    reused: int
    removed: int
    unreadable: Mapping[str, tuple[str, ...]]
    seconds: float
    images_per_s: float
    refit_due: bool


def build_index(
    images: Path | Collection,
    out: Path,
    encoder: Encoder,
    *,
    workers: int | None = None,
    k: int | None = None,
    precision: Precision | None = None,
    refit: bool = False,
    draft: bool | None = None,
    batch: int = BATCH,
    file_seconds: float = FILE_SECONDS,
    encoding: Encoding | None = None,
    progress: Callable[[Progress], None] = lambda _: None,
) -> BuildSummary:
    """Build an index, go on with an interrupted one, or bring one up to date.

    Parameters
    ----------
    images : Path or Collection
        What holds the pictures, or what `indexer.sources.find_pictures` found there.
    out : Path
        Index folder: new, empty, or one this function made.
    encoder : Encoder
    workers : int, optional
        Decoding processes; by default one a core. 0 decodes in this process and cannot end a decoder that hangs.
    k, precision : optional
        Of the sketch; by default those of the existing index, else 64 and int8.
    refit : bool
        Fit basis and lambda anew. A sketch holds too little for that, so every picture is encoded again.
    draft : bool, optional
        Let the JPEG decoder leave out resolution that the encoder does not use: faster on large photographs, and
        vectors no longer equal the encoder's own to the last bit. By default as the existing index, else not.
    batch : int
        Pictures in one encoder pass.
    file_seconds : float
        After this long on one file, its process is killed and the file is unreadable.
    encoding : Encoding, optional
        Encodes elsewhere, see `indexer.ray_build`; ``encoder`` then fits lambda alone.
    progress : callable
        Told after every batch.

    Raises
    ------
    UnusableFolder, BadSource, NoImages
        Nothing to index.
    BuildRefused, OtherSketch, UnusableName
        ``out`` holds something else, another sketch, or another build is running.
    EncoderMismatch, IndexDamaged
        ``out`` holds an index that cannot be continued.
    WriteFailed
        A full disk, or no right to write; an index that was there before is as it was.
    BuildInterrupted
        Ctrl-C; run the same command to go on.
    """
    started = time.monotonic()
    encoding = encoding or encode_here(encoder, _cores() if workers is None else workers)
    pictures = images if isinstance(images, Collection) else find_pictures(images, exclude=out)
    _claim(out)
    with _locked(out):
        tidy(out)
        previous = _previous(out, encoder)
        reduce_to = _reduce_to(encoder, None if refit else previous, draft)
        run = _Run(total=len(pictures.files), batch=batch, progress=progress)
        try:
            work = Workspace(
                out / BUILD,
                encoder,
                None if refit else previous,
                k=k,
                precision=precision,
                collection=len(pictures.files),
                reduce_to=reduce_to,
            )
            setup = DecodeSetup(encoder.preparer, reduce_to, file_seconds)
            try:
                run.encode_all(pictures, work, setup, encoding)
            except KeyboardInterrupt:
                work.save()
                raise
            if not run.indexed:
                raise NoImages(
                    f"no picture in {pictures.root} could be read",
                    came=", ".join(f"{len(p)} {reason}" for reason, p in sorted(run.unreadable.items())),
                )
            manifest, removed = _finish(out, pictures, encoder, work, run.rows, previous, reduce_to)
        except KeyboardInterrupt:
            raise BuildInterrupted(
                f"stopped after {run.done} of {run.total} files; what was encoded is kept in {out}",
                fix="Run the same command again to go on.",
            ) from None
    seconds = time.monotonic() - started
    return BuildSummary(
        indexed=run.indexed,
        encoded=run.encoded,
        reused=run.indexed - run.encoded,
        removed=removed,
        unreadable={reason: tuple(paths) for reason, paths in sorted(run.unreadable.items())},
        seconds=seconds,
        images_per_s=run.encoded / seconds,
        refit_due=manifest.refit_due,
    )


class _Run:
    """One pass over the files, and what it has counted."""

    def __init__(self, *, total: int, batch: int, progress: Callable[[Progress], None]) -> None:
        self.total = total
        self.rows: list[LedgerRow] = []
        self.unreadable: dict[str, list[str]] = {}
        self.done = self.encoded = self.indexed = 0
        self._batch = batch
        self._progress = progress
        self._recent = deque([(time.monotonic(), 0, 0)])

    def encode_all(self, pictures: Collection, work: Workspace, setup: DecodeSetup, encode: Encoding) -> None:
        """Take every file, encoded where it is not known, and leave nothing open."""
        jobs = ((file, _job(file, work)) for file in pictures.files)
        with contextlib.closing(encode(jobs, setup, self._batch)) as stream:
            for one in stream:
                self._take(one, work)
        work.commit()
        self.rows.sort(key=lambda row: row.id)

    def _take(self, one: Encoded, work: Workspace) -> None:
        if one.decoded is not None and one.decoded.reason is None and one.pooled is None:
            row = work.known[one.file.id].row
        else:
            row = _row(one.file, one.decoded)
        if one.pooled is not None and one.tokens is not None:
            work.add(row, one.pooled, one.tokens)
            self.encoded += 1
        self.done += 1
        self.rows.append(row)
        if row.status == UNREADABLE:
            self.unreadable.setdefault(row.reason or "", []).append(row.path)
        else:
            self.indexed += 1
        every = 256 if one.pooled is None else self._batch
        if self.done == self.total or (self.done if one.pooled is None else self.encoded) % every == 0:
            self._tell()

    def _tell(self) -> None:
        now = time.monotonic()
        while len(self._recent) > 1 and now - self._recent[1][0] > _RATE_SECONDS:
            self._recent.popleft()
        then, done, encoded = self._recent[0]
        self._recent.append((now, self.done, self.encoded))
        seconds = max(now - then, 1e-9)
        looked_at = (self.done - done) / seconds
        self._progress(
            Progress(
                self.done,
                self.total,
                self.encoded,
                (self.encoded - encoded) / seconds,
                (self.total - self.done) / looked_at if looked_at else None,
                {reason: len(paths) for reason, paths in self.unreadable.items()},
            )
        )


def _job(file: ScannedFile, work: Workspace) -> DecodeJob | None:
    if file.problem is not None:
        return None
    known = work.known.get(file.id)
    return DecodeJob(file.path, file.offset, file.size, known.row.content_hash if known else None)


def _row(file: ScannedFile, decoded: Decoded | None) -> LedgerRow:
    """What the ledger says of a file that was not known."""
    if decoded is None:
        decoded = Decoded(reason=file.problem, detail=file.detail)
    length = file.size if decoded.bytes is None else decoded.bytes
    if decoded.reason is not None:
        return LedgerRow(
            file.id,
            file.relative_path,
            decoded.content_hash,
            length,
            status=UNREADABLE,
            reason=decoded.reason.value,
            detail=decoded.detail,
        )
    return LedgerRow(
        file.id,
        file.relative_path,
        decoded.content_hash,
        length,
        decoded.width,
        decoded.height,
        decoded.orientation,
        decoded.format,
        detail=decoded.detail,
    )


def _claim(out: Path) -> None:
    """Make the output folder, and refuse one that holds something else, before anything in it is touched."""
    require_name(out)
    try:
        out.mkdir(parents=True, exist_ok=True)
        foreign = _foreign(out)
    except IndexDamaged as error:
        if isinstance(error.__cause__, OSError):
            raise
        raise BuildRefused(
            f"{out} holds something else, or a damaged index",
            came=f"{error.problem} ({error.came})",
            fix="Choose a new folder.",
        ) from error
    except OSError as error:
        raise BuildRefused(f"{out} cannot be used as an index folder", came=error.strerror) from error
    if foreign:
        raise BuildRefused(
            f"{out} holds something else",
            came=escape_path(foreign[0]) + (f" and {len(foreign) - 1} more" if len(foreign) > 1 else ""),
            fix="Choose a new folder, or move out of this one what is no index.",
        )


def _foreign(out: Path) -> list[str]:
    """What lies in an output folder and shows that it is not ours: neither a manifest's nor what killed builds leave.

    Beside a manifest of ours a user may keep what he likes, but not in ``build/``.
    """
    inside = foreign_files(out / BUILD)
    try:
        read_manifest(out)
    except IndexMissing:
        # A build writes to the folder itself only when all it has encoded is in build/.
        begun = (out / BUILD).is_dir() and any((out / BUILD).iterdir())
        for path in sorted(out.iterdir()):
            # Systems put hidden files anywhere: .DS_Store comes where a Mac has looked.
            left = path.name.startswith(".") or is_left_over(path)
            if path.name not in (BUILD, ".lock") and not (begun and left):
                inside.append(path.name)
    return inside


@contextlib.contextmanager
def _locked(out: Path) -> Iterator[None]:
    """Hold the folder for one builder; the system lets go of the lock when a process dies."""
    lock = filelock.FileLock(out / ".lock")
    try:
        lock.acquire(timeout=0)
    except filelock.Timeout:
        raise BuildRefused(f"another build is writing to {out}", fix="Wait for it, or stop it.") from None
    except OSError as error:
        raise BuildRefused(
            f"{out} cannot be written to",
            came=error.strerror or str(error),
            fix="Choose a folder that this user may write to.",
        ) from error
    try:
        yield
    finally:
        lock.release()


def _previous(out: Path, encoder: Encoder) -> Index | None:
    try:
        index = open_index(out)
    except IndexMissing:
        return None
    require_same_encoder(index.manifest.encoder, encoder.spec)
    return index


def _finish(
    out: Path,
    pictures: Collection,
    encoder: Encoder,
    work: Workspace,
    rows: list[LedgerRow],
    previous: Index | None,
    reduce_to: int | None,
) -> tuple[Manifest, int]:
    """Merge old and new into the next generation; also returns how many images left."""
    assert work.sketcher is not None
    assert work.calibration is not None
    root = pictures.root.resolve()
    ledger = to_table(rows)
    if pictures.columns is not None:
        for name in pictures.columns.column_names:
            ledger = ledger.append_column(name, pictures.columns[name])
    indexed = [row.id for row in rows if row.status == INDEXED]
    removed = (
        0 if previous is None else len({row.id for row in from_table(previous.images)}.difference(indexed))
    )
    manifest = None if previous is None else previous.manifest
    if (
        previous is None
        or manifest is None
        or manifest.calibration != work.calibration
        or manifest.image_root != str(root)
        or not ledger.equals(previous.ledger)
    ):
        manifest = write_index(
            out,
            image_root=root,
            encoder=encoder.spec,
            sketcher=work.sketcher,
            grid=work.grid,
            calibration=work.calibration,
            vectors=work.blocks(indexed),
            ledger=ledger,
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            jpeg_reduce_to=reduce_to,
        )
    work.remove()
    return manifest, removed


def _reduce_to(encoder: Encoder, previous: Index | None, draft: bool | None) -> int | None:
    """Short side that JPEGs may be reduced to: one collection, one way of decoding."""
    if previous is None:
        return DRAFT_MARGIN * encoder.preparer.short_side if draft else None
    reduce_to = previous.manifest.jpeg_reduce_to
    if draft is not None and draft != (reduce_to is not None):
        raise BuildRefused(
            f"{previous.folder} was decoded {'in full' if reduce_to is None else 'in draft mode'}",
            fix="Leave the option out, or add --refit, which encodes every picture again.",
        )
    return reduce_to


def _cores() -> int:
    """Cores this process may use, which in a container are fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
