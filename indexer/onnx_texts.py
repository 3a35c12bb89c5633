"""Texts by ONNX Runtime: the same weights in the same precision, on a CPU in a fraction of torch's time.

Torch multiplies a text of ten words, ten rows, with kernels made for hundreds. What differs is rounding, so that
vectors are not torch's to the last bit. An index holds pictures alone and does not care; whoever serves it says in
which way texts are embedded, and native rankings are those of that way, bit for bit.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor, nn

from indexer.encoder import EncoderSpec, EncoderUnavailable, ImageFeatures, Pixels, Preparer, TextFeatures
from indexer.openclip import OpenClipEncoder

Floats = NDArray[np.float32]

LEAST_COSINE = 0.99999
"""Between a text's vectors in both ways; less means that the export went wrong."""
_TEXTS = ("a cup to the left of a laptop", "a dog")


class OnnxTexts:
    """An encoder whose texts are embedded by ONNX Runtime; pictures are its own.

    Owns an exported copy of the text tower. Thread-safe as far as the encoder is.

    Parameters
    ----------
    encoder : OpenClipEncoder

    Raises
    ------
    EncoderUnavailable
        A package is missing, the tower cannot be exported, or its vectors are not those of torch.
    """

    def __init__(self, encoder: OpenClipEncoder) -> None:
        self._encoder = encoder
        self._session = _session(encoder)
        exact, ours = (way.encode_texts(_TEXTS).vectors for way in (encoder, self))
        cosine = float((exact * ours).sum(axis=1).min())
        if not cosine >= LEAST_COSINE:
            raise EncoderUnavailable(
                "ONNX Runtime embeds texts otherwise than torch",
                expected=f"a cosine of at least {LEAST_COSINE}",
                came=f"{cosine:.6f}",
                fix="Leave texts to torch.",
            )

    @property
    def spec(self) -> EncoderSpec:
        """What identifies the embedding space."""
        return self._encoder.spec

    @property
    def preparer(self) -> Preparer:
        """See :meth:`indexer.encoder.Encoder.preparer`."""
        return self._encoder.preparer

    def prepare(self, image: Image.Image) -> Pixels:
        """See :meth:`indexer.encoder.Encoder.prepare`."""
        return self._encoder.prepare(image)

    def encode_images(self, batch: Sequence[Pixels]) -> ImageFeatures:
        """See :meth:`indexer.encoder.Encoder.encode_images`."""
        return self._encoder.encode_images(batch)

    def encode_texts(self, texts: Sequence[str]) -> TextFeatures:
        """See :meth:`indexer.encoder.Encoder.encode_texts`."""
        return self._encoder.encode_texts(texts, tower=self._tower)

    def _tower(self, tokens: Tensor) -> Floats:
        found: Floats = self._session.run(None, {"tokens": tokens.numpy()})[0][0]
        return found


class _Unit(nn.Module):
    """Tokens (1, L) to unit vectors (1, D)."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: Tensor) -> Tensor:
        found: Tensor = self.model.encode_text(tokens, normalize=True)
        return found


def _session(encoder: OpenClipEncoder) -> Any:
    try:
        import onnxruntime  # noqa: PLC0415
        import onnxscript  # noqa: F401, PLC0415  (what torch exports with)
    except ImportError as error:
        raise EncoderUnavailable(
            "texts cannot go through ONNX Runtime", came=str(error), fix="pip install 'beside[onnx]'"
        ) from error
    where = next(encoder.model.parameters()).device
    if where.type != "cpu":
        raise EncoderUnavailable(
            "ONNX Runtime embeds texts on the CPU",
            came=f"an encoder on {where}",
            fix="Take --device cpu, or leave texts to torch.",
        )
    tokens = [encoder.tokenise([text]) for text in _TEXTS]
    # Some tokenizers fill every text up to the whole context, others none.
    longest = encoder.spec.context_length
    free = {1: torch.export.Dim("length", min=2, max=longest)} if tokens[0].shape != tokens[1].shape else {}
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "texts.onnx"
        try:
            torch.onnx.export(
                _Unit(encoder.model).eval(),
                (tokens[0],),
                file,
                input_names=["tokens"],
                dynamic_shapes=(free,),
                verbose=False,
            )
            return onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
        except Exception as error:  # torch and ONNX Runtime raise many kinds, for towers they do not know
            raise EncoderUnavailable(
                f"the text tower of {encoder.spec.name} cannot be exported",
                came=str(error).strip().splitlines()[0],
                fix="Leave texts to torch.",
            ) from error
