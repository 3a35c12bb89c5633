"""The indexed pictures as files: found by id, never by a name that a client sends."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np

from indexer.errors import IndexerError, UnreadableImage, UnreadableReason
from indexer.images import encode_thumbnail, open_image
from indexer.scan import ScannedFile, parse_id
from indexer.sources import content_of, find_original
from indexer.store import Index
from service.errors import ImageGone, UnknownImage

THUMBNAIL_SIDES = (160, 320, 640, 1280)
"""Longest sides in pixels. A closed list, so that nobody can fill the cache with one picture."""


@dataclass(frozen=True, slots=True)
class Picture:
    """What the ledger says about one indexed picture."""

    id: str
    path: str
    content_hash: str | None
    bytes: int | None
    width: int | None
    height: int | None
    orientation: int | None
    format: str | None

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON values."""
        return {name: getattr(self, name) for name in self.__slots__}


class Pictures:
    """Finds pictures of an index on disk and makes thumbnails of them. Thread-safe.

    Parameters
    ----------
    index : Index
    root : Path
        The folder the relative paths of the ledger start from.
    cache_bytes : int
        Thumbnails kept in memory.
    """

    def __init__(self, index: Index, root: Path, *, cache_bytes: int = 64 << 20) -> None:
        self.root = root
        self._table = index.images
        ids = index.images["id"].to_pylist()
        self._ids = np.fromiter((int(i, 16) for i in ids), np.uint64, len(ids))
        self._thumbnails: OrderedDict[tuple[str, int], bytes] = OrderedDict()
        self._cached, self._cache_bytes = 0, cache_bytes
        self._lock = Lock()

    def __getitem__(self, image_id: str) -> Picture:
        """Look an id up.

        Raises
        ------
        UnknownImage
            No picture has it, or it is no id at all.
        """
        try:
            number = np.uint64(parse_id(image_id))
        except IndexerError:
            raise UnknownImage(image_id) from None
        row = int(np.searchsorted(self._ids, number))
        if row == len(self._ids) or self._ids[row] != number:
            raise UnknownImage(image_id)
        return self.at(row)

    def at(self, row: int) -> Picture:
        """Facts of a row of the index."""
        return Picture(**{name: self._table[name][row].as_py() for name in Picture.__slots__})

    def find(self, picture: Picture) -> ScannedFile:
        """Where a picture is now: a file, or a part of a tar file.

        Raises
        ------
        ImageGone
            It is missing, unreadable, or of another size than the one indexed.
        """
        try:
            found = find_original(self.root, picture.path)
        except OSError as error:
            raise _unreadable_now(picture, error) from error
        if found.problem in (UnreadableReason.MISSING, UnreadableReason.NOT_A_FILE):
            raise ImageGone(picture.path, "there is no such file any more")
        if found.problem is not None:
            raise ImageGone(picture.path, f"it cannot be read now ({found.detail})")
        if picture.bytes is not None and found.size != picture.bytes:
            raise ImageGone(picture.path, "the file has changed since")
        return found

    def read(self, picture: Picture) -> Path | bytes:
        """The original: the path of a file, or what a tar file holds.

        Raises
        ------
        ImageGone
        """
        found = self.find(picture)
        try:
            return content_of(found)
        except (OSError, UnreadableImage) as error:
            raise _unreadable_now(picture, error) from error

    def thumbnail(self, picture: Picture, side: int) -> bytes:
        """Make or recall a small JPEG, upright and without metadata.

        Parameters
        ----------
        side : int
            One of :data:`THUMBNAIL_SIDES`.

        Raises
        ------
        ImageGone
            As :meth:`find`, or the file is no picture any more.
        """
        key = (picture.id, side)
        found = self.find(picture)
        with self._lock:
            if key in self._thumbnails:
                self._thumbnails.move_to_end(key)
                return self._thumbnails[key]
        try:
            made = encode_thumbnail(open_image(content_of(found), reduce_to=side).image, side)
        except (OSError, UnreadableImage) as error:
            raise _unreadable_now(picture, error) from error
        with self._lock:
            if key not in self._thumbnails:
                self._thumbnails[key] = made
                self._cached += len(made)
            while self._cached > self._cache_bytes:
                self._cached -= len(self._thumbnails.popitem(last=False)[1])
        return made


def _unreadable_now(picture: Picture, error: OSError | UnreadableImage) -> ImageGone:
    why = error.detail if isinstance(error, UnreadableImage) else error.strerror or str(error)
    return ImageGone(picture.path, f"it cannot be read now ({why})")
