from __future__ import annotations

import os
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from indexer.build import build_index
from indexer.errors import UnreadableImage, UnreadableReason, UnusableFolder
from indexer.scan import image_id
from indexer.sources import BadSource, NoImages, find_original, find_pictures, open_original
from indexer.store import open_index
from indexer.verify import verify_index
from tests.indexer.test_build import Counting, gallery
from tests.support import TinyEncoder


def paths(source: Path, **options: object) -> set[str]:
    found = find_pictures(source, **options)
    ids = [file.id for file in found.files]
    assert ids == sorted(set(ids)) == [image_id(file.relative_path) for file in found.files]
    return {file.relative_path for file in found.files}


def pack(images: Path, shard: Path) -> Path:
    shard.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(shard, "w") as archive:
        for path in sorted(images.rglob("*.png")):
            archive.add(path, path.relative_to(images))
            caption = path.with_suffix(".txt")
            caption.write_text("a caption")
            archive.add(caption, caption.relative_to(images))
            caption.unlink()
    return shard


def test_every_source_names_the_same_pictures(tmp_path: Path) -> None:
    """One index goes from a folder to a list to a table, and encodes nothing again."""
    images = gallery(tmp_path / "in", 9)
    names = sorted(paths(images))
    (images / "list.txt").write_text("\n".join([*names, names[0], ""]))
    (images / "absolute.txt").write_text("".join(f"{images / name}\r\n" for name in names))
    pyarrow.csv.write_csv(pa.table({"path": names}), images / "table.csv")
    pq.write_table(pa.table({"path": pa.array(names, pa.large_string())}), images / "table.parquet")
    build_index(images, tmp_path / "out", TinyEncoder(), workers=0)
    before = open_index(tmp_path / "out").manifest
    for source in ("list.txt", "absolute.txt", "table.csv", "table.parquet"):
        assert paths(images / source) == set(names)
        encoder = Counting()
        build_index(images / source, tmp_path / "out", encoder, workers=0)
        assert encoder.pictures == 0
        assert open_index(tmp_path / "out").manifest == before


def test_a_list_may_lie_elsewhere_and_hold_any_name(tmp_path: Path) -> None:
    odd = [b"caf\xe9.png", b" spaces .png", b"#hash.png", b"-dash.png", b"no-suffix"]
    (tmp_path / "in").mkdir()
    for name in odd:
        (tmp_path / "in" / os.fsdecode(name)).touch()
    listed = tmp_path / "lists" / "all.lst"
    listed.parent.mkdir()
    listed.write_bytes(b"\n".join([*odd, b"gone.png", b"."]) + b"\n")
    with pytest.raises(BadSource, match="outside"):
        find_pictures(listed, root=tmp_path / "in")
    listed.write_bytes(b"\n".join([*odd, b"gone.png"]) + b"\n")
    found = {file.relative_path: file for file in find_pictures(listed, root=tmp_path / "in").files}
    assert set(found) == {"caf%E9.png", " spaces .png", "#hash.png", "-dash.png", "no-suffix", "gone.png"}
    assert found["gone.png"].problem is UnreadableReason.MISSING
    for wrong in ("../outside.png", "/etc/passwd"):
        listed.write_text(wrong)
        with pytest.raises(BadSource, match=r"outside.*--root"):
            find_pictures(listed, root=tmp_path / "in")


def test_a_list_may_begin_with_a_mark_and_name_a_picture_twice(tmp_path: Path) -> None:
    images = gallery(tmp_path / "in", 2)
    pack(images, images / "a.tar")
    lines = ["0/0.png", "./0/0.png", "1/../0/0.png", "1/1.png", "a.tar", "./a.tar"]
    (images / "list.txt").write_text("\n".join(lines), encoding="utf-8-sig")
    assert paths(images / "list.txt") == {"0/0.png", "1/1.png", "a.tar/0/0.png", "a.tar/1/1.png"}


def test_columns_of_a_table_go_into_the_ledger(tmp_path: Path) -> None:
    images = gallery(tmp_path / "in", 6)
    (images / "bad.png").touch()
    names = sorted(paths(images))
    year = list(range(2000, 2000 + len(names)))
    table = pa.table({
        "year": year, "path": names, "city": pa.array([f"c{n % 2}" for n in year]).dictionary_encode(),
        "day": pa.array(year, pa.date32()), "stars": [0.5, None] * 3 + [1.0],
    })  # fmt: skip
    pq.write_table(table, images / "t.parquet")
    build_index(images / "t.parquet", tmp_path / "out", TinyEncoder(), workers=0)
    index = open_index(tmp_path / "out")
    assert index.ledger.column_names[-4:] == ["year", "city", "day", "stars"]
    by_path = {row["path"]: row for row in index.ledger.to_pylist()}
    assert {name: by_path[name]["year"] for name in names} == dict(zip(names, year, strict=True))
    assert index.images.num_rows == 6
    assert by_path["bad.png"]["status"] == "unreadable"
    # Other facts of the same pictures: written anew, nothing encoded.
    pq.write_table(table.set_column(0, "year", [[y + 1 for y in year]]), images / "t.parquet")
    encoder = Counting()
    build_index(images / "t.parquet", tmp_path / "out", encoder, workers=0)
    assert encoder.pictures == 0
    again = {row["path"]: row["year"] for row in open_index(tmp_path / "out").ledger.to_pylist()}
    assert again == {name: y + 1 for name, y in zip(names, year, strict=True)}


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"file": ["a"]}, "no column of paths: expected path, came file"),
        ({"path": ["a.png", "a.png"]}, "names a file twice: came a.png"),
        ({"path": ["a.png", None]}, "a path is missing"),
        ({"path": [1]}, "no text"),
        ({"path": ["a.png"], "width": [1]}, "has a column of the name 'width'. Rename it"),
        ({"path": ["a.png"], "tags": [["x"]]}, r"column 'tags' cannot be kept: expected text.*Leave it out"),
        ({"path": ["../a.png"]}, "outside"),
    ],
)
def test_a_table_that_cannot_be_used_says_why(tmp_path: Path, table: dict, message: str) -> None:
    pq.write_table(pa.table(table), tmp_path / "t.parquet")
    with pytest.raises(BadSource, match=message):
        find_pictures(tmp_path / "t.parquet")


@pytest.mark.parametrize("how", ["file", "folder", "list"])
def test_tar_shards(tmp_path: Path, how: str) -> None:
    images = gallery(tmp_path / "in", 12)
    build_index(images, tmp_path / "loose", TinyEncoder(), workers=0)
    shard = pack(images, tmp_path / "shards" / "a.tar")
    (tmp_path / "shards" / "list.txt").write_text("a.tar\n")
    source = {"file": shard, "folder": shard.parent, "list": shard.parent / "list.txt"}[how]
    assert paths(source) == {f"a.tar/{path}" for path in paths(images)}
    summary = build_index(source, tmp_path / "out", TinyEncoder(), workers=1)
    assert summary.indexed == 12
    loose, packed = open_index(tmp_path / "loose"), open_index(tmp_path / "out")
    vectors = dict(zip(loose.images["path"].to_pylist(), loose.native(), strict=True))
    for path, vector in zip(packed.images["path"].to_pylist(), packed.native(), strict=True):
        assert np.array_equal(vector, vectors[path.removeprefix("a.tar/")])
    report = verify_index(tmp_path / "out", TinyEncoder(), sample=4)
    assert (report.problems, report.missing, report.embedded) == ((), 0, 4)


def test_a_folder_and_its_tar_hold_the_same_pictures(tmp_path: Path) -> None:
    """Links, hard and symbolic, and the folders that are left out."""
    images = gallery(tmp_path / "in", 3)
    first = images / "0" / "0.png"
    (images / "hard.png").hardlink_to(first)
    (images / "1" / "soft.png").symlink_to("../0/0.png")
    (images / "twice.png").symlink_to("1/soft.png")
    (images / "store").mkdir()
    shutil.copy(first, images / "store" / "object")
    (images / "of-store.png").symlink_to("store/object")
    (images / "dangling.png").symlink_to("nowhere.png")
    (images / "loop.png").symlink_to("loop.png")
    (images / "folder.png").mkdir()
    for skipped in ("@eaDir", ".hidden", "sub/__MACOSX"):
        (images / skipped).mkdir(parents=True)
        shutil.copy(first, images / skipped / "thumb.png")
    shard = tmp_path / "a.tar"
    with tarfile.open(shard, "w") as archive:
        archive.add(images, ".")
        assert any(member.islnk() for member in archive)
    loose = {file.relative_path: file for file in find_pictures(images).files}
    packed = {file.relative_path.removeprefix("a.tar/"): file for file in find_pictures(shard).files}
    assert {name: file.problem for name, file in packed.items()} == {
        name: file.problem for name, file in loose.items()
    }
    assert sum(file.problem is None for file in packed.values()) == 7
    assert all(file.detail for file in packed.values() if file.problem)
    for name in ("hard.png", "1/soft.png", "twice.png", "of-store.png"):
        picture = open_original(tmp_path, f"a.tar/{name}").image
        assert picture.tobytes() == open_original(images, "0/0.png").image.tobytes()


def test_shards_and_pictures_may_lie_in_one_folder(tmp_path: Path) -> None:
    """A picture that comes to a folder of shards takes nothing away."""
    pack(gallery(tmp_path / "in", 4), tmp_path / "shards" / "a.tar")
    build_index(tmp_path / "shards", tmp_path / "out", TinyEncoder(), workers=0)
    shutil.copy(next((tmp_path / "in").rglob("*.png")), tmp_path / "shards" / "cover.png")
    (tmp_path / "shards" / "._a.tar").write_bytes(b"what a Mac leaves")
    summary = build_index(tmp_path / "shards", tmp_path / "out", TinyEncoder(), workers=0)
    assert (summary.indexed, summary.encoded, summary.removed, summary.unreadable) == (5, 1, 0, {})


def test_an_original_is_found_again_in_its_shard(tmp_path: Path) -> None:
    images = gallery(tmp_path / "in", 3)
    shard = pack(images, tmp_path / "deep" / "a.tar")
    name = next(iter(paths(images)))
    opened = open_original(tmp_path, f"deep/a.tar/{name}")
    assert opened.image.tobytes() == open_original(images, name).image.tobytes()
    for gone in ("deep/a.tar/none.png", "deep/none.png"):
        assert find_original(tmp_path, gone).problem is UnreadableReason.MISSING
        with pytest.raises(UnreadableImage):
            open_original(tmp_path, gone)
    shard.unlink()
    assert find_original(tmp_path, f"deep/a.tar/{name}").problem is not None


def _cut(shard: Path) -> None:
    os.truncate(shard, shard.stat().st_size * 2 // 3)


def _text(shard: Path) -> None:
    shard.write_text("no archive " * 100)


def _compressed(shard: Path) -> None:
    content = shard.with_suffix("")
    shutil.make_archive(str(content), "gztar", shard.parent, "list.txt")
    content.with_suffix(".tar.gz").replace(shard)


@pytest.mark.parametrize("damage", [_cut, _text, _compressed])
def test_a_damaged_shard_is_in_the_ledger_with_what_it_lost(tmp_path: Path, damage: Callable) -> None:
    shards = tmp_path / "shards"
    pack(gallery(tmp_path / "in", 12), shards / "bad.tar")
    pack(gallery(tmp_path / "in2", 4), shards / "good.tar")
    (shards / "list.txt").write_text("bad.tar\ngood.tar\n")
    damage(shards / "bad.tar")
    summary = build_index(shards / "list.txt", tmp_path / "out", TinyEncoder(), workers=0)
    lost = [path for paths in summary.unreadable.values() for path in paths]
    assert any(path.startswith("bad.tar") for path in lost)
    assert 4 < summary.indexed < 16 if damage is _cut else summary.indexed == 4


def test_what_cannot_be_found_is_said(tmp_path: Path) -> None:
    (tmp_path / "empty.txt").touch()
    with pytest.raises(NoImages, match=r"no pictures in .*empty\.txt"):
        find_pictures(tmp_path / "empty.txt")
    for missing in ("none.txt", "none.parquet", "none.tar", "none"):
        with pytest.raises(UnusableFolder, match="nothing of that name"):
            find_pictures(tmp_path / missing)
    (tmp_path / "no.csv").write_bytes(b"\xff\xfe\0")
    with pytest.raises(BadSource, match=r"no\.csv"):
        find_pictures(tmp_path / "no.csv")
