"""Linear probes that never see, in training, a thing they are tested on.

A probe is ridge regression onto +1 and -1, in its dual form: it needs only the inner products of features, so that the
product of a picture's and a text's features costs no more than either. What may train for what is a table, because
pairs of things that share nothing cannot always be dealt out to folds.

Axes: N samples, D features.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Doubles = NDArray[np.float64]
Bools = NDArray[np.bool_]

STRENGTHS = (1e-3, 1e-2, 1e-1, 1.0, 10.0)
"""Ridge penalties, in units of the mean squared length of the features."""
_TIE = 1e-9


def gram(*features: NDArray[np.floating]) -> Doubles:
    """Inner products of samples whose features are the products of all given ones.

    Parameters
    ----------
    features : arrays (N, D), each with its own D
        With two of them a linear probe on the result is bilinear: a matrix between picture and text.

    Returns
    -------
    gram : (N, N) float64

    Examples
    --------
    >>> gram(np.array([[1.0, 2.0], [3.0, 0.0]]), np.array([[2.0], [-1.0]])).tolist()
    [[20.0, -6.0], [-6.0, 9.0]]
    """
    product: Doubles = np.array(1.0)
    for each in features:
        double = np.asarray(each, dtype=np.float64)
        product = product * (double @ double.T)
    return product


def told(difference: NDArray[np.floating], larger: NDArray[np.floating]) -> dict[str, Doubles]:
    """Inner products of what a probe may be told of two things beside a picture, to be multiplied with the picture's.

    Which of two things is the first is a matter of speaking, so a probe of the picture alone has nothing to go by with
    things it never saw. It is told the two words, or which thing is the larger, or both.

    Parameters
    ----------
    difference : (N, D)
        The first word less the second.
    larger : (N,)
        +1 where the first thing is the larger, else -1.

    Returns
    -------
    products : dict
        ``words``, ``size`` and ``both``, (N, N) each.
    """
    words = gram(difference)
    words /= max(np.trace(words) / len(words), np.finfo(np.float64).tiny)
    size = gram(np.asarray(larger)[:, None])
    return {"words": words, "size": size, "both": words + size}


def centred(features: NDArray[np.floating]) -> Doubles:
    """Features less their mean over all samples, (N, D)."""
    double = np.asarray(features, np.float64)
    return np.asarray(double - double.mean(axis=0))


def flip_odd(pooled: NDArray[np.floating], mirrored: NDArray[np.floating]) -> Doubles:
    """What a mirror changes in a vector: (e(I) - e(mirror I)) / 2, (N, D). Zero where an encoder cannot tell."""
    return (np.asarray(pooled, np.float64) - np.asarray(mirrored, np.float64)) / 2


def orbit_odd(vectors: NDArray[np.floating]) -> Doubles:
    """What half a turn changes: (e_t - e_{t+2}) / 2 for four vectors an orbit, (N, D) in the same order."""
    turns = np.asarray(vectors, np.float64).reshape(-1, 4, np.shape(vectors)[-1])
    return np.asarray((turns - np.roll(turns, -2, axis=1)).reshape(np.shape(vectors)) / 2)


def orbit_even(vectors: NDArray[np.floating]) -> Doubles:
    """What a quarter turn changes and half a turn does not: (e_t - e_{t+1} + e_{t+2} - e_{t+3}) / 4, (N, D)."""
    turns = np.asarray(vectors, np.float64).reshape(-1, 4, np.shape(vectors)[-1])
    signed = turns * np.array([1.0, -1.0, 1.0, -1.0])[:, None]
    even = signed.mean(axis=1, keepdims=True) * np.array([1.0, -1.0, 1.0, -1.0])[:, None]
    return np.asarray(even.reshape(np.shape(vectors)))


def cross_fit(
    products: Doubles,
    target: Doubles,
    allowed: Bools,
    *,
    strengths: Sequence[float] = STRENGTHS,
) -> Doubles:
    """Score every sample by a probe that was fitted to others.

    Parameters
    ----------
    products : (N, N) float64
        From :func:`gram`.
    target : (N,) float64
        +1 or -1.
    allowed : (N, N) bool
        Row: the sample scored; column: whether that one may train for it. A sample for which none may scores 0.
    strengths : sequence of float
        Where there are several, each fit takes the one that does best on its own training samples, scored by the
        same rule among themselves.

    Returns
    -------
    scores : (N,) float64
        Their signs are the decisions.
    """
    scores = np.zeros(len(target))
    rows, group = np.unique(allowed, axis=0, return_inverse=True)
    for number, trains in enumerate(rows):
        train, test = np.flatnonzero(trains), np.flatnonzero(group.ravel() == number)
        if len(train) < 2:
            continue
        strength = strengths[0]
        if len(strengths) > 1:
            _, strength = choose_strength(
                products[np.ix_(train, train)],
                target[train],
                allowed[np.ix_(train, train)],
                strengths=strengths,
            )
        scores[test] = ridge(products, target, train, test, strength)
    return scores


def choose_strength(
    products: Doubles,
    target: Doubles,
    allowed: Bools,
    *,
    strengths: Sequence[float] = STRENGTHS,
) -> tuple[float, float]:
    """The penalty that decides most of some samples rightly, among equals the strongest; how many it does first."""
    right = [
        right_share(cross_fit(products, target, allowed, strengths=[one]), target).mean() for one in strengths
    ]
    return max(zip(map(float, right), strengths, strict=True))


def right_share(scores: Doubles, target: Doubles) -> Doubles:
    """One where a score has the target's sign, a half where it decides nothing, (N,)."""
    margin = scores * target
    return 0.5 * (1.0 + np.sign(np.where(np.abs(margin) < _TIE, 0.0, margin)))


def ridge(
    products: Doubles,
    target: Doubles,
    train: NDArray[np.intp],
    test: NDArray[np.intp],
    strength: float,
) -> Doubles:
    """Fit a probe to some samples and score others.

    Parameters
    ----------
    products : (N, N) float64
        From :func:`gram`.
    target : (N,) or (N, C) float64
        One column a probe.
    train, test : rows
    strength : float

    Returns
    -------
    scores : (len(test),) or (len(test), C) float64
    """
    own, across = products[np.ix_(train, train)], products[np.ix_(test, train)]
    scale = np.trace(own) / len(own)
    if scale <= np.finfo(np.float64).tiny:  # nothing varies, nothing can be said
        return np.zeros((len(test), *target.shape[1:]))
    return np.asarray(across @ np.linalg.solve(own + strength * scale * np.eye(len(own)), target[train]))
