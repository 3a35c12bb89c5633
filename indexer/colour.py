"""Any mode of picture to RGB, as a viewer shows it.

- Transparency is laid on white.
- RGB values stay as stored, even beside a colour profile: encoders were trained on such values and open_clip
  leaves them alone. The profile is kept, so that a thumbnail can be right.
- CMYK goes through its embedded profile to sRGB, or without one by ``(1 - ink)(1 - black)``.
- Deep grey (16 and 32 bit, float) is scaled by `scale_to_bytes`.
"""

from __future__ import annotations

import io
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageCms

BACKGROUND = (255, 255, 255)
"""What lies under transparent pixels: white, as on the page or in the viewer that such pictures are made for.
Black, which dropping the alpha channel usually gives, hides dark drawings and lettering."""


def to_rgb(picture: Image.Image, warnings: list[str]) -> Image.Image:
    """Return a new RGB picture whose ``info`` holds nothing but the profile of its values, if any."""
    profile = picture.info.get("icc_profile")
    mode = picture.mode
    info: dict[str | tuple[int, int], Any] = {}
    if mode == "F" or mode.startswith("I"):
        rgb = _deep_grey_to_rgb(picture)
    elif picture.has_transparency_data:
        rgba = picture.convert("RGBA")
        rgb = Image.new("RGB", picture.size, BACKGROUND)
        rgb.paste(rgba, mask=rgba)
        info = {"icc_profile": profile} if profile and mode in {"RGB", "RGBA", "P"} else {}
    elif mode == "CMYK":
        converted = to_srgb(picture, profile)
        if profile and converted is None:
            warnings.append("colour profile cannot be used")
        rgb = converted or picture.convert("RGB")
    elif mode == "LAB":
        lab, srgb = ImageCms.createProfile("LAB"), ImageCms.createProfile("sRGB")
        rgb = ImageCms.buildTransform(lab, srgb, "LAB", "RGB").apply(picture)
    else:
        rgb = picture.convert("RGB")
        info = {"icc_profile": profile} if profile and mode in {"RGB", "P"} else {}
    rgb.info = info
    return rgb


def _deep_grey_to_rgb(picture: Image.Image) -> Image.Image:
    values = np.asarray(picture)
    grey = scale_to_bytes(values)
    transparent = picture.info.get("transparency")
    if isinstance(transparent, int):
        grey = np.where(values == transparent, np.uint8(BACKGROUND[0]), grey)
    return Image.fromarray(grey).convert("RGB")


def to_srgb(image: Image.Image, profile: bytes | None) -> Image.Image | None:
    """Convert through an embedded profile, or return None where there is none or it cannot be used."""
    if not profile:
        return None
    try:
        source, srgb = ImageCms.ImageCmsProfile(io.BytesIO(profile)), ImageCms.createProfile("sRGB")
        return ImageCms.buildTransform(source, srgb, image.mode, "RGB").apply(image)
    except (ImageCms.PyCMSError, OSError, ValueError, TypeError):
        return None


def scale_to_bytes(values: NDArray[Any]) -> NDArray[np.uint8]:
    """Scale deep grey values to 8 bits so that a gradient stays a gradient.

    Black is 0, and white the smallest full scale that holds the largest value: 1 (float only), or that of
    8, 10, 12, 14 or 16 bits, so that a 12-bit scan in a 16-bit file is not nearly black. Beyond 16 bits, and
    where there are negative values, black and white are the least and the largest value. What is not finite
    is 0.

    Parameters
    ----------
    values : (H, W) uint16, int32 or float32

    Returns
    -------
    (H, W) uint8

    Examples
    --------
    >>> scale_to_bytes(np.array([[0, 32768, 65535]], np.uint16)).tolist()
    [[0, 128, 255]]
    >>> scale_to_bytes(np.array([[0.0, 0.5, 1.0]], np.float32)).tolist()
    [[0, 128, 255]]
    """
    is_float = np.issubdtype(values.dtype, np.floating)
    scaled = values.astype(np.float32)
    if is_float:
        scaled[~np.isfinite(scaled)] = 0
    low, high = float(scaled.min()), float(scaled.max())
    full_scales = ((1,) if is_float else ()) + tuple(2**bits - 1 for bits in (8, 10, 12, 14, 16))
    black, white = 0.0, float(next((scale for scale in full_scales if high <= scale), 0))
    if low < 0 or not white:
        black, white = low, high
    with np.errstate(over="ignore", invalid="ignore"):  # floats may span more than a float can
        scaled -= black
        scaled *= 255 / ((white - black) or 1)
        scaled += 0.5
        return np.clip(scaled, 0, 255).astype(np.uint8)
