"""An upright picture to what a tower sees, without the tower: small, picklable, free of torch.

Decoding runs in processes that never load a model. The bits are those of open_clip's own evaluation transform,
which a test holds it to.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps

from indexer.encoder import Pixels

Floats = NDArray[np.float32]

FRAME_SIDE = 336
"""Short side of the whole frame in the dense pass, in pixels before rounding to whole patches."""
FRAME_ASPECT = 4
"""A frame longer than this many short sides is squeezed to it: a strip of 10,000 pixels must not take the memory of a
hundred pictures."""
STRIP_ASPECT = 64
"""A picture longer than this many short sides is cut to what the tower's centre crop leaves before it is scaled:
scaled whole it would take the memory of thousands. Its pixels may differ a little from open_clip's own; those of
shorter pictures never do."""


@dataclass(frozen=True, slots=True)
class OpenClipPreparer:
    """open_clip's evaluation transform, and the whole frame where the dense pass sees it.

    Parameters
    ----------
    size : (int, int)
        Height and width of the native picture in pixels.
    mean, std : three floats
        Of the normalisation, for values from 0 to 1.
    resize_mode : ``shortest``, ``longest`` or ``squash``
        Scale the short side and crop, scale the long side and pad, or scale both.
    interpolation : ``bicubic`` or ``bilinear``
    fill : int
        Grey of the padding, 0 to 255.
    frame_stride : int, optional
        Pixels a patch of the frame covers; None where the dense pass sees the native picture.
    """

    size: tuple[int, int]
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    resize_mode: Literal["shortest", "longest", "squash"]
    interpolation: Literal["bicubic", "bilinear"]
    fill: int
    frame_stride: int | None = None

    @property
    def short_side(self) -> int:
        """Pixels that the short side of a picture must have for nothing to be scaled up, whatever its shape."""
        return max(*self.size, FRAME_SIDE if self.frame_stride else 0)

    def __call__(self, image: Image.Image) -> Pixels:
        """Preprocess one upright RGB picture.

        Returns
        -------
        Pixels
        """
        native = self._normalised(self._fitted(image))
        if self.frame_stride is None:
            return Pixels(native)
        size = frame_size(*image.size, self.frame_stride)
        return Pixels(native, self._normalised(_scaled(image, size, Image.Resampling.BICUBIC)))

    def _fitted(self, image: Image.Image) -> Image.Image:
        """Resize and crop as torchvision and open_clip do, rounding included."""
        (height, width), (w, h) = self.size, image.size
        if self.resize_mode == "squash":
            return _scaled(image, (width, height), self._filter)
        kernel = self._filter
        if self.resize_mode == "shortest" and height == width:
            # Cut, not rounded, and from the side itself, as torchvision does.
            scaled = (width, int(width * h / w)) if w <= h else (int(width * w / h), width)
        else:
            ratios = h / height, w / width
            ratio = max(ratios) if self.resize_mode == "longest" else min(ratios)
            # A strip of 1000 x 3 would vanish: open_clip fails on it, here it is a line.
            scaled = max(1, round(w / ratio)), max(1, round(h / ratio))
            # open_clip forgets the filter where it crops to something other than a square.
            kernel = Image.Resampling.BICUBIC if self.resize_mode == "shortest" else kernel
        if self.resize_mode == "shortest" and _is_strip(image):
            resized = _scaled_centre(image, scaled, (width, height), kernel)
        else:
            resized = _scaled(image, scaled, kernel)
        w, h = resized.size
        if w < width or h < height:
            left, top = max(0, width - w) // 2, max(0, height - h) // 2
            right, bottom = max(0, width - w) - left, max(0, height - h) - top
            fill = self.fill if self.resize_mode == "longest" else 0
            resized = ImageOps.expand(resized, (left, top, right, bottom), (fill,) * 3)
            w, h = resized.size
        left, top = round((w - width) / 2), round((h - height) / 2)
        return resized.crop((left, top, left + width, top + height))

    @property
    def _filter(self) -> Image.Resampling:
        bilinear = self.interpolation == "bilinear"
        return Image.Resampling.BILINEAR if bilinear else Image.Resampling.BICUBIC

    def _normalised(self, image: Image.Image) -> Floats:
        """Bytes to (3, H, W) float32. There are 256 values: each is worked out once, in the transform's own steps."""
        unit = np.arange(256, dtype=np.float32) / np.float32(255.0)
        channels = np.asarray(image)
        pixels = np.empty((3, *channels.shape[:2]), dtype=np.float32)
        for channel, (mean, std) in enumerate(zip(self.mean, self.std, strict=True)):
            table = (unit - np.float32(mean)) / np.float32(std)
            np.take(table, channels[..., channel], out=pixels[channel], mode="clip")
        return pixels


def _is_strip(image: Image.Image) -> bool:
    return max(image.size) > STRIP_ASPECT * min(image.size)


def _scaled(image: Image.Image, size: tuple[int, int], kernel: Image.Resampling) -> Image.Image:
    # Pillow keeps 32 bytes of weights for every pixel along a side, unless it may average neighbours first.
    return image.resize(size, kernel, reducing_gap=32.0 if _is_strip(image) else None)


def _scaled_centre(
    image: Image.Image, scaled: tuple[int, int], size: tuple[int, int], kernel: Image.Resampling
) -> Image.Image:
    """The middle of a picture scaled to ``scaled``: at most ``size``, cut where its centre crop would be."""
    width, height = (min(pair) for pair in zip(scaled, size, strict=True))
    left, right, *x = _span(image.width, scaled[0], width)
    top, bottom, *y = _span(image.height, scaled[1], height)
    return image.crop((left, top, right, bottom)).resize(
        (width, height), kernel, box=(x[0], y[0], x[1], y[1])
    )


def _span(side: int, scaled: int, kept: int) -> tuple[int, int, float, float]:
    """What the middle pixels of a scaled side are made from.

    Returns
    -------
    start, stop : int
        Pixels of the side to cut out: what is seen, and two pixels more to each end for the filter.
    first, last : float
        Ends of what is seen, counted from ``start``: Pillow reads them with a precision of seven digits.
    """
    step = side / scaled
    offset = round((scaled - kept) / 2)
    margin = 2 * max(1.0, step) + 1
    start = max(0, int(offset * step - margin))
    stop = min(side, int((offset + kept) * step + margin) + 1)
    return start, stop, offset * step - start, (offset + kept) * step - start


def frame_size(width: int, height: int, stride: int) -> tuple[int, int]:
    """Whole patches at short side 336, width then height.

    Examples
    --------
    >>> frame_size(640, 480, 16), frame_size(10000, 10, 16)
    ((448, 336), (1344, 336))
    """
    scale = FRAME_SIDE / min(width, height)
    sides = [min(side * scale, FRAME_SIDE * FRAME_ASPECT) for side in (width, height)]
    return round(sides[0] / stride) * stride, round(sides[1] / stride) * stride
