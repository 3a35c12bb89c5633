"""What heads of the ``compact`` encoder reach on photographs they have not seen, and what bounds them.

    python -m benchmarks.heads [--cache FILE] [--folds 3] [--image-size 384] [--both-ways] [--json FILE]

The recipe of `benchmarks.train_compact` is cross-validated on the training photographs. Beside it stands what the
frozen image tower itself can tell, texts and unknown words left out: for each class with boxes a linear probe of the
tower's own 1,280 features (their mean over the patches, and the best cell of the coarse grid), told which photographs
of the other folds show the class. Of several penalties the one counts that does best on the very photographs it is
tested on: what is wanted is a bound, not a method.

``--image-size`` shows the tower larger pictures, and ``--both-ways`` gives it a second look, at the mirror image: what
either would gain for the time it costs.
"""

from __future__ import annotations

import math
from argparse import ArgumentTypeError
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional

from benchmarks.data import Photo, load_photos
from benchmarks.gallery import K, Seen
from benchmarks.geometry import SIGN, Question, questions_of
from benchmarks.probes import STRENGTHS, gram, ridge
from benchmarks.record import DEFAULT_DATA, parser, share, write_result
from benchmarks.train_compact import Features, Heads, Recipe, cached_features, cells_of, classes_of, train
from indexer.compact import IMAGE_SIZE, PATCH
from indexer.grid import SIDE
from indexer.sketch import fit_sketcher
from service.maps import softmax_centroid

Doubles = NDArray[np.float64]
Rows = NDArray[np.intp]
Scores = dict[str, list[tuple[float, str]]]
"""By what was asked, a value for each caption, question or class, and what it is not independent within."""

SEED = 0
FEWEST_FOLDS = 2
LARGE = 4
"""Times that one thing is as large as the other, from where on it is much larger."""
HALVES = 24
_LEAST_SHOWN = 3
"""Photographs with and without a class for its presence to be measured."""


def main() -> None:
    """Cross-validate from the command line."""
    options = parser(__doc__ or "")
    options.add_argument("--folds", type=number_of_folds, default=3)
    options.add_argument("--cache", type=Path, help="the towers' outputs, kept for the next run")
    options.add_argument(
        "--image-size", type=int, default=IMAGE_SIZE, help=f"pixels, a multiple of {PATCH * SIDE}"
    )
    options.add_argument("--both-ways", action="store_true", help="mean of a picture and its mirror image")
    given = options.parse_args()
    if given.image_size <= 0 or given.image_size % (PATCH * SIDE):
        options.error(f"--image-size {given.image_size}: must be a multiple of {PATCH * SIDE}")
    photos = load_photos(given.data or DEFAULT_DATA / "coco" / "train")
    recipe = Recipe()
    features = cached_features(given.cache, photos, given.image_size)
    name, about = "heads", f"compact, heads trained on other folds, pictures of {given.image_size} px"
    if given.image_size != IMAGE_SIZE:
        name = f"{name}_{given.image_size}"
    if given.both_ways:
        features, name, about = both_ways(features), f"{name}_both_ways", f"{about}, and their mirror images"
    total: Scores = {}
    for number, (rest, rows) in enumerate(folds_of(len(photos), given.folds)):
        if given.quick and number:
            break
        heads = train(features, rest, recipe)
        found = evaluate(heads, features, photos, rows) | bound(features, photos, rest, rows)
        for what, values in found.items():
            total.setdefault(what, []).extend(values)
            print(f"fold {number}: {what} {np.mean([value for value, _ in values]):.3f}", flush=True)
    write_result(
        name,
        [share(what, *map(list, zip(*values, strict=True))) for what, values in total.items()],
        encoder=about,
        seed=SEED,
        path=given.json,
        extra={"recipe": repr(recipe), "folds": given.folds, "image_size": given.image_size},
    )


def both_ways(features: Features) -> Features:
    """The mean of what the tower sees of a picture and of its mirror image: for that one, the mirror image of the mean.

    A convolution has a hand of its own, and what it takes for left of something is not all in the picture.
    """
    side = math.isqrt(features.tokens.shape[1])
    maps = features.tokens.reshape(2, -1, side, side, features.tokens.shape[-1])
    tokens = torch.empty_like(maps)
    for n in range(maps.shape[1]):  # all at once would take twice the memory again
        here, there = maps[:, n].float()
        tokens[0, n] = (here + there.flip(1)) / 2
    tokens[1] = tokens[0].flip(2)
    return replace(features, tokens=tokens.reshape(features.tokens.shape))


def number_of_folds(given: str) -> int:
    """Read ``--folds``."""
    folds = int(given)
    if folds < FEWEST_FOLDS:
        raise ArgumentTypeError(f"{folds}: at least {FEWEST_FOLDS}, one to train on and one to measure")
    return folds


def folds_of(photos: int, folds: int) -> Iterator[tuple[Rows, Rows]]:
    """Rows to train on and rows held out, fold by fold."""
    order = np.random.default_rng(SEED).permutation(photos)
    for fold in range(folds):
        rows = np.sort(order[fold::folds])
        yield np.setdiff1d(order, rows), rows


def look_with(heads: Heads, features: Features, rows: Rows) -> Seen:
    """Pictures as the compact encoder would see them with other heads."""
    with torch.no_grad():
        tokens = features.tokens[torch.from_numpy(rows)].float() @ heads.image.T
        pooled = functional.normalize(tokens.mean(dim=1), dim=-1).numpy()
    side = math.isqrt(tokens.shape[1])
    grids = tokens.reshape(len(rows), side, side, -1).numpy().astype(np.float16)
    return Seen(pooled, list(grids))


@torch.inference_mode()
def evaluate(heads: Heads, features: Features, photos: Sequence[Photo], rows: Rows) -> Scores:
    """What a search would get from these heads, on photographs that they have not seen.

    Returns
    -------
    scores : dict
        ``recall_at_1`` and ``recall_at_10`` of captions among the given photographs; ``lr_`` and ``ab_moment``, of
        the sketch, and ``centroid``, the share of pairs put the right way round; ``moment_lost``, what the whole
        moment is better by than its sketch; ``lr_same_half_over_4``, the centroid's where both things lie in one half
        and one is over four times as large as the other; and what `presence` says of the best cell.
    """
    some = [photos[row] for row in rows]
    seen = look_with(heads, features, rows)
    captions = heads.write(features.captions[torch.from_numpy(rows)]).flatten(0, 1).numpy()
    owner = np.repeat(np.arange(len(rows)), features.captions.shape[1])
    similar = captions @ seen.pooled.T
    rank = (similar > similar[np.arange(len(owner)), owner][:, None]).sum(axis=1)
    right: Scores = {
        f"recall_at_{k}": [
            (float(value < k), some[n].path.name) for value, n in zip(rank, owner, strict=True)
        ]
        for k in (1, 10)
    }
    classes = classes_of(photos)
    number = {name: n for n, name in enumerate(classes)}
    names = heads.write(features.names).numpy()
    usual = heads.write(features.vocabulary).mean(dim=0).numpy()
    moments = seen.moments()
    sketcher = fit_sketcher(seen.sample(), moments, k=K)
    sketched = sketcher.decode(sketcher.encode(moments))
    maps = (seen.cells(SIDE) @ (names - usual).T).transpose(2, 0, 1).astype(np.float64)  # (C, N, P)
    centres = softmax_centroid(maps.reshape(*maps.shape[:2], SIDE, SIDE))
    questions = questions_of(some)
    for q in questions:
        axis, sign = SIGN[q.relation]
        a, b, photo = number[q.a], number[q.b], some[q.photo].path.name
        words = names[a] - names[b]
        whole = bool(sign * float(moments[q.photo, axis] @ words) > 0)
        by_moment = bool(sign * float(sketched[q.photo, axis] @ sketcher.project(words)) > 0)
        centred = bool(sign * (centres[a, q.photo, axis] - centres[b, q.photo, axis]) > 0)
        right.setdefault(f"{q.axis}_moment", []).append((float(by_moment), photo))
        right.setdefault(f"{q.axis}_moment_lost", []).append((float(whole) - float(by_moment), photo))
        right.setdefault(f"{q.axis}_centroid", []).append((float(centred), photo))
        if q.axis == "lr" and q.same_half and q.ratio > LARGE:
            right.setdefault("lr_same_half_over_4", []).append((float(centred), photo))
    return right | presence(maps.max(axis=-1), some, classes, questions)


def bound(features: Features, photos: Sequence[Photo], rest: Rows, rows: Rows) -> Scores:
    """What a linear probe a class makes of the tower's own features: `presence`, names begun with ``probe_``."""
    some, classes = [photos[row] for row in rows], classes_of(photos)
    whole = features.tokens[: len(photos)]
    parts = [part.float() for part in torch.split(whole, 64)]
    mean = torch.cat([part.mean(dim=1) for part in parts]).numpy()
    best = torch.cat([cells_of(part).amax(dim=1) for part in parts]).numpy()
    both = np.concatenate([mean, best], axis=1)
    products = gram((both - both[rest].mean(axis=0)) / (both[rest].std(axis=0) + 1e-6))
    target = np.where(shown_in(photos, classes).T, 1.0, -1.0)
    usual = target[rest].mean(axis=0)
    questions = questions_of(some)
    found = [
        presence(ridge(products, target - usual, rest, rows, strength).T, some, classes, questions)
        for strength in STRENGTHS
    ]
    return {
        f"probe_{name}": max(
            (one[name] for one in found), key=lambda values: sum(value for value, _ in values)
        )
        for name in found[0]
    }


def presence(
    signals: Doubles, photos: Sequence[Photo], classes: Sequence[str], questions: Sequence[Question]
) -> Scores:
    """How well signals (C, N) tell which of N photographs show a class.

    Returns
    -------
    scores : dict
        ``presence_auc``: for each class the area under its curve. ``pair_before_one`` and ``pair_first``: how often a
        photograph of two things stands before one that shows only one of them, and before all of up to :data:`HALVES`
        such, by the sum of both signals in units of their spread.
    """
    shown = shown_in(photos, classes)
    z = (signals - signals.mean(axis=1, keepdims=True)) / signals.std(axis=1, keepdims=True)
    scores: Scores = {"presence_auc": [], "pair_before_one": [], "pair_first": []}
    for name, row, is_shown in zip(classes, z, shown, strict=True):
        own, other = row[is_shown], row[~is_shown]
        if min(len(own), len(other)) >= _LEAST_SHOWN:
            scores["presence_auc"].append((float((own[:, None] > other).mean()), name))
    rng = np.random.default_rng(SEED)
    for q in questions:
        if q.axis != "lr":
            continue
        a, b = classes.index(q.a), classes.index(q.b)
        lone = rng.permutation(np.flatnonzero(shown[a] != shown[b]))[:HALVES]
        if len(lone):
            won = z[a, q.photo] + z[b, q.photo] > z[a, lone] + z[b, lone]
            scores["pair_before_one"].append((float(won.mean()), photos[q.photo].path.name))
            scores["pair_first"].append((float(won.all()), photos[q.photo].path.name))
    return scores


def shown_in(photos: Sequence[Photo], classes: Sequence[str]) -> NDArray[np.bool_]:
    """Which photographs have a box of a class, (C, N)."""
    return np.array([[name in {box.name for box in photo.boxes} for photo in photos] for name in classes])


if __name__ == "__main__":
    main()
