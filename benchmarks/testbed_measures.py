"""What a trained model of the one-dimensional world can do, and what its attention is made of."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from benchmarks.record import cluster_bootstrap
from benchmarks.testbed_model import (
    IMAGE,
    TERMS,
    TEXT,
    Architecture,
    Parameters,
    attention,
    attention_terms,
    encode,
)
from benchmarks.testbed_world import Dataset, Scenes

ABLATIONS: dict[str, frozenset[str]] = {
    **{term: frozenset([term]) for term in ("EE", "EP", "PE", "PP", "BP", "EB", "BB", "VP")},
    "EP+BP": frozenset(["EP", "BP"]),
    "EP+PP+BP": frozenset(["EP", "PP", "BP"]),
    "EB+BB": frozenset(["EB", "BB"]),
}
"""What is left out of the first layer at inference; with rotary positions the biases of keys depend on position too."""
FITTED = 15
"""Labels the rotation from captions' tokens to pictures' is fitted on; the others test it."""


@dataclass(frozen=True, slots=True)
class Found:
    """How pictures were matched, one entry a picture.

    Attributes
    ----------
    correct : (n,) bool
        All captions to be found come first.
    any_first : (n,) bool
        One of them comes first.
    found : (n,) float
        How many of them are among as many first.
    label_set : (n,) bool
        The first caption names the labels that are there.
    swapped : (n,) bool
        All that come first name the right labels, and not all say the truth.
    """

    correct: NDArray[np.bool_]
    any_first: NDArray[np.bool_]
    found: NDArray[np.float64]
    label_set: NDArray[np.bool_]
    swapped: NDArray[np.bool_]


@torch.no_grad()
def similarities(
    parameters: Parameters,
    architecture: Architecture,
    data: Dataset,
    scenes: Scenes,
    zero: frozenset[str] = frozenset(),
) -> Tensor:
    """Cosine of pictures and all captions of the world, (n, C); the parameters are a stack of one."""
    device = parameters["projection"].device
    texts = encode(parameters, architecture, TEXT, torch.from_numpy(data.captions)[None].to(device))[0]
    images = torch.from_numpy(scenes.images)[None].to(device)
    seen = encode(parameters, architecture, IMAGE, images, zero=zero)[0]
    return functional.normalize(seen, dim=-1) @ functional.normalize(texts, dim=-1).T


def match(similar: Tensor, data: Dataset, scenes: Scenes) -> Found:
    """Rank all captions for each picture; as many count as there are to be found."""
    valid = torch.from_numpy(scenes.valid)
    wanted = int(valid.shape[1])
    first = similar.topk(wanted, dim=1).indices.cpu()
    hits = (first[:, :, None] == valid[:, None, :]).any(-1)
    here = np.sort(scenes.labels, axis=1)[:, -2:] if scenes.labels.shape[1] > 1 else None
    named = data.caption_labels[first.numpy()]
    if here is None:
        here = np.concatenate([np.zeros_like(scenes.labels), scenes.labels], axis=1)
    same = (named == here[:, None]).all(-1)
    correct = hits.all(1).numpy()
    return Found(
        correct, hits[:, 0].numpy(), hits.double().sum(1).numpy(), same[:, 0], same.all(1) & ~correct
    )


@dataclass(frozen=True, slots=True)
class Measured:
    """One trained model.

    Attributes
    ----------
    values : dict
        Everything measured, as plain numbers and lists: what a result file holds.
    correct : dict of (n,) bool
        By what was asked, one entry a picture: for intervals.
    pairs : list
        The labels of each unseen picture, smaller first: pictures of one pair are not independent.
    """

    values: dict[str, Any]
    correct: dict[str, NDArray[np.bool_]] = field(default_factory=dict)
    pairs: Sequence[str] = ()


def accuracies(parameters: Parameters, architecture: Architecture, data: Dataset) -> dict[str, float]:
    """Shares of the three test sets that are matched, and of unseen pairs whose labels are."""
    found = {
        name: match(similarities(parameters, architecture, data, scenes), data, scenes)
        for name, scenes in (("single", data.single), ("seen", data.seen), ("unseen", data.unseen))
    }
    return {name: float(f.correct.mean()) for name, f in found.items()} | {
        "unseen_label_set": float(found["unseen"].label_set.mean())
    }


def measure(parameters: Parameters, architecture: Architecture, data: Dataset) -> Measured:
    """Measure one model: accuracies, ablations, attention, tokens.

    Parameters
    ----------
    parameters : stack of one model
    """
    unseen = data.unseen
    values: dict[str, Any] = {"accuracy": accuracies(parameters, architecture, data), "zeroed": {}}
    whole = match(similarities(parameters, architecture, data, unseen), data, unseen)
    correct = {"unseen": whole.correct, "label_set": whole.label_set, "any_first": whole.any_first}
    values["unseen"] = _summary(whole)
    values["triple"] = _triple(parameters, architecture, data, frozenset())
    for name, zero in ABLATIONS.items():
        if architecture.rope and "P" in name:
            continue
        found = match(similarities(parameters, architecture, data, unseen, zero), data, unseen)
        values["zeroed"][name] = _summary(found) | {
            "triple_all": _triple(parameters, architecture, data, zero)["all"]
        }
        correct |= {f"unseen_{name}_zeroed": found.correct, f"label_set_{name}_zeroed": found.label_set}
    values["attention"] = attention_bias(parameters, architecture, data)
    values["text_attention"] = text_attention(parameters, architecture, data)
    values["tokens"] = token_alignment(parameters, data.world.n_tot)
    pairs = ["-".join(map(str, sorted(pair))) for pair in unseen.labels.tolist()]
    return Measured(values, correct, pairs)


@torch.no_grad()
def attention_bias(parameters: Parameters, architecture: Architecture, data: Dataset) -> dict[str, Any]:
    """How the class token attends to the two objects of unseen pairs, by head.

    Returns
    -------
    dict
        ``right_share``: pictures whose right object gets more attention than the left one. ``relational_left``,
        ``relational_right``, ``label_specific``: a head is relational on a picture where the difference of the
        position term between the objects outweighs the token term's, in the direction of its sign.
        ``gradient``: each position-dependent term along the positions, (H, D). ``slope``: a line through it, a pixel.
        ``monotone``: Kendall's tau of it with the column. ``delta_label``, ``delta_pos``: right less left, (n, H).
        ``alive``: heads whose logits spread over a picture by more than a twentieth of the widest head's; of the rest,
        which weight decay has emptied, the shares say nothing.
    """
    scenes, device = data.unseen, parameters["projection"].device
    images = torch.from_numpy(scenes.images)[None].to(device)
    terms = attention_terms(parameters, architecture, IMAGE, images)
    of_class = {name: term[0, :, :, 0].cpu().numpy() for name, term in terms.items()}  # n H T
    weights = attention(parameters, architecture, IMAGE, images)[0, :, :, 0].cpu().numpy()
    rows, (left, right) = np.arange(len(scenes)), scenes.positions.T[:2]

    def between(x: NDArray[Any]) -> NDArray[Any]:
        """Right less left, (n, H)."""
        right_less_left: NDArray[Any] = x[rows, :, right] - x[rows, :, left]
        return right_less_left

    label = between(of_class["EE"])
    position = between(of_class["EP"])
    if architecture.rope:
        # A rotated key depends on its position by itself: its share is what the same tokens differ by when swapped.
        swapped = scenes.images.copy()
        swapped[rows, left], swapped[rows, right] = scenes.images[rows, right], scenes.images[rows, left]
        other = attention_terms(parameters, architecture, IMAGE, torch.from_numpy(swapped)[None].to(device))
        here = between(np.sum(list(of_class.values()), axis=0))
        there = between(np.sum([term[0, :, :, 0].cpu().numpy() for term in other.values()], axis=0))
        label, position = (here - there) / 2, (here + there) / 2
    spread = np.sum(list(of_class.values()), axis=0)[:, :, 1:].std(axis=2).mean(axis=0)
    relational = np.abs(position) > np.abs(label)
    columns = np.tile(np.arange(data.world.columns), data.world.rows)
    names = ("EB", "BB") if architecture.rope else ("EP", "PP", "BP")
    gradients = {name: of_class[name].mean(0)[:, 1:] for name in names}
    return {
        "alive": (spread > spread.max() / 20).tolist(),
        "right_share": (between(weights) > 0).mean(0).tolist(),
        "relational_left": (relational & (position < 0)).mean(0).tolist(),
        "relational_right": (relational & (position > 0)).mean(0).tolist(),
        "label_specific": (~relational).mean(0).tolist(),
        "gradient": {name: _rounded(g) for name, g in gradients.items()},
        "slope": {
            name: [float(np.polyfit(columns, row, 1)[0]) for row in g] for name, g in gradients.items()
        },
        "monotone": {name: [_tau(columns, row) for row in g] for name, g in gradients.items()},
        "delta_label": _rounded(label),
        "delta_pos": _rounded(position),
        "term_spread": {
            name: [float(x) for x in of_class[name][:, :, 1:].std(axis=2).mean(axis=0)]
            for name in TERMS
            if architecture.positions(IMAGE) == "learned" or "P" not in name
        },
    }


@torch.no_grad()
def text_attention(parameters: Parameters, architecture: Architecture, data: Dataset) -> dict[str, Any]:
    """First-layer attention of the last token over unseen "X left of Y" captions: mean and deviation, (H, 4)."""
    rows = np.unique(data.unseen.valid[:, 0])
    texts = torch.from_numpy(data.captions[rows])[None].to(parameters["projection"].device)
    weights = attention(parameters, architecture, TEXT, texts)[0, :, :, -1].cpu().numpy()
    return {"mean": _rounded(weights.mean(0)), "deviation": _rounded(weights.std(0))}


def token_alignment(parameters: Parameters, n_tot: int) -> dict[str, Any]:
    """Cosines of the labels' tokens in captions with those in pictures, raw and after a fitted rotation.

    The rotation is the orthogonal matrix that brings the first `FITTED` labels closest; the rest are the test. As a
    control, the same fit with the labels of one side moved on by one.

    Returns
    -------
    dict
        ``raw``, ``rotated`` : cosines (n_tot, n_tot), captions' tokens by pictures'. ``held_out_raw``,
        ``held_out_rotated``, ``held_out_control``: mean cosine of a held-out label with itself;
        ``..._others``: with the other held-out labels.
    """
    said, seen = (parameters[f"{side}.token"][0, 1 : n_tot + 1].double().cpu() for side in (TEXT, IMAGE))
    fitted = min(FITTED, n_tot - 5)

    def rotation(targets: Tensor) -> Tensor:
        u, _, v = torch.linalg.svd(said[:fitted].T @ targets)
        turn: Tensor = u @ v
        return turn

    def cosines(turned: Tensor) -> Tensor:
        table: Tensor = functional.normalize(turned, dim=1) @ functional.normalize(seen, dim=1).T
        return table

    tables = {
        "raw": cosines(said),
        "rotated": cosines(said @ rotation(seen[:fitted])),
        "control": cosines(said @ rotation(seen[:fitted].roll(1, 0))),
    }
    out: dict[str, Any] = {"fitted": fitted}
    for name, table in tables.items():
        held = table[fitted:, fitted:]
        off = held[~torch.eye(len(held), dtype=torch.bool)]
        out |= {
            f"held_out_{name}": float(held.diagonal().mean()),
            f"held_out_{name}_others": float(off.mean()),
        }
        out[f"found_{name}"] = float((held.argmax(1) == torch.arange(len(held))).double().mean())
    return out | {name: _rounded(tables[name].numpy()) for name in ("raw", "rotated")}


def gain(
    more: Sequence[Measured], less: Sequence[Measured], name: str = "unseen"
) -> tuple[float, float, float]:
    """Difference of two means over models with its 95 % interval.

    The models, not the pictures, are what varies: each mean has the interval of a bootstrap over models, and the
    difference the interval that follows from the two (Newcombe's square-and-add).
    """
    (a, a_low, a_high), (b, b_low, b_high) = (over_models(several, name) for several in (more, less))
    return a - b, a - b - math.hypot(a - a_low, b_high - b), a - b + math.hypot(a_high - a, b - b_low)


def over_models(models: Sequence[Measured], name: str = "unseen") -> tuple[float, float, float]:
    """Mean over models with its 95 % interval, bootstrapped over models."""
    values = np.concatenate([model.correct[name].astype(float) for model in models])
    clusters = [n for n, model in enumerate(models) for _ in model.correct[name]]
    return float(values.mean()), *cluster_bootstrap(values.tolist(), clusters)


def _summary(found: Found) -> dict[str, float]:
    wrong = ~found.correct
    return {
        "correct": float(found.correct.mean()),
        "any_first": float(found.any_first.mean()),
        "label_set": float(found.label_set.mean()),
        "swapped_of_wrong": float(found.swapped[wrong].mean()) if wrong.any() else 0.0,
    }


def _triple(
    parameters: Parameters, architecture: Architecture, data: Dataset, zero: frozenset[str]
) -> dict[str, float | None]:
    if data.world.both:
        return {"all": None}
    found = match(similarities(parameters, architecture, data, data.triple, zero), data, data.triple)
    return {
        "top1": float(found.any_first.mean()),
        "mean_of_3": float(found.found.mean()),
        "all": float(found.correct.mean()),
    }


def _tau(columns: NDArray[np.int64], row: NDArray[np.float32]) -> float:
    """Kendall's tau-b over pairs of different columns."""
    one, other = np.triu_indices(len(row), 1)
    across = np.sign(columns[other] - columns[one])
    return float((across * np.sign(row[other] - row[one]))[across != 0].mean())


def _rounded(x: NDArray[Any]) -> list[Any]:
    return np.round(x.astype(float), 4).tolist()  # type: ignore[no-any-return]
