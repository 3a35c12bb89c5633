"""One file to pixels: what a decoding process does, and how it talks to the build.

Free of torch, FAISS and PyArrow, so that a process starts in a fraction of a second and weighs little. A message is
a pickle with its arrays laid behind it, so that pixels cross a pipe without being copied into the pickle first.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import signal
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from indexer.encoder import Pixels, Preparer
from indexer.errors import UnreadableImage, UnreadableReason
from indexer.images import open_image
from indexer.scan import read_regular

DRAFT_MARGIN = 2
"""How many times the pixels a tower needs a reduced JPEG keeps on its short side. At 1 the pooled vectors of
photographs of 8 million pixels move to a cosine of 0.996 to 1, at 2 to 0.9991 to 1, in half the time."""

_ORPHAN_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class DecodeJob:
    """A file to decode.

    Attributes
    ----------
    path : Path
    offset, size : int, optional
        The part of the file that is the picture; None for all of it.
    known_hash : str, optional
        Content that needs no decoding: it has been encoded before.
    """

    path: Path
    offset: int | None = None
    size: int = 0
    known_hash: str | None = None


@dataclass(frozen=True, slots=True)
class DecodeSetup:
    """What all files of a build have in common.

    Attributes
    ----------
    preparer : Preparer
    reduce_to : int, optional
        Short side that the JPEG decoder may reduce to, see `indexer.images.open_image`.
    seconds : float
        How long one file may take before its process is killed.
    """

    preparer: Preparer
    reduce_to: int | None
    seconds: float


@dataclass(frozen=True, slots=True, eq=False)
class Decoded:
    """What became of a file: pixels, or the content that was known, or a reason."""

    content_hash: str | None = None
    bytes: int | None = None
    width: int | None = None
    height: int | None = None
    orientation: int | None = None
    format: str | None = None
    reason: UnreadableReason | None = None
    detail: str | None = None
    pixels: Pixels | None = None


def decode(job: DecodeJob, setup: DecodeSetup) -> Decoded:
    """Read, hash, decode and prepare one file; every failure is about the file and is returned, never raised."""
    content_hash, length = None, None
    try:
        content = read_regular(job.path, job.offset, job.size)
        content_hash, length = hashlib.sha256(content).hexdigest(), len(content)
        if content_hash == job.known_hash:
            return Decoded(content_hash, length)
        opened = open_image(content, reduce_to=setup.reduce_to)
        pixels = setup.preparer(opened.image)
    except UnreadableImage as error:
        detail = f"{error.detail}. {error.fix}" if error.fix else error.detail
        return Decoded(content_hash, length, reason=error.reason, detail=detail)
    except OSError as error:  # a disk that fails while the file is read
        detail = error.strerror or str(error)
        return Decoded(content_hash, length, reason=UnreadableReason.BROKEN, detail=detail)
    except MemoryError:
        detail = "not enough memory to decode it"
        return Decoded(content_hash, length, reason=UnreadableReason.BROKEN, detail=detail)
    except (OverflowError, ValueError) as error:  # a shape that the resampler refuses
        detail = f"it cannot be scaled: {error}"
        return Decoded(content_hash, length, reason=UnreadableReason.BROKEN, detail=detail)
    return Decoded(
        content_hash,
        length,
        opened.width,
        opened.height,
        opened.orientation,
        opened.format,
        detail="; ".join(opened.warnings) or None,
        pixels=pixels,
    )


# Messages --------------------------------------------------------------------------------------------------


def write_message(file: IO[bytes], message: object) -> None:
    """Write a message and flush it."""
    arrays: list[pickle.PickleBuffer] = []
    head = pickle.dumps(message, protocol=5, buffer_callback=arrays.append)
    parts = [memoryview(head), *(array.raw() for array in arrays)]
    file.write(struct.pack(f"<Q{len(parts)}Q", len(parts), *map(len, parts)))
    for part in parts:
        file.write(part)
    file.flush()


def read_message(fill: Callable[[memoryview], None]) -> Any:
    """Read what :func:`write_message` wrote.

    Parameters
    ----------
    fill : callable
        Fills the buffer it is given from the pipe.

    Raises
    ------
    EOFError
        By ``fill``, where the other side is gone.
    """

    def take(size: int) -> bytearray:
        buffer = bytearray(size)
        fill(memoryview(buffer))
        return buffer

    (count,) = struct.unpack("<Q", take(8))
    head, *arrays = (take(size) for size in struct.unpack(f"<{count}Q", take(8 * count)))
    return pickle.loads(head, buffers=arrays)


# The process -----------------------------------------------------------------------------------------------


def serve() -> None:
    """Decode what comes in on standard input until it ends. Answers the setup with None, or with what is wrong."""
    jobs, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # a library that prints must not garble the answers

    def fill(buffer: memoryview) -> None:
        if jobs.readinto(buffer) < len(buffer):
            raise EOFError

    try:
        setup: DecodeSetup = read_message(fill)
    except Exception as error:  # whatever stands in the way of loading a preparer is the build's to tell
        write_message(answers, f"{type(error).__name__}: {error}")
        return
    os.dup2(1, 2)  # libtiff and others write to the terminal, past Python; the ledger has what matters
    write_message(answers, None)
    while True:
        try:
            job = read_message(fill)
        except EOFError:
            return
        _die_in(setup.seconds + _ORPHAN_SECONDS)
        decoded = decode(job, setup)
        _die_in(0)
        write_message(answers, decoded)


def _die_in(seconds: float) -> None:
    """Let the system end this process where the build, which keeps the time, has died before a hanging decoder."""
    if hasattr(signal, "setitimer"):
        signal.setitimer(signal.ITIMER_REAL, seconds)
