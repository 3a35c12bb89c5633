"""What may be asked. Imports nothing heavy: reading a query needs no arrays."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from enum import StrEnum

from service.errors import EmptyQuery, OutOfRange, QueryTooLong

K_RANGE = (1, 1000)
OFFSET_RANGE = (0, 10**9)
WEIGHT_RANGE = (0.0, 100.0)
SCORE_RANGE = (-1000.0, 1000.0)
QUERY_LIMIT = 20_000
"""Characters of a query; a text tower reads a few hundred."""


class Mode(StrEnum):
    """How a query may be ranked."""

    AUTO = "auto"
    """By the native score, and by the relations the query names."""
    NATIVE = "native"
    """By the native score alone."""


class Readout(StrEnum):
    """What reads the places of things."""

    MOMENT = "moment"
    """The first stage alone: one inner product, the whole index."""
    CENTROID = "centroid"
    """Then the centroids of standardised maps, on the patch grids of the best candidates."""
    ADR = "adr"
    """Instead of those, the excess of an entropic coupling of cells and words, as published."""
    ADR_DENSE = "adr_dense"
    """Or a softmax over the cells, as published."""
    ADR_BACKGROUND = "adr_background"
    """Or the coupling with common nouns that compete with the query's."""


@dataclass(frozen=True, slots=True)
class SearchRequest:
    """A query and how to answer it.

    Attributes
    ----------
    query : str
        Outer white space does not count.
    k : int
        Hits to return.
    offset : int
        Hits to leave out before the first.
    cursor : str or None
        Goes on where another result ended; excludes ``offset``.
    mode : Mode
    depth : bool
        Whether in front of and behind rank, by proxy.
    weight : float
        Multiplies the spatial score.
    readout : Readout or None
        None for the centroid where the index has patch grids, else the moment.
    min_score : float or None
        Leaves out hits that score less.
    explain : bool
        Whether each hit says what each relation contributed.
    where : tuple of str
        Conditions that a picture must meet to be ranked, see :mod:`service.filters`.
    """

    query: str
    k: int = 10
    offset: int = 0
    cursor: str | None = None
    mode: Mode = Mode.AUTO
    depth: bool = False
    weight: float = 1.0
    readout: Readout | None = None
    min_score: float | None = None
    explain: bool = False
    where: tuple[str, ...] = ()

    def check(self) -> None:
        """Hold every number against its range.

        Raises
        ------
        OutOfRange
        """
        _check_range("k", self.k, K_RANGE)
        _check_range("offset", self.offset, OFFSET_RANGE)
        _check_range("weight", self.weight, WEIGHT_RANGE)
        if self.min_score is not None:
            _check_range("min_score", self.min_score, SCORE_RANGE)


def clean_query(query: str) -> str:
    r"""Make a query fit to be read by any tokenizer.

    Outer white space goes; halves of surrogate pairs, which are no characters, become U+FFFD.

    Raises
    ------
    EmptyQuery
        Nothing visible is left.
    QueryTooLong

    Examples
    --------
    >>> clean_query("  a dog\n")
    'a dog'
    """
    text = query.encode("utf-16", "surrogatepass").decode("utf-16", "replace").strip()
    if len(text) > QUERY_LIMIT:
        raise QueryTooLong(len(text), QUERY_LIMIT)
    if all(unicodedata.category(c) in _INVISIBLE for c in text):
        raise EmptyQuery
    return text


_INVISIBLE = frozenset({"Zs", "Zl", "Zp", "Cc", "Cf"})


def _check_range(name: str, came: float, allowed: tuple[float, float]) -> None:
    if not allowed[0] <= came <= allowed[1]:
        raise OutOfRange(name, came, *allowed)
