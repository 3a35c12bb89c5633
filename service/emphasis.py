"""How much of a sentence is about place.

A query that names two things and where they stand is all about place; a caption that happens to contain a relation
mostly says other things, and ranking it by place alone loses the picture it describes. So the spatial score weighs the
less, the more content words a sentence has beside its relations.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from parser.relation import SpatialRelation

REST = 2
"""Content words beside the relations that halve the weight; chosen on captions of coco/train, see the log of choices
in benchmarks.spatial."""

_WORD = re.compile(r"[^\W\d_]+")
_SILENT = frozenset(
    "a an the this that these those some any of in on at to with and or is are be being was were there it its his her "
    "their them which who while by for from as very just directly immediately slightly far "
    "left right above below over under underneath beneath top atop onto upper lower bottom corner center centre middle "
    "side hand front behind back next "
    "sit sits sitting stand stands standing lie lies lying lay lays laying rest rests resting placed stacked perched "
    "hanging flying located positioned "
    "photo photos photograph picture pictures image images shot view find show me please want looking search".split()
)
"""Words that carry a relation, or carry nothing."""


def emphasis(query: str, relations: Sequence[SpatialRelation]) -> float:
    """Share of the spatial weight that a sentence gets.

    Parameters
    ----------
    query : str
    relations : sequence of SpatialRelation
        Those that rank.

    Returns
    -------
    share : float
        1 where nothing but the relations is said, ``1 / (1 + n / REST)`` with n content words more.

    Examples
    --------
    >>> from parser.relation import Relation
    >>> cup = SpatialRelation("cup", Relation.LEFT_OF, "laptop")
    >>> emphasis("find a cup to the left of a laptop", [cup])
    1.0
    >>> emphasis("a girl laughs at a cup to the left of a laptop", [cup])
    0.5
    """
    said = {
        word for one in relations for phrase in (one.subject, one.object or "") for word in _words(phrase)
    }
    more = sum(word not in said and word not in _SILENT for word in _words(query))
    return 1.0 / (1.0 + more / REST)


def _words(text: str) -> list[str]:
    return _WORD.findall(text.lower())
