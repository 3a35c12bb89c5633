"""The ledger: one row a file that looked like a picture, whatever became of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from operator import attrgetter

import pyarrow as pa

from indexer.scan import format_id, parse_id

INDEXED, UNREADABLE = "indexed", "unreadable"

LEDGER_SCHEMA = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        pa.field("path", pa.string(), nullable=False),
        pa.field("content_hash", pa.string()),
        pa.field("bytes", pa.int64()),
        pa.field("width", pa.int32()),
        pa.field("height", pa.int32()),
        pa.field("orientation", pa.int8()),
        pa.field("format", pa.string()),
        pa.field("status", pa.string(), nullable=False),
        pa.field("reason", pa.string()),
        pa.field("detail", pa.string()),
    ]
)
"""In id order. ``status`` is ``indexed`` or ``unreadable``; the n-th indexed row owns row n of the vectors. Columns
of a table of pictures follow, see `indexer.sources`."""

_ROWS_AT_ONCE = 16_384


@dataclass(frozen=True, slots=True)
class LedgerRow:
    """One row, with the image id as the number it is; the fields are those of :data:`LEDGER_SCHEMA`."""

    id: int
    path: str
    content_hash: str | None = None
    bytes: int | None = None
    width: int | None = None
    height: int | None = None
    orientation: int | None = None
    format: str | None = None
    status: str = INDEXED
    reason: str | None = None
    detail: str | None = None


_VALUES = attrgetter(*(field.name for field in fields(LedgerRow)))


def row_values(row: LedgerRow) -> tuple[object, ...]:
    """The fields of a row in order, as `LedgerRow` takes them."""
    values: tuple[object, ...] = _VALUES(row)
    return values


def to_table(rows: Sequence[LedgerRow]) -> pa.Table:
    """Rows as a table, without holding them twice as Python values."""
    parts = []
    for start in range(0, len(rows), _ROWS_AT_ONCE):
        columns = list(zip(*map(_VALUES, rows[start : start + _ROWS_AT_ONCE]), strict=True))
        columns[0] = tuple(map(format_id, columns[0]))
        arrays = [pa.array(column, field.type) for column, field in zip(columns, LEDGER_SCHEMA, strict=True)]
        parts.append(pa.RecordBatch.from_arrays(arrays, schema=LEDGER_SCHEMA))
    return pa.Table.from_batches(parts, LEDGER_SCHEMA).combine_chunks()


def from_table(table: pa.Table) -> Iterator[LedgerRow]:
    """Rows of a table; columns beyond :data:`LEDGER_SCHEMA` are left out."""
    for batch in table.select(LEDGER_SCHEMA.names).to_batches(_ROWS_AT_ONCE):
        ids, *columns = (column.to_pylist() for column in batch.columns)
        for id_, *values in zip(ids, *columns, strict=True):
            yield LedgerRow(parse_id(id_), *values)
