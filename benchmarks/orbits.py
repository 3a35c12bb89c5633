"""Controlled orbits: an arrangement of two drawn things in its four quarter turns, and nothing else that changes.

An orbit's backdrop looks the same after every quarter turn and in the mirror, so that no corner of it is brighter than
another and tells, by what a thing covers, where the thing is. One of the two things is clearly the larger, and they
stand beside or above each other rather than across, so that both questions about a picture have an answer.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from benchmarks.backdrops import Background, draw_backdrop
from benchmarks.gallery import Seen, look_at
from benchmarks.objects import THINGS
from benchmarks.scenes import (
    CONTROLLED_SIZE,
    Arrangement,
    Scene,
    draw_scene,
    face_to_face,
    rotations,
)
from indexer.encoder import Encoder

TURNS = 4
FOLDS = 4
MIN_RATIO = 1.25
"""Of the larger thing's longest side to the other's."""
MAX_SLANT = 0.4
"""Shorter over longer component of the displacement: up to 22 degrees off an axis."""
Bools = NDArray[np.bool_]
Ints = NDArray[np.intp]
Signs = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Orbit:
    """Four pictures of one arrangement.

    Attributes
    ----------
    fold : int
        Both its things belong to it, and to no other fold.
    scenes : 4 Scene
        Quarter turns of the places, clockwise.
    """

    fold: int
    scenes: tuple[Scene, Scene, Scene, Scene]

    @property
    def names(self) -> tuple[str, str]:
        """The first and the second thing."""
        first, second = self.scenes[0].objects
        return first.name, second.name


@dataclass(frozen=True, slots=True, eq=False)
class Facts:
    """What is true of N pictures, orbit by orbit, four each.

    Attributes
    ----------
    orbit, fold : (N,) int
    horizontal : (N,) bool
        The things stand side by side.
    sign : (N,) float64
        +1 where the first thing is on the right, or below; -1 on the left, or above.
    larger : (N,) float64
        +1 where the first thing is the larger, else -1.
    names : N pairs of str
    """

    orbit: Ints
    fold: Ints
    horizontal: Bools
    sign: Signs
    larger: Signs
    names: Sequence[tuple[str, str]]


def draw_orbits(rounds: int, *, seed: int = 0, things: Sequence[str] = tuple(THINGS)) -> list[Orbit]:
    """Arrange every two things of one fold, `rounds` times.

    Parameters
    ----------
    rounds : int
    seed : int
        Decides the folds and the arrangements.
    things : sequence of str
        Dealt out to :data:`FOLDS` folds.
    """
    dealt = np.random.default_rng([seed, 0]).permutation(len(things))
    orbits = []
    for at in range(rounds):
        for fold in range(FOLDS):
            for a, b in itertools.combinations(sorted(dealt[fold::FOLDS].tolist()), 2):
                rng = np.random.default_rng([seed, 1, at, a, b])
                names = (things[a], things[b]) if rng.random() < 0.5 else (things[b], things[a])
                background = list(Background)[int(rng.integers(len(Background)))]
                first = Scene(_clear(names, rng), background, CONTROLLED_SIZE, seed=int(rng.integers(2**31)))
                one, two, three, four = (replace(first, objects=turn) for turn in rotations(first.objects))
                orbits.append(Orbit(fold, (one, two, three, four)))
    return orbits


def _clear(names: tuple[str, str], rng: np.random.Generator) -> Arrangement:
    while True:
        arrangement = face_to_face(names, rng)
        one, other = arrangement
        sizes = sorted((one.extent, other.extent))
        apart = sorted((abs(one.x - other.x), abs(one.y - other.y)))
        if sizes[1] >= MIN_RATIO * sizes[0] and apart[0] <= MAX_SLANT * apart[1]:
            return arrangement


def facts_of(orbits: Sequence[Orbit]) -> Facts:
    """The truth about all pictures of some orbits, from the scenes alone."""
    apart, size = [], []
    for orbit in orbits:
        for scene in orbit.scenes:
            one, other = scene.objects
            apart.append((one.x - other.x, one.y - other.y))
            size.append(one.extent - other.extent)
    shift = np.array(apart)
    horizontal = np.abs(shift[:, 0]) > np.abs(shift[:, 1])
    names = [orbit.names for orbit in orbits for _ in range(TURNS)]
    return Facts(
        orbit=np.repeat(np.arange(len(orbits)), TURNS),
        fold=np.repeat([orbit.fold for orbit in orbits], TURNS),
        horizontal=horizontal,
        sign=np.sign(np.where(horizontal, shift[:, 0], shift[:, 1])),
        larger=np.sign(np.array(size)),
        names=names,
    )


@lru_cache(maxsize=8)
def symmetric_backdrop(scene: Scene) -> Image.Image:
    """A scene's backdrop averaged over its quarter turns and their mirror images; square pictures only."""
    rng = np.random.default_rng([scene.seed, list(Background).index(scene.background)])
    pixels = np.asarray(draw_backdrop(scene.background, scene.size, rng), np.float32)
    turned = [np.rot90(pixels, turn) for turn in range(TURNS)]
    mean = np.mean([*turned, *(one[:, ::-1] for one in turned)], axis=0)
    return Image.fromarray(np.clip(np.round(mean), 0, 255).astype(np.uint8))


def see_orbits(
    encoder: Encoder, orbits: Sequence[Orbit], *, symmetric: bool = True, cache: Path | None = None
) -> tuple[Seen, NDArray[np.float32]]:
    """Run the image tower over the pictures of some orbits, four each, and over mirror images of two of these.

    Parameters
    ----------
    symmetric : bool
        Whether backdrops are made symmetric.
    cache : Path, optional
        File to keep the towers' output in.

    Returns
    -------
    seen : Seen
        4 pictures an orbit.
    mirrored : (N / 2, D) float32
        Pooled vectors of the exact mirror images of those pictures in which the things stand side by side.
    """
    if cache is not None and cache.exists():
        with np.load(cache) as kept:
            return Seen(kept["pooled"], list(kept["tokens"])), kept["mirrored"]
    beside = facts_of(orbits).horizontal.reshape(-1, TURNS)
    scenes = [
        (scene, orbit)
        for orbit, sides in zip(orbits, beside, strict=True)
        for scene in (
            *orbit.scenes,
            *(one.mirror() for one, side in zip(orbit.scenes, sides, strict=True) if side),
        )
    ]
    every = look_at(
        encoder,
        (
            partial(draw_scene, scene, backdrop=symmetric_backdrop(orbit.scenes[0]) if symmetric else None)
            for scene, orbit in scenes
        ),
    )
    vectors, plain = every.pooled, np.array([not scene.mirrored for scene, _ in scenes])
    tokens = [one for one, keep in zip(every.tokens, plain, strict=True) if keep]
    seen, other = Seen(vectors[plain], tokens), vectors[~plain]
    if cache is not None:
        cache.parent.mkdir(parents=True, exist_ok=True)
        np.savez(cache, pooled=seen.pooled, tokens=np.stack(tokens), mirrored=other)
    return seen, other
