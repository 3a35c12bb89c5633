"""Filters: which pictures a search may show, by what the index's table says of them.

A condition is ``column operator value``, for example ``year>=2020`` or ``camera=Nikon``. The columns are those of the
ledger and those that came with a table of pictures; a value is read as the column's kind. A picture of which a column
says nothing meets no condition on it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from service.canonical import Rows
from service.errors import SearchError

CONDITIONS_LIMIT = 16
CONDITION_LIMIT = 1000
"""Characters of a condition."""
_OPERATORS: Mapping[str, Callable[[Any, Any], Any]] = {
    "=": pc.equal,
    "!=": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}
_CONDITION = re.compile(r"([^<>=!]+)(<=|>=|!=|=|<|>)(.*)", re.DOTALL)
"""White space is stripped afterwards: a pattern that looks for it tries every split of a run of it."""


class BadFilter(SearchError):
    """A condition that cannot be read, or that the index's table cannot meet."""

    title = "A filter was refused"

    def __init__(self, text: str, reason: str, allowed: Sequence[str] = ()) -> None:
        listed = f": {', '.join(allowed)}" if allowed else ""
        super().__init__(f"{text!r}: {reason}{listed}", field="where", came=text, allowed=allowed)


@dataclass(frozen=True, slots=True)
class Condition:
    """What one column must say."""

    column: str
    operator: str
    value: str


def read_condition(text: str) -> Condition:
    """Read a condition.

    Raises
    ------
    BadFilter

    Examples
    --------
    >>> read_condition("year >= 2020")
    Condition(column='year', operator='>=', value='2020')
    """
    if len(text) > CONDITION_LIMIT:
        raise BadFilter(
            f"{text[:40]} ...",
            f"a condition of {len(text)} characters, where at most {CONDITION_LIMIT} are read",
        )
    found = _CONDITION.fullmatch(text)
    column, operator, value = (part.strip() for part in found.groups()) if found else ("", "", "")
    if not column:
        raise BadFilter(
            text,
            "a condition is a column, an operator and a value, as in year>=2020; operators are",
            [*_OPERATORS],
        )
    return Condition(column, operator, value)


def rows_where(table: pa.Table, conditions: Sequence[str]) -> Rows:
    """Rows of a table that meet all conditions.

    Parameters
    ----------
    table : pyarrow.Table
        N rows.
    conditions : sequence of str

    Returns
    -------
    rows : (R,) int64
        Ascending.

    Raises
    ------
    BadFilter
        Not a condition, no such column, or a value that is not of its kind.
    """
    met = np.ones(len(table), bool)
    for text in conditions:
        one = read_condition(text)
        if one.column not in table.column_names:
            raise BadFilter(text, f"no column is called {one.column!r}; there are", table.column_names)
        column = table[one.column]
        try:  # half a character, which is no text to Arrow, equals nothing either
            value = pa.scalar(one.value).cast(column.type)
            compared = _OPERATORS[one.operator](column, value)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError, UnicodeEncodeError):
            raise BadFilter(text, f"{one.column} holds {column.type}, and cannot be compared so") from None
        met &= pc.fill_null(compared, False).to_numpy(zero_copy_only=False)
    rows: Rows = np.flatnonzero(met)
    return rows
