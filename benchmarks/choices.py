"""Where the constants come from: heads trained on two thirds of the training photographs, measured on the third.

    python -m benchmarks.choices --cache FILE [--folds 3] [--json FILE]

Prints and keeps, for photographs that the heads have not seen: accuracy by size of the patch grid, whose knee is the
default, and by how much place and presence weigh: the ranks of true statements among all photographs, pairs of a
photograph and one with the same things the other way round, and pools in which most photographs lack one of two things.
"""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import torch

from benchmarks.data import Photo, load_photos
from benchmarks.gallery import Seen, index_of
from benchmarks.geometry import Question, Texts, questions_of
from benchmarks.heads import SEED, folds_of, look_with, number_of_folds
from benchmarks.record import DEFAULT_DATA, Metric, parser, share, write_result
from benchmarks.retrieval import Scorer, answers_of, pairwise, patch_windows, pools
from benchmarks.sketches import Curve, measure_sketches, plot
from benchmarks.train_compact import Features, Heads, Recipe, cached_features, train
from indexer.compact import load_compact
from indexer.encoder import Encoder
from parser import QueryParser
from service.search import Searcher

WEIGHTS = tuple(itertools.product((1.6, 2.4, 3.2, 4.8, 7.2), (1.0, 2.0, 3.0, 4.5)))
"""Of place and of presence."""


def main() -> None:
    """Measure from the command line."""
    options = parser(__doc__ or "")
    options.add_argument("--folds", type=number_of_folds, default=3)
    options.add_argument("--cache", type=Path, help="the towers' outputs, kept for the next run")
    given = options.parse_args()
    photos = load_photos(given.data or DEFAULT_DATA / "coco" / "train")
    features = cached_features(given.cache, photos)
    curves: list[tuple[int, dict[str, Curve]]] = []
    found: dict[tuple[float, float], dict[str, list[float]]] = {pair: {} for pair in WEIGHTS}
    folds = held_out(features, photos, given.folds)
    for encoder, seen, mirrored, some in itertools.islice(folds, 1 if given.quick else None):
        questions = questions_of(some)
        text = Texts(encoder, questions)
        with tempfile.TemporaryDirectory() as folder:
            index = index_of(seen, encoder, Path(folder) / "index")
            curves.append((len(questions), measure_sketches(questions, text, seen, index)[0]))
            scorer = Scorer(Searcher(index, encoder, QueryParser()), text)
            statement_ranks(scorer, questions, seen, found)
            reversed_pairs(scorer, questions, some, seen, mirrored, found)
        print(f"{len(curves)} of {given.folds} folds", flush=True)
    together = average(curves)
    table = [
        {"place": place, "presence": presence, "n": len(values["mrr"])}
        | {name: float(np.mean(some)) for name, some in values.items()}
        for (place, presence), values in found.items()
    ]
    best = max(table, key=lambda row: row["mrr"])
    by_any = np.any([values["absent_both_first"] for values in found.values()], axis=0).astype(float).tolist()
    for row in sorted(table, key=lambda row: -row["mrr"]):
        print("  ".join(f"{name} {value:.4g}" for name, value in row.items()))
    path = write_result(
        "choices",
        [
            Metric("best_mrr", best["mrr"], "mean", n=int(best["n"])),
            share("absent_both_first_by_the_best_weights_of_each_pool", by_any, range(len(by_any))),
        ],
        encoder="compact, heads trained on other folds",
        seed=SEED,
        path=given.json,
        extra={"recipe": repr(Recipe()), "weights": table, "curves": together},
    )
    plot(together, path.with_suffix(".png"), f"compact, {len(photos)} training photographs, cross-validated")


def held_out(
    features: Features, photos: Sequence[Photo], folds: int
) -> Iterator[tuple[Encoder, Seen, Seen, list[Photo]]]:
    """For each fold, the encoder with heads trained on the others, and the fold's photographs as it sees them.

    And as it sees their mirror images.
    """
    for rest, rows in folds_of(len(photos), folds):
        heads = train(features, rest, Recipe())
        mirrored = look_with(heads, features, rows + len(photos))
        yield with_heads(heads), look_with(heads, features, rows), mirrored, [photos[row] for row in rows]


def with_heads(heads: Heads) -> Encoder:
    """The compact encoder with other heads."""
    encoder = load_compact(device="cpu")
    with torch.no_grad():
        encoder.model.visual.head.proj.weight.copy_(heads.image)
        encoder.model.text.proj.weight.copy_(heads.text)
    return encoder


def statement_ranks(
    scorer: Scorer,
    questions: Sequence[Question],
    seen: Seen,
    found: Mapping[tuple[float, float], dict[str, list[float]]],
) -> None:
    """Add where the first photograph stands for which a statement holds, by the weights of place and presence."""
    pictures = scorer.sketch(seen)
    for question, right in answers_of(questions).values():
        native, place, presence = scorer.terms(question, pictures)
        for weights, values in found.items():
            order = np.argsort(-(native + weights[0] * place + weights[1] * presence), kind="stable").tolist()
            rank = next(i for i, n in enumerate(order) if n in right)
            values.setdefault("mrr", []).append(1 / (rank + 1))
            values.setdefault("r1", []).append(float(rank == 0))


def reversed_pairs(
    scorer: Scorer,
    questions: Sequence[Question],
    photos: Sequence[Photo],
    seen: Seen,
    mirrored: Seen,
    found: Mapping[tuple[float, float], dict[str, list[float]]],
) -> None:
    """Add how the right photograph stands against reversed ones, and whether both things are in the first place."""
    for pool in pools(questions, photos, seen, mirrored, scorer, patch_windows(mirrored)):
        native, place, presence = scorer.terms(pool.question, pool.pictures)
        halves = None if pool.halves is None else scorer.terms(pool.question, pool.halves)
        for weights, values in found.items():
            own = native + weights[0] * place + weights[1] * presence
            values.setdefault(f"pairwise_{pool.question.axis}", []).append(pairwise(own))
            if pool.question.axis == "lr":
                values.setdefault("cond_r1_lr", []).append(float(own[0] > own[1:].max()))
            if halves is not None:
                others = halves[0] + weights[0] * halves[1] + weights[1] * halves[2]
                values.setdefault("absent_both_first", []).append(float(own.max() >= others.max()))


def average(curves: Sequence[tuple[int, dict[str, Curve]]]) -> dict[str, Curve]:
    """Curves of several folds as one, each fold weighted by its questions."""
    total = sum(count for count, _ in curves)
    joined: dict[str, Curve] = {}
    for kind in curves[0][1]:
        rows = zip(*(one[kind] for _, one in curves), strict=True)
        joined[kind] = [
            group[0]
            | {
                axis: sum(count * row[axis] for (count, _), row in zip(curves, group, strict=True)) / total
                for axis in ("lr", "ab")
            }
            for group in rows
        ]
    return joined


if __name__ == "__main__":
    main()
