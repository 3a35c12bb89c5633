"""Where does each reader put two things? Every pair of single objects of a photograph, asked about on both axes.

*Caption choice*: of two statements with opposite relations, does the true one score higher? A tie counts half.
Intervals are bootstrapped by photograph.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks.data import Box, Photo
from benchmarks.gallery import Seen
from benchmarks.record import Metric, cluster_bootstrap, share
from indexer.calibrate import vocabulary
from indexer.encoder import Encoder, phrase_text
from indexer.store import Index
from service.maps import adr_dense, argmax_centre, centroid, excess, softmax_centroid

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]

MIN_AREA = 0.01
OFFSET = 101
"""Cyclic offset of the misaligned null, as published for sets of this size."""
TAUS = (0.25, 0.5, 1.0, 2.0, 8.0)
SHUFFLES = 100
"""Random orders of the patches a photograph: with a handful, their own chance shows beside the photographs'."""
PHRASES = {"left": "to the left of", "right": "to the right of", "above": "above", "below": "below"}
OPPOSITE = {"left": "right", "right": "left", "above": "below", "below": "above"}
SIGN = {"left": (0, -1.0), "right": (0, 1.0), "above": (1, -1.0), "below": (1, 1.0)}
_TIE = 1e-9
_BACKGROUND = 10


@dataclass(frozen=True, slots=True)
class Question:
    """One pair of one photograph on one axis."""

    photo: int
    a: str
    b: str
    relation: str
    same_half: bool
    ratio: float
    """Larger box over smaller."""

    @property
    def axis(self) -> str:
        """``lr`` or ``ab``."""
        return "lr" if self.relation in ("left", "right") else "ab"

    def text(self, relation: str | None = None) -> str:
        """The statement, with this or another relation."""
        return statement(self.a, relation or self.relation, self.b)


def statement(a: str, relation: str, b: str) -> str:
    """What is said of two things: "a cup to the left of a laptop"."""
    return f"{phrase_text('a {}', a)} {PHRASES[relation]} {phrase_text('a {}', b)}"


class Texts:
    """Text vectors of words and statements, each encoded once."""

    def __init__(self, encoder: Encoder, questions: Sequence[Question]) -> None:
        template = encoder.spec.template
        self._words = {word: phrase_text(template, word) for q in questions for word in (q.a, q.b)}
        statements = {q.text(r) for q in questions for r in (q.relation, OPPOSITE[q.relation])}
        texts = sorted(statements | set(self._words.values()))
        self._vectors = dict(zip(texts, encoder.encode_texts(texts).vectors, strict=True))
        self.vocabulary = vocabulary(encoder)

    def word(self, word: str) -> Floats:
        """A subject or object, (D,)."""
        vector: Floats = self._vectors[self._words[word]]
        return vector

    def statement(self, text: str) -> Floats:
        """A whole query, (D,)."""
        vector: Floats = self._vectors[text]
        return vector


def questions_of(photos: Sequence[Photo]) -> list[Question]:
    """Every answerable pair of at least :data:`MIN_AREA`."""
    found = []
    for number, photo in enumerate(photos):
        boxes = {box.name: box for box in photo.boxes}
        for pair in photo.pairs:
            if pair.min_area < MIN_AREA:
                continue
            one, other = boxes[pair.a], boxes[pair.b]
            ratio = max(one.area, other.area) / min(one.area, other.area)
            for relation, axis in ((pair.lr, 0), (pair.ab, 1)):
                if relation is not None:
                    same = (_middle(one, axis) < 0.5) == (_middle(other, axis) < 0.5)
                    found.append(Question(number, pair.a, pair.b, relation, same, ratio))
    return found


def margins(questions: Sequence[Question], text: Texts, seen: Seen, index: Index) -> dict[str, Doubles]:
    """How far each reader prefers the true statement.

    Returns
    -------
    margins : dict of str to (Q,) float64
        Positive where the reader is right.
    """
    moments = seen.moments()
    sketched = index.sketcher.decode(index.sketch())
    rows: dict[str, list[float]] = {}
    for q in questions:
        axis, sign = SIGN[q.relation]
        s, o = text.word(q.a), text.word(q.b)
        other = misaligned(q.photo, len(seen.pooled))
        choice = text.statement(q.text()) - text.statement(q.text(OPPOSITE[q.relation]))
        answers = {
            "native": float(seen.pooled[q.photo] @ choice),
            "native_null": float(seen.pooled[other] @ choice),
            "moment": sign * float(sketched[q.photo, axis] @ index.sketcher.project(s - o)),
            "moment_null": sign * float(sketched[other, axis] @ index.sketcher.project(s - o)),
            "moment_full": sign * float(moments[q.photo, axis] @ (s - o)),
            "subject_only": sign * float(moments[q.photo, axis] @ s),
            "object_only": -sign * float(moments[q.photo, axis] @ o),
            "half_crop": sign * half_crop(seen.grid(q.photo), s, o, axis),
        }
        for time, shuffled in enumerate(seen.shuffled(q.photo, SHUFFLES)):
            answers[f"shuffled_{time}"] = sign * float(shuffled[axis] @ (s - o))
        for name, centres in read(seen.grid(q.photo), s, o, text.vocabulary).items():
            answers[name] = sign * float(centres[0, axis] - centres[1, axis])
        for name, centres in read_sketch(index, q.photo, s, o).items():
            answers[name] = sign * float(centres[0, axis] - centres[1, axis])
        centres = read_sketch(index, other, s, o)["centroid"]
        answers["centroid_null"] = sign * float(centres[0, axis] - centres[1, axis])
        for name, value in answers.items():
            rows.setdefault(name, []).append(value)
    return {name: np.array(values) for name, values in rows.items()}


def read(tokens: Floats, subject: Floats, thing: Floats, words: Floats) -> dict[str, Doubles]:
    """Centres of two words by every reader of a full grid of patch tokens, (2, 2) each."""
    height, width, dim = tokens.shape
    unit = tokens.reshape(-1, dim).astype(np.float64)
    unit /= np.linalg.norm(unit, axis=1, keepdims=True) + 1e-12
    pair = np.stack([subject, thing]).astype(np.float64)
    maps = (unit @ (pair - words.mean(axis=0)).T).T.reshape(2, height, width)
    cosines = unit @ pair.T
    background = words[:: max(1, len(words) // _BACKGROUND)][:_BACKGROUND]
    crowd = np.concatenate([cosines, unit @ background.astype(np.float64).T], axis=1)

    def placed(weights: Doubles) -> Doubles:
        return centroid(weights[:, :2].T.reshape(2, height, width))

    return {
        "centroid_full": softmax_centroid(maps),
        "argmax": argmax_centre(maps),
        "adr": placed(excess(cosines)),
        "adr_dense": placed(adr_dense(cosines)),
        "adr_background": placed(excess(crowd)),
    } | {f"centroid_tau_{tau:g}": softmax_centroid(maps, tau=tau) for tau in TAUS}


def read_sketch(index: Index, photo: int, subject: Floats, thing: Floats) -> dict[str, Doubles]:
    """Centres of two words on the grid as a search reads it."""
    sketcher, packed = index.grid_sketcher, index.grid()
    assert sketcher is not None
    assert packed is not None
    query = sketcher.query(np.stack([subject, thing]) - sketcher.vocabulary.mean(axis=0))
    maps = sketcher.similarities(packed, query, np.array([photo]))[0]
    return {"centroid": softmax_centroid(maps.reshape(2, sketcher.side, sketcher.side))}


def half_crop(tokens: Floats, subject: Floats, thing: Floats, axis: int) -> float:
    """The published baseline: each half of the picture pooled by itself, against the two words; low half first."""
    near, far = np.array_split(tokens, 2, axis=1 - axis)
    halves = [half.reshape(-1, half.shape[-1]).mean(axis=0) for half in (near, far)]
    low, high = (half / (np.linalg.norm(half) + 1e-12) for half in halves)
    return float((high @ subject + low @ thing) - (low @ subject + high @ thing))


def misaligned(photo: int, photos: int) -> int:
    """Another photograph of the same set, for the null."""
    return (photo + (OFFSET % photos or 1)) % photos if photos else photo


def report(questions: Sequence[Question], margin: dict[str, Doubles]) -> list[Metric]:
    """Accuracy of every reader on both axes, their nulls, and the breakdown by halves and sizes."""
    metrics = []
    for axis in ("lr", "ab"):
        own = np.array([q.axis == axis for q in questions])
        asked = [q for q in questions if q.axis == axis]
        clusters = [q.photo for q in asked]
        right = {name: won(values[own]) for name, values in margin.items()}
        shuffles = np.mean([right.pop(f"shuffled_{time}") for time in range(SHUFFLES)], axis=0)
        metrics.append(
            share("shuffled_moment" if axis == "lr" else "ab_shuffled_moment", shuffles.tolist(), clusters)
        )
        metrics += [share(f"{axis}_{name}", values.tolist(), clusters) for name, values in right.items()]
        metrics.append(share(f"{axis}_best", right["centroid_full"].tolist(), clusters))
        metrics.append(
            difference(f"{axis}_centroid_minus_moment", right["centroid"], right["moment"], clusters)
        )
        metrics.append(
            difference(
                f"{axis}_centroid_full_minus_moment_full",
                right["centroid_full"],
                right["moment_full"],
                clusters,
            )
        )
        even = balanced(asked)
        for name in ("native", "moment", "centroid"):
            gain = right[name] - right[f"{name}_null"]
            metrics.append(
                difference(f"{axis}_{name}_grounded_gain", gain[even], 0 * gain[even], _pick(clusters, even))
            )
        for name, chosen in _cells(asked):
            for reader in ("moment", "centroid", "centroid_full"):
                values = right[reader][chosen].tolist()
                metrics.append(share(f"{axis}_{name}_{reader}", values, _pick(clusters, chosen)))
    return metrics


def balanced(questions: Sequence[Question], *, seed: int = 0) -> NDArray[np.intp]:
    """A largest subset in which, pair of classes by pair, both directions are as frequent.

    Returns
    -------
    rows : (R,) int
        What knows only which of two things usually stands where scores one half on it.
    """
    first = {frozenset((q.a, q.b)): min(q.a, q.b) for q in questions}
    rng = np.random.default_rng(seed)
    groups: dict[frozenset[str], tuple[list[int], list[int]]] = {}
    for row, q in enumerate(questions):
        key = frozenset((q.a, q.b))
        forward = (q.a == first[key]) == (q.relation in ("left", "above"))
        groups.setdefault(key, ([], []))[0 if forward else 1].append(row)
    rows: list[int] = []
    for one, other in groups.values():
        n = min(len(one), len(other))
        rows += [int(r) for side in (one, other) for r in rng.permutation(side)[:n]]
    return np.array(sorted(rows), dtype=np.intp)


def won(margin: Doubles) -> Doubles:
    """One for a win, a half for a tie, which decides nothing."""
    return 0.5 * (1.0 + np.sign(np.where(np.abs(margin) < _TIE, 0.0, margin)))


def difference(name: str, one: Doubles, other: Doubles, clusters: Sequence[int]) -> Metric:
    """Mean of paired differences with its interval."""
    values = (np.asarray(one) - np.asarray(other)).tolist()
    low, high = cluster_bootstrap(values, clusters)
    return Metric(
        name, float(np.mean(values)) if values else float("nan"), "difference", low, high, len(values)
    )


def _cells(questions: Sequence[Question]) -> list[tuple[str, NDArray[np.intp]]]:
    """Opposite or same half, and by size ratio."""
    same = np.array([q.same_half for q in questions], dtype=bool)
    ratio = np.array([q.ratio for q in questions], dtype=float)
    cells = {
        "opposite_halves": ~same,
        "same_half": same,
        "same_half_ratio_under_2": same & (ratio < 2),
        "same_half_ratio_2_to_4": same & (ratio >= 2) & (ratio <= 4),
        "same_half_ratio_over_4": same & (ratio > 4),
    }
    return [(name, np.flatnonzero(chosen)) for name, chosen in cells.items()]


def _pick(clusters: Sequence[int], rows: NDArray[np.intp]) -> list[int]:
    return [clusters[row] for row in rows]


def _middle(box: Box, axis: int) -> float:
    return (box.x0 + box.x1) / 2 if axis == 0 else (box.y0 + box.y1) / 2
