"""Patch tokens in the joint space, for every kind of image tower that open_clip builds.

The pooled vector always comes out of the tower's own ``forward``, untouched; patch tokens are read beside it. Axes:
B images, H x W patch grid, P = H * W, C width of the tower, D embedding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from indexer.encoder import DenseMode
from indexer.errors import IndexerError

Tower = Any
"""An image tower or a part of one: open_clip's and timm's modules carry no types for what is read here."""

Reading = tuple[Tensor, Tensor]
"""Pooled (B, D) as the tower returns it, not normalised; tokens (B, H, W, D), not normalised."""


class UnsupportedTower(IndexerError):
    """An image tower, or a dense mode of one, that has no patch tokens we know how to read."""


def default_mode(visual: Tower) -> DenseMode:
    """The dense mode a tower is read with unless told otherwise.

    Key-key attention for transformers with a class token: of the training-free modes it is the one whose tokens
    stay with their own place while the noise of single tokens is averaged out. All others have one way only.
    """
    return DenseMode.KK if _is_class_token_vit(visual) else DenseMode.HEAD


def dense_reader(visual: Tower, mode: DenseMode) -> Callable[[Tensor], Reading]:
    """A function that runs a tower once and returns its pooled vector and its patch tokens.

    Parameters
    ----------
    visual : module
        ``model.visual`` of an open_clip model, in eval mode.
    mode : DenseMode
        For transformers with a class token any but ``head``; for all other towers ``head``.

    Raises
    ------
    UnsupportedTower
        Names the tower and the modes it has.
    """
    kind = type(visual).__name__
    if _is_class_token_vit(visual):
        if mode is DenseMode.HEAD:
            raise UnsupportedTower(
                f"{kind} pools by its class token", came=mode, allowed=[m for m in DenseMode if m is not mode]
            )
        return lambda pixels: _class_token_vit(visual, mode, pixels)
    if mode is not DenseMode.HEAD:
        raise UnsupportedTower(f"{kind} has one dense mode", came=mode, allowed=[DenseMode.HEAD])
    if kind == "VisionTransformer":
        if visual.attn_pool_contrastive is not None:
            raise UnsupportedTower(
                "a VisionTransformer with two attention pools mixes its tokens before the contrastive one",
                fix="Choose a model with one pool.",
            )
        return lambda pixels: _attention_pooled_vit(visual, pixels)
    if kind == "ModifiedResNet":
        return lambda pixels: _modified_resnet(visual, pixels)
    if kind == "TimmModel":
        if "pool" in dict(visual.head.named_children()):
            raise UnsupportedTower("a timm tower with a 2-d attention pool has no head for one token alone")
        return lambda pixels: _timm(visual, pixels)
    raise UnsupportedTower(
        f"no patch tokens are known for {kind}",
        allowed=["VisionTransformer", "ModifiedResNet", "TimmModel"],
    )


def takes_any_size(visual: Tower) -> bool:
    """Whether the dense pass may see pictures of another shape than the native one."""
    return (
        _is_class_token_vit(visual) or type(visual).__name__ == "ModifiedResNet" or _is_convolutional(visual)
    )


def stride_of(visual: Tower) -> int:
    """Pixels a patch covers, one way."""
    if type(visual).__name__ == "VisionTransformer":
        return int(visual.patch_size[0])
    if type(visual).__name__ == "TimmModel" and not _is_convolutional(visual):
        return int(visual.trunk.patch_embed.patch_size[0])
    return 32


def read_frame(visual: Tower, mode: DenseMode, pixels: Tensor) -> Tensor:
    """Patch tokens of pictures of any shape, positions interpolated where the tower has them.

    Parameters
    ----------
    pixels : (B, 3, H * stride, W * stride) float32

    Returns
    -------
    tokens : (B, H, W, D)
    """
    if not _is_class_token_vit(visual):
        return (
            _modified_resnet_tokens(visual, pixels)
            if type(visual).__name__ == "ModifiedResNet"
            else (_timm(visual, pixels)[1])
        )
    height, width = pixels.shape[-2] // visual.patch_size[0], pixels.shape[-1] // visual.patch_size[1]
    x = visual.conv1(pixels).flatten(2).transpose(1, 2)
    x = torch.cat([visual.class_embedding.to(x.dtype).expand(len(x), 1, -1), x], dim=1)
    x = visual.ln_pre(
        x + _interpolated(visual.positional_embedding, visual.grid_size, (height, width)).to(x.dtype)
    )
    with _captured(visual.transformer.resblocks[-1]) as seen:
        visual.transformer(x)
    return _vit_tokens(visual, mode, seen[0], (height, width))


def _is_class_token_vit(visual: Tower) -> bool:
    return type(visual).__name__ == "VisionTransformer" and visual.attn_pool is None


def _is_convolutional(visual: Tower) -> bool:
    return type(visual).__name__ == "TimmModel" and not hasattr(visual.trunk, "pos_embed")


@contextmanager
def _captured(module: Tower) -> Iterator[list[Tensor]]:
    """Collect what goes into a module while the block runs."""
    seen: list[Tensor] = []
    handle = module.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    try:
        yield seen
    finally:
        handle.remove()


def _class_token_vit(visual: Tower, mode: DenseMode, pixels: Tensor) -> Reading:
    with _captured(visual.transformer.resblocks[-1]) as seen:
        pooled = visual(pixels)
    return pooled, _vit_tokens(visual, mode, seen[0], visual.grid_size)


def _vit_tokens(visual: Tower, mode: DenseMode, x: Tensor, grid: tuple[int, int]) -> Tensor:
    """Tokens of a class-token transformer from the input of its last block.

    Parameters
    ----------
    x : (B, 1 + P, C), or (1 + P, B, C) where the transformer is not batch first

    References
    ----------
    ``value``: Zhou et al., Extract Free Dense Labels from CLIP (MaskCLIP), sec. 3. ``qq``: Lan et al., ClearCLIP,
    eq. 7. ``kk``: Hajimiri et al., NACLIP, eq. 5 without the neighbourhood term.
    """
    block = visual.transformer.resblocks[-1]
    batch_first = visual.transformer.batch_first
    if mode is DenseMode.LAST:
        x = block(x)
        x = x if batch_first else x.transpose(0, 1)
    else:
        x = _last_attention(block, mode, x if batch_first else x.transpose(0, 1))
    tokens: Tensor = visual.ln_post(x)[:, 1:]
    if visual.proj is not None:
        tokens = tokens @ visual.proj
    return tokens.reshape(len(tokens), *grid, -1)


def _last_attention(block: Tower, mode: DenseMode, x: Tensor) -> Tensor:
    """Output of the last block's attention alone, no residual, no MLP, with self-self weights or none.

    Parameters
    ----------
    x : (B, 1 + P, C)

    Returns
    -------
    (B, 1 + P, C)
    """
    attention = block.attn
    if not isinstance(attention, nn.MultiheadAttention):
        raise UnsupportedTower(
            f"the last block attends by {type(attention).__name__}", came=mode, allowed=[DenseMode.LAST]
        )
    query, key, value = functional.linear(
        block.ln_1(x), attention.in_proj_weight, attention.in_proj_bias
    ).chunk(3, dim=-1)
    if mode is not DenseMode.VALUE:
        same = _heads(query if mode is DenseMode.QQ else key, attention.num_heads)
        mixed = functional.scaled_dot_product_attention(same, same, _heads(value, attention.num_heads))
        value = mixed.transpose(1, 2).flatten(2)
    return functional.linear(value, attention.out_proj.weight, attention.out_proj.bias)


def _heads(x: Tensor, heads: int) -> Tensor:
    return x.reshape(*x.shape[:2], heads, -1).transpose(1, 2)


def _interpolated(positions: Tensor, source: tuple[int, int], target: tuple[int, int]) -> Tensor:
    """Position embeddings (1 + P, C) resampled to another grid; the class token keeps its own."""
    if source == target:
        return positions
    grid = positions[1:].reshape(*source, -1).permute(2, 0, 1)[None]
    grid = functional.interpolate(grid, size=target, mode="bicubic", align_corners=False)
    return torch.cat([positions[:1], grid[0].flatten(1).T])


def _attention_pooled_vit(visual: Tower, pixels: Tensor) -> Reading:
    with _captured(visual.attn_pool) as seen:
        pooled = visual(pixels)
    x = visual.attn_pool.ln_k(seen[0][:, 1:].flatten(0, 1)[:, None])  # (B * P, 1, C): each token alone
    # With a single key the softmax is one and the query does not matter; the first stands for all.
    query = visual.attn_pool.ln_q(visual.attn_pool.query[:1]).expand(len(x), -1, -1)
    tokens: Tensor = visual.ln_post(visual.attn_pool.attn(query, x, x, need_weights=False)[0][:, 0])
    if visual.proj is not None:
        tokens = tokens @ visual.proj
    return pooled, tokens.reshape(len(pixels), *visual.grid_size, -1)


def _modified_resnet(visual: Tower, pixels: Tensor) -> Reading:
    with _captured(visual.attnpool) as seen:
        pooled = visual(pixels)
    return pooled, _value_path(visual.attnpool, seen[0])


def _modified_resnet_tokens(visual: Tower, pixels: Tensor) -> Tensor:
    x = visual.stem(pixels)
    for layer in (visual.layer1, visual.layer2, visual.layer3, visual.layer4):
        x = layer(x)
    return _value_path(visual.attnpool, x)


def _value_path(pool: Tower, features: Tensor) -> Tensor:
    tokens: Tensor = pool.c_proj(pool.v_proj(features.permute(0, 2, 3, 1)))
    return tokens


def _timm(visual: Tower, pixels: Tensor) -> Reading:
    trunk = visual.trunk
    features = trunk.forward_features(pixels)
    pooled = visual.head(trunk.forward_head(features))
    if features.ndim == 4:
        if features.shape[1] != trunk.num_features:  # channels last, as the Swin family
            raise UnsupportedTower("a timm tower with channels-last maps is not read yet")
        batch, _, height, width = features.shape
        alone = features.permute(0, 2, 3, 1).reshape(batch * height * width, -1, 1, 1)
    else:
        prefix = trunk.num_prefix_tokens
        # Not `grid_size`: a trunk that takes pictures of any size keeps that of its positions there.
        height, width = (
            edge // patch for edge, patch in zip(pixels.shape[-2:], trunk.patch_embed.patch_size, strict=True)
        )
        batch = len(features)
        alone = features[:, prefix:].flatten(0, 1)[:, None]
        if prefix and trunk.global_pool != "token" and not trunk.pool_include_prefix:
            # Such a head skips the prefix before it pools, so it needs one to skip.
            alone = torch.cat([alone.new_zeros(len(alone), prefix, alone.shape[-1]), alone], dim=1)
    tokens: Tensor = visual.head(trunk.forward_head(alone))
    return pooled, tokens.reshape(batch, height, width, -1)
