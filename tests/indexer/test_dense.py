"""Every kind of image tower, at random and small: native bits, token shapes, and what tokens must satisfy."""

from __future__ import annotations

from typing import Any

import numpy as np
import open_clip
import pytest
import torch
from open_clip.model import set_model_preprocess_cfg
from open_clip.transform import PreprocessCfg, image_transform_v2
from PIL import Image

from indexer.dense import UnsupportedTower, dense_reader, read_frame
from indexer.encoder import DenseMode, DenseView, EncoderUnavailable
from indexer.load import load_encoder
from indexer.openclip import OpenClipEncoder, weights_hash, wrap_open_clip

TEXT = {"context_length": 16, "vocab_size": 49408, "width": 32, "heads": 2, "layers": 1}
TOWERS: dict[str, dict[str, Any]] = {
    "class-token": {"image_size": 64, "layers": 3, "width": 64, "patch_size": 16, "head_width": 32},
    "coca": {
        "image_size": 64, "layers": 2, "width": 64, "patch_size": 16, "head_width": 32,
        "attentional_pool": True, "attn_pooler_queries": 8, "attn_pooler_heads": 2,
    },
    "resnet": {"image_size": 64, "layers": [1, 1, 1, 1], "width": 16},
    "siglip": {
        "image_size": 224, "timm_model_name": "vit_tiny_patch16_224", "timm_pool": "map", "timm_proj": "none",
    },
    "timm-average": {
        "image_size": 224, "timm_model_name": "vit_tiny_patch16_224", "timm_pool": "avg", "timm_proj": "linear",
    },
    "timm-class-token": {
        "image_size": 224, "timm_model_name": "vit_tiny_patch16_224", "timm_pool": "token", "timm_proj": "linear",
    },
    "convnext": {"image_size": 64, "timm_model_name": "convnext_atto", "timm_pool": "", "timm_proj": "linear"},
    "efficientnet": {
        "image_size": 64, "timm_model_name": "tf_efficientnet_lite0", "timm_pool": "avg", "timm_proj": "linear",
    },
}  # fmt: skip
DIMS = {"siglip": 192}  # its head has no projection: the width is the dimension
CLASS_TOKEN_MODES = [DenseMode.LAST, DenseMode.VALUE, DenseMode.QQ, DenseMode.KK]
CASES = [("class-token", mode) for mode in CLASS_TOKEN_MODES] + [
    (tower, DenseMode.HEAD) for tower in TOWERS if tower != "class-token"
]
PICTURES = [
    Image.fromarray(np.random.default_rng(seed).integers(0, 255, (90, 120 + 40 * seed, 3), dtype=np.uint8))
    for seed in range(3)
]

_models: dict[str, Any] = {}


def model(tower: str) -> Any:
    if tower not in _models:
        torch.manual_seed(0)
        cls = open_clip.CustomTextCLIP if "timm_model_name" in TOWERS[tower] else open_clip.CLIP
        built = cls(embed_dim=DIMS.get(tower, 32), vision_cfg=dict(TOWERS[tower]), text_cfg=dict(TEXT)).eval()
        size = TOWERS[tower]["image_size"]
        set_model_preprocess_cfg(
            built,
            {
                "size": size, "mode": "RGB", "mean": (0.48, 0.45, 0.4), "std": (0.27, 0.26, 0.28),
                "interpolation": "bicubic", "resize_mode": "shortest", "fill_color": 0,
            },
        )  # fmt: skip
        _models[tower] = built
    return _models[tower]


def encoder(tower: str, mode: DenseMode | None = None, view: DenseView | None = None) -> OpenClipEncoder:
    return wrap_open_clip(
        model(tower), tower, "random:0", open_clip.SimpleTokenizer(context_length=16),
        device=torch.device("cpu"), dense_mode=mode, dense_view=view,
    )  # fmt: skip


def transform(tower: str) -> Any:
    return image_transform_v2(PreprocessCfg(**model(tower).visual.preprocess_cfg), is_train=False)


@pytest.mark.parametrize(("tower", "mode"), CASES)
def test_the_pooled_vector_has_the_bits_of_open_clip(tower: str, mode: DenseMode) -> None:
    one = encoder(tower, mode)
    pixels = [one.prepare(picture) for picture in PICTURES]
    theirs = torch.stack([transform(tower)(p) for p in PICTURES])
    assert np.array_equal(np.stack([p.native for p in pixels]), theirs.numpy())
    with torch.inference_mode():
        expected = model(tower).encode_image(theirs, normalize=True).numpy()
    assert np.array_equal(one.encode_images(pixels).pooled, expected)


@pytest.mark.parametrize(("tower", "mode"), CASES)
def test_tokens_lie_in_the_joint_space_and_follow_the_picture(tower: str, mode: DenseMode) -> None:
    one = encoder(tower, mode, DenseView.NATIVE)
    features = one.encode_images([one.prepare(picture) for picture in PICTURES])
    for tokens in features.tokens:
        assert tokens.shape == (*one.spec.grid, one.spec.dim)
        assert tokens.dtype == np.float32
        assert np.isfinite(tokens).all()
        assert tokens.reshape(-1, one.spec.dim).std(axis=0).max() > 0


@pytest.mark.parametrize("tower", ["siglip", "timm-class-token"])
def test_a_token_goes_through_the_head_alone(tower: str) -> None:
    """One patch changed changes the head's answer for that patch, and the others' only as far as the trunk mixes."""
    visual = model(tower).visual
    with torch.inference_mode():
        features = visual.trunk.forward_features(torch.randn(1, 3, 224, 224))
        visual.trunk.forward_features, kept = (lambda _: features), visual.trunk.forward_features
        try:
            _, before = dense_reader(visual, DenseMode.HEAD)(torch.empty(1, 3, 224, 224))
            features[:, -1] += 1.0 + torch.arange(features.shape[-1])
            _, after = dense_reader(visual, DenseMode.HEAD)(torch.empty(1, 3, 224, 224))
        finally:
            visual.trunk.forward_features = kept
    assert torch.equal(before[0, :-1], after[0, :-1])
    assert not torch.equal(before[0, -1, -1], after[0, -1, -1])


def test_an_average_and_a_linear_head_commute() -> None:
    visual = model("efficientnet").visual
    with torch.inference_mode():
        pooled, tokens = dense_reader(visual, DenseMode.HEAD)(torch.randn(2, 3, 64, 64))
    torch.testing.assert_close(tokens.mean(dim=(1, 2)), pooled, atol=1e-5, rtol=1e-4)


def test_last_tokens_are_open_clips_own() -> None:
    """``last`` is what the tower itself calls its tokens, projected."""
    visual = model("class-token").visual
    pixels = torch.randn(2, 3, 64, 64)
    with torch.inference_mode():
        visual.output_tokens = True
        _, own = visual(pixels)
        visual.output_tokens = False
        _, tokens = dense_reader(visual, DenseMode.LAST)(pixels)
    torch.testing.assert_close(tokens.flatten(1, 2), own @ visual.proj, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("mode", [DenseMode.QQ, DenseMode.KK])
def test_self_attention_equals_the_slow_formula(mode: DenseMode) -> None:
    visual = model("class-token").visual
    block = visual.transformer.resblocks[-1]
    pixels = torch.randn(1, 3, 64, 64)
    seen: list[torch.Tensor] = []
    handle = block.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    with torch.inference_mode():
        _, tokens = dense_reader(visual, mode)(pixels)
        handle.remove()
        q, k, v = (block.ln_1(seen[0]) @ block.attn.in_proj_weight.T + block.attn.in_proj_bias).chunk(
            3, dim=-1
        )
        same = q if mode is DenseMode.QQ else k
        mixed = []
        for head in range(2):
            part = slice(32 * head, 32 * (head + 1))
            weights = (same[0, :, part] @ same[0, :, part].T / 32**0.5).softmax(dim=-1)
            mixed.append(weights @ v[0, :, part])
        slow = visual.ln_post(block.attn.out_proj(torch.cat(mixed, dim=-1)))[1:] @ visual.proj
    torch.testing.assert_close(tokens[0].flatten(0, 1), slow, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("tower", ["class-token", "resnet", "convnext"])
def test_the_whole_frame_keeps_its_shape(tower: str) -> None:
    one = encoder(tower)  # these crop, so the frame is their default
    assert one.spec.dense_view is DenseView.FRAME
    features = one.encode_images([one.prepare(picture) for picture in PICTURES])
    heights, widths = zip(*(tokens.shape[:2] for tokens in features.tokens), strict=True)
    assert len(set(heights)) == 1
    assert widths[0] < widths[1] < widths[2]


def test_a_strip_does_not_take_the_memory_of_a_hundred_pictures() -> None:
    one = encoder("class-token")
    tokens = one.encode_images([one.prepare(Image.new("RGB", (4000, 2)))]).tokens[0]
    assert tokens.shape[0] * tokens.shape[1] <= 21 * 84


def test_a_frame_of_the_native_size_has_the_native_tokens() -> None:
    visual = model("class-token").visual
    pixels = torch.randn(2, 3, 64, 64)
    with torch.inference_mode():
        torch.testing.assert_close(
            read_frame(visual, DenseMode.KK, pixels), dense_reader(visual, DenseMode.KK)(pixels)[1]
        )


def test_frames_in_one_batch_are_those_of_each_alone() -> None:
    one = encoder("class-token")
    pixels = [one.prepare(picture) for picture in PICTURES]
    together = one.encode_images(pixels).tokens
    for alone, tokens in zip(pixels, together, strict=True):
        np.testing.assert_allclose(one.encode_images([alone]).tokens[0], tokens, atol=1e-5)


def test_a_text_does_not_depend_on_its_neighbours() -> None:
    one = encoder("class-token")
    texts = ["a dog", "a red cup to the left of a laptop", "x"]
    together = one.encode_texts(texts)
    for row, text in enumerate(texts):
        assert np.array_equal(one.encode_texts([text]).vectors[0], together.vectors[row])
    np.testing.assert_allclose(np.linalg.norm(together.vectors, axis=1), 1, atol=1e-6)


def test_a_cut_text_says_so() -> None:
    assert encoder("class-token").encode_texts(["a dog", "dog " * 14, "dog " * 15]).truncated == (
        False,
        False,
        True,
    )


def test_modes_a_tower_does_not_have_are_refused() -> None:
    with pytest.raises(UnsupportedTower, match="allowed: head"):
        dense_reader(model("convnext").visual, DenseMode.KK)
    with pytest.raises(UnsupportedTower, match="allowed: last, value, qq, kk"):
        dense_reader(model("class-token").visual, DenseMode.HEAD)


def test_the_hash_sees_weights_and_activation() -> None:
    torch.manual_seed(0)
    plain = open_clip.CLIP(embed_dim=32, vision_cfg=dict(TOWERS["class-token"]), text_cfg=dict(TEXT))
    quick = open_clip.CLIP(
        embed_dim=32, vision_cfg=dict(TOWERS["class-token"]), text_cfg=dict(TEXT), quick_gelu=True
    )
    quick.load_state_dict(plain.state_dict())
    before = weights_hash(plain)
    assert before == weights_hash(plain)
    assert before != weights_hash(quick)
    with torch.no_grad():
        plain.logit_scale.add_(1e-4)
    assert before != weights_hash(plain)


@pytest.mark.parametrize(
    ("name", "pretrained", "says"),
    [
        ("ViT-B-99", "openai", "no model is called 'ViT-B-99'"),
        ("ViT-B-16", "nosuchtag", "allowed:.*laion2b_s34b_b88k"),
        ("ViT-B-16", None, "needs weights"),
        ("ViT-B-32", "laion2b_s34b_b79k", "not on this machine.*Nothing is fetched.*laion2b_s34b_b79k:FILE"),
        ("ViT-B-16-SigLIP", "random:0", "cannot be loaded here"),
        ("compact", "x.pt", "takes no weights"),
    ],
)
def test_what_cannot_be_loaded_is_one_clear_line(name: str, pretrained: str | None, says: str) -> None:
    with pytest.raises(EncoderUnavailable, match=says) as caught:
        load_encoder(name, pretrained)
    assert "\n" not in str(caught.value)


def test_a_local_file_is_the_model_it_was_saved_from(tmp_path) -> None:
    torch.manual_seed(3)
    saved = open_clip.create_model("RN50", pretrained=None)
    torch.save(saved.state_dict(), tmp_path / "rn50.pt")
    loaded = load_encoder("RN50", f"openai:{tmp_path / 'rn50.pt'}")
    assert loaded.spec.dim == 1024
    assert loaded.spec.pretrained.endswith("rn50.pt")
    same = loaded.model.state_dict()
    assert all(torch.equal(tensor, same[key]) for key, tensor in saved.state_dict().items())


def test_random_weights_need_no_tag() -> None:
    one, other = load_encoder("RN50", "random:1"), load_encoder("RN50", "random:2")
    assert one.spec.pretrained == "random:1"
    assert one.spec.weights_sha256 != other.spec.weights_sha256
