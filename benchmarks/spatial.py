"""Does the ranking know left from right? Measured on photographs with boxes and captions.

    python -m benchmarks.spatial --data DIR [--quick] [--json FILE]

Every pair of single-instance objects of at least 1 % of the picture is asked about. *Caption choice*: of two
statements with opposite relations, does the true one score higher? *Mirror ranking*: of a photograph and its mirror
image, does the one where the statement holds score higher? Intervals are bootstrapped by photograph.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps

from benchmarks.data import Photo, load_photos
from benchmarks.record import DEFAULT_DATA, Metric, parser, share, write_result
from indexer.calibrate import calibrate, vocabulary
from indexer.encoder import COMPACT, Encoder, phrase_text
from indexer.images import open_image
from indexer.load import load_encoder
from indexer.moments import spatial_moments
from indexer.sketch import Sketcher, fit_sketcher

Floats = NDArray[np.float32]

MIN_AREA = 0.01
QUICK_PHOTOS = 120
SEED = 0
_BATCH = 16
_PHRASES = {"left": "to the left of", "right": "to the right of", "above": "above", "below": "below"}
_OPPOSITE = {"left": "right", "right": "left", "above": "below", "below": "above"}
_AXIS_SIGN = {"left": (0, -1.0), "right": (0, 1.0), "above": (1, -1.0), "below": (1, 1.0)}


@dataclass(frozen=True, slots=True)
class Question:
    """One pair of one photograph on one axis."""

    photo: int
    a: str
    b: str
    relation: str

    @property
    def axis(self) -> str:
        """``lr`` or ``ab``."""
        return "lr" if self.relation in ("left", "right") else "ab"


@dataclass(frozen=True, slots=True, eq=False)
class Encoded:
    """Photographs after the image tower.

    Attributes
    ----------
    pooled : (N, D) float32
    moments : (N, 2, D) float32
    shuffled : (N, 2, D) float32
        Of the same tokens in random places.
    tokens : (T, D) float32
        A sample for the basis.
    """

    pooled: Floats
    moments: Floats
    shuffled: Floats
    tokens: Floats


def main() -> None:
    """Run the benchmark from the command line."""
    options = parser("Spatial accuracy on photographs with boxes.")
    options.add_argument("--encoder", default=COMPACT, help="compact or an open_clip model name")
    options.add_argument("--pretrained", help="weights file, tag or random:SEED of an open_clip model")
    arguments = options.parse_args()
    photos = load_photos(arguments.data or DEFAULT_DATA / "coco" / "dev")
    if arguments.quick:
        photos = photos[:QUICK_PHOTOS]
    encoder = load_encoder(arguments.encoder, arguments.pretrained)
    metrics = measure(encoder, photos)
    spec = encoder.spec
    name = spec.name if spec.name == COMPACT else f"{spec.name} {spec.pretrained}"
    write_result(
        "spatial", metrics, encoder=name, seed=SEED, path=arguments.json, extra={"photos": len(photos)}
    )


def measure(encoder: Encoder, photos: Sequence[Photo]) -> list[Metric]:
    """All metrics of the benchmark for one encoder."""
    seen = encode_photos(encoder, [photo.path for photo in photos])
    sketcher = fit_sketcher(seen.tokens, seen.moments)
    lam = calibrate(encoder, seen.pooled, sketcher.encode(seen.moments), sketcher, vocabulary(encoder)).lam
    questions = questions_of(photos)
    text = _Texts(encoder, questions)
    metrics = [Metric("lambda", lam, "ratio", n=len(photos))]
    for axis in ("lr", "ab"):
        asked = [question for question in questions if question.axis == axis]
        metrics += _caption_choice(axis, asked, text, seen, sketcher)
    asked = [question for question in questions if question.axis == "lr"]
    metrics += _mirror_ranking(encoder, photos, asked, text, seen, sketcher, lam)
    return metrics + _recall(encoder, photos, seen.pooled)


def questions_of(photos: Sequence[Photo]) -> list[Question]:
    """Every answerable pair of at least :data:`MIN_AREA`."""
    return [
        Question(number, pair.a, pair.b, relation)
        for number, photo in enumerate(photos)
        for pair in photo.pairs
        for relation in (pair.lr, pair.ab)
        if relation is not None and pair.min_area >= MIN_AREA
    ]


def encode_photos(
    encoder: Encoder,
    paths: Sequence[Path],
    *,
    transform: Callable[[Image.Image], Image.Image] = lambda image: image,
) -> Encoded:
    """Run the image tower over photographs, decoding ahead."""
    rng = np.random.default_rng(SEED)
    pooled, moments, shuffled, sample = [], [], [], []
    with ThreadPoolExecutor(2) as pool:
        prepared = pool.map(lambda path: encoder.prepare(transform(open_image(path).image)), paths)
        while batch := list(islice(prepared, _BATCH)):
            features = encoder.encode_images(batch)
            pooled.append(features.pooled)
            for tokens in features.tokens:
                flat = tokens.reshape(-1, tokens.shape[-1])
                moments.append(spatial_moments(tokens))
                shuffled.append(spatial_moments(rng.permutation(flat).reshape(tokens.shape)))
                sample.append(rng.permutation(flat)[:64])
    return Encoded(np.concatenate(pooled), np.stack(moments), np.stack(shuffled), np.concatenate(sample))


class _Texts:
    """Text vectors of all questions, each text encoded once."""

    def __init__(self, encoder: Encoder, questions: Sequence[Question]) -> None:
        template = encoder.spec.template
        self._words = {word: phrase_text(template, word) for q in questions for word in (q.a, q.b)}
        statements = {self._statement(q, r) for q in questions for r in (q.relation, _OPPOSITE[q.relation])}
        texts = sorted(statements | set(self._words.values()))
        self._vectors = dict(zip(texts, encoder.encode_texts(texts).vectors, strict=True))

    def word(self, word: str) -> Floats:
        """A subject or object, (D,)."""
        vector: Floats = self._vectors[self._words[word]]
        return vector

    def statement(self, question: Question, relation: str) -> Floats:
        """A whole query, (D,)."""
        vector: Floats = self._vectors[self._statement(question, relation)]
        return vector

    @staticmethod
    def _statement(q: Question, relation: str) -> str:
        return f"{phrase_text('a {}', q.a)} {_PHRASES[relation]} {phrase_text('a {}', q.b)}"


def _caption_choice(
    axis: str, questions: Sequence[Question], text: _Texts, seen: Encoded, sketcher: Sketcher
) -> list[Metric]:
    sketched = sketcher.decode(sketcher.encode(seen.moments))
    scores: dict[str, list[float]] = {}
    for q in questions:
        s, o = text.word(q.a), text.word(q.b)
        direction, sign = _AXIS_SIGN[q.relation]
        pooled = seen.pooled[q.photo]
        native = pooled @ (text.statement(q, q.relation) - text.statement(q, _OPPOSITE[q.relation]))
        for name, value in {
            "native": native,
            "moment": sign * (sketched[q.photo, direction] @ sketcher.project(s - o)),
            "moment_full": sign * (seen.moments[q.photo, direction] @ (s - o)),
            "subject_only": sign * (seen.moments[q.photo, direction] @ s),
            "object_only": -sign * (seen.moments[q.photo, direction] @ o),
            "shuffled": sign * (seen.shuffled[q.photo, direction] @ (s - o)),
        }.items():
            scores.setdefault(name, []).append(_won(float(value)))
    clusters = [q.photo for q in questions]
    names = {"shuffled": "shuffled_moment"} if axis == "lr" else {"shuffled": "ab_shuffled_moment"}
    return [share(names.get(name, f"{axis}_{name}"), values, clusters) for name, values in scores.items()]


def _mirror_ranking(
    encoder: Encoder,
    photos: Sequence[Photo],
    questions: Sequence[Question],
    text: _Texts,
    seen: Encoded,
    sketcher: Sketcher,
    lam: float,
) -> list[Metric]:
    """The photograph against its mirror image, by the score that a search gives both."""
    numbers = sorted({q.photo for q in questions})
    mirrored = encode_photos(encoder, [photos[number].path for number in numbers], transform=ImageOps.mirror)
    place = {number: row for row, number in enumerate(numbers)}
    here, there = (sketcher.decode(sketcher.encode(side.moments)) for side in (seen, mirrored))
    native, spatial = [], []
    for q in questions:
        direction, sign = _AXIS_SIGN[q.relation]
        query = lam * sign * sketcher.project(text.word(q.a) - text.word(q.b))
        other = place[q.photo]
        gain = float(text.statement(q, q.relation) @ (seen.pooled[q.photo] - mirrored.pooled[other]))
        native.append(_won(gain))
        spatial.append(_won(gain + float((here[q.photo, direction] - there[other, direction]) @ query)))
    clusters = [q.photo for q in questions]
    return [share("mirror_native", native, clusters), share("mirror_spatial", spatial, clusters)]


def _recall(encoder: Encoder, photos: Sequence[Photo], pooled: Floats) -> list[Metric]:
    """Text to image: every caption against all photographs."""
    owners = np.array([number for number, photo in enumerate(photos) for _ in photo.captions])
    vectors = encoder.encode_texts([caption for photo in photos for caption in photo.captions]).vectors
    scores = vectors @ pooled.T
    ranks = (scores > scores[np.arange(len(owners)), owners][:, None]).sum(axis=1)
    return [share(f"recall_at_{k}", (ranks < k).astype(float).tolist(), owners.tolist()) for k in (1, 5, 10)]


def _won(margin: float) -> float:
    """One for a win, a half for a tie, which decides nothing."""
    return 0.5 * (1.0 + float(np.sign(margin)))


if __name__ == "__main__":
    main()
