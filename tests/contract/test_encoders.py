"""What every encoder must do, whatever is behind it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from PIL import Image

from indexer.encoder import DenseView, Encoder, EncoderSpec
from indexer.load import load_encoder
from tests.indexer.test_dense import encoder as open_clip_encoder
from tests.support import TinyEncoder

ENCODERS: dict[str, Callable[[], Encoder]] = {
    "tiny": TinyEncoder,
    "compact": lambda: load_encoder("compact"),
    "class-token-vit": lambda: open_clip_encoder("class-token"),
    "siglip": lambda: open_clip_encoder("siglip"),
    "resnet": lambda: open_clip_encoder("resnet"),
    "convnext": lambda: open_clip_encoder("convnext"),
}
PICTURES = [
    Image.fromarray(np.random.default_rng(seed).integers(0, 255, (80, 80 + 20 * seed, 3), dtype=np.uint8))
    for seed in range(3)
]
TEXTS = ["a cup", "a cup to the left of a laptop", "ein Fahrrad 🚲", "\x00 \n", ""]


@pytest.fixture(scope="module", params=ENCODERS)
def encoder(request: pytest.FixtureRequest) -> Encoder:
    return ENCODERS[request.param]()


def test_pooled_vectors_are_unit_rows(encoder: Encoder) -> None:
    features = encoder.encode_images([encoder.prepare(picture) for picture in PICTURES])
    assert features.pooled.shape == (3, encoder.spec.dim)
    assert features.pooled.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(features.pooled, axis=1), 1.0, atol=1e-5)


def test_tokens_are_a_grid_in_the_same_space(encoder: Encoder) -> None:
    features = encoder.encode_images([encoder.prepare(picture) for picture in PICTURES])
    assert len(features.tokens) == 3
    for tokens in features.tokens:
        assert tokens.ndim == 3
        assert tokens.shape[-1] == encoder.spec.dim
        assert tokens.dtype == np.float32
        assert np.isfinite(tokens).all()
        if encoder.spec.dense_view is DenseView.NATIVE:
            assert tokens.shape[:2] == encoder.spec.grid


def test_a_picture_again_is_the_same_bits(encoder: Encoder) -> None:
    pixels = [encoder.prepare(picture) for picture in PICTURES]
    one, other = encoder.encode_images(pixels), encoder.encode_images(pixels)
    assert np.array_equal(one.pooled, other.pooled)
    assert all(np.array_equal(a, b) for a, b in zip(one.tokens, other.tokens, strict=True))


def test_a_picture_alone_is_the_picture_in_a_batch(encoder: Encoder) -> None:
    pixels = [encoder.prepare(picture) for picture in PICTURES]
    together = encoder.encode_images(pixels)
    for row, alone in enumerate(pixels):
        features = encoder.encode_images([alone])
        assert features.pooled[0] @ together.pooled[row] > 0.9999
        np.testing.assert_allclose(features.tokens[0], together.tokens[row], atol=1e-2, rtol=1e-2)


def test_a_text_never_depends_on_its_neighbours(encoder: Encoder) -> None:
    together = encoder.encode_texts(TEXTS)
    assert together.vectors.shape == (len(TEXTS), encoder.spec.dim)
    assert together.vectors.dtype == np.float32
    for row, text in enumerate(TEXTS):
        assert np.array_equal(encoder.encode_texts([text]).vectors[0], together.vectors[row])
    np.testing.assert_allclose(np.linalg.norm(together.vectors, axis=1), 1.0, atol=1e-5)


def test_a_long_text_is_cut_and_says_so(encoder: Encoder) -> None:
    texts = encoder.encode_texts(["a dog", "a dog and a cat " * 200])
    assert texts.truncated == (False, True)
    assert np.isfinite(texts.vectors).all()


def test_the_spec_survives_the_manifest(encoder: Encoder) -> None:
    assert EncoderSpec.from_dict(encoder.spec.to_dict()) == encoder.spec
    assert len(encoder.spec.weights_sha256) == 64
    assert "{}" in encoder.spec.template
