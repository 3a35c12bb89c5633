"""Lambda: how large a displacement counts as much as a difference in native score.

Axes: N images, W words, Q pairs, D embedding, K sketch components.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from indexer.encoder import Encoder, phrase_text
from indexer.manifest import Calibration
from indexer.sketch import Codes, Sketcher

Floats = NDArray[np.float32]

PAIRS = 64
_SEED = 0
_MIN_IMAGES = 2

WORDS = tuple(
    "apple backpack ball banana basket bed bench bicycle bird boat book bottle bowl box bridge bucket "
    "building bus cake camera candle car carpet cat chair clock cloud computer couch cow cup curtain desk "
    "dog door duck elephant fence fire flag flower fork fountain glass guitar hat horse house jacket "
    "kettle keyboard kite knife ladder lamp laptop man mirror motorcycle mountain mug oven painting pan "
    "person phone piano pillow plant plate rabbit refrigerator river road rock sandwich sheep shelf shoe "
    "sink spoon statue suitcase table telephone tent tower train tree truck umbrella vase wall window "
    "woman".split()
)
"""Everyday nouns; which ones hardly matters, since only the spread of their scores is used."""


def vocabulary(encoder: Encoder) -> Floats:
    """Text vectors of everyday nouns: what a word is compared with.

    Returns
    -------
    words : (W, D) float32
        Unit rows, in the order of :data:`WORDS`.
    """
    return encoder.encode_texts([phrase_text(encoder.spec.template, word) for word in WORDS]).vectors


def calibrate(
    encoder: Encoder, native: Floats, codes: Codes, sketcher: Sketcher, words: Floats
) -> Calibration:
    """Measure lambda on a sample of the collection, with no labels.

    For random pairs of words, ``native`` is the score of "a A to the left of a B" and ``displacement`` the moment's
    answer to the same question. Each pair's spread is taken over the images, as a ranking sees it; the vertical axis
    counts as much as the horizontal one.

    Parameters
    ----------
    encoder : Encoder
    native : (N, D) float32
        Unit rows.
    codes : (N, 2, K) int8 or float16
        The sketch of the same images, as the search will see it.
    sketcher : Sketcher
    words : (W, D) float32
        From :func:`vocabulary`.

    Returns
    -------
    Calibration
        ``lam`` is 1 where fewer than two images or a flat collection leave nothing to measure: it then changes no
        ranking that the collection can show.
    """
    rng = np.random.default_rng(_SEED)
    pairs = np.array([rng.choice(len(WORDS), size=2, replace=False) for _ in range(PAIRS)])
    queries = encoder.encode_texts(
        [
            f"{phrase_text('a {}', WORDS[a])} to the left of {phrase_text('a {}', WORDS[b])}"
            for a, b in pairs.tolist()
        ]
    ).vectors
    directions = sketcher.project(words[pairs[:, 0]] - words[pairs[:, 1]])
    native_std = _spread(native @ queries.T)
    moments = sketcher.decode(codes)
    displacement_std = _spread(
        np.concatenate([moments[:, 0] @ directions.T, moments[:, 1] @ directions.T], axis=1)
    )
    measurable = len(native) >= _MIN_IMAGES and native_std > 0 and displacement_std > 0
    return Calibration(
        lam=native_std / displacement_std if measurable else 1.0,
        native_std=native_std,
        displacement_std=displacement_std,
        images=len(native),
        pairs=PAIRS,
    )


def _spread(scores: Floats) -> float:
    """Root mean square over pairs (columns) of the standard deviation over images (rows)."""
    return float(np.sqrt(np.mean(np.var(scores, axis=0, dtype=np.float64)))) if len(scores) else 0.0
