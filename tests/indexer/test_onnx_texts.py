from __future__ import annotations

import builtins

import numpy as np
import pytest
import torch

from indexer.compact import load_compact
from indexer.encoder import EncoderUnavailable
from indexer.onnx_texts import LEAST_COSINE, OnnxTexts
from indexer.openclip import OpenClipEncoder, load_open_clip

TEXTS = (
    "a cup to the left of a laptop",
    "a dog",
    "",
    "two dogs on the beach, in the rain, at night",
    "word " * 300,
)


@pytest.fixture(scope="module")
def compact() -> OpenClipEncoder:
    return load_compact(device="cpu")


@pytest.mark.parametrize("name", ["compact", "RN50"])
def test_texts_land_where_torch_puts_them(name: str, compact: OpenClipEncoder) -> None:
    encoder = compact if name == "compact" else load_open_clip(name, "random:0", device="cpu")
    by_onnx = OnnxTexts(encoder)
    ours, theirs = by_onnx.encode_texts(TEXTS), encoder.encode_texts(TEXTS)
    assert ours.truncated == theirs.truncated == (False, False, False, False, True)
    assert (ours.vectors * theirs.vectors).sum(axis=1).min() >= LEAST_COSINE
    assert np.allclose(np.linalg.norm(ours.vectors, axis=1), 1, atol=1e-6)
    for text, vector in zip(TEXTS, ours.vectors, strict=True):
        assert by_onnx.encode_texts([text]).vectors[0].tobytes() == vector.tobytes()
    assert by_onnx.spec == encoder.spec


def test_what_cannot_be_had_is_said(compact: OpenClipEncoder, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("no such operator")

    with monkeypatch.context() as patch:
        patch.setattr(torch.onnx, "export", fail)
        with pytest.raises(EncoderUnavailable, match=r"compact cannot be exported.*no such operator"):
            OnnxTexts(compact)
    with monkeypatch.context() as patch:
        patch.setattr("indexer.onnx_texts.LEAST_COSINE", 1.1)
        with pytest.raises(EncoderUnavailable, match=r"otherwise than torch.*at least 1.1"):
            OnnxTexts(compact)
    plain = builtins.__import__

    def without(name: str, *rest: object) -> object:
        if name == "onnxruntime":
            raise ModuleNotFoundError(f"No module named {name!r}")
        return plain(name, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(EncoderUnavailable, match=r"No module named 'onnxruntime'.*beside\[onnx\]"):
        OnnxTexts(compact)
