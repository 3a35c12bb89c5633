"""Which way up a picture was taken, read without trusting what is stored."""

from __future__ import annotations

import re
import struct

from PIL import Image

_TAG = 0x0112
TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}


def find_orientation(picture: Image.Image, warnings: list[str]) -> int:
    """Return the orientation stored in an opened picture, 1 to 8; what is not valid is 1 and a warning.

    EXIF comes first, then XMP, as in Pillow's ``exif_transpose``. A PNG and a WebP may hold it behind the
    pixels, so load them first; a TIFF loses it while loading (Pillow turns it), so ask before.
    """
    try:
        stored = _stored_orientation(picture)
    except (ValueError, struct.error, SyntaxError, OSError) as error:
        warnings.append(f"EXIF cannot be read ({error}), taken as upright")
        return 1
    if stored is None:
        return 1
    if isinstance(stored, int) and 1 <= stored <= 8:
        return stored
    warnings.append(f"orientation {stored!r} is none of 1 to 8, taken as upright")
    return 1


def _stored_orientation(picture: Image.Image) -> object:
    info = picture.info
    if picture.format == "TIFF":
        return picture.getexif().get(_TAG)  # the reading that Pillow turns a TIFF by
    if picture.format == "HEIF":
        return info.get("original_orientation")  # turned by its decoder
    block = info.get("exif")
    if block is None and "Raw profile type exif" in info:  # a PNG by ImageMagick
        block = bytes.fromhex("".join(info["Raw profile type exif"].split("\n")[3:]))
    stored = read_orientation(block) if block else None
    if stored is not None:
        return stored
    xmp = info.get("xmp") or info.get("XML:com.adobe.xmp") or b""
    found = re.search(rb'tiff:Orientation(?:="|>)([0-9])', xmp.encode() if isinstance(xmp, str) else xmp)
    return int(found[1]) if found else None


def read_orientation(exif: bytes) -> object:
    """Return the orientation in an EXIF block as stored: an int, something else where it is not one, or None.

    Pillow's reader tells of a damaged block through `warnings` alone, which threads cannot capture.

    Raises
    ------
    ValueError
        The block, or the directory that would hold the tag, is cut short or is no EXIF. Damage further on
        does no harm to the orientation and is not looked at.
    """
    exif = exif.removeprefix(b"Exif\0\0")
    order = {b"II": "<", b"MM": ">"}.get(exif[:2])
    if order is None or len(exif) < 8:
        raise ValueError("no EXIF header")
    (start,) = struct.unpack_from(order + "L", exif, 4)
    if start + 2 > len(exif):
        raise ValueError("cut before its directory")
    (count,) = struct.unpack_from(order + "H", exif, start)
    if start + 2 + 12 * count > len(exif):
        raise ValueError("cut within its directory")
    for at in range(start + 2, start + 2 + 12 * count, 12):
        tag, kind, length = struct.unpack_from(order + "HHL", exif, at)
        if tag == _TAG:
            width = {1: "B", 3: "H", 4: "L"}.get(kind)
            if width is None or length != 1:
                return exif[at + 8 : at + 12].rstrip(b"\0").decode("latin-1")
            return int(struct.unpack_from(order + width, exif, at + 8)[0])
    return None
