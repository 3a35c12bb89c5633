"""Which encoder a name stands for. Here is where one is added."""

from __future__ import annotations

from typing import TYPE_CHECKING

from indexer.encoder import (
    COMPACT,
    DenseMode,
    DenseView,
    EncoderSpec,
    EncoderUnavailable,
    require_same_encoder,
)

if TYPE_CHECKING:
    from indexer.openclip import OpenClipEncoder


def load_encoder(
    name: str = COMPACT,
    pretrained: str | None = None,
    *,
    device: str = "auto",
    dense_mode: DenseMode | None = None,
    dense_view: DenseView | None = None,
) -> OpenClipEncoder:
    """Load an encoder; nothing is ever fetched from a network.

    Parameters
    ----------
    name : str
        ``compact`` or the name of an open_clip model.
    pretrained : str, optional
        A weights file, a tag whose weights are in the local cache, or ``random:SEED``. Not for ``compact``.
    device : str
        ``auto``, ``cpu`` or ``cuda``.
    dense_mode, dense_view : optional
        Other than the tower's default.

    Raises
    ------
    EncoderUnavailable
        Unknown name, unknown or uncached tag, missing file, no such device.
    """
    if name == COMPACT:
        if pretrained is not None:
            raise EncoderUnavailable(
                "compact is built in and takes no weights",
                came=f"--pretrained {pretrained}",
                fix="Leave it out.",
            )
        from indexer.compact import load_compact  # noqa: PLC0415  (torch costs seconds; facts need none)

        return load_compact(device=device)
    from indexer.openclip import load_open_clip  # noqa: PLC0415

    return load_open_clip(name, pretrained, device=device, dense_mode=dense_mode, dense_view=dense_view)


def load_encoder_for(
    spec: EncoderSpec, *, pretrained: str | None = None, device: str = "auto"
) -> OpenClipEncoder:
    """Load the encoder that made an index, and refuse any other.

    Parameters
    ----------
    spec : EncoderSpec
        From the manifest.
    pretrained : str, optional
        Where the weights are now, if not where they were.

    Raises
    ------
    EncoderUnavailable
        It cannot be loaded here.
    EncoderMismatch
        What was loaded has other weights, preprocessing or dense pass.
    """
    compact = spec.name == COMPACT
    encoder = load_encoder(
        spec.name,
        None if compact else (pretrained or spec.pretrained),
        device=device,
        dense_mode=None if compact else spec.dense_mode,
        dense_view=None if compact else spec.dense_view,
    )
    require_same_encoder(spec, encoder.spec)
    return encoder
