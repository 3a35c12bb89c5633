"""Where pictures come from: a folder, so far."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pyarrow as pa

from indexer.errors import IndexerError
from indexer.scan import ScannedFile, format_id, scan_folder


class NoImages(IndexerError):
    """A source in which nothing can be indexed."""


@dataclass(frozen=True, slots=True, eq=False)
class Pictures:
    """What is to be indexed.

    Attributes
    ----------
    root : Path
        The folder that the relative paths start from.
    files : sequence of ScannedFile
        In id order, every id once.
    columns : pyarrow.Table or None
        What else is known of each file, row n of file n: columns of the ledger to be.
    """

    root: Path
    files: Sequence[ScannedFile]
    columns: pa.Table | None = None


def find_pictures(source: Path, *, exclude: Path | None = None) -> Pictures:
    """List what is to be indexed."""
    files = sorted(scan_folder(source, exclude=exclude), key=lambda file: file.id)
    if not files:
        raise NoImages(
            f"no pictures in {source}",
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
    return Pictures(source, files)
