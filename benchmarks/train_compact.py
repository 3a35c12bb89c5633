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
import math
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageOps
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


@dataclass(frozen=True, slots=True)
class Recipe:
    """The constants of training; see the module's text for the losses.

    ``crops`` are of each photograph, and a pass is over them too. ``dropout`` is of the towers' features. It matters
    most: without it the heads learn the photographs by heart, as `benchmarks.heads` shows when it is set to zero.
    """

    crops: int = 0
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
    """Outputs of the frozen towers, for V views of N photographs: view by view, in each photograph by photograph.

    Attributes
    ----------
    tokens : (VN, P, 1280) bfloat16
        Patch tokens of the image tower.
    captions : (N, 5, 384) float32
    names : (C, 384) float32
        Class names of the boxes, as `classes_of` orders them.
    vocabulary : (W, 384) float32
        Everyday nouns, whose mean a search takes off each word.
    targets : (VN, P, C + 1) float32
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
    features = cached_features(arguments.cache, photos, recipe.crops)
    heads = train(features, np.arange(len(photos)), recipe)
    tensors = {"image": heads.image.detach().half(), "text": heads.text.detach().half()}
    save_file(tensors, arguments.out, metadata={"recipe": repr(recipe), "photographs": str(len(photos))})
    print(f"-> {arguments.out}", file=sys.stderr)


@dataclass(frozen=True, slots=True)
class View:
    """A part of a photograph, perhaps mirrored.

    Attributes
    ----------
    box : (x0, y0, x1, y1)
        In shares of the picture, y down.
    mirrored : bool
    """

    box: tuple[float, float, float, float] = (0.0, 0.0, 1.0, 1.0)
    mirrored: bool = False

    def picture(self, image: Image.Image) -> Image.Image:
        """What is seen of a picture."""
        x0, y0, x1, y1 = self.box
        width, height = image.size
        part = image.crop((round(x0 * width), round(y0 * height), round(x1 * width), round(y1 * height)))
        return ImageOps.mirror(part) if self.mirrored else part

    def boxes(self, boxes: Sequence[Box]) -> list[Box]:
        """What is seen of boxes, in shares of the view; those that lie outside are left out."""
        x0, y0, x1, y1 = self.box
        seen = []
        for box in boxes:
            left, right = ((x - x0) / (x1 - x0) for x in (box.x0, box.x1))
            top, bottom = ((y - y0) / (y1 - y0) for y in (box.y0, box.y1))
            if self.mirrored:
                left, right = 1.0 - right, 1.0 - left
            left, top, right, bottom = max(left, 0.0), max(top, 0.0), min(right, 1.0), min(bottom, 1.0)
            if left < right and top < bottom:
                seen.append(replace(box, x0=left, y0=top, x1=right, y1=bottom))
        return seen


def views_of(photos: int, crops: int, *, seed: int = 0) -> list[list[View]]:
    """Views of each photograph: the whole, its mirror image, and crops of half to nine tenths of its area.

    The image tower is only nearly symmetric, so a mirror image is a second photograph with a known truth; a crop shows
    the same things larger and elsewhere.

    Parameters
    ----------
    photos, crops : int
        How many, and how many crops of each.
    """
    rng = np.random.default_rng(seed)
    views = [[View()] * photos, [View(mirrored=True)] * photos]
    for _ in range(crops):
        sides = np.sqrt(rng.uniform(0.5, 0.9, photos))[:, None] * np.exp(
            rng.uniform(-0.15, 0.15, (photos, 1)) * [1, -1]
        )
        sides = np.minimum(sides, 1.0)
        corners = rng.uniform(size=(photos, 2)) * (1.0 - sides)
        edges = np.concatenate([corners, corners + sides], axis=1).tolist()
        flips = (rng.uniform(size=photos) < 0.5).tolist()
        views.append([View((a, b, c, d), flip) for (a, b, c, d), flip in zip(edges, flips, strict=True)])
    return views


def classes_of(photos: Sequence[Photo]) -> list[str]:
    """Names of all that photographs have boxes of, in alphabetical order."""
    return sorted({box.name for photo in photos for box in photo.boxes})


def tower_features(
    photos: Sequence[Photo], views: Sequence[Sequence[View]], image_size: int = IMAGE_SIZE
) -> Features:
    """Run both frozen towers over the training data."""
    model, tokenise = assemble_towers(image_size)
    transform = preprocessing_of(model)
    tokens = []
    jobs = [job for view in views for job in zip(photos, view, strict=True)]
    with torch.no_grad():  # not inference mode, whose tensors nothing can be trained on
        for start in range(0, len(jobs), _BATCH):
            pixels = torch.stack(
                [
                    transform(view.picture(open_image(photo.path).image))
                    for photo, view in jobs[start : start + _BATCH]
                ]
            )
            seen = model.visual.trunk.forward_features(pixels.contiguous(memory_format=torch.channels_last))
            tokens.append(seen.flatten(2).transpose(1, 2).bfloat16())
    model.text.proj = nn.Identity()

    def write(texts: Sequence[str]) -> Tensor:
        with torch.no_grad():
            return torch.cat([model.encode_text(tokenise([text])) for text in texts])

    classes = classes_of(photos)
    info = ImageNetInfo()
    imagenet = [info.index_to_description(number).split(",")[0].lower() for number in range(1000)]
    weights = image_weights()
    side = math.isqrt(tokens[0].shape[1])
    targets = torch.stack([box_targets(view.boxes(photo.boxes), classes, side) for photo, view in jobs])
    return Features(
        tokens=torch.cat(tokens),
        captions=torch.stack([write(photo.captions[:5]) for photo in photos]),
        names=write([phrase_text("a {}", name) for name in classes]),
        vocabulary=write([phrase_text("a {}", word) for word in WORDS]),
        targets=targets,
        imagenet=write([phrase_text("a {}", name) for name in imagenet]),
        teacher=(weights["_fc.weight"], weights["_fc.bias"]),
    )


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
    """Fit the heads on all views of some of the photographs; deterministic for a recipe and a machine."""
    heads = Heads(recipe.seed)
    scales = [heads.log_scales, heads.nothing]
    optimiser = torch.optim.AdamW(
        [
            {"params": [heads.image, heads.text], "weight_decay": recipe.weight_decay},
            {"params": scales, "weight_decay": 0.0},
        ],
        lr=recipe.learning_rate,
    )
    views = len(features.tokens) // len(features.captions)
    own = torch.from_numpy(np.concatenate([rows + view * len(features.captions) for view in range(views)]))
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


def cached_features(
    path: Path | None, photos: Sequence[Photo], crops: int = 0, image_size: int = IMAGE_SIZE
) -> Features:
    """The towers' outputs, read from a file where there is one, or left there for the next run."""
    if path is not None and path.exists():
        kept = Features(**torch.load(path, weights_only=True))
        came, wanted = kept.tokens.shape[:2], ((2 + crops) * len(photos), (image_size // PATCH) ** 2)
        if came != wanted:
            raise SystemExit(
                f"{path} holds {came[0]} views of {came[1]} patches; {len(photos)} photographs of {image_size} px with "
                f"{crops} crops each make {wanted[0]} of {wanted[1]}: remove it, or name another file"
            )
        return kept
    features = tower_features(photos, views_of(len(photos), crops), image_size)
    if path is not None:
        torch.save({name: getattr(features, name) for name in Features.__slots__}, path)
    return features


if __name__ == "__main__":
    main()
