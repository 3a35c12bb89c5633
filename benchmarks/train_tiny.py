"""Train the two tiny models of `benchmarks.tiny` from scratch, in minutes on a laptop's processor.

    python -m benchmarks.train_tiny [--model NAME] [--out DIR] [--steps N] [--threads N]

The only teacher is CLIP's contrast between pictures and captions. Whatever caption of a batch is true of a
picture counts as its match. No caption says where a thing is (`benchmarks.tiny_scenes`). Half of the
patches are left out at most steps, which halves the work and leaves tokens less to say about other places than their
own.

Seeded; figures repeat to the last bit with the same number of threads only.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import open_clip
import torch
from open_clip.transformer import PatchDropout as OpenClipPatchDropout
from safetensors.torch import save_file
from timm.layers import PatchDropout
from torch import Tensor
from torch.nn import functional

from benchmarks.tiny import FOLDER, TINY, register
from benchmarks.tiny_scenes import EASY, FULL, Compositor

_REPORT = 25


@dataclass(frozen=True, slots=True)
class Recipe:
    """The constants of training."""

    steps: int = 2500
    batch: int = 128
    learning_rate: float = 2e-3
    warm_up: int = 60
    weight_decay: float = 0.1
    easy: float = 0.25
    """Share of the steps that show mostly single things: what a thing is called is learnt first."""
    patch_dropout: float = 0.5
    whole: float = 0.1
    """Share of the steps, at the end, that see all patches, as a model in use does."""
    largest_scale: float = 50.0
    clip_norm: float = 1.0
    seed: int = 0


def main() -> None:
    """Run the command line."""
    options = argparse.ArgumentParser(description="Train the tiny vision transformers.")
    options.add_argument("--model", choices=TINY, action="append", help="one of them; both by default")
    options.add_argument("--out", type=Path, default=FOLDER, help="folder for the weights")
    options.add_argument("--steps", type=int, default=Recipe().steps)
    options.add_argument("--threads", type=int, default=1)
    arguments = options.parse_args()
    torch.set_num_threads(arguments.threads)
    register()
    for name in arguments.model or TINY:
        model = train(name, replace(Recipe(), steps=arguments.steps))
        state = {key: tensor.half().contiguous() for key, tensor in model.state_dict().items()}
        file = arguments.out / f"{name}.safetensors"
        save_file(state, file)
        print(f"{file}: {file.stat().st_size:,} bytes", file=sys.stderr)


def train(name: str, recipe: Recipe) -> Any:
    """Train one of the models.

    Returns
    -------
    model : open_clip model
    """
    torch.manual_seed(recipe.seed)
    model = open_clip.create_model(name, output_dict=False).train()
    _leave_patches_out(model.visual, recipe.patch_dropout)
    tokenise = open_clip.get_tokenizer(name)
    cfg = model.visual.preprocess_cfg
    pictures = Compositor(model.visual.image_size[0], cfg["mean"], cfg["std"], seed=recipe.seed)
    optimiser = torch.optim.AdamW(_groups(model, recipe.weight_decay), betas=(0.9, 0.98))
    begun, smooth = time.monotonic(), math.nan
    for step in range(recipe.steps):
        for group in optimiser.param_groups:
            group["lr"] = recipe.learning_rate * _schedule(step, recipe)
        if step == round((1 - recipe.whole) * recipe.steps):
            _leave_patches_out(model.visual, 0.0)
        batch = pictures.batch(recipe.batch, EASY if step < recipe.easy * recipe.steps else FULL)
        shown = torch.from_numpy(batch.shown)
        true = (shown[:, None] == shown[None]).all(dim=-1)
        images = model.encode_image(torch.from_numpy(batch.pixels), normalize=True)
        texts = model.encode_text(tokenise(list(batch.captions)), normalize=True)
        loss = clip_loss(model.logit_scale.exp() * images @ texts.T, true)
        optimiser.zero_grad()
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(model.parameters(), recipe.clip_norm)
        optimiser.step()
        with torch.no_grad():
            model.logit_scale.clamp_(0, math.log(recipe.largest_scale))
        smooth = loss.item() if step == 0 else 0.95 * smooth + 0.05 * loss.item()
        if step % _REPORT == 0 or step == recipe.steps - 1:
            print(f"{name} step {step} loss {smooth:.3f} {time.monotonic() - begun:.0f} s", file=sys.stderr)
    return model.eval()


def clip_loss(logits: Tensor, true: Tensor) -> Tensor:
    """Cross-entropy both ways, over all the matches a picture or a caption has in the batch.

    Parameters
    ----------
    logits : (B, B) float32
        Pictures by captions.
    true : (B, B) bool
        Whether the caption is true of the picture.
    """
    by_picture, by_caption = true / true.sum(dim=1, keepdim=True), true.T / true.T.sum(dim=1, keepdim=True)
    loss: Tensor = functional.cross_entropy(logits, by_picture) + functional.cross_entropy(
        logits.T, by_caption
    )
    return loss / 2


def _schedule(step: int, recipe: Recipe) -> float:
    """Share of the learning rate: a linear warm-up, then half a cosine."""
    return min(1.0, (step + 1) / recipe.warm_up) * 0.5 * (1 + math.cos(math.pi * step / recipe.steps))


def _leave_patches_out(visual: Any, share: float) -> None:
    """Neither model's configuration carries it: it belongs to training alone."""
    if hasattr(visual, "trunk"):
        visual.trunk.patch_drop = PatchDropout(share, num_prefix_tokens=visual.trunk.num_prefix_tokens)
    else:
        visual.patch_dropout = OpenClipPatchDropout(share)


def _groups(model: Any, weight_decay: float) -> list[dict[str, Any]]:
    """Matrices decay; biases, norms, scales and embeddings do not."""
    matrices: list[Tensor] = []
    others: list[Tensor] = []
    for name, parameter in model.named_parameters():
        (matrices if parameter.ndim > 1 and "embed" not in name else others).append(parameter)
    return [{"params": matrices, "weight_decay": weight_decay}, {"params": others, "weight_decay": 0.0}]


if __name__ == "__main__":
    main()
