"""Does an index hold what it says? Every byte, every name, and a sample of its vectors."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from indexer.encoder import Encoder
from indexer.errors import UnreadableImage
from indexer.manifest import IndexDamaged, unreadable_file
from indexer.scan import format_id, image_id
from indexer.sources import find_original, open_original
from indexer.store import LEDGER, Index, check_file, open_index, sha256_of

SAMPLE = 16
MIN_COSINE = 0.999
"""Below this, a stored picture and its fresh embedding are not the same encoder's work; batches and processors differ
by less than 1e-5."""
_SEED = 0


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """What was checked and what is wrong.

    Attributes
    ----------
    indexed : int
        Images in the index.
    embedded : int
        Images encoded again and compared.
    missing : int
        Indexed pictures that are no longer in the image folder; a fact, not a problem of the index.
    lowest_cosine : float or None
        Between a stored and a fresh embedding; None where none was compared.
    problems : tuple of str
        A sentence each; empty for a sound index.
    """

    indexed: int
    embedded: int
    missing: int
    lowest_cosine: float | None
    problems: tuple[str, ...]


def verify_index(
    folder: Path, encoder: Encoder | None = None, *, images: Path | None = None, sample: int = SAMPLE
) -> VerifyReport:
    """Check an index folder.

    Parameters
    ----------
    folder : Path
    encoder : Encoder, optional
        The index's own; without one nothing is embedded again.
    images : Path, optional
        Where the pictures are now, if not where they were indexed.
    sample : int
        Pictures to embed again, drawn with a fixed seed.

    Raises
    ------
    IndexMissing
        No index there. Damage is reported, not raised.
    """
    try:
        index = open_index(folder)
    except IndexDamaged as error:
        return VerifyReport(0, 0, 0, None, (str(error),))
    problems = [*_damaged_files(index), *_inconsistencies(index)]
    root = images or Path(index.manifest.image_root)
    paths = index.images["path"].to_pylist()
    missing = sum(find_original(root, path).problem is not None for path in paths)
    cosines = [] if encoder is None else list(_compare(index, encoder, root, sample))
    problems += [
        f"{path}: its stored embedding and a fresh one have a cosine of {cosine:.4f}, expected at least {MIN_COSINE}"
        for path, cosine in cosines
        if cosine < MIN_COSINE
    ]
    lowest = min((cosine for _, cosine in cosines), default=None)
    return VerifyReport(len(index), len(cosines), missing, lowest, tuple(problems))


def _damaged_files(index: Index) -> Iterator[str]:
    for file in index.manifest.files.values():
        try:
            check_file(index.folder, file, whole=True)
        except IndexDamaged as error:
            yield str(error)
    # A folder that was copied holds the ledger twice; people and other tools read the plain name.
    ledger, copy = index.manifest.files["ledger"], index.folder / LEDGER
    try:
        if copy.exists() and sha256_of(copy) != ledger.sha256:
            yield f"{copy} is not the ledger, {ledger.name}. Copy that over it, or index the pictures again."
    except OSError as error:
        yield str(unreadable_file(copy, error))


def _inconsistencies(index: Index) -> Iterator[str]:
    ids, paths = index.ledger["id"].to_pylist(), index.ledger["path"].to_pylist()
    if ids != sorted(set(ids)):
        yield "the ledger's ids are not ascending, or one is there twice"
    wrong = [path for id_, path in zip(ids, paths, strict=True) if format_id(image_id(path)) != id_]
    if wrong:
        yield f"{len(wrong)} ids do not belong to their paths, the first is {wrong[0]}"
    norms = np.linalg.norm(index.native().astype(np.float64), axis=1)
    if not np.allclose(norms, 1.0, atol=1e-4):
        yield f"{int((abs(norms - 1.0) > 1e-4).sum())} embeddings are not unit vectors"


def _compare(index: Index, encoder: Encoder, root: Path, sample: int) -> Iterator[tuple[str, float]]:
    """Embed a sample again; what has changed or gone since says nothing about the index and is passed over."""
    rows = index.images.to_pylist()
    native = index.native()
    taken = 0
    for number in np.random.default_rng(_SEED).permutation(len(rows)).tolist():
        if taken == sample:
            return
        row = rows[number]
        try:
            if find_original(root, row["path"]).size != row["bytes"]:
                continue
            opened = open_original(root, row["path"], reduce_to=index.manifest.jpeg_reduce_to)
        except (UnreadableImage, OSError):
            continue
        fresh = encoder.encode_images([encoder.prepare(opened.image)]).pooled[0]
        taken += 1
        yield row["path"], float(fresh.astype(np.float64) @ native[number].astype(np.float64))
