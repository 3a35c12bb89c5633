"""Does pooling keep where things stand? Measured on orbits, in which nothing else varies.

Of each picture two facts are decoded: the *axis* (do the two things stand side by side, or one above the other?) and
the *polarity* (which of them is on which side?). Pictures of all four rotations are there, so whatever does not see
place scores one half on both, and one quarter on the choice of four.

Axes: N pictures, four an orbit; D embedding.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from benchmarks.access import TextBank
from benchmarks.gallery import Seen
from benchmarks.geometry import SHUFFLES, statement
from benchmarks.orbits import TURNS, Facts
from benchmarks.probes import centred, cross_fit, flip_odd, gram, orbit_even, orbit_odd, right_share, told
from benchmarks.record import Metric, share
from indexer.grid import pool_tokens

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]

SIDES = ("left", "right", "above", "below")
GRID = 4
"""Cells a side of the coarse patch grid that a probe is given."""
_TIE = 1e-9


def measure_pooling(seen: Seen, mirrored: Floats, facts: Facts, bank: TextBank) -> list[Metric]:
    """Everything about orbits.

    Parameters
    ----------
    seen : Seen
        N pictures.
    mirrored : (N / 2, D) float32
        Pooled vectors of the mirror images of those whose things stand side by side.
    facts : Facts
    bank : TextBank
    """
    names = [thing for pair in facts.names for thing in pair]
    things = sorted(set(names))
    word = dict(zip(things, bank.words(things).astype(np.float64), strict=True))
    difference = np.stack([word[a] - word[b] for a, b in facts.names])
    moments = seen.moments().astype(np.float64)
    along = np.where(facts.horizontal[:, None], moments[:, 0], moments[:, 1])
    reading = np.einsum("nad,nd->na", moments, difference)
    probe = Probe(facts, difference)
    across = np.where(facts.horizontal, 1.0, -1.0)
    axis = {
        "pooled_axis": cross_fit(gram(centred(seen.pooled)), across, probe.allowed),
        "pooled_axis_orbit": cross_fit(gram(orbit_even(seen.pooled)), across, probe.allowed),
        # Two things in a row stretch a moment along it, whatever the encoder knows: so much of the choice of four is
        # no sign of direction.
        "moment_axis": np.abs(reading[:, 0]) - np.abs(reading[:, 1]),
    }
    pooled = probe.polarity(centred(seen.pooled))
    scores = {
        "pooled_polarity": probe.own(pooled),
        "pooled_polarity_orbit": probe.own(probe.polarity(orbit_odd(seen.pooled))),
        "pooled_polarity_by_size": probe.own(probe.polarity(centred(seen.pooled), "size")),
        "pooled_polarity_by_words": probe.own(probe.polarity(centred(seen.pooled), "words")),
        "moment_polarity": probe.own(reading),
        "moment_polarity_orbit": np.einsum("nd,nd->n", orbit_odd(along), difference),
        "moment_probe_polarity": probe.own(probe.polarity(centred(along))),
        "grid_probe_polarity": probe.own(probe.polarity(centred(_coarse(seen)))),
        "object_identity_null": probe.own(probe.polarity(centred(_orbit_mean(seen.pooled)))),
    }
    metrics = [probe.share(name, right_share(values, across)) for name, values in axis.items()]
    for name, values in scores.items():
        metrics += probe.by_axis(name, right_share(values, facts.sign))
    beside = np.flatnonzero(facts.horizontal)
    odd = np.zeros_like(seen.pooled, dtype=np.float64)
    odd[beside] = flip_odd(seen.pooled[beside], mirrored)
    right = right_share(probe.polarity(odd)[:, 0], facts.sign)
    metrics.append(probe.share("pooled_polarity_flip_odd", right[beside], beside))
    native = _native(seen.pooled, facts, bank)
    pair = np.where(facts.horizontal, native[:, 1] - native[:, 0], native[:, 3] - native[:, 2])
    metrics += [
        probe.share("native_polarity", right_share(pair, facts.sign)),
        probe.share("four_way_probe", _chosen(_probed(axis["pooled_axis"], pooled), facts)),
        probe.share("four_way_native", _chosen(native, facts)),
        probe.share("four_way_moment", _chosen(_both_signs(reading), facts)),
    ]
    return metrics + _controls(seen, probe, moments, word, difference)


class Probe:
    """Cross-fitted probes of N pictures.

    Attributes
    ----------
    allowed : (N, N) bool
        Pictures of other folds, which share no thing, may train.
    """

    def __init__(self, facts: Facts, difference: Doubles) -> None:
        self.facts = facts
        self.allowed = facts.fold[:, None] != facts.fold
        self._told = told(difference, facts.larger)

    def polarity(self, features: Doubles, told_of: str = "both") -> Doubles:
        """Scores for "the first thing is on the right" and "... is below", (N, 2).

        Each is fitted to the pictures of its own axis alone.
        """
        products = gram(features) * self._told[told_of]
        own = (self.facts.horizontal, ~self.facts.horizontal)
        return np.stack([cross_fit(products, self.facts.sign, self.allowed & axis) for axis in own], axis=1)

    def own(self, scores: Doubles) -> Doubles:
        """Of two scores (N, 2), the one for the axis that a picture has."""
        return np.where(self.facts.horizontal, scores[:, 0], scores[:, 1])

    def share(self, name: str, right: Doubles, rows: NDArray[np.intp] | None = None) -> Metric:
        """A share of pictures, with an interval by pair of things.

        Orbits of the same two things are not independent: an encoder that takes one thing for the other is wrong
        about all of them, and one with random weights is right or wrong about all.
        """
        rows = np.arange(len(right)) if rows is None else rows
        return share(name, right.tolist(), [" and ".join(sorted(self.facts.names[n])) for n in rows])

    def by_axis(self, name: str, right: Doubles) -> list[Metric]:
        """The share of all pictures, of those with things side by side, and of those with one above the other."""
        beside, above = np.flatnonzero(self.facts.horizontal), np.flatnonzero(~self.facts.horizontal)
        return [
            self.share(name, right),
            self.share(f"{name}_lr", right[beside], beside),
            self.share(f"{name}_ab", right[above], above),
        ]


def _controls(
    seen: Seen, probe: Probe, moments: Doubles, word: dict[str, Doubles], difference: Doubles
) -> list[Metric]:
    """The moment with patches in random places, and asked about things that are not there."""
    facts, rng, things = probe.facts, np.random.default_rng(0), list(word)
    column = np.where(facts.horizontal, 0, 1)
    shuffled = np.stack(
        [seen.shuffled(n, SHUFFLES)[:, column[n]] @ difference[n] for n in range(len(difference))]
    )
    right = right_share(shuffled, facts.sign[:, None])
    pairs = [
        rng.choice([thing for thing in things if thing not in pair], 2, replace=False)
        for pair in facts.names[::TURNS]
    ]
    other = np.repeat([word[a] - word[b] for a, b in pairs], TURNS, axis=0)
    wrong = np.einsum("nad,nd->na", moments, other)
    return [
        probe.share("moment_shuffled", right.mean(axis=1)),
        Metric("moment_shuffled_p95", float(np.quantile(right.mean(axis=0), 0.95)), n=len(right)),
        probe.share("moment_wrong_words", right_share(probe.own(wrong), facts.sign)),
    ]


def _coarse(seen: Seen) -> Doubles:
    """Patch grids averaged to :data:`GRID` cells a side, (N, cells * D)."""
    return np.stack([pool_tokens(seen.grid(n), GRID).ravel() for n in range(len(seen.tokens))]).astype(float)


def _orbit_mean(pooled: Floats) -> Doubles:
    """What the four pictures of an orbit have in common: things, sizes and backdrop, (N, D)."""
    mean = pooled.astype(np.float64).reshape(-1, TURNS, pooled.shape[1]).mean(axis=1)
    return np.repeat(mean, TURNS, axis=0)


def _native(pooled: Floats, facts: Facts, bank: TextBank) -> Doubles:
    """Native scores of the four statements about each picture, (N, 4)."""
    scores = []
    for side in SIDES:
        texts = [statement(a, side, b) for a, b in facts.names[::TURNS]]
        scores.append(np.einsum("nd,nd->n", pooled.astype(np.float64), np.repeat(bank(texts), TURNS, axis=0)))
    return np.stack(scores, axis=1)


def _both_signs(reading: Doubles) -> Doubles:
    """From displacements across and down (N, 2) to scores of the four sides, (N, 4)."""
    return np.stack([-reading[:, 0], reading[:, 0], -reading[:, 1], reading[:, 1]], axis=1)


def _probed(axis: Doubles, polarity: Doubles) -> Doubles:
    """The axis probe's choice, and on that axis the polarity probe's, as scores of the four sides, (N, 4)."""
    return _both_signs(np.sign(polarity) * (np.stack([axis, -axis], axis=1) > 0))


def _chosen(scores: Doubles, facts: Facts) -> Doubles:
    """One where the best of four scores is the true side's, its share where several are best, (N,)."""
    true = np.where(facts.horizontal, 0, 2) + (facts.sign > 0)
    best = scores >= scores.max(axis=1, keepdims=True) - _TIE
    right: Doubles = best[np.arange(len(true)), true] / best.sum(axis=1)
    return right
