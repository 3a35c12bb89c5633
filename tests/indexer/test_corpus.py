"""Every odd file of the corpus through a whole build, with the value it must have at the end."""

from __future__ import annotations

import io
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from indexer.build import BuildSummary, build_index
from indexer.encoder import ImageFeatures, Pixels
from indexer.errors import UnreadableReason
from indexer.images import open_image
from indexer.scan import image_id, unescape_path
from indexer.store import Index, open_index
from indexer.verify import verify_index
from service.errors import ImageGone
from service.pictures import Pictures
from tests.corpus import CORNER_SEEN, LOSSLESS, Corpus, corner, encode, write_corpus
from tests.indexer.test_images import assert_seen
from tests.support import TinyEncoder

# Pillow warns of the damage that these files are made of.
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning:PIL", "ignore::RuntimeWarning:PIL")

STUB = b"cases/phone.heic"
"""What becomes of it depends on the extra."""


@dataclass
class Witness(TinyEncoder):
    """Keeps the pixels it is given."""

    seen: list[Pixels] = field(default_factory=list)

    def encode_images(self, batch: Sequence[Pixels]) -> ImageFeatures:
        self.seen += batch
        return super().encode_images(batch)


@dataclass(frozen=True)
class Built:
    corpus: Corpus
    index: Index
    summary: BuildSummary
    pixels: dict[bytes, Image.Image]

    @property
    def rows(self) -> dict[bytes, dict]:
        return {unescape_path(row["path"]): row for row in self.index.ledger.to_pylist()}

    def embedding(self, path: bytes) -> np.ndarray:
        paths = [unescape_path(p) for p in self.index.images["path"].to_pylist()]
        return self.index.native()[paths.index(path)]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    folder = tmp_path_factory.mktemp("corpus")
    corpus = write_corpus(folder / "pictures")
    encoder = Witness()
    out = corpus.root / "index"  # row 16: among the pictures
    summary = build_index(corpus.root, out, encoder, workers=1)
    index = open_index(out)
    paths = [unescape_path(p) for p in index.images["path"].to_pylist()]
    squares = [Image.fromarray(p.native.transpose(1, 2, 0).astype(np.uint8)) for p in encoder.seen]
    return Built(corpus, index, summary, dict(zip(paths, squares, strict=True)))


def test_what_is_indexed_and_what_is_in_the_ledger(built: Built) -> None:
    rows = built.rows
    indexed = {path for path, row in rows.items() if row["status"] == "indexed"}
    assert indexed == set(built.corpus.readable)
    reasons = {path: row["reason"] for path, row in rows.items() if row["status"] == "unreadable"}
    assert reasons.pop(STUB)
    assert reasons == {p: r.value for p, r in built.corpus.unreadable.items() if p != STUB}
    assert not built.corpus.skipped & set(rows)
    assert sum(map(len, built.summary.unreadable.values())) == len(reasons) + 1
    assert all(row["detail"] for row in rows.values() if row["status"] == "unreadable")


def test_the_encoder_sees_every_picture_as_it_is(built: Built) -> None:
    checked = 0
    for path, case in built.corpus.readable.items():
        if case is not None:
            # Squashed to 64 pixels, so a place may be a column off.
            assert_seen(built.pixels[path], case, max(case.tolerance, 6 if "grad" in case.name else 0) + 3)
            row = built.rows[path]
            assert (row["width"], row["height"]) == case.size
            assert row["orientation"] == case.orientation
            assert (case.warning or "") in (row["detail"] or "")
            checked += 1
    assert checked > 80


def test_turned_files_have_the_embedding_of_the_upright_one(built: Built) -> None:
    rows = built.rows
    turned = [
        (path, case)
        for path, case in built.corpus.readable.items()
        if case is not None and case.row == 1 and case.seen == CORNER_SEEN and case.size == (48, 32)
    ]
    assert {case.orientation for _, case in turned} == set(range(1, 9))
    assert {rows[path]["format"] for path, _ in turned} >= {"JPEG", "PNG", "WEBP", "TIFF"}
    encoder = TinyEncoder()
    upright = encoder.encode_images([encoder.prepare(corner())]).pooled[0]
    for path, case in turned:
        assert built.embedding(path) @ upright > 0.999, path
        if case.tolerance == LOSSLESS:
            assert np.array_equal(built.embedding(path), upright)


def test_a_query_by_the_same_picture_finds_it(built: Built) -> None:
    encoder = TinyEncoder()
    for path, case in built.corpus.readable.items():
        opened = open_image((built.corpus.root / os.fsdecode(path)).read_bytes())
        asked = encoder.encode_images([encoder.prepare(opened.image)]).pooled[0]
        assert np.array_equal(asked, built.embedding(path)), case


def test_thumbnails_show_it_upright(built: Built) -> None:
    pictures = Pictures(built.index, built.corpus.root)
    for path, case in built.corpus.readable.items():
        picture = pictures[built.rows[path]["id"]]
        thumbnail = Image.open(io.BytesIO(pictures.thumbnail(picture, 160)))
        assert (thumbnail.format, thumbnail.mode) == ("JPEG", "RGB")
        assert not thumbnail.getexif()
        if case is not None and min(thumbnail.size) > 1:
            assert_seen(thumbnail, case, 60)  # chroma of small patches runs


def test_two_files_of_one_content_are_both_found(built: Built) -> None:
    twins = [built.rows[path] for path in (b"twins/a/same.jpg", b"twins/b/same.jpg")]
    assert twins[0]["content_hash"] == twins[1]["content_hash"]
    assert twins[0]["id"] != twins[1]["id"]


def test_a_second_run_changes_nothing(built: Built) -> None:
    encoder = Witness()
    summary = build_index(built.corpus.root, built.index.folder, encoder, workers=1)
    assert (summary.encoded, summary.removed, encoder.seen) == (0, 0, [])
    assert open_index(built.index.folder).manifest == built.index.manifest
    assert verify_index(built.index.folder, TinyEncoder()).problems == ()


def test_replaced_and_deleted_files(tmp_path: Path) -> None:
    """Rows 19 and 20: same size and time but other content; gone after indexing, then gone from the index."""
    images, out = tmp_path / "in", tmp_path / "out"
    images.mkdir()
    red, blue = (encode(Image.new("RGB", (16, 16), colour), "BMP") for colour in ("red", "blue"))
    for name in ("replaced.bmp", "deleted.bmp", "kept.bmp"):
        (images / name).write_bytes(red)
    build_index(images, out, TinyEncoder(), workers=0)
    stamp = (images / "replaced.bmp").stat()
    (images / "replaced.bmp").write_bytes(blue)
    os.utime(images / "replaced.bmp", ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    (images / "deleted.bmp").unlink()
    index = open_index(out)
    pictures = Pictures(index, images)
    deleted = pictures[f"{image_id('deleted.bmp'):016x}"]
    for ask in (pictures.read, lambda picture: pictures.thumbnail(picture, 160)):
        with pytest.raises(ImageGone, match=r"deleted\.bmp"):
            ask(deleted)
    encoder = Witness()
    summary = build_index(images, out, encoder, workers=0)
    assert (summary.encoded, summary.reused, summary.removed) == (1, 1, 1)
    assert len(encoder.seen) == 1
    index = open_index(out)
    assert sorted(index.images["path"].to_pylist()) == ["kept.bmp", "replaced.bmp"]
    vectors = dict(zip(index.images["path"].to_pylist(), index.native(), strict=True))
    expected = (
        TinyEncoder().encode_images([TinyEncoder().prepare(Image.new("RGB", (16, 16), "blue"))]).pooled[0]
    )
    assert np.array_equal(vectors["replaced.bmp"], expected)
    assert not np.array_equal(vectors["kept.bmp"], expected)


def test_heic_is_read_or_names_its_extra(built: Built) -> None:
    row = built.rows[STUB]
    assert row["reason"] in (UnreadableReason.UNSUPPORTED_FORMAT.value, UnreadableReason.BROKEN.value)
