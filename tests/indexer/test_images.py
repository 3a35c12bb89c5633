from __future__ import annotations

import contextlib
import io
import os
import pickle
import subprocess
import sys
import tracemalloc
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image, ImageCms, ImageFile

from indexer.errors import UnreadableImage, UnreadableReason
from indexer.images import MAX_PIXELS, OpenedImage, encode_thumbnail, open_image
from indexer.orientation import read_orientation
from tests.corpus import Case, cases, corner, encode, exif, heic, heic_stub, photo, stored, with_exif

# Pillow warns of the damage that these files are made of.
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning:PIL", "ignore::RuntimeWarning:PIL")

READABLE = [case for case in cases() if case.reason is None]
UNREADABLE = [case for case in cases() if case.reason is not None and case.row != 12]


def assert_seen(image: Image.Image, case: Case, tolerance: int) -> None:
    width, height = image.size
    for x, y, colour in case.seen:
        at = min(int(x * width), width - 1), min(int(y * height), height - 1)
        found = image.getpixel(at)
        assert np.abs(np.subtract(found, colour)).max() <= tolerance, (
            f"{found} at {x}, {y}: expected {colour}"
        )


@pytest.mark.parametrize("case", READABLE, ids=str)
def test_what_is_seen(case: Case) -> None:
    opened = open_image(case.make())
    assert opened.image.mode == "RGB"
    assert opened.image.size == (opened.width, opened.height) == case.size
    assert opened.orientation == case.orientation
    assert opened.frames == case.frames
    assert not opened.reduced
    assert_seen(opened.image, case, case.tolerance)
    if case.warning is None:
        assert opened.warnings == ()
    else:
        assert any(case.warning in warning for warning in opened.warnings)


@pytest.mark.parametrize("case", READABLE, ids=str)
def test_thumbnail_shows_the_same(case: Case) -> None:
    opened = open_image(case.make())
    thumbnail = Image.open(io.BytesIO(encode_thumbnail(opened.image, 64)))
    assert thumbnail.format == "JPEG"
    assert max(thumbnail.size) == min(64, max(opened.image.size))
    if min(thumbnail.size) > 1:
        assert_seen(thumbnail, case, 60)  # chroma of small patches runs


@pytest.mark.parametrize("case", UNREADABLE, ids=str)
def test_unreadable(case: Case, tmp_path) -> None:
    data = case.make()
    with pytest.raises(UnreadableImage) as of_bytes:
        open_image(data)
    assert of_bytes.value.reason is case.reason
    path = tmp_path / case.name
    path.write_bytes(data)
    with pytest.raises(UnreadableImage) as of_path:
        open_image(path)
    assert of_path.value.reason is case.reason
    assert str(path) in str(of_path.value)
    assert "\n" not in str(of_path.value)


def test_every_turn_gives_the_same_pixels() -> None:
    upright = np.asarray(corner(4, 2))
    for orientation in range(1, 9):
        image = stored(corner(4, 2), orientation)
        for kind, options in (
            ("PNG", {"exif": exif(orientation)}),
            ("TIFF", {"tiffinfo": {0x0112: orientation}}),
        ):
            opened = open_image(encode(image, kind, **options))
            np.testing.assert_array_equal(np.asarray(opened.image), upright)


# Sources -------------------------------------------------------------------------------------------------


def test_path_bytes_and_stream_agree(tmp_path) -> None:
    data = encode(photo(), "JPEG")
    path = tmp_path / "named.png"  # the contents tell the format
    path.write_bytes(data)
    stream = io.BytesIO(data)
    stream.seek(100)
    opened = [open_image(source) for source in (data, path, stream)]
    assert {one.format for one in opened} == {"JPEG"}
    assert len({one.image.tobytes() for one in opened}) == 1
    assert not stream.closed


def test_folder_missing_pipe_and_dangling_link(tmp_path) -> None:
    (tmp_path / "x.jpg").mkdir()
    (tmp_path / "link.jpg").symlink_to("nowhere")
    os.mkfifo(tmp_path / "pipe.jpg")
    for name, reason in {
        "x.jpg": UnreadableReason.NOT_A_FILE,
        "link.jpg": UnreadableReason.MISSING,
        "none.jpg": UnreadableReason.MISSING,
        "pipe.jpg": UnreadableReason.NOT_A_FILE,
        "nul\0.jpg": UnreadableReason.MISSING,
        "long" * 99: UnreadableReason.MISSING,
    }.items():
        with pytest.raises(UnreadableImage) as caught:
            open_image(tmp_path / name)
        assert caught.value.reason is reason


def test_permission(tmp_path, monkeypatch) -> None:
    def refuse(*_: object) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("indexer.scan.os.open", refuse)  # as root, no mode bit refuses anything
    with pytest.raises(UnreadableImage) as caught:
        open_image(tmp_path / "a.jpg")
    assert caught.value.reason is UnreadableReason.PERMISSION


def test_error_crosses_processes() -> None:
    with pytest.raises(UnreadableImage) as caught:
        open_image(b"")
    copy = pickle.loads(pickle.dumps(caught.value))
    assert (str(copy), copy.reason, copy.detail) == (
        str(caught.value),
        caught.value.reason,
        caught.value.detail,
    )


# Native parity -------------------------------------------------------------------------------------------


def test_ordinary_photographs_equal_plain_convert() -> None:
    wide_gamut = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    for options in ({}, {"progressive": True}, {"subsampling": 0}, {"icc_profile": wide_gamut}):
        data = encode(photo(), "JPEG", **options)
        plain = Image.open(io.BytesIO(data)).convert("RGB")
        assert open_image(data).image.tobytes() == plain.tobytes()


def test_profile_is_kept_for_thumbnails_and_nothing_else() -> None:
    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    opened = open_image(encode(photo(), "JPEG", icc_profile=profile, exif=exif(1), comment=b"at home"))
    assert opened.image.info == {"icc_profile": profile}
    thumbnail = Image.open(io.BytesIO(encode_thumbnail(opened.image, 99)))
    assert "exif" not in thumbnail.info
    assert "icc_profile" not in thumbnail.info
    assert "comment" not in thumbnail.info


def test_a_profile_that_lies_does_no_harm() -> None:
    opened = open_image(encode(photo(), "JPEG", icc_profile=b"no profile"))
    assert encode_thumbnail(opened.image, 50)
    cmyk = Image.new("CMYK", (16, 16), (255, 0, 0, 0))
    opened = open_image(encode(cmyk, "TIFF", icc_profile=b"no profile"))
    assert opened.image.getpixel((8, 8)) == (0, 255, 255)
    assert opened.warnings == ("colour profile cannot be used",)


# Limits --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", [case for case in UNREADABLE if case.row == 6], ids=str)
def test_no_memory_for_bombs(case: Case) -> None:
    data = case.make()
    script = (
        "import io, resource, sys\n"
        "from indexer.images import open_image\n"
        "from tests.corpus import corner, encode\n"
        "data = sys.stdin.buffer.read()\n"
        "for kind in ('PNG', 'WEBP', 'GIF'): open_image(encode(corner(), kind))\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "resource.setrlimit(resource.RLIMIT_AS, (resource_now() + 2**26,) * 2)\n"
        "try: open_image(data)\n"
        "except Exception as error: print(error.reason)\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)\n"
    ).replace(
        "resource_now()",
        "int(open('/proc/self/statm').read().split()[0]) * resource.getpagesize()",
    )
    done = subprocess.run([sys.executable, "-c", script], input=data, capture_output=True, check=True)
    reason, grown = done.stdout.split()
    assert reason == b"too_many_pixels"
    assert int(grown) < 8 * 1024  # KiB


def test_cap_is_exact_and_adjustable() -> None:
    data = encode(photo(320, 240), "PNG")
    assert open_image(data, max_pixels=320 * 240).width == 320
    with pytest.raises(UnreadableImage, match="320 x 240 is 76,800 pixels, allowed are 76,799") as caught:
        open_image(data, max_pixels=320 * 240 - 1)
    assert caught.value.reason is UnreadableReason.TOO_MANY_PIXELS
    assert 12000 * 9000 < MAX_PIXELS < 12000 * 12000


def test_no_memory_is_kept() -> None:
    data = encode(photo(), "PNG")
    open_image(data)
    tracemalloc.start()
    for _ in range(50):
        open_image(data)
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert kept < 50_000


def test_reduce_keeps_the_short_side_and_reports_the_original() -> None:
    data = encode(stored(photo(1600, 1200), 6), "JPEG", exif=exif(6))
    opened = open_image(data, reduce_to=384)
    assert (opened.width, opened.height) == (1600, 1200)
    assert opened.image.size == (800, 600)  # a quarter would leave 300
    assert opened.reduced
    whole = open_image(data).image.resize((800, 600), Image.Resampling.BOX)
    assert np.abs(np.subtract(np.asarray(opened.image, float), np.asarray(whole, float))).mean() < 4
    for unreduced in (
        open_image(data),
        open_image(data, reduce_to=1000),
        open_image(encode(photo(), "PNG"), reduce_to=9),
    ):
        assert not unreduced.reduced
        assert unreduced.image.size == (unreduced.width, unreduced.height)


# HEIC ----------------------------------------------------------------------------------------------------


def test_heic_without_the_extra_names_it(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "pillow_heif", None)
    monkeypatch.delitem(Image.OPEN, "HEIF", raising=False)
    with pytest.raises(UnreadableImage) as caught:
        open_image(heic_stub())
    assert caught.value.reason is UnreadableReason.UNSUPPORTED_FORMAT
    assert "pip install 'beside[heif]'" in str(caught.value)


def test_heic_with_the_extra() -> None:
    pytest.importorskip("pillow_heif")
    opened = open_image(heic())
    assert (opened.format, opened.image.size) == ("HEIF", (96, 64))
    assert opened.image.getpixel((9, 12))[0] > 200
    assert opened.image.getpixel((9, 12))[2] < 60
    with pytest.raises(UnreadableImage):
        open_image(heic_stub())
    with pytest.raises(UnreadableImage) as caught:
        open_image(heic()[:-200])
    assert caught.value.reason is UnreadableReason.TRUNCATED


# Anything at all -----------------------------------------------------------------------------------------

SEEDS = [encode(corner(), kind) for kind in ("JPEG", "PNG", "GIF", "WEBP", "TIFF", "BMP", "JPEG2000")]
SEEDS.append(with_exif(encode(corner(), "JPEG"), exif(6)))


def open_or_refuse(data: bytes) -> OpenedImage | None:
    try:
        opened = open_image(data, max_pixels=10**6)
    except UnreadableImage as error:
        assert "\n" not in str(error)
        return None
    assert opened.image.mode == "RGB"
    assert opened.width * opened.height <= 10**6
    return opened


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=300), st.sampled_from([b"", *(seed[:16] for seed in SEEDS)]))
def test_random_bytes(data: bytes, magic: bytes) -> None:
    open_or_refuse(magic + data)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.data_too_large])
@given(st.sampled_from(SEEDS), st.data())
def test_damaged_files(seed: bytes, data: st.DataObject) -> None:
    damaged = bytearray(seed)
    for _ in range(data.draw(st.integers(1, 5))):
        damaged[data.draw(st.integers(0, min(len(seed), 400) - 1))] = data.draw(st.integers(0, 255))
    open_or_refuse(bytes(damaged[: data.draw(st.integers(1, len(damaged)))]))


@given(st.binary(max_size=64), st.sampled_from([b"", b"II*\0", b"MM\0*", b"Exif\0\0MM\0*\0\0\0\x08"]))
def test_any_exif(block: bytes, head: bytes) -> None:
    with contextlib.suppress(ValueError):
        read_orientation(head + block)


def test_threads_agree_and_leave_no_trace() -> None:
    chosen = [case for case in READABLE if case.row < 12]
    data = [case.make() for case in chosen] * 3
    before = (Image.MAX_IMAGE_PIXELS, ImageFile.LOAD_TRUNCATED_IMAGES)
    alone = [open_image(one).image.tobytes() for one in data]
    with ThreadPoolExecutor(8) as pool:
        together = [opened.image.tobytes() for opened in pool.map(open_image, data)]
    assert together == alone
    assert before == (Image.MAX_IMAGE_PIXELS, ImageFile.LOAD_TRUNCATED_IMAGES)
