"""What an encoder is. No torch here: opening an index for its facts stays cheap."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from indexer.errors import IndexerError

Floats = NDArray[np.float32]

COMPACT = "compact"
"""Name of the built-in encoder."""


class DenseMode(StrEnum):
    """How a vision transformer with a class token yields its patch tokens.

    Other towers have one way only and say so with :attr:`HEAD`.
    """

    LAST = "last"
    """Final tokens, as the class token's neighbours come out of the last block."""
    VALUE = "value"
    """Value path of the last block alone (MaskCLIP)."""
    QQ = "qq"
    """Query-query attention over the values of the last block (ClearCLIP)."""
    KK = "kk"
    """Key-key attention over the values of the last block (NACLIP without its window)."""
    HEAD = "head"
    """The tower's own pooling and projection, applied to each token alone."""


class DenseView(StrEnum):
    """What the dense pass sees."""

    NATIVE = "native"
    """The pixels of the native pass."""
    FRAME = "frame"
    """The whole frame at short side 336, where the native pass crops; a crop hides what stands at the border."""


@dataclass(frozen=True, slots=True)
class EncoderSpec:
    """Everything two encoders must share for their vectors to be comparable. Goes into the manifest.

    Attributes
    ----------
    name : str
        ``compact`` or an open_clip model name.
    pretrained : str
        Tag, file name, or ``random`` followed by the seed.
    weights_sha256 : str
        Over all parameters and buffers, by name.
    preprocessing : str
        The native transform, in words.
    dim : int
        D, length of the joint embedding.
    grid : tuple of int
        Patches down and across of the dense pass; (0, 0) where it depends on the picture.
    dense_mode : DenseMode
    dense_view : DenseView
    template : str
        Puts a subject or object into a text: ``a {}``.
    context_length : int
        Tokens a text may have; more are cut.
    numeric : str
        Number format of the towers, e.g. ``float32``.
    """

    name: str
    pretrained: str
    weights_sha256: str
    preprocessing: str
    dim: int
    grid: tuple[int, int]
    dense_mode: DenseMode
    dense_view: DenseView
    template: str
    context_length: int
    numeric: str

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON values."""
        return asdict(self) | {"grid": list(self.grid)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> EncoderSpec:
        """Read what :meth:`to_dict` wrote."""
        return cls(
            **dict(values)
            | {
                "grid": tuple(values["grid"]),
                "dense_mode": DenseMode(values["dense_mode"]),
                "dense_view": DenseView(values["dense_view"]),
            }
        )


@dataclass(frozen=True, slots=True, eq=False)
class Pixels:
    """A picture ready for the towers.

    Attributes
    ----------
    native : (3, H, W) float32
        Exactly what the published preprocessing gives.
    dense : (3, H', W') float32 or None
        What the dense pass sees where that differs.
    """

    native: Floats
    dense: Floats | None = None


@dataclass(frozen=True, slots=True, eq=False)
class ImageFeatures:
    """What an encoder returns for B pictures.

    Attributes
    ----------
    pooled : (B, D) float32
        Unit rows; the published embedding.
    tokens : sequence of B arrays (H, W, D) float32
        Patch tokens in the joint space, not normalised. H and W may differ between pictures.
    """

    pooled: Floats
    tokens: Sequence[Floats]


@dataclass(frozen=True, slots=True, eq=False)
class TextFeatures:
    """What an encoder returns for B texts.

    Attributes
    ----------
    vectors : (B, D) float32
        Unit rows.
    truncated : tuple of B bool
        Whether a text was longer than the tower reads.
    """

    vectors: Floats
    truncated: tuple[bool, ...]


class Preparer(Protocol):
    """An encoder's preprocessing without its weights: small and picklable, so that other processes can decode."""

    @property
    def short_side(self) -> int:
        """Pixels that the short side of a picture must have for nothing to be scaled up, whatever its shape."""
        ...

    def __call__(self, image: Image.Image) -> Pixels:
        """Preprocess one upright RGB picture."""
        ...


class Encoder(Protocol):
    """Two towers into one joint space, the image tower with its patches.

    An encoder owns its weights and its device; arrays go in and out on the host.
    """

    @property
    def spec(self) -> EncoderSpec:
        """What identifies the embedding space."""
        ...

    @property
    def preparer(self) -> Preparer:
        """What :meth:`prepare` does, apart from the encoder."""
        ...

    def prepare(self, image: Image.Image) -> Pixels:
        """Preprocess one upright RGB picture. Thread-safe; touches no device."""
        ...

    def encode_images(self, batch: Sequence[Pixels]) -> ImageFeatures:
        """Embed a batch of pictures."""
        ...

    def encode_texts(self, texts: Sequence[str]) -> TextFeatures:
        """Embed texts, each by itself: a text's vector never depends on its neighbours, not even in the last bit.

        Thread-safe.
        """
        ...


class EncoderUnavailable(IndexerError):
    """A model, tag or weights file that cannot be had on this machine."""


class EncoderMismatch(IndexerError):
    """An index and an encoder that do not belong together."""


_IDENTITY = (
    "name",
    "weights_sha256",
    "preprocessing",
    "dim",
    "dense_mode",
    "dense_view",
    "template",
    "numeric",
)


def require_same_encoder(index: EncoderSpec, encoder: EncoderSpec) -> None:
    """Refuse to mix embedding spaces.

    Raises
    ------
    EncoderMismatch
        Names both sides and every field that differs. Where the weights came from may differ; what they are may not.
    """
    differing = [f for f in _IDENTITY if getattr(index, f) != getattr(encoder, f)]
    if differing:
        raise EncoderMismatch(
            f"this index was made with {index.name} ({index.pretrained}), not with {encoder.name} "
            f"({encoder.pretrained})",
            expected=", ".join(f"{f}={getattr(index, f)}" for f in differing),
            came=", ".join(f"{f}={getattr(encoder, f)}" for f in differing),
            fix="Search it with the encoder that made it, or build a new index.",
        )


def phrase_text(template: str, phrase: str) -> str:
    """The text that stands for a subject or an object.

    Parameters
    ----------
    template : str
        With one ``a {}``, as :attr:`EncoderSpec.template`.
    phrase : str
        Without an article, as the parser gives it.

    Examples
    --------
    >>> phrase_text("a {}", "cup"), phrase_text("a {}", "umbrella"), phrase_text("a {}", "two people")
    ('a cup', 'an umbrella', 'two people')
    """
    first = phrase.split(" ", 1)[0]
    if first in _COUNTS or first[:1].isdigit():
        return template.replace("a {}", phrase)
    return template.replace("a {}", f"{'an' if first[:1] in 'aeiou' else 'a'} {phrase}")


_COUNTS = frozenset(
    "two three four five six seven eight nine ten eleven twelve dozens hundreds many several some few both all".split()
)
