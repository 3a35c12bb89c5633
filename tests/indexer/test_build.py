from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import indexer.workspace
from indexer.build import BuildInterrupted, BuildRefused, Progress
from indexer.build import build_index as build_in_processes
from indexer.encoder import EncoderMismatch, ImageFeatures, Pixels
from indexer.errors import UnusableFolder
from indexer.manifest import IndexDamaged
from indexer.sketch import Precision
from indexer.sources import NoImages
from indexer.store import Index, open_index
from indexer.workspace import OtherSketch
from tests.support import COLOURS, TinyEncoder

ROOT = Path(__file__).resolve().parents[2]

build_index = partial(build_in_processes, workers=0)


def paint(path: Path, seed: int) -> None:
    """Two coloured squares in places that depend on the seed."""
    rng = np.random.default_rng(seed)
    picture = Image.new("RGB", (64, 64), (238, 238, 238))
    for colour in rng.permutation(list(COLOURS.values()))[:2]:
        x, y = (int(v) * 8 for v in rng.integers(0, 6, 2))
        picture.paste(tuple(int(c) for c in colour), (x, y, x + 16, y + 16))
    path.parent.mkdir(parents=True, exist_ok=True)
    picture.save(path)


def gallery(folder: Path, count: int, start: int = 0) -> Path:
    for seed in range(start, start + count):
        paint(folder / f"{seed % 3}" / f"{seed}.png", seed)
    return folder


class Counting(TinyEncoder):
    """Counts pictures, and can be told to stop like a user or to die."""

    def __init__(self, stop_after: int | None = None) -> None:
        super().__init__()
        self.pictures = 0
        self.stop_after = stop_after

    def encode_images(self, batch: Sequence[Pixels]) -> ImageFeatures:
        if self.stop_after is not None and self.pictures >= self.stop_after:
            raise KeyboardInterrupt
        self.pictures += len(batch)
        return super().encode_images(batch)


def same(one: Index, other: Index) -> bool:
    return (
        one.ledger.equals(other.ledger)
        and np.array_equal(one.native(), other.native())
        and np.array_equal(one.sketch(), other.sketch())
        and one.manifest.calibration == other.manifest.calibration
    )


@pytest.mark.parametrize("count", [1, 2, 16, 17])
def test_small_folders(tmp_path: Path, count: int) -> None:
    summary = build_index(gallery(tmp_path / "in", count), tmp_path / "out", TinyEncoder())
    index = open_index(tmp_path / "out")
    assert len(index) == summary.indexed == summary.encoded == count
    assert index.images["id"].to_pylist() == sorted(index.images["id"].to_pylist())
    np.testing.assert_allclose(np.linalg.norm(index.native(), axis=1), 1, atol=1e-6)
    assert not (tmp_path / "out" / "build").exists()


def test_progress_counts_up_to_the_whole(tmp_path: Path) -> None:
    seen: list[Progress] = []
    build_index(gallery(tmp_path / "in", 20), tmp_path / "out", TinyEncoder(), batch=8, progress=seen.append)
    assert [p.done for p in seen] == [8, 16, 20]
    assert seen[-1].seconds_left == 0
    assert all(p.total == 20 for p in seen)


def test_a_second_run_encodes_nothing_and_writes_nothing(tmp_path: Path) -> None:
    images, out = gallery(tmp_path / "in", 9), tmp_path / "out"
    build_index(images, out, TinyEncoder())
    before = {p.name: p.stat().st_mtime_ns for p in out.iterdir()}
    encoder = Counting()
    summary = build_index(images, out, encoder)
    assert encoder.pictures == 0
    assert (summary.reused, summary.encoded, summary.removed) == (9, 0, 0)
    assert {p.name: p.stat().st_mtime_ns for p in out.iterdir()} == before


def test_additions_removals_and_changes_cost_what_they_are(tmp_path: Path) -> None:
    images, out = gallery(tmp_path / "in", 12), tmp_path / "out"
    build_index(images, out, TinyEncoder())
    old = open_index(out)
    gallery(images, 3, start=100)
    (images / "0" / "0.png").unlink()
    changed = images / "1" / "1.png"
    stamp = changed.stat()
    paint(changed, 999)
    os.utime(changed, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    encoder = Counting()
    summary = build_index(images, out, encoder)
    assert encoder.pictures == summary.encoded == 4
    assert (summary.indexed, summary.reused, summary.removed) == (14, 10, 1)
    new = open_index(out)
    assert new.manifest.calibration == old.manifest.calibration
    fresh = {p: v for p, v in zip(new.images["path"].to_pylist(), new.native(), strict=True)}
    stale = {p: v for p, v in zip(old.images["path"].to_pylist(), old.native(), strict=True)}
    assert not np.array_equal(fresh["1/1.png"], stale["1/1.png"])
    assert all(np.array_equal(fresh[p], stale[p]) for p in stale if p not in ("1/1.png", "0/0.png"))


@pytest.mark.parametrize("stop_after", [0, 4, 8, 16, 24])
def test_an_interrupted_build_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stop_after: int
) -> None:
    monkeypatch.setattr(indexer.workspace, "SAMPLE_IMAGES", 8)
    monkeypatch.setattr(indexer.workspace, "SHARD_IMAGES", 4)
    images = gallery(tmp_path / "in", 30)
    build_index(images, tmp_path / "calm", TinyEncoder(), batch=4)
    with pytest.raises(BuildInterrupted, match=r"of 30 files.*Run the same command again"):
        build_index(images, tmp_path / "out", Counting(stop_after), batch=4)
    encoder = Counting()
    summary = build_index(images, tmp_path / "out", encoder, batch=4)
    assert encoder.pictures == 30 - stop_after
    assert summary.indexed == 30
    assert same(open_index(tmp_path / "out"), open_index(tmp_path / "calm"))


def test_a_killed_build_goes_on(tmp_path: Path) -> None:
    """SIGKILL, nothing cleaned up: the lock is free, no picture is lost or twice there."""
    images = gallery(tmp_path / "in", 40)
    script = f"""
import indexer.build, indexer.workspace, os, signal
from pathlib import Path
from tests.support import TinyEncoder
indexer.workspace.SAMPLE_IMAGES, indexer.workspace.SHARD_IMAGES = 8, 4
def progress(p):
    if p.done >= 20: os.kill(os.getpid(), signal.SIGKILL)
images, out = Path({str(images)!r}), Path({str(tmp_path / "out")!r})
indexer.build.build_index(images, out, TinyEncoder(), batch=4, progress=progress)
"""
    died = subprocess.run([sys.executable, "-c", script], cwd=ROOT, check=False)
    assert died.returncode == -9
    for hidden in (".DS_Store", "build/.DS_Store"):
        (tmp_path / "out" / hidden).touch()
    encoder = Counting()
    build_index(images, tmp_path / "out", encoder, batch=4)
    assert encoder.pictures == 20
    ids = open_index(tmp_path / "out").images["id"].to_pylist()
    assert len(ids) == len(set(ids)) == 40


def test_bad_files_are_counted_and_named(tmp_path: Path) -> None:
    images = gallery(tmp_path / "in", 5)
    (images / "empty.jpg").touch()
    (images / "text.jpg").write_text("hello")
    (images / "cut.png").write_bytes((images / "0" / "0.png").read_bytes()[:60])
    (images / "dangling.jpg").symlink_to("nowhere")
    (images / "loop").symlink_to(".")
    summary = build_index(images, tmp_path / "out", TinyEncoder())
    assert summary.indexed == 5
    assert summary.unreadable["empty"] == ("empty.jpg",)
    assert summary.unreadable["not_an_image"] == ("text.jpg",)
    assert summary.unreadable["missing"] == ("dangling.jpg",)
    assert sum(map(len, summary.unreadable.values())) == 4
    rows = {r["path"]: r for r in open_index(tmp_path / "out").ledger.to_pylist()}
    assert len(rows) == 9
    assert all(rows[p]["detail"] for paths in summary.unreadable.values() for p in paths)


def test_the_index_may_lie_among_the_pictures(tmp_path: Path) -> None:
    images = gallery(tmp_path / "in", 4)
    build_index(images, images / "index", TinyEncoder())
    paint(images / "new.png", 77)
    summary = build_index(images, images / "index", TinyEncoder())
    assert (summary.indexed, summary.encoded) == (5, 1)


def test_refusals_name_both_sides(tmp_path: Path) -> None:
    images, out = gallery(tmp_path / "in", 3), tmp_path / "out"
    build_index(images, out, TinyEncoder(), k=4)
    with pytest.raises(EncoderMismatch, match=r"tiny \(random:0\), not with tiny \(random:1\)"):
        build_index(images, out, TinyEncoder(seed=1))
    with pytest.raises(OtherSketch, match="expected k 4, int8, came k 9, fp16"):
        build_index(images, out, TinyEncoder(), k=9, precision=Precision.FP16)
    with pytest.raises(BuildRefused, match=r"holds something else.*Choose a new folder"):
        build_index(images, images, TinyEncoder())
    with pytest.raises(UnusableFolder):
        build_index(tmp_path / "nowhere", tmp_path / "out2", TinyEncoder())
    (tmp_path / "empty").mkdir()
    with pytest.raises(NoImages, match="no pictures in"):
        build_index(tmp_path / "empty", tmp_path / "out2", TinyEncoder())
    (tmp_path / "empty" / "x.jpg").touch()
    with pytest.raises(NoImages, match="could be read: came 1 empty"):
        build_index(tmp_path / "empty", tmp_path / "out2", TinyEncoder())
    native = next(out.glob("native-*"))
    native.write_bytes(native.read_bytes()[:-1])
    with pytest.raises(IndexDamaged):
        build_index(images, out, TinyEncoder())


def test_more_components_than_the_embedding_has_are_all_of_them(tmp_path: Path) -> None:
    images, out = gallery(tmp_path / "in", 3), tmp_path / "out"
    for _ in range(2):
        build_index(images, out, TinyEncoder(), k=2 * TinyEncoder().spec.dim)
        assert open_index(out).manifest.k == TinyEncoder().spec.dim


def test_a_second_builder_is_refused(tmp_path: Path) -> None:
    images, out = gallery(tmp_path / "in", 3), tmp_path / "out"

    def intrude(_: Progress) -> None:
        with pytest.raises(BuildRefused, match="another build is writing"):
            build_index(images, out, TinyEncoder())

    build_index(images, out, TinyEncoder(), progress=intrude)


def test_moved_pictures_are_found_again_by_content(tmp_path: Path) -> None:
    """The root may move: relative paths are the names."""
    images, out = gallery(tmp_path / "in", 4), tmp_path / "out"
    build_index(images, out, TinyEncoder())
    shutil.move(images, tmp_path / "moved")
    encoder = Counting()
    build_index(tmp_path / "moved", out, encoder)
    assert encoder.pictures == 0
    assert open_index(out).manifest.image_root == str(tmp_path / "moved")


# Folders of someone else -----------------------------------------------------------------------------------


def content_of(folder: Path) -> dict[str, bytes]:
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


@pytest.mark.parametrize(
    ("names", "came"),
    [
        (["build/keep/thesis.txt", "film.mkv.part", "images-2023.parquet", "src/m.py"], "build/keep and 3 more"),
        (["build/main.o"], "build/main.o"),
        (["build/basis.safetensors"], "build/basis.safetensors"),
        (["build"], "build"),
        (["images.parquet"], "images.parquet"),
        (["images-202311302359.parquet", "native.faiss.part"], "images-202311302359.parquet and 1 more"),
        (["manifest.json", "film.mkv.part"], r"manifest.json is not a manifest as this version writes it"),
    ],
)  # fmt: skip
def test_what_no_build_wrote_is_refused_and_stays(tmp_path: Path, names: list[str], came: str) -> None:
    images, out = gallery(tmp_path / "in", 3), tmp_path / "out"
    for name in names:
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        (out / name).write_text("{}")
    before = content_of(out)
    with pytest.raises(BuildRefused, match=f"holds something else.*came .*{came}.*Choose a new folder"):
        build_index(images, out, TinyEncoder())
    assert content_of(out) == before


def test_what_lies_beside_an_index_stays(tmp_path: Path) -> None:
    images, out = gallery(tmp_path / "in", 3), tmp_path / "out"
    build_index(images, out, TinyEncoder())
    notes = {"film.mkv.part": b"film", "images-202311302359.parquet": b"table", "src/m.py": b"code"}
    (out / "src").mkdir()
    for name, content in notes.items():
        (out / name).write_bytes(content)
    paint(images / "new.png", 77)
    assert build_index(images, out, TinyEncoder()).encoded == 1
    assert content_of(out).items() > notes.items()
    assert len(list(out.glob("native-*"))) == 1
    (out / "build").mkdir()
    (out / "build" / "main.o").touch()
    with pytest.raises(BuildRefused, match=r"came build/main\.o"):
        build_index(images, out, TinyEncoder())


@pytest.mark.parametrize(
    "made", [[], [".lock"], ["build"], [".lock", "build", "build/sample.safetensors.part"]]
)
def test_a_build_killed_at_its_very_start_goes_on(tmp_path: Path, made: list[str]) -> None:
    images, out = gallery(tmp_path / "in", 3), tmp_path / "out"
    out.mkdir()
    for name in made:
        (out / name).touch() if name.startswith((".", "build/")) else (out / name).mkdir()
    assert build_index(images, out, TinyEncoder()).indexed == 3
    assert not list(out.rglob("*.part"))
