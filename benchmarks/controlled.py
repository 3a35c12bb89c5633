"""Is it the place of things alone that the readers read? Measured on drawn scenes in which nothing else changes.

    python -m benchmarks.controlled [--quick] [--json FILE] [--encoder NAME --pretrained TAG_OR_FILE]

Two things stand face to face; the four rotations of their places and the exact mirror images of these are eight
pictures of one arrangement. Over them every statement about the two is as often true as false, so whatever does not see
place scores one half. Measured are the two tiny models of `benchmarks.tiny`, in every dense mode and view they have, on
pairs of things that their training never showed together, and ``compact`` on the same pictures (it was trained on
photographs and saw none of them); with ``--encoder``, any one encoder instead.

Which mode of a tiny model is its best is decided on pairs that its training did show together. Intervals are
bootstrapped by arrangement.

At last all pictures are ranked by every statement that is true of some of them: does the first one hold both things?
One picture in eighteen does, and four in eighteen hold one of the two beside another thing.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from benchmarks.data import Photo, photo_of
from benchmarks.gallery import Seen, index_of, look_at, open_encoder
from benchmarks.geometry import SHUFFLES, Question, Texts, margins, questions_of, won
from benchmarks.record import Metric, encoder_parser, share, write_result
from benchmarks.retrieval import statements
from benchmarks.scenes import View, controlled, describe, draw_scene
from benchmarks.tiny import ATTENTION_POOLED, CLASS_TOKEN, load_tiny
from benchmarks.tiny_scenes import NAMES, unseen_pairs
from indexer.encoder import COMPACT, DenseMode, DenseView, Encoder, phrase_text
from indexer.load import load_encoder
from indexer.store import Index
from parser import QueryParser
from service.search import Searcher

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]

SEED = 0
ROUNDS = 3
"""Arrangements of each unseen pair."""
QUICK_ROUNDS = 1
_VOTES = ("moment_full", "centroid_full")
"""Readers that decide between modes."""
_BOTH = ("native", "moment_full", "centroid_full")


@dataclass(frozen=True, slots=True, eq=False)
class Controlled:
    """A controlled set: N pictures, drawn, with what is true of them.

    Attributes
    ----------
    views : N View
    pictures : N pictures
    photos : N Photo
        Their boxes and pairs; there are no files.
    """

    views: Sequence[View]
    pictures: Sequence[Image.Image]
    photos: Sequence[Photo]

    def arrangements(self, questions: Sequence[Question]) -> list[int]:
        """The arrangement each question is about."""
        return [self.views[q.photo].arrangement for q in questions]


def controlled_set(pairs: Sequence[tuple[str, str]], *, seed: int = SEED) -> Controlled:
    """Draw eight pictures of one arrangement a pair."""
    views = list(controlled(pairs, seed=seed))
    return Controlled(
        views,
        [draw_scene(view.scene) for view in views],
        [photo_of(Path(), describe(view.scene, f"{n}.png")) for n, view in enumerate(views)],
    )


@contextmanager
def indexed(encoder: Encoder, data: Controlled) -> Iterator[tuple[Seen, Index]]:
    """A set as an encoder sees it, and an index of it for as long as it is needed."""
    seen = look_at(encoder, (picture.copy for picture in data.pictures))
    with tempfile.TemporaryDirectory() as folder:
        yield seen, index_of(seen, encoder, Path(folder) / "index")


def read_all(
    encoder: Encoder, data: Controlled, seen: Seen, index: Index, text: Texts | None = None
) -> tuple[list[Question], dict[str, Doubles]]:
    """All questions about a set, and one for a right answer of each reader.

    `text` saves time where several modes of a model share their text tower.
    """
    questions = questions_of(data.photos)
    found = margins(questions, text or Texts(encoder, questions), seen, index)
    right = {reader: won(values) for reader, values in found.items() if not reader.endswith("_null")}
    shuffles = [right.pop(f"shuffled_{time}") for time in range(SHUFFLES)]
    return questions, right | {"shuffled": np.mean(shuffles, axis=0)}


def named(encoder: Encoder, seen: Seen, data: Controlled) -> float:
    """Share of pictures whose two most similar words of :data:`NAMES` are its two things; chance is 1 in 66."""
    words = encoder.encode_texts([phrase_text(encoder.spec.template, name) for name in NAMES]).vectors
    best = np.argsort(-(seen.pooled @ words.T), axis=1)[:, :2]
    truth = [{placed.name for placed in view.scene.objects} for view in data.views]
    return float(
        np.mean([{NAMES[n] for n in row} == things for row, things in zip(best, truth, strict=True)])
    )


def report(
    label: str, encoder: Encoder, data: Controlled, text: Texts | None = None, *, gallery: bool = True
) -> list[Metric]:
    """Accuracy of every reader on both axes, and how often a picture and its mirror image are both read right.

    With `gallery`, also what comes first among all pictures by statements about two things; most pictures lack at least
    one of them.
    """
    with indexed(encoder, data) as (seen, index):
        questions, right = read_all(encoder, data, seen, index, text)
        share_named = named(encoder, seen, data)
        first = statements(Searcher(index, encoder, QueryParser()), questions, data.photos) if gallery else []
    arrangements = np.array(data.arrangements(questions))
    metrics = [Metric(f"{label}_both_things_named", share_named, n=len(data.pictures))]
    for axis in ("lr", "ab"):
        own = np.array([q.axis == axis for q in questions])
        metrics += [
            share(f"{label}_{axis}_{reader}", values[own].tolist(), arrangements[own])
            for reader, values in right.items()
        ]
    couples: dict[tuple[int, int], list[int]] = {}
    for row, q in enumerate(questions):
        if q.axis == "lr":
            view = data.views[q.photo]
            couples.setdefault((view.arrangement, view.turn), []).append(row)
    clusters = [arrangement for arrangement, _ in couples]
    metrics += [
        share(
            f"{label}_mirrors_{reader}",
            [float(right[reader][rows].min()) for rows in couples.values()],
            clusters,
        )
        for reader in _BOTH
    ]
    return metrics + [replace(metric, name=f"{label}_{metric.name}") for metric in first]


def ways(name: str) -> list[tuple[DenseMode, DenseView]]:
    """Every dense mode and view of a tiny model."""
    if name == ATTENTION_POOLED:
        return [(DenseMode.HEAD, DenseView.NATIVE)]
    return [(mode, view) for view in DenseView for mode in DenseMode if mode is not DenseMode.HEAD]


def seen_pairs() -> list[tuple[str, str]]:
    """As many pairs that training did show together as there are unseen ones."""
    unseen = set(unseen_pairs())
    pairs = [pair for pair in combinations(sorted(NAMES), 2) if pair not in unseen]
    return [pairs[n] for n in np.random.default_rng(SEED).permutation(len(pairs))[: len(unseen)]]


def tiny_models(data: Controlled, choice: Controlled) -> Iterator[tuple[list[Metric], dict[str, float]]]:
    """Metrics of each tiny model on `data`, and what decided its best mode on `choice`."""
    for name in (CLASS_TOKEN, ATTENTION_POOLED):
        short = name.removeprefix("tiny-vit-").replace("-", "_")
        encoders = {
            f"{short}_{mode}_{view}": load_tiny(name, dense_mode=mode, dense_view=view)
            for mode, view in ways(name)
        }
        first = next(iter(encoders.values()))
        text, choice_text = (Texts(first, questions_of(each.photos)) for each in (data, choice))
        votes: dict[str, float] = {}
        for label, encoder in encoders.items():
            with indexed(encoder, choice) as (seen, index):
                _, right = read_all(encoder, choice, seen, index, choice_text)
            votes[label] = float(np.mean([right[reader].mean() for reader in _VOTES]))
        best = max(votes, key=lambda label: votes[label])
        found = {
            label: report(label, encoder, data, text, gallery=label == best)
            for label, encoder in encoders.items()
        }
        again = [replace(metric, name=metric.name.replace(best, f"{short}_best")) for metric in found[best]]
        yield [metric for metrics in found.values() for metric in metrics] + again, votes


def main() -> None:
    """Run the benchmark from the command line."""
    options = encoder_parser("Readers on rotations and mirror images of drawn arrangements.", default=None)
    arguments = options.parse_args()
    rounds = QUICK_ROUNDS if arguments.quick else ROUNDS
    data = controlled_set(unseen_pairs() * rounds)
    metrics: list[Metric] = []
    votes: dict[str, float] = {}
    if arguments.encoder:
        encoder = open_encoder(arguments.encoder, arguments.pretrained)
        names = f"{arguments.encoder} {arguments.pretrained or ''}".strip()
        label = arguments.encoder.lower().replace("-", "_")
        metrics += report(label, encoder, data)
    else:
        names = f"{CLASS_TOKEN}, {ATTENTION_POOLED} (trained from scratch on drawn scenes); {COMPACT}"
        for found, decided in tiny_models(data, controlled_set(seen_pairs() * rounds, seed=SEED + 1)):
            metrics += found
            votes |= decided
        encoder = load_encoder(COMPACT)
        metrics += report(COMPACT, encoder, data)
    extra = {
        "arrangements": len({view.arrangement for view in data.views}),
        "pictures": len(data.pictures),
        "unseen_pairs": [" + ".join(pair) for pair in unseen_pairs()],
        "modes_on_pairs_seen_in_training": votes,
    }
    write_result("controlled", metrics, encoder=names, seed=SEED, path=arguments.json, extra=extra)


if __name__ == "__main__":
    main()
