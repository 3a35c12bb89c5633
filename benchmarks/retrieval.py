"""Does the right photograph come first? By the scores and the searcher of the product.

*Reversed geometry*: one photograph in which a relation holds, against 20 with the same two classes the other way round.
Natural ones come first; where a set has fewer, mirror images of photographs in which it holds fill up, then crops of
those that keep both things whole. How many are of which kind is among the figures, and whole pictures are counted by
themselves too.
*Absent objects*: the same pool, and 24 photographs more that show one of the two things alone.
*Whole gallery*: every statement and every caption against all photographs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray
from PIL import ImageOps

from benchmarks.data import Box, Photo
from benchmarks.gallery import Seen, look_at
from benchmarks.geometry import OPPOSITE, Question, Texts, difference, won
from benchmarks.record import Metric, share
from indexer.encoder import Encoder
from indexer.images import open_image
from parser.relation import Relation, SpatialRelation
from service.query import Mode, Readout
from service.readout import displacement_direction
from service.rerank import Reading, Reranker
from service.search import Searcher

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]

REVERSED = 20
HALVES = 24
MULTIPLIERS = (0.25, 0.5, 1.0, 2.0, 4.0)
Window = tuple[float, float, float, float]
"""A part of a picture: left, top, right and bottom edge, in fractions of it."""
Views = Callable[[int, Sequence[Window]], Seen]
"""Shows parts of the mirror image of a photograph, given by its number."""
_RELATIONS = {
    "left": Relation.LEFT_OF,
    "right": Relation.RIGHT_OF,
    "above": Relation.ABOVE,
    "below": Relation.BELOW,
}


@dataclass(frozen=True, slots=True, eq=False)
class Pictures:
    """Pictures as an index would hold them: ``native`` (N, D), ``moments`` (N, 2, K), ``grids`` (N, row_bytes)."""

    native: Floats
    moments: Floats
    grids: NDArray[np.uint8]

    def __getitem__(self, rows: Sequence[int]) -> Pictures:
        return Pictures(self.native[rows], self.moments[rows], self.grids[rows])

    def __add__(self, other: Pictures) -> Pictures:
        return Pictures(
            np.concatenate([self.native, other.native]),
            np.concatenate([self.moments, other.moments]),
            np.concatenate([self.grids, other.grids]),
        )


class Scorer:
    """The scores of a search for pictures that need not be in the index."""

    def __init__(self, searcher: Searcher, text: Texts) -> None:
        self.searcher = searcher
        self.text = text

    def sketch(self, seen: Seen) -> Pictures:
        """Sketch patch grids as the index does."""
        index = self.searcher.index
        assert index.grid_sketcher is not None
        decoded = index.sketcher.decode(index.sketcher.encode(seen.moments()))
        return Pictures(
            seen.pooled, decoded, index.grid_sketcher.encode(seen.cells(index.grid_sketcher.side))
        )

    def terms(self, question: Question, pictures: Pictures) -> tuple[Doubles, Doubles, Doubles]:
        """Native score, place and presence, (N,) each."""
        place, presence = self._reranker.terms(self._reading(question), pictures.grids)
        return self._native(question, pictures), place[:, 0], presence[:, 0]

    def parts(self, question: Question, pictures: Pictures) -> dict[str, Doubles]:
        """Native score, and what each reader adds at weight 1, (N,) each."""
        direction = displacement_direction(*self._asked(question), self.searcher.index.sketcher)
        unit = self.searcher.reference.displacement_unit(direction)
        flat = pictures.moments.reshape(len(pictures.moments), -1).astype(np.float64)
        return {
            "native": self._native(question, pictures),
            "moment": unit * (flat @ direction.ravel()),
            "spatial": self._reranker.score(self._reading(question), pictures.grids)[:, 0],
        }

    @property
    def _reranker(self) -> Reranker:
        assert self.searcher.reranker is not None
        return self.searcher.reranker

    def _asked(self, question: Question) -> tuple[list[SpatialRelation], dict[str, Floats]]:
        relation = SpatialRelation(question.a, _RELATIONS[question.relation], question.b)
        return [relation], {word: self.text.word(word) for word in (question.a, question.b)}

    def _reading(self, question: Question) -> Reading:
        return self._reranker.read(*self._asked(question), Readout.CENTROID)

    def _native(self, question: Question, pictures: Pictures) -> Doubles:
        return (pictures.native @ self.text.statement(question.text())).astype(np.float64)


@dataclass(frozen=True, slots=True, eq=False)
class Pool:
    """One photograph in which a relation holds, and others.

    Attributes
    ----------
    question : Question
    pictures : Pictures
        The right one first, then up to :data:`REVERSED` the other way round.
    kinds : (int, int, int)
        How many of these are natural, mirrored and crops.
    halves : Pictures or None
        Up to :data:`HALVES` that show one of the two things alone; left and right only.
    """

    question: Question
    pictures: Pictures
    kinds: tuple[int, int, int]
    halves: Pictures | None


def pools(
    questions: Sequence[Question],
    photos: Sequence[Photo],
    seen: Seen,
    mirrored: Seen,
    scorer: Scorer,
    views: Views,
) -> Iterator[Pool]:
    """The pool of each question that has one."""
    plain, flipped = scorer.sketch(seen), scorer.sketch(mirrored)
    holds: dict[tuple[str, str, str], list[int]] = {}
    for q in questions:
        holds.setdefault((q.a, q.relation, q.b), []).append(q.photo)
        holds.setdefault((q.b, OPPOSITE[q.relation], q.a), []).append(q.photo)
    classes = [{box.name for box in photo.boxes} for photo in photos]
    rng = np.random.default_rng(0)
    for q in questions:
        natural = [n for n in holds.get((q.a, OPPOSITE[q.relation], q.b), []) if n != q.photo]
        other = natural[:REVERSED]
        pool = plain[[q.photo, *other]]
        kinds, halves = (len(other), 0, 0), None
        if q.axis == "lr":  # nobody turns photographs upside down
            mirrors = holds[q.a, q.relation, q.b][: REVERSED - len(other)]
            pool += flipped[mirrors]
            cropped = REVERSED - len(other) - len(mirrors)
            for number, n in enumerate(mirrors[:cropped]):
                kept, each = _mirrored_boxes(photos[n], q), range(number, cropped, len(mirrors))
                pool += scorer.sketch(views(n, [window_around(kept, rng) for _ in each]))
            kinds = len(other), len(mirrors), cropped
            lone = [n for n in range(len(photos)) if (q.a in classes[n]) != (q.b in classes[n])]
            if lone:
                halves = plain[rng.permutation(lone)[:HALVES].tolist()]
        if sum(kinds):
            yield Pool(q, pool, kinds, halves)


def window_around(boxes: Sequence[Box], rng: np.random.Generator) -> Window:
    """A part of a picture, at random, that holds some boxes whole."""
    low = [min(box.x0 for box in boxes), min(box.y0 for box in boxes)]
    high = [max(box.x1 for box in boxes), max(box.y1 for box in boxes)]
    left, top = rng.uniform(0.0, np.maximum(low, 0.0)).tolist()
    right, bottom = rng.uniform(np.minimum(high, 1.0), 1.0).tolist()
    return left, top, right, bottom


def _mirrored_boxes(photo: Photo, question: Question) -> list[Box]:
    """Where the two things of a question are in the mirror image of a photograph that shows each once."""
    names = (question.a, question.b)
    return [Box(b.name, 1 - b.x1, b.y0, 1 - b.x0, b.y1) for b in photo.boxes if b.name in names]


def _outwards(window: Window, width: int, height: int) -> tuple[int, int, int, int]:
    """Edges of a window in whole pixels or patches, rounded so that nothing is lost."""
    left, top, right, bottom = window
    return int(left * width), int(top * height), math.ceil(right * width), math.ceil(bottom * height)


def crops(encoder: Encoder, photos: Sequence[Photo]) -> Views:
    """Parts of mirror images as the encoder sees pictures that hold nothing else."""

    def show(number: int, windows: Sequence[Window]) -> Seen:
        image = ImageOps.mirror(open_image(photos[number].path).image)
        return look_at(encoder, (partial(image.crop, _outwards(one, *image.size)) for one in windows))

    return show


def patch_windows(mirrored: Seen) -> Views:
    """Parts of the patch grids of mirror images, where there is no encoder to show the pictures to.

    Their pooled vectors are means of patch tokens, as those of an encoder are that pools by the mean.
    """

    def show(number: int, windows: Sequence[Window]) -> Seen:
        tokens = mirrored.grid(number)
        height, width = tokens.shape[:2]
        edges = [_outwards(one, width, height) for one in windows]
        parts = [tokens[top:bottom, left:right] for left, top, right, bottom in edges]
        means = np.stack([part.mean(axis=(0, 1)) for part in parts])
        pooled = means / (np.linalg.norm(means, axis=1, keepdims=True) + 1e-12)
        return Seen(pooled.astype(np.float32), [part.astype(np.float16) for part in parts])

    return show


def reversed_pools(found: Iterable[Pool], scorer: Scorer) -> list[Metric]:
    """Pairwise accuracy and R@1 against reversed geometry, multipliers, and pools with one thing absent.

    ``pairwise_lr_whole_`` counts natural and mirrored photographs alone, no crops.

    Intervals are bootstrapped by pair of classes: a pool is shared by all questions about one pair, and above/below it
    may be a single photograph (of a dining table above a person, say) that decides ten of them.
    """
    table: dict[str, list[float]] = {}
    clusters: dict[str, list[str]] = {"lr": [], "ab": []}
    kinds = np.zeros(3)
    for pool in found:
        q = pool.question
        score = scorer.parts(q, pool.pictures)
        clusters[q.axis].append(" ".join(sorted((q.a, q.b))))
        for name, values in _combined(score).items():
            table.setdefault(f"pairwise_{q.axis}_{name}", []).append(pairwise(values))
            if q.axis == "lr":
                table.setdefault(f"cond_r1_lr_{name}", []).append(float(values[0] > values[1:].max()))
                whole = values[: 1 + sum(pool.kinds[:2])]
                table.setdefault(f"pairwise_lr_whole_{name}", []).append(pairwise(whole))
        if q.axis == "lr":
            kinds += pool.kinds
        if pool.halves is not None:
            both = len(pool.pictures.native)
            more = scorer.parts(q, pool.halves)
            joint = {name: np.concatenate([score[name], more[name]]) for name in score}
            for name, values in _combined(joint).items():
                table.setdefault(f"absent_both_first_{name}", []).append(float(values.argmax() < both))
                table.setdefault(f"absent_right_first_{name}", []).append(float(values.argmax() == 0))
    metrics = [
        share(name, values, clusters["ab" if "_ab_" in name else "lr"]) for name, values in table.items()
    ]
    names = ("natural", "mirrored", "views")
    return metrics + [
        Metric(f"cond_r1_lr_pool_{name}", float(count / max(kinds.sum(), 1)), "share of negatives")
        for name, count in zip(names, kinds, strict=True)
    ]


def pairwise(scores: Doubles) -> float:
    """Share of the other pictures that the first one (N,) is before."""
    return float(won(scores[0] - scores[1:]).mean())


def answers_of(questions: Sequence[Question]) -> dict[str, tuple[Question, set[int]]]:
    """For each statement, a question that it answers and the photographs of which it is true."""
    answers: dict[str, tuple[Question, set[int]]] = {}
    for q in questions:
        answers.setdefault(q.text(), (q, set()))[1].add(q.photo)
    return answers


def statements(searcher: Searcher, questions: Sequence[Question], photos: Sequence[Photo]) -> list[Metric]:
    """Every statement against the whole gallery."""
    classes = [{box.name for box in photo.boxes} for photo in photos]
    answers = answers_of(questions)
    texts, clusters = list(answers), [q.photo for q, _ in answers.values()]
    metrics = []
    first: dict[str, list[float]] = {}
    for name, options in _MODES.items():
        results = searcher.search_many(texts, k=len(photos), **options)
        ranks, both = [], []
        for (q, right), result in zip(answers.values(), results, strict=True):
            order = [int(hit.path[:6]) for hit in result.hits]
            ranks.append(next(i for i, n in enumerate(order) if n in right))
            both.append(float({q.a, q.b} <= classes[order[0]]))
        first[name] = [float(rank == 0) for rank in ranks]
        metrics += [
            share(f"statements_mrr_{name}", [1 / (rank + 1) for rank in ranks], clusters),
            share(f"statements_r1_{name}", first[name], clusters),
            share(f"statements_r10_{name}", [float(rank < 10) for rank in ranks], clusters),
            share(f"statements_both_first_{name}", both, clusters),
        ]
    return metrics


def captions(searcher: Searcher, photos: Sequence[Photo]) -> list[Metric]:
    """Every caption against the whole gallery, with the spatial path and without."""
    texts = [caption for photo in photos for caption in photo.captions]
    owners = np.array([number for number, photo in enumerate(photos) for _ in photo.captions])
    ranks: dict[str, NDArray[np.intp]] = {}
    parsed = np.zeros(len(texts), dtype=bool)
    for name, options in (("native", {"mode": Mode.NATIVE}), ("spatial", {})):
        found = []
        for start in range(0, len(texts), 64):
            part = slice(start, start + 64)
            results = searcher.search_many(texts[part], k=len(photos), **options)
            for row, (result, owner) in enumerate(zip(results, owners[part], strict=True), start):
                parsed[row] |= bool(result.ranked_relations)
                found.append([int(hit.path[:6]) for hit in result.hits].index(owner))
        ranks[name] = np.array(found)
    clusters = owners.tolist()
    inner = owners[parsed].tolist()
    metrics = [
        share(f"recall_at_{k}", (ranks["native"] < k).astype(float).tolist(), clusters) for k in (1, 5, 10)
    ]
    for name, values in ranks.items():
        first = (values == 0).astype(float)
        metrics += [
            share(f"captions_r1_{name}", first.tolist(), clusters),
            share(f"captions_parsed_r1_{name}", first[parsed].tolist(), inner),
        ]
    on, off = ((ranks[name] == 0).astype(float) for name in ("spatial", "native"))
    return [
        *metrics,
        difference("captions_r1_spatial_minus_native", on, off, clusters),
        difference("captions_parsed_r1_spatial_minus_native", on[parsed], off[parsed], inner),
    ]


_MODES: Mapping[str, Mapping[str, object]] = {
    "native": {"mode": Mode.NATIVE},
    "moment": {"readout": Readout.MOMENT},
    "centroid": {"readout": Readout.CENTROID},
    "adr": {"readout": Readout.ADR},
    "adr_dense": {"readout": Readout.ADR_DENSE},
    "adr_background": {"readout": Readout.ADR_BACKGROUND},
}


def _combined(score: Mapping[str, Doubles]) -> dict[str, Doubles]:
    native = score["native"]
    rows = {"native": native, "best": native + score["spatial"]}
    for factor in MULTIPLIERS:
        rows[f"moment_x{factor:g}"] = native + factor * score["moment"]
    rows["moment"] = rows.pop("moment_x1")
    return rows


def mirror_ranking(
    questions: Sequence[Question], photos: Sequence[Photo], seen: Seen, mirrored: Seen, scorer: Scorer
) -> list[Metric]:
    """A photograph against its own mirror image: by the native score, the moment alone, both, and the whole score."""
    names = {"native": "mirror_native", "moment": "mirror_native_plus_moment", "best": "mirror_spatial"}
    asked = [q for q in questions if q.axis == "lr"]
    table: dict[str, list[float]] = {}
    for q in asked:
        parts = scorer.parts(q, scorer.sketch(seen[[q.photo]] + mirrored[[q.photo]]))
        for name, values in _combined(parts).items():
            if name in names:
                table.setdefault(names[name], []).append(float(won(values[0] - values[1])))
        table.setdefault("mirror_moment", []).append(float(won(parts["moment"][0] - parts["moment"][1])))
    return [share(name, values, [q.photo for q in asked]) for name, values in table.items()]
