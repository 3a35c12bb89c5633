"""A synthetic index on the disk, for what opens folders: servers and cold starts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks.synthetic import synthetic_index
from benchmarks.synthetic_grid import grids_like
from indexer.ledger import LEDGER_SCHEMA
from indexer.load import load_encoder
from indexer.manifest import Calibration
from indexer.scan import format_id
from indexer.store import write_index


def write_synthetic(folder: Path, rows: int, *, grid: bool) -> Path:
    """An index folder of random vectors that the built-in encoder will open."""
    spec = load_encoder("compact", device="cpu").spec
    index = synthetic_index(rows, spec.dim, 64)
    gridded = grids_like(index)
    blocks = (
        (
            index.vectors[part],
            index.codes[part],
            gridded.grid()[part] if grid else np.zeros((len(index.codes[part]), 0), np.uint8),
        )
        for part in (slice(start, start + 8192) for start in range(0, rows, 8192))
    )
    numbers = np.sort(np.random.default_rng(0).choice(2**62, rows, replace=False)).tolist()
    columns = {
        "id": [format_id(number) for number in numbers],
        "path": [f"{n:07}.jpg" for n in range(rows)],
        "status": ["indexed"] * rows,
    }
    ledger = pa.table(
        [
            pa.array(columns[field.name], field.type) if field.name in columns else pa.nulls(rows, field.type)
            for field in LEDGER_SCHEMA
        ],
        schema=LEDGER_SCHEMA,
    )
    folder.mkdir(parents=True)
    write_index(
        folder,
        image_root=folder,
        encoder=spec,
        sketcher=index.sketcher,
        calibration=Calibration(4.0, 0.04, 0.01, rows, 100, rows),
        vectors=blocks,
        ledger=ledger,
        created="2025-01-01T00:00:00Z",
        grid=gridded.grid_sketcher if grid else None,
    )
    return folder
