"""Train the heads of the ``compact`` encoder.

    python -m benchmarks.train_compact [--data DIR] [--out FILE]

Both towers stay frozen; what is learned are two matrices into a joint space of 256 dimensions. Six losses share it:

- *captions*: a photograph and its captions, contrasted within a batch;
- *boxes*: the class names of the boxes that cover a patch, for unit tokens, as a centroid reads them, and for tokens as
  long as they are, as a moment does;
- *places*: for each class in a photograph, which of its patches the boxes cover, every class alike however small;
- *grids*: the same, read as the second stage of a search does: unit cells of the coarse grid, words without the mean
  noun, the map in units of its own spread;
- *whole* and *patches*: the image tower's own ImageNet classes, by name, which keeps directions for things that no
  training photograph shows.

`benchmarks.heads` cross-validates the recipe on the training photographs, which is where its constants were chosen.
"""

from __future__ import annotations

import argparse
import itertools
import math
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import ImageOps
from safetensors.torch import save_file
from timm.data import ImageNetInfo
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.data import Box, Photo, load_photos
from benchmarks.record import DEFAULT_DATA
from indexer.calibrate import WORDS
from indexer.compact import DIM, HEADS, IMAGE_SIZE, PATCH, assemble_towers, image_weights
from indexer.encoder import phrase_text
from indexer.grid import SIDE
from indexer.images import open_image
from indexer.openclip import preprocessing_of

_BATCH = 16
_SEEN = 0.3
"""Patches that a class must cover in all to have a place."""
_TINY = 1e-6
_SAME = 0.02
"""Share of their size by which tokens may differ when a picture is seen again: batches of another size round
differently."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """The constants of training; see the module's text for the losses.

    ``dropout`` is of the towers' features. It matters most: without it the heads learn the photographs by heart, as
    `benchmarks.heads` shows when it is set to zero.
    """

    passes: int = 55
    batch: int = 256
    learning_rate: float = 3e-3
    weight_decay: float = 0.2
    dropout: float = 0.35
    boxes: float = 0.5
    places: float = 1.0
    place_photos: int = 24
    place_sharpness: float = 5.0
    grids: float = 1.0
    grid_photos: int = 64
    whole: float = 0.5
    patches: float = 0.5
    patch_photos: int = 64
    patches_per_photo: int = 16
    teacher_sharpness: float = 1.5
    seed: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Features:
    """Outputs of the frozen towers, for N photographs and then for their N mirror images, in the same order.

    Attributes
    ----------
    tokens : (2N, P, 1280) bfloat16
        Patch tokens of the image tower.
    captions : (N, 5, 384) float32
    names : (C, 384) float32
        Class names of the boxes, as `classes_of` orders them.
    vocabulary : (W, 384) float32
        Everyday nouns, whose mean a search takes off each word.
    targets : (2N, P, C + 1) float32
        What covers a patch, as a distribution over the classes and nothing.
    imagenet : (1000, 384) float32
        Class names of the teacher.
    teacher : (1000, 1280) and (1000,) float32
        Its classifier.
    """

    tokens: Tensor
    captions: Tensor
    names: Tensor
    vocabulary: Tensor
    targets: Tensor
    imagenet: Tensor
    teacher: tuple[Tensor, Tensor]


class Heads(nn.Module):
    """Two projections and the scales of the losses."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.image = nn.Parameter(torch.randn(DIM, 1280, generator=generator) * 1280**-0.5)
        self.text = nn.Parameter(torch.randn(DIM, 384, generator=generator) * 384**-0.5)
        self.log_scales = nn.Parameter(torch.log(torch.tensor([14.0, 10.0, 10.0])))
        self.nothing = nn.Parameter(torch.ones(()))

    def write(self, features: Tensor) -> Tensor:
        """Text features (..., 384) to unit vectors (..., D)."""
        return functional.normalize(features @ self.text.T, dim=-1)


def main() -> None:
    """Train, or cross-validate, from the command line."""
    options = argparse.ArgumentParser(description="Train the heads of the compact encoder.")
    options.add_argument("--data", type=Path, default=DEFAULT_DATA / "coco" / "train")
    options.add_argument("--out", type=Path, default=HEADS)
    options.add_argument("--cache", type=Path, help="keep the towers' outputs here for the next run")
    arguments = options.parse_args()
    photos = load_photos(arguments.data)
    recipe = Recipe()
    features = cached_features(arguments.cache, photos)
    heads = train(features, np.arange(len(photos)), recipe)
    tensors = {"image": heads.image.detach().half(), "text": heads.text.detach().half()}
    save_file(tensors, arguments.out, metadata={"recipe": repr(recipe), "photographs": str(len(photos))})
    print(f"-> {arguments.out}", file=sys.stderr)


def classes_of(photos: Sequence[Photo]) -> list[str]:
    """Names of all that photographs have boxes of, in alphabetical order."""
    return sorted({box.name for photo in photos for box in photo.boxes})


def tower_features(photos: Sequence[Photo], image_size: int = IMAGE_SIZE) -> Features:
    """Run both frozen towers over the training data.

    The image tower is only nearly symmetric, so a mirror image is a second photograph with a known truth.
    """
    model, tokenise = assemble_towers(image_size)
    tokens = [
        _look(model, photos[start : start + _BATCH], mirrored=mirrored)
        for mirrored, start in itertools.product((False, True), range(0, len(photos), _BATCH))
    ]
    model.text.proj = nn.Identity()

    def write(texts: Sequence[str]) -> Tensor:
        with torch.no_grad():
            return torch.cat([model.encode_text(tokenise([text])) for text in texts])

    classes = classes_of(photos)
    info = ImageNetInfo()
    imagenet = [info.index_to_description(number).split(",")[0].lower() for number in range(1000)]
    weights = image_weights()
    side = math.isqrt(tokens[0].shape[1])
    plain = torch.stack([box_targets(photo.boxes, classes, side) for photo in photos])
    mirrored = plain.reshape(len(photos), side, side, -1).flip(2).flatten(1, 2)
    return Features(
        tokens=torch.cat(tokens),
        captions=torch.stack([write(photo.captions[:5]) for photo in photos]),
        names=write([phrase_text("a {}", name) for name in classes]),
        vocabulary=write([phrase_text("a {}", word) for word in WORDS]),
        targets=torch.cat([plain, mirrored]),
        imagenet=write([phrase_text("a {}", name) for name in imagenet]),
        teacher=(weights["_fc.weight"], weights["_fc.bias"]),
    )


def _look(model: Any, photos: Sequence[Photo], *, mirrored: bool = False) -> Tensor:
    """Patch tokens of the image tower, (N, P, 1280) bfloat16."""
    transform = preprocessing_of(model)
    images = [open_image(photo.path).image for photo in photos]
    pixels = torch.stack([transform(ImageOps.mirror(one) if mirrored else one) for one in images])
    with torch.no_grad():  # not inference mode, whose tensors nothing can be trained on
        seen = model.visual.trunk.forward_features(pixels.contiguous(memory_format=torch.channels_last))
    tokens: Tensor = seen.flatten(2).transpose(1, 2).bfloat16()
    return tokens


def box_targets(boxes: Sequence[Box], classes: Sequence[str], side: int) -> Tensor:
    """What covers each patch of a square grid, so many patches down and across.

    Returns
    -------
    targets : (P, C + 1) float32
        Rows sum to one. Where boxes overlap a small one counts more, by the root of its area: it is in front more
        often than not, and it has fewer patches to be learned from. The last column is what no box covers.
    """
    edges = np.linspace(0.0, 1.0, side + 1)
    weights = np.zeros((side * side, len(classes)))
    free = np.ones(side * side)
    for box in boxes:
        across = np.clip(np.minimum(edges[1:], box.x1) - np.maximum(edges[:-1], box.x0), 0, None) * side
        down = np.clip(np.minimum(edges[1:], box.y1) - np.maximum(edges[:-1], box.y0), 0, None) * side
        cover = np.outer(down, across).ravel()
        weights[:, classes.index(box.name)] += cover / max(box.area, 1e-4) ** 0.5
        free *= 1.0 - cover
    shares = weights / np.maximum(weights.sum(axis=1, keepdims=True), 1e-9) * (1.0 - free)[:, None]
    return torch.from_numpy(np.column_stack([shares, 1.0 - shares.sum(axis=1)]).astype(np.float32))


def train(features: Features, rows: NDArray[np.intp], recipe: Recipe) -> Heads:
    """Fit the heads on some of the photographs, both ways; deterministic for a recipe and a machine."""
    heads = Heads(recipe.seed)
    scales = [heads.log_scales, heads.nothing]
    optimiser = torch.optim.AdamW(
        [
            {"params": [heads.image, heads.text], "weight_decay": recipe.weight_decay},
            {"params": scales, "weight_decay": 0.0},
        ],
        lr=recipe.learning_rate,
    )
    own = torch.from_numpy(np.concatenate([rows, rows + len(features.captions)]))
    steps = recipe.passes * len(own) // recipe.batch
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, recipe.learning_rate, total_steps=steps)
    generator = torch.Generator().manual_seed(recipe.seed)
    means = torch.cat([part.float().mean(dim=1) for part in torch.split(features.tokens, 64)])
    cells = torch.cat([cells_of(part.float()).bfloat16() for part in torch.split(features.tokens, 64)])
    with torch.random.fork_rng(devices=[]), _repeatable():
        torch.manual_seed(recipe.seed)  # dropout draws from the global generator
        for _ in range(steps):
            batch = own[torch.randperm(len(own), generator=generator)[: recipe.batch]]
            loss = _loss(heads, features, means, batch, recipe, generator)
            if recipe.grids:
                some = batch[-recipe.grid_photos :]
                loss = loss + recipe.grids * _grids(heads, features, cells, some, recipe)
            optimiser.zero_grad()
            torch.autograd.backward(loss)
            optimiser.step()
            schedule.step()
    return heads


@contextmanager
def _repeatable() -> Iterator[None]:
    """Gradients of gathered rows summed in one order, not in that in which torch's threads come to them."""
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)


def _loss(
    heads: Heads, features: Features, means: Tensor, rows: Tensor, recipe: Recipe, generator: torch.Generator
) -> Tensor:
    scale_captions, scale_boxes, scale_teacher = heads.log_scales.exp().clamp(max=100.0)
    weight, bias = features.teacher
    classes = heads.write(features.imagenet)

    pooled = functional.normalize(functional.dropout(means[rows], recipe.dropout) @ heads.image.T, dim=-1)
    pick = torch.randint(features.captions.shape[1], (len(rows),), generator=generator)
    captions = features.captions[rows % len(features.captions), pick]
    similar = scale_captions * heads.write(captions) @ pooled.T
    own = torch.arange(len(rows))
    loss = (functional.cross_entropy(similar, own) + functional.cross_entropy(similar.T, own)) / 2
    whole = ((means[rows] @ weight.T + bias) * recipe.teacher_sharpness).softmax(dim=-1)
    loss = loss + recipe.whole * _divergence(scale_teacher * pooled @ classes.T, whole)

    some = rows[: recipe.patch_photos]
    patch = torch.randint(
        features.tokens.shape[1], (len(some), recipe.patches_per_photo), generator=generator
    )
    seen = features.tokens[some[:, None], patch].float()
    tokens = functional.dropout(seen, recipe.dropout) @ heads.image.T
    unit = functional.normalize(tokens, dim=-1)
    names = heads.write(features.names)
    target = features.targets[some[:, None], patch].flatten(0, 1)
    for vectors in (unit, tokens / tokens.norm(dim=-1).mean().detach()):
        named = scale_boxes * vectors @ names.T
        named = torch.cat([named, heads.nothing.expand(*named.shape[:2], 1)], dim=-1)
        loss = loss + recipe.boxes * functional.cross_entropy(named.flatten(0, 1), target)
    loss = loss + recipe.places * _places(heads, features, rows[-recipe.place_photos :], names, recipe)
    parts = (seen @ weight.T + bias).softmax(dim=-1)
    return loss + recipe.patches * _divergence(scale_teacher * unit @ classes.T, parts)


def _places(heads: Heads, features: Features, rows: Tensor, names: Tensor, recipe: Recipe) -> Tensor:
    """Mean over the classes in some photographs of how badly a class's map says where its boxes are."""
    tokens = (features.tokens[rows] @ heads.image.T.bfloat16()).float()
    tokens = tokens / tokens.mean(dim=1).norm(dim=-1).mean().detach()
    cover = features.targets[rows][:, :, :-1]
    photo, name = torch.nonzero(cover.sum(dim=1) > _SEEN, as_tuple=True)
    maps = recipe.place_sharpness * torch.einsum("apd,ad->ap", tokens[photo], names[name])
    return functional.cross_entropy(maps, functional.normalize(cover[photo, :, name], p=1.0, dim=1))


def _grids(heads: Heads, features: Features, cells: Tensor, rows: Tensor, recipe: Recipe) -> Tensor:
    """How badly the second stage of a search would say where the boxes of a class are, mean over the classes.

    Notes
    -----
    Features are averaged over a cell before they are projected and not, as in an index, after: a quarter of the work,
    and the directions are nearly the same. Channels drop out for a whole photograph, so that its cells stay comparable.
    """
    kept = functional.dropout(torch.ones(len(rows), 1, cells.shape[-1]), recipe.dropout)
    unit = functional.normalize((cells[rows].float() * kept) @ heads.image.T, dim=-1)
    words = heads.write(features.names) - heads.write(features.vocabulary).mean(dim=0)
    cover = features.targets[rows][:, :, :-1]
    photo, name = torch.nonzero(cover.sum(dim=1) > _SEEN, as_tuple=True)
    maps = torch.einsum("npd,cd->ncp", unit, words)[photo, name]
    maps = (maps - maps.mean(dim=1, keepdim=True)) / (maps.std(dim=1, keepdim=True, correction=0) + _TINY)
    return functional.cross_entropy(maps, functional.normalize(cells_of(cover)[photo, :, name], p=1.0, dim=1))


def cells_of(patches: Tensor) -> Tensor:
    """Patches (N, P, ...) averaged over the cells of the coarse grid."""
    each = math.isqrt(patches.shape[1]) // SIDE
    square = patches.reshape(len(patches), SIDE, each, SIDE, each, *patches.shape[2:])
    return square.mean(dim=(2, 4)).flatten(1, 2)


def _divergence(logits: Tensor, target: Tensor) -> Tensor:
    """Mean Kullback-Leibler divergence of softmax(logits) from a target distribution."""
    return functional.kl_div(
        logits.log_softmax(dim=-1).flatten(0, -2), target.flatten(0, -2), reduction="batchmean"
    )


def cached_features(path: Path | None, photos: Sequence[Photo], image_size: int = IMAGE_SIZE) -> Features:
    """The towers' outputs, read from a file where there is one, or left there for the next run.

    Raises
    ------
    SystemExit
        The file holds something else: other photographs, or what another tower saw.
    """
    if path is None or not path.exists():
        features = tower_features(photos, image_size)
        if path is not None:
            torch.save({name: getattr(features, name) for name in Features.__slots__}, path)
        return features
    kept = Features(**torch.load(path, weights_only=True))
    came, wanted = kept.tokens.shape[:2], (2 * len(photos), (image_size // PATCH) ** 2)
    if came != wanted:
        raise SystemExit(
            f"{path} holds {came[0]} pictures of {came[1]} patches; {len(photos)} photographs of {image_size} px "
            f"and their mirror images make {wanted[0]} of {wanted[1]}: remove it, or name another file"
        )
    again, first = _look(assemble_towers(image_size)[0], photos[:1])[0].float(), kept.tokens[0].float()
    if (again - first).norm() > _SAME * first.norm():
        raise SystemExit(
            f"{path} is not what the tower sees of {photos[0].path}: remove it, or name another file"
        )
    return kept


if __name__ == "__main__":
    main()
