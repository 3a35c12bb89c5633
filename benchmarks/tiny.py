"""Two tiny open_clip models, trained from scratch on drawn scenes, that go the way of real checkpoints.

``tiny-vit-class-token`` is a vision transformer as OpenAI's and LAION's are, ``tiny-vit-attention-pooled`` one with
timm's attention pool as SigLIP has it. Configurations lie in ``benchmarks/weights/``; `benchmarks.train_tiny` puts the
weights there. Neither is part of the product.
"""

from __future__ import annotations

from pathlib import Path

import open_clip

from indexer.encoder import DenseMode, DenseView
from indexer.load import load_encoder
from indexer.openclip import OpenClipEncoder

FOLDER = Path(__file__).with_name("weights")
CLASS_TOKEN = "tiny-vit-class-token"
ATTENTION_POOLED = "tiny-vit-attention-pooled"
TINY = (CLASS_TOKEN, ATTENTION_POOLED)


def register() -> None:
    """Make the models known to open_clip by name, as its own are."""
    if not set(TINY) <= set(open_clip.list_models()):
        open_clip.add_model_config(FOLDER)


def weights(name: str) -> Path:
    """Where a model's weights lie."""
    return FOLDER / f"{name}.safetensors"


def load_tiny(
    name: str, *, dense_mode: DenseMode | None = None, dense_view: DenseView | None = None
) -> OpenClipEncoder:
    """Load a tiny model as any open_clip model with a weights file is loaded, on the CPU."""
    register()
    encoder = load_encoder(
        name, str(weights(name)), device="cpu", dense_mode=dense_mode, dense_view=dense_view
    )
    assert isinstance(encoder, OpenClipEncoder)
    return encoder
