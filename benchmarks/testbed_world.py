"""A one-dimensional world of pictures and captions in which *left of* is all there is to learn.

A picture is a row of pixels (or a small grid, read row by row) behind a class token. A pixel is background or holds
one object, and an object is its label. A caption has four tokens: ``[label] [is] [in the image] [end]`` or
``[label] [is on the left of] [label] [end]``. Labels past `World.n_pair` appear alone in training and in pairs only in
the test: reading their order right means that the order, not the pairs, was learnt.

References
----------
*Left-Right Symmetry Breaking in CLIP-style Vision-Language Models Trained on Synthetic Spatial-Relation Data*,
sections 2.1 and 2.3, appendices K.1 and N.2.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Tokens = NDArray[np.int64]

VOCABULARY = 32
"""Token ids of either side; the same for every world, so that worlds of different sizes stack."""
BACKGROUND, CLS = 0, VOCABULARY - 1
IS, IN, LEFT, RIGHT, END = range(VOCABULARY - 5, VOCABULARY)
CAPTION_LENGTH = 4
N_VAL_IMAGES = 5


@dataclass(frozen=True, slots=True)
class World:
    """What there is to see.

    Attributes
    ----------
    n_tot, n_pair : int
        Labels, and how many of them stand in pairs during training; the other ``n_tot - n_pair`` are for the test.
    n_1, n_2, n_3 : int
        Training pictures for each label, each ordered pair and each ordered triplet.
    rows, columns : int
        Of the picture. Objects that stand beside each other differ in column.
    both : bool
        Caption every pair twice, "X left of Y" and "Y right of X"; otherwise only the first.
    """

    n_tot: int = 20
    n_pair: int = 15
    n_1: int = 5
    n_2: int = 10
    n_3: int = 0
    rows: int = 1
    columns: int = 10
    both: bool = False

    def __post_init__(self) -> None:
        if not 2 <= self.n_pair <= self.n_tot - 2 or self.n_tot >= IS:
            raise ValueError(
                f"n_pair={self.n_pair}, n_tot={self.n_tot}: expected 2 <= n_pair <= n_tot - 2 and n_tot < {IS}"
            )
        for name, wanted, objects in (("n_1", self.n_1, 1), ("n_2", self.n_2, 2), ("n_3", self.n_3, 3)):
            most = len(self.placings(objects)) - N_VAL_IMAGES
            if objects == 3 and self.both and wanted:
                raise ValueError("n_3: pictures of three objects come with one caption each")
            if not 0 <= wanted <= most:
                raise ValueError(f"{name}={wanted}: expected 0 to {most}, the placings left after the test's")

    @property
    def length(self) -> int:
        """Tokens of a picture, the class token included."""
        return 1 + self.rows * self.columns

    @property
    def training_pictures(self) -> int:
        """Pictures with their captions to train on; one with two captions counts twice."""
        pairs = self.n_pair * (self.n_pair - 1) * self.n_2 * (2 if self.both else 1)
        return self.n_tot * self.n_1 + pairs + self.n_pair * (self.n_pair - 1) * (self.n_pair - 2) * self.n_3

    def placings(self, objects: int) -> list[tuple[int, ...]]:
        """All ways to stand so many objects from left to right, as token positions (1 is the first pixel)."""
        columns = itertools.combinations(range(self.columns), objects)
        return [
            tuple(1 + row * self.columns + column for row, column in zip(rows, across, strict=True))
            for across in columns
            for rows in itertools.product(range(self.rows), repeat=objects)
        ]


@dataclass(frozen=True, slots=True)
class Scenes:
    """Pictures with the captions that are true of them.

    Attributes
    ----------
    images : (n, 1 + D) int64
    caption : (n,) int64
        The caption a picture is paired with, as a row of `Dataset.captions`.
    valid : (n, V) int64
        All captions that are to be found for it; -1 fills up.
    positions, labels : (n, K) int64
        Objects from left to right: token position and label; 0 fills up.
    """

    images: Tokens
    caption: Tokens
    valid: Tokens
    positions: Tokens
    labels: Tokens

    def __len__(self) -> int:
        return len(self.images)


@dataclass(frozen=True, slots=True)
class Dataset:
    """One draw of a world.

    Attributes
    ----------
    captions : (C, 4) int64
        Every text of training and test: what a picture is matched against.
    caption_labels : (C, 2) int64
        The labels a caption names, smaller first; 0 for none.
    train, single, seen, unseen, triple : Scenes
        Training; single objects at new places; training pairs at new places; pairs, and triplets, of held-out labels.
    """

    world: World
    captions: Tokens
    caption_labels: Tokens
    train: Scenes
    single: Scenes
    seen: Scenes
    unseen: Scenes
    triple: Scenes


def draw(world: World, seed: int) -> Dataset:
    """Draw the training and the test pictures.

    Parameters
    ----------
    world : World
    seed : int
        The same world and seed give the same data.
    """
    rng = np.random.default_rng([seed, 1])
    texts = _Texts(world)
    train, single, seen, unseen, triple = (_Builder(world, texts) for _ in range(5))

    all_placings = {objects: world.placings(objects) for objects in (1, 2, 3)}

    def split(labels: tuple[int, ...], wanted: int, into: _Builder | None, test: _Builder) -> None:
        placings = all_placings[len(labels)]
        for at, chosen in enumerate(rng.permutation(len(placings))[: wanted + N_VAL_IMAGES]):
            builder = test if into is None or at >= wanted else into
            builder.add(labels, placings[chosen])

    for label in range(1, world.n_tot + 1):
        split((label,), world.n_1, train, single)
    paired, held_out = range(1, world.n_pair + 1), range(world.n_pair + 1, world.n_tot + 1)
    for pair in itertools.permutations(paired, 2):
        split(pair, world.n_2, train, seen)
    for pair in itertools.permutations(held_out, 2):
        split(pair, 0, None, unseen)
    for triplet in itertools.permutations(held_out, 3):
        split(triplet, 0, None, triple)
    if world.n_3:
        for triplet in itertools.permutations(paired, 3):
            split(triplet, world.n_3, train, _Builder(world, texts))
    return Dataset(
        world,
        np.array(texts.tokens),
        np.array(texts.labels),
        train.scenes(rng, every_caption=world.both),
        *(builder.scenes(rng) for builder in (single, seen, unseen, triple)),
    )


class _Texts:
    """All captions of a world, and where each is in the table."""

    def __init__(self, world: World) -> None:
        self.tokens: list[tuple[int, int, int, int]] = []
        self.labels: list[tuple[int, int]] = []
        self.row: dict[tuple[int, int, int], int] = {}
        everyone = range(1, world.n_tot + 1)
        for label in everyone:
            self._add((label, IS, IN), (0, label))
        for one, other in itertools.permutations(everyone, 2):
            if (one <= world.n_pair) == (other <= world.n_pair):
                for word in (LEFT, RIGHT) if world.both else (LEFT,):
                    self._add((one, word, other), (min(one, other), max(one, other)))

    def _add(self, words: tuple[int, int, int], labels: tuple[int, int]) -> None:
        self.row[words] = len(self.tokens)
        self.tokens.append((*words, END))
        self.labels.append(labels)

    def true_of(self, labels: Sequence[int]) -> list[int]:
        """Rows of the captions that are true of objects in this order from left to right."""
        if len(labels) == 1:
            return [self.row[labels[0], IS, IN]]
        said = []
        for left, right in itertools.combinations(labels, 2):
            words: Iterable[tuple[int, int, int]] = ((left, LEFT, right), (right, RIGHT, left))
            said += [self.row[caption] for caption in words if caption in self.row]
        return said


class _Builder:
    def __init__(self, world: World, texts: _Texts) -> None:
        self.world, self.texts = world, texts
        self.items: list[tuple[tuple[int, ...], tuple[int, ...]]] = []

    def add(self, labels: tuple[int, ...], positions: tuple[int, ...]) -> None:
        self.items.append((labels, positions))

    def scenes(self, rng: np.random.Generator, *, every_caption: bool = False) -> Scenes:
        """The pictures; each once with one of its captions, or once with every caption."""
        rows = []
        for labels, positions in self.items:
            valid = self.texts.true_of(labels)
            paired = valid if every_caption else [valid[rng.integers(len(valid))]]
            rows += [(labels, positions, valid, caption) for caption in paired]
        widest = max((len(valid) for _, _, valid, _ in rows), default=1)
        most = max((len(labels) for labels, _, _, _ in rows), default=1)
        images = np.full((len(rows), self.world.length), BACKGROUND)
        images[:, 0] = CLS
        filled = np.full((len(rows), widest), -1)
        where, what = (np.zeros((len(rows), most), dtype=np.int64) for _ in range(2))
        for n, (labels, positions, valid, _) in enumerate(rows):
            images[n, list(positions)] = labels
            filled[n, : len(valid)] = valid
            where[n, : len(positions)], what[n, : len(labels)] = positions, labels
        return Scenes(images, np.array([row[3] for row in rows], dtype=np.int64), filled, where, what)
