"""The only decoder: any file to an upright RGB picture, for indexing, query by image and thumbnails.

What this module holds to:

- the pixel count is read from the header and refused before memory is taken;
- the stored orientation is applied first and once, mirrored ones included, since left and right hang on it;
- a picture in any mode comes out as a viewer shows it, and an ordinary RGB picture bit for bit as Pillow's
  ``convert("RGB")`` gives it, which is what open_clip's own preprocessing does;
- half a picture is an error: the rest would be grey, and grey has a place too;
- whatever the bytes are, the only exception is `UnreadableImage`;
- no state of Pillow is changed, so any number of threads may decode.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from threading import Lock
from typing import BinaryIO

from PIL import Image, UnidentifiedImageError

from indexer.colour import to_rgb, to_srgb
from indexer.errors import UnreadableImage, UnreadableReason
from indexer.orientation import TURNS, find_orientation
from indexer.scan import escape_path, open_regular

MAX_PIXELS = 2**27
"""The default cap, 134 million: above the largest single shots of common cameras (102 and 108 million), below
12000 x 12000. Decoding takes 4 bytes a pixel, 512 MiB at the cap, and twice that where it is turned."""

THUMBNAIL_MEDIA_TYPE = "image/jpeg"

# A closed list: Pillow also opens formats by running other programs (EPS) or by guessing (TGA).
_FORMATS = ("JPEG", "MPO", "PNG", "WEBP", "GIF", "TIFF", "BMP", "PPM", "JPEG2000", "AVIF")
_HEIF_BRANDS = {b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"mif1", b"msf1"}
_AVIF_BRANDS = {b"avif", b"avis"}

_heif_lock = Lock()


@dataclass(frozen=True, slots=True, eq=False)
class OpenedImage:
    """A decoded picture and what was found on the way. Owns its pixels; no file stays open.

    Parameters
    ----------
    image : PIL.Image.Image
        Mode RGB, upright. Its ``info`` holds at most ``icc_profile``, the profile of its RGB values.
    width, height : int
        Of the upright original in pixels, also where `image` was reduced.
    orientation : int
        As stored, 1 to 8, already applied; 1 where none or an invalid one is stored.
    format : str
        Pillow's name of the format.
    frames : int
        Frames or pages in the file. The picture is the first one (HEIC: the primary one).
    reduced : bool
        Whether the JPEG decoder left out resolution (``reduce_to``): pixels differ from a full decode.
    warnings : tuple of str
        What was odd but could be read, each a clause for a log line.
    """

    image: Image.Image
    width: int
    height: int
    orientation: int
    format: str
    frames: int
    reduced: bool
    warnings: tuple[str, ...]


def open_image(
    source: Path | bytes | BinaryIO, *, max_pixels: int = MAX_PIXELS, reduce_to: int | None = None
) -> OpenedImage:
    """Decode a picture: upright, RGB, whole.

    Parameters
    ----------
    source : Path, bytes or binary file
        A file must be seekable; it is left open. The format is told by the contents, never by the name.
    max_pixels : int
        The largest width times height to decode.
    reduce_to : int, optional
        Let the JPEG decoder scale down by 2, 4 or 8, keeping at least this many pixels on the short side.
        Faster on large photographs; None decodes every pixel.

    Returns
    -------
    OpenedImage

    Raises
    ------
    UnreadableImage
        With a reason, whatever the contents. It carries the name of a path, and none for bytes.

    Notes
    -----
    For colour and transparency see `indexer.colour`, for orientation `indexer.orientation`.
    """
    if isinstance(source, Path):
        with open_regular(source) as file:
            return _open(file, escape_path(source), max_pixels, reduce_to)
    file_like = io.BytesIO(source) if isinstance(source, bytes) else source
    return _open(file_like, None, max_pixels, reduce_to)


def encode_thumbnail(image: Image.Image, longest_side: int, *, quality: int = 85) -> bytes:
    """Encode a small JPEG in sRGB with no metadata: a thumbnail must not tell where a photograph was taken.

    Parameters
    ----------
    image : PIL.Image.Image
        Upright RGB, as `open_image` gives it. It is not changed.
    longest_side : int
        The longest side in pixels; a smaller picture is not enlarged.
    quality : int
        JPEG quality, 1 to 95.

    Returns
    -------
    bytes
        A JPEG file, see `THUMBNAIL_MEDIA_TYPE`.
    """
    scale = min(1.0, longest_side / max(image.size))
    width, height = (max(1, round(side * scale)) for side in image.size)
    small = image.resize((width, height), Image.Resampling.LANCZOS, reducing_gap=3.0)
    small = to_srgb(small, image.info.get("icc_profile")) or small
    small.info = {}
    encoded = io.BytesIO()
    small.save(encoded, "JPEG", quality=quality, optimize=True)
    return encoded.getvalue()


# Decoding ------------------------------------------------------------------------------------------------


def _open(file: BinaryIO, name: str | None, max_pixels: int, reduce_to: int | None) -> OpenedImage:
    with _one_error(file, name):
        file.seek(0)
        head = file.read(64)
        formats = _formats_for(head)
        _check_early(head, max_pixels)
        with Image.open(file, formats=formats) as picture:
            _check_pixels(*picture.size, max_pixels)
            return _decode(picture, reduce_to)


def _decode(picture: Image.Image, reduce_to: int | None) -> OpenedImage:
    warnings: list[str] = []
    kind = picture.format or "unknown"
    is_tiff = kind == "TIFF"
    frames = _count_frames(picture, warnings)
    if frames > 1 and kind != "MPO":  # the other pictures of an MPO are previews or depth
        warnings.append(f"the first of {frames} frames")
    # Pillow turns a TIFF while loading it and forgets the tag; the others keep it, some behind the pixels.
    orientation = find_orientation(picture, warnings) if is_tiff else 1
    full_size = picture.size
    if reduce_to is not None and kind in {"JPEG", "MPO"}:
        picture.draft(None, (reduce_to, reduce_to))
    picture.load()
    if not is_tiff:
        orientation = find_orientation(picture, warnings)
    reduced = kind in {"JPEG", "MPO"} and picture.size != full_size
    image = to_rgb(picture, warnings)
    if kind not in {"TIFF", "HEIF"} and orientation in TURNS:
        image = image.transpose(TURNS[orientation])
    width, height = full_size if reduced else image.size
    if reduced and orientation >= 5:
        width, height = height, width
    return OpenedImage(image, width, height, orientation, kind, frames, reduced, tuple(warnings))


def _count_frames(picture: Image.Image, warnings: list[str]) -> int:
    try:
        return int(getattr(picture, "n_frames", 1))
    except Exception as error:  # a plugin walking over damaged later frames; the first may be whole
        warnings.append(f"frames cannot be counted ({error})")
        picture.seek(0)
        return 1


def _formats_for(head: bytes) -> list[str]:
    if not head:
        raise UnreadableImage(UnreadableReason.EMPTY, "zero bytes")
    if head[4:8] == b"ftyp":
        size = int.from_bytes(head[:4], "big")
        brands = {head[8:12], *(head[at : at + 4] for at in range(16, min(size, len(head)), 4))}
        if brands & _AVIF_BRANDS:
            if "AVIF" not in _pillow_formats():
                detail, fix = "AVIF, which this Pillow cannot read", "Run: pip install --upgrade pillow"
                raise UnreadableImage(UnreadableReason.UNSUPPORTED_FORMAT, detail, fix=fix)
            return ["AVIF"]
        if brands & _HEIF_BRANDS:
            _register_heif()
            return ["HEIF"]
    return _pillow_formats()


@cache
def _pillow_formats() -> list[str]:
    Image.init()
    return [name for name in _FORMATS if name in Image.OPEN]


def _register_heif() -> None:
    with _heif_lock:
        if "HEIF" in Image.OPEN:
            return
        try:
            from pillow_heif import register_heif_opener  # noqa: PLC0415  an extra
        except ImportError as error:
            raise UnreadableImage(
                UnreadableReason.UNSUPPORTED_FORMAT,
                "HEIC, whose decoder is not installed",
                fix="Run: pip install 'beside[heif]'",
            ) from error
        register_heif_opener()


# Pixels before memory --------------------------------------------------------------------------------------


def _check_pixels(width: int, height: int, max_pixels: int) -> None:
    if width * height > max_pixels:
        raise UnreadableImage(
            UnreadableReason.TOO_MANY_PIXELS,
            f"{width} x {height} is {width * height:,} pixels, allowed are {max_pixels:,}",
        )


def _check_early(head: bytes, max_pixels: int) -> None:
    # Pillow's WebP plugin makes its canvas while it opens a file.
    if head[:4] != b"RIFF" or head[8:12] != b"WEBP" or len(head) < 30:
        return
    match head[12:16]:
        case b"VP8X":
            width, height = (int.from_bytes(head[at : at + 3], "little") + 1 for at in (24, 27))
        case b"VP8L":
            bits = int.from_bytes(head[21:25], "little")
            width, height = (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
        case b"VP8 ":
            width, height = (int.from_bytes(head[at : at + 2], "little") & 0x3FFF for at in (26, 28))
        case _:
            return
    _check_pixels(width, height, max_pixels)


# Errors ----------------------------------------------------------------------------------------------------


_MAGIC = {
    b"\xff\xd8\xff": "JPEG",
    b"\x89PNG": "PNG",
    b"GIF8": "GIF",
    b"RIFF": "WEBP",
    b"II*\0": "TIFF",
    b"MM\0*": "TIFF",
    b"BM": "BMP",
}


@contextmanager
def _one_error(file: BinaryIO, name: str | None) -> Iterator[None]:
    """Turn whatever a decoder raises into `UnreadableImage`: its exceptions are about the file."""
    try:
        yield
    except UnreadableImage as error:
        raise UnreadableImage(error.reason, error.detail, name=name, fix=error.fix) from error.__cause__
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise UnreadableImage(UnreadableReason.TOO_MANY_PIXELS, str(error), name=name) from error
    except Exception as error:
        raise UnreadableImage(*_diagnose(file, error), name=name) from error


def _diagnose(file: BinaryIO, error: Exception) -> tuple[UnreadableReason, str]:
    detail = " ".join(str(error).split()) or type(error).__name__
    if isinstance(error, EOFError) or re.search(r"truncat|premature|end of (file|stream)", detail, re.I):
        return UnreadableReason.TRUNCATED, detail
    try:
        length = file.seek(0, io.SEEK_END)
        file.seek(0)
        head = file.read(64)
        missing = _expected_length(file, head) - length
    except (OSError, ValueError):  # the file itself failed, or was closed by a decoder
        return UnreadableReason.BROKEN, detail
    if missing > 0:
        return UnreadableReason.TRUNCATED, f"at least {missing:,} bytes are missing"
    if not isinstance(error, UnidentifiedImageError):
        return UnreadableReason.BROKEN, detail
    kind = next((kind for magic, kind in _MAGIC.items() if head.startswith(magic)), None)
    if kind or head[4:8] == b"ftyp":
        return UnreadableReason.BROKEN, f"starts as {kind or 'AVIF or HEIC'} does, but its header is damaged"
    return UnreadableReason.NOT_AN_IMAGE, "no decoder knows the contents"


def _expected_length(file: BinaryIO, head: bytes) -> int:
    """Return the length that a container announces, as far as it does, or 0."""
    if head[:4] == b"RIFF":
        return int.from_bytes(head[4:8], "little") + 8
    if head[:4] in {b"II*\0", b"MM\0*"}:
        return int.from_bytes(head[4:8], "little" if head[:1] == b"I" else "big") + 2
    end = 0
    if head[4:8] in {b"ftyp", b"jP  "}:
        while file.seek(end) == end and len(box := file.read(8)) == 8:
            size = int.from_bytes(box[:4], "big")
            if size < 8:  # 0: to the end of the file; 1: a 64-bit length
                break
            end += size
    return end
