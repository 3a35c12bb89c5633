from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any, BinaryIO

import faiss
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from indexer.grid import SIDE, fit_grid
from indexer.ledger import LEDGER_SCHEMA
from indexer.manifest import MANIFEST, Calibration, IndexDamaged, IndexMissing, read_manifest
from indexer.sketch import Precision, fit_sketcher
from indexer.store import LEDGER, Index, WriteFailed, open_index, write_atomically, write_index
from tests.support import DIM, TinyEncoder, vector_index

N, K = 17, 6
RNG = np.random.default_rng(0)
NATIVE = RNG.standard_normal((N, DIM)).astype(np.float32)
MOMENTS = RNG.standard_normal((N, 2, DIM)).astype(np.float32)
TOKENS = RNG.standard_normal((200, DIM)).astype(np.float32)


def ledger(n: int = N) -> pa.Table:
    rows = [
        {name: None for name in LEDGER_SCHEMA.names}
        | {"id": f"{i:016x}", "path": f"{i}.jpg", "status": "indexed"}
        for i in range(n)
    ]
    bad = {name: None for name in LEDGER_SCHEMA.names} | {
        "id": "f" * 16,
        "path": "bad.jpg",
        "status": "unreadable",
    }
    return pa.Table.from_pylist([*rows, bad | {"reason": "empty"}], schema=LEDGER_SCHEMA)


CELLS = np.random.default_rng(3).standard_normal((N, SIDE * SIDE, DIM)).astype(np.float32)
GRID = fit_grid(TOKENS, CELLS, TOKENS[:9])
GRIDS = GRID.encode(CELLS)


def write(folder: Path, *, precision: Precision = Precision.INT8, native: np.ndarray = NATIVE) -> Index:
    folder.mkdir(exist_ok=True)
    sketcher = fit_sketcher(TOKENS, MOMENTS, k=K, precision=precision)
    write_index(
        folder, image_root=folder, encoder=TinyEncoder().spec, sketcher=sketcher,
        calibration=Calibration(0.5, 1.0, 2.0, N, 64),
        vectors=[(native, sketcher.encode(MOMENTS[: len(native)]), GRIDS[: len(native)])], grid=GRID,
        ledger=ledger(len(native)),
        created="2026-01-01T00:00:00+00:00",
    )  # fmt: skip
    return open_index(folder)


@pytest.mark.parametrize("precision", Precision)
def test_what_is_written_is_what_is_read(tmp_path: Path, precision: Precision) -> None:
    index = write(tmp_path / "x", precision=precision)
    assert len(index) == N
    assert np.array_equal(index.native(), NATIVE)
    assert np.array_equal(index.sketch(), index.sketcher.encode(MOMENTS))
    assert np.array_equal(index.sketch(np.array([3, 1])), index.sketcher.encode(MOMENTS)[[3, 1]])
    assert np.array_equal(index.grid(), GRIDS)
    assert index.ledger.num_rows == N + 1
    assert index.images["path"].to_pylist() == [f"{i}.jpg" for i in range(N)]
    assert index.manifest.unreadable == {"empty": 1}
    assert index.manifest.encoder == TinyEncoder().spec
    assert not index.native().flags.writeable


@pytest.mark.parametrize("precision", Precision)
def test_faiss_reads_both_files_by_itself(tmp_path: Path, precision: Precision) -> None:
    index = write(tmp_path / "x", precision=precision)
    files = index.manifest.files
    native = faiss.read_index(str(index.folder / files["native"].name))
    assert np.array_equal(native.reconstruct_n(0, N), NATIVE)
    sketch = faiss.read_index(str(index.folder / files["sketch"].name))
    decoded = sketch.reconstruct_n(0, N).reshape(N, 2, K) * index.sketcher.scale
    np.testing.assert_allclose(decoded, index.sketcher.decode(index.sketch()), rtol=1e-6)


def test_the_same_content_is_the_same_bytes(tmp_path: Path) -> None:
    one, other = write(tmp_path / "x").manifest, write(tmp_path / "y").manifest
    assert {r: f for r, f in one.files.items()} == {r: f for r, f in other.files.items()}


def test_an_index_of_nothing_opens(tmp_path: Path) -> None:
    index = write(tmp_path / "x", native=NATIVE[:0])
    assert len(index) == 0
    assert index.native().shape == (0, DIM)
    assert index.sketch().shape == (0, 2, K)


@pytest.mark.parametrize("role", ["native", "sketch", "basis", "ledger"])
@pytest.mark.parametrize("damage", ["cut", "flipped", "gone"])
def test_a_damaged_file_is_refused_by_name(tmp_path: Path, role: str, damage: str) -> None:
    index = write(tmp_path / "x")
    path = index.folder / index.manifest.files[role].name
    content = bytearray(path.read_bytes())
    if damage == "gone":
        path.unlink()
    else:
        content[len(content) // 2] ^= 1
        path.write_bytes(content[:-7] if damage == "cut" else content)
    with pytest.raises(IndexDamaged, match=path.name) as caught:
        open_index(tmp_path / "x")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["manifest.json", "native-"])
@pytest.mark.parametrize("number", [errno.EACCES, errno.EMFILE])
def test_a_file_that_may_not_be_read_needs_no_new_index(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, number: int
) -> None:
    """The system's answer is feigned: where the tests run as root, it forbids nothing."""
    write(tmp_path / "x")
    real = Path.open

    def refused(path: Path, *arguments: Any, **options: Any) -> Any:
        if path.name.startswith(name):
            raise OSError(number, os.strerror(number), str(path))
        return real(path, *arguments, **options)

    monkeypatch.setattr(Path, "open", refused)
    with pytest.raises(
        IndexDamaged, match=f"cannot be read: came {os.strerror(number)}. See to it that"
    ) as caught:
        open_index(tmp_path / "x")
    assert "again in a new folder" not in str(caught.value)


@pytest.mark.parametrize("text", ["", "{}", "[1]", "not json", '{"format": 99}', "\x00"])
def test_a_broken_manifest_is_refused(tmp_path: Path, text: str) -> None:
    write(tmp_path / "x")
    (tmp_path / "x" / MANIFEST).write_text(text)
    with pytest.raises(IndexDamaged, match=MANIFEST):
        open_index(tmp_path / "x")


def test_a_later_format_is_named(tmp_path: Path) -> None:
    write(tmp_path / "x")
    path = tmp_path / "x" / MANIFEST
    path.write_text(json.dumps(json.loads(path.read_text()) | {"format": 7}))
    with pytest.raises(IndexDamaged, match="format 7; this version reads format 1"):
        open_index(tmp_path / "x")


@pytest.mark.parametrize("name", ["nowhere", "empty", "file"])
def test_no_index_is_one_clear_line(tmp_path: Path, name: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("x")
    with pytest.raises(IndexMissing, match=r"is not an index.*beside index"):
        open_index(tmp_path / name)


def test_a_new_generation_leaves_readers_of_the_old_one_alone(tmp_path: Path) -> None:
    old = write(tmp_path / "x")
    old_native = old.native()
    new = write(tmp_path / "x", native=NATIVE[::-1].copy())
    assert np.array_equal(old_native, NATIVE)
    assert np.array_equal(new.native(), NATIVE[::-1])
    left = {path.name for path in (tmp_path / "x").iterdir()}
    assert left == {f.name for f in new.manifest.files.values()} | {MANIFEST, LEDGER}


def test_the_ledger_has_a_plain_name_too(tmp_path: Path) -> None:
    index = write(tmp_path / "x")
    assert pq.read_table(tmp_path / "x" / LEDGER).equals(index.ledger)


def test_opening_waits_out_a_swap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The manifest is replaced, and its files dropped, after a reader has read it."""
    write(tmp_path / "x")
    stale = read_manifest(tmp_path / "x")
    write(tmp_path / "x", native=NATIVE[::-1].copy())
    answers = [stale]
    real = read_manifest
    monkeypatch.setattr("indexer.store.read_manifest", lambda f: answers.pop() if answers else real(f))
    assert np.array_equal(open_index(tmp_path / "x").native(), NATIVE[::-1])


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_atomically(path, lambda file: file.write(b"old"))

    def fail(file: BinaryIO) -> None:
        file.write(b"half")
        raise OSError(28, "No space left on device")

    with pytest.raises(WriteFailed, match=r"file cannot be written: came No space left.*Make room"):
        write_atomically(path, fail)
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["file"]
    write_atomically(path, lambda file: file.write(b"new"))
    assert [p.name for p in tmp_path.iterdir()] == ["file"]
    assert path.read_text() == "new"


def test_an_index_may_have_no_grids(tmp_path: Path) -> None:
    index = vector_index(tmp_path, 20)
    assert index.grid_sketcher is None
    assert index.grid() is None
    assert "grid" not in index.manifest.files
