"""From the relations of a query to one direction in sketch space.

Pure functions. The displacement of an image is the inner product of its sketch with that direction, so
relations add, and scoring stays one inner product. The frame is the viewer's image plane: x runs right, y
runs down.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import sqrt

import numpy as np
from numpy.typing import NDArray

from indexer.sketch import Sketcher
from parser.relation import Position, Relation, SpatialRelation

Floats = NDArray[np.float32]

_DIAGONAL = 1 / sqrt(2)

UNIT: Mapping[Relation | Position, tuple[float, float]] = {
    Relation.LEFT_OF: (-1.0, 0.0),
    Relation.RIGHT_OF: (1.0, 0.0),
    Relation.ABOVE: (0.0, -1.0),
    Relation.BELOW: (0.0, 1.0),
    # No depth in a moment: what stands nearer usually stands lower in a photograph.
    Relation.IN_FRONT_OF: (0.0, 1.0),
    Relation.BEHIND: (0.0, -1.0),
    Position.AT_LEFT: (-1.0, 0.0),
    Position.AT_RIGHT: (1.0, 0.0),
    Position.AT_TOP: (0.0, -1.0),
    Position.AT_BOTTOM: (0.0, 1.0),
    Position.AT_TOP_LEFT: (-_DIAGONAL, -_DIAGONAL),
    Position.AT_TOP_RIGHT: (_DIAGONAL, -_DIAGONAL),
    Position.AT_BOTTOM_LEFT: (-_DIAGONAL, _DIAGONAL),
    Position.AT_BOTTOM_RIGHT: (_DIAGONAL, _DIAGONAL),
}
"""Direction of the displacement, (x, y), unit length. The centre has none: a first moment is zero there."""


@dataclass(frozen=True, slots=True)
class Selection:
    """Which relations of a query move the ranking.

    Attributes
    ----------
    ranked : tuple of SpatialRelation
        In the order of the text.
    warnings : tuple of str
        What the parser, which speaks of depth and of two equal sides, cannot know: sentences for the user.
    """

    ranked: tuple[SpatialRelation, ...]
    warnings: tuple[str, ...]


def select(relations: Sequence[SpatialRelation], *, depth: bool = False, centre: bool = False) -> Selection:
    """Choose the relations that can be scored.

    Parameters
    ----------
    relations : sequence of SpatialRelation
    depth : bool
        Whether in front of and behind rank, by the vertical axis as their proxy.
    centre : bool
        Whether what reads the places knows the middle of the picture; a moment does not.
    """
    ranked, warnings = [], []
    for one in relations:
        if one.relation not in UNIT and not centre:
            warnings.append(f"{say(one)}: a first moment is zero at the centre, so this does not rank yet.")
        elif one.subject != one.object and (depth or not is_proxy(one)):
            ranked.append(one)
    return Selection(tuple(ranked), tuple(warnings))


def is_proxy(relation: SpatialRelation) -> bool:
    """Whether the score of a relation only stands for what was asked."""
    return isinstance(relation.relation, Relation) and relation.relation.is_depth


def say(relation: SpatialRelation) -> str:
    """Read a relation aloud.

    Examples
    --------
    >>> say(SpatialRelation("cup", Relation.LEFT_OF, "laptop"))
    'cup left of laptop'
    """
    words = relation.relation.value.replace("_", " ")
    return (
        f"{relation.subject} {words} {relation.object}" if relation.object else f"{relation.subject} {words}"
    )


def phrases(relations: Sequence[SpatialRelation]) -> tuple[str, ...]:
    """Every subject and object, once, in order of appearance."""
    return tuple(dict.fromkeys(p for r in relations for p in (r.subject, r.object) if p is not None))


def displacement_direction(
    relations: Sequence[SpatialRelation], vectors: Mapping[str, Floats], sketcher: Sketcher
) -> NDArray[np.float64]:
    """Direction of sketch space along which an image is displaced as a query asks.

    Parameters
    ----------
    relations : sequence of SpatialRelation
        Only such as :func:`select` lets through.
    vectors : mapping of str to (D,) float32
        Unit text vectors of all :func:`phrases`.
    sketcher : Sketcher
        Of the index.

    Returns
    -------
    direction : (2, K) float64
        ``sum_r u_r B(t_s - t_o)``, or ``u_r B t_s`` for a position; x then y. Times the weight and lambda it
        is the spatial part of the joint query.

    Notes
    -----
    The basis is applied by plain sums and not by a matrix product, whose last bits depend on its shape.
    Swapping subject and object flips every sign exactly, and so does the inverse relation.
    """
    basis = sketcher.components.astype(np.float64)
    direction = np.zeros((2, len(basis)))
    for one in relations:
        difference = vectors[one.subject].astype(np.float64)
        if one.object is not None:
            difference = difference - vectors[one.object]
        direction += np.multiply.outer(UNIT[one.relation], (basis * difference).sum(axis=-1))
    return direction
