"""A folder of the odd files that people have, each with what has to come out of it.

Every file is made here from its description: drawn, encoded, and where no encoder writes such a thing, put
together byte by byte. A case says what must be *seen* (size and colours at places of the upright picture), so
that the same corpus checks the decoder, a whole build, query by image and thumbnails.
"""

from __future__ import annotations

import io
import os
import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import numpy as np
from PIL import Image, ImageCms, ImageDraw, features

from indexer.errors import UnreadableReason

RED, GREEN, BLUE, WHITE, BLACK = (255, 0, 0), (0, 128, 0), (0, 0, 255), (255, 255, 255), (0, 0, 0)
GREY = (128, 128, 128)
LOSSLESS, LOSSY = 1, 24

RGB = tuple[int, int, int]


@dataclass(frozen=True)
class Case:
    """One file: its bytes, and either what is seen in it or why it cannot be read.

    ``seen`` holds (x, y, colour) with places in fractions of the upright picture.
    """

    row: int
    """The kind of trouble: all cases of one kind share the number."""
    name: str
    make: Callable[[], bytes]
    size: tuple[int, int] | None = None
    seen: tuple[tuple[float, float, RGB], ...] = ()
    tolerance: int = LOSSLESS
    orientation: int = 1
    frames: int = 1
    warning: str | None = None
    reason: UnreadableReason | None = None

    def __str__(self) -> str:
        return f"{self.row}-{self.name}"


# Drawing --------------------------------------------------------------------------------------------------


def corner(width: int = 48, height: int = 32) -> Image.Image:
    """White, with a red top left and a blue top right: every turn and every mirror shows."""
    image = Image.new("RGB", (width, height), WHITE)
    draw = ImageDraw.Draw(image)
    draw.rectangle((0, 0, width // 3 - 1, height // 2 - 1), RED)
    draw.rectangle((width - width // 3, 0, width, height // 2 - 1), BLUE)
    return image


CORNER_SEEN = ((0.1, 0.2, RED), (0.9, 0.2, BLUE), (0.1, 0.8, WHITE), (0.9, 0.8, WHITE), (0.5, 0.2, WHITE))


def stored(image: Image.Image, orientation: int) -> Image.Image:
    """The pixels as a camera stores them, by EXIF's definition: where row 0 and column 0 lie."""
    upright = np.asarray(image)
    row0, column0 = {
        1: ("top", "left"), 2: ("top", "right"), 3: ("bottom", "right"), 4: ("bottom", "left"),
        5: ("left", "top"), 6: ("right", "top"), 7: ("right", "bottom"), 8: ("left", "bottom"),
    }[orientation]  # fmt: skip
    pixels = upright.swapaxes(0, 1) if row0 in {"left", "right"} else upright
    if row0 in {"bottom", "right"}:
        pixels = pixels[::-1]
    if column0 in {"bottom", "right"}:
        pixels = pixels[:, ::-1]
    return Image.fromarray(np.ascontiguousarray(pixels))


def encode(image: Image.Image, kind: str, **options: object) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def gradient(top: float, dtype: type) -> np.ndarray:
    """256 columns from 0 to `top`, 16 rows."""
    return np.broadcast_to(np.linspace(0, top, 256), (16, 256)).astype(dtype)


GRADIENT_SEEN = (
    (0.0, 0.5, BLACK),
    (0.25, 0.5, (64,) * 3),
    (0.5, 0.5, GREY),
    (0.75, 0.5, (192,) * 3),
    (1, 0.5, WHITE),
)


def photo(width: int = 320, height: int = 240) -> Image.Image:
    """Smooth noise: about as hard to compress as a photograph."""
    noise = np.random.default_rng(7).integers(0, 256, (height // 8, width // 8, 3), dtype=np.uint8)
    return Image.fromarray(noise).resize((width, height), Image.Resampling.BICUBIC)


# EXIF by hand ---------------------------------------------------------------------------------------------


def exif(value: int | bytes, kind: int = 3) -> bytes:
    """A block whose only entry is the orientation: kind 3 is a number, 2 is text."""
    field_ = struct.pack(">H", value) + b"\0\0" if isinstance(value, int) else value.ljust(4, b"\0")[:4]
    count = 1 if isinstance(value, int) else len(value)
    return b"Exif\0\0MM\0*" + struct.pack(">LHHHL", 8, 1, 0x0112, kind, count) + field_ + struct.pack(">L", 0)


def with_exif(jpeg: bytes, block: bytes) -> bytes:
    """Put a block into a JPEG as it is, right or wrong."""
    return jpeg[:2] + b"\xff\xe1" + struct.pack(">H", len(block) + 2) + block + jpeg[2:]


# Other formats by hand ------------------------------------------------------------------------------------


def png(width: int, height: int, *, row: bytes) -> bytes:
    """A 1-bit PNG of equal rows, compressed in pieces: a bomb costs no memory to make."""
    squeeze = zlib.compressobj(9)
    rows_at_once = max(1, (1 << 20) // (len(row) + 1))
    block = (b"\0" + row) * rows_at_once
    data = bytearray()
    for first in range(0, height, rows_at_once):
        data += squeeze.compress(block[: (len(row) + 1) * min(rows_at_once, height - first)])
    data += squeeze.flush()
    header = struct.pack(">LLBBBBB", width, height, 1, 0, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", header) + _chunk(b"IDAT", bytes(data)) + _chunk(b"IEND", b"")
    )


def _chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">L", len(data)) + name + data + struct.pack(">L", zlib.crc32(name + data))


def imagemagick_png(image: Image.Image, block: bytes) -> bytes:
    """A PNG that carries EXIF as hexadecimal text, as ImageMagick writes it."""
    text = f"\nexif\n{len(block):8}\n{block.hex()}\n".encode()
    chunk = _chunk(b"zTXt", b"Raw profile type exif\0\0" + zlib.compress(text))
    whole = encode(image, "PNG")
    return whole[:33] + chunk + whole[33:]


def late_exif_png(image: Image.Image, block: bytes) -> bytes:
    """A PNG with its EXIF chunk behind the pixels, which is allowed."""
    whole = encode(image, "PNG")
    return whole[:-12] + _chunk(b"eXIf", block.removeprefix(b"Exif\0\0")) + whole[-12:]


def webp_bomb() -> bytes:
    """A WebP of two tiny frames on a canvas of 13000 x 13000: below what Pillow itself refuses."""
    frame = corner()
    data = bytearray(encode(frame, "WEBP", save_all=True, append_images=[frame.rotate(180)], lossless=True))
    assert data[12:16] == b"VP8X"
    data[24:27] = data[27:30] = (13000 - 1).to_bytes(3, "little")
    return bytes(data)


def gif_bomb() -> bytes:
    data = bytearray(encode(corner().convert("P"), "GIF"))
    data[6:10] = b"\xff\xff\xff\xff"
    return bytes(data)


def heic_stub() -> bytes:
    """What a decoder looks at first in a HEIC file, and nothing else."""
    return struct.pack(">L", 24) + b"ftypheic" + bytes(4) + b"mif1heic" + struct.pack(">L", 8) + b"mdat"


def heic() -> bytes:
    from pillow_heif import from_pillow  # noqa: PLC0415  an extra

    file = io.BytesIO()
    from_pillow(corner(96, 64)).save(file, quality=95)
    return file.getvalue()


INKS = (((255, 0, 0, 0), (0, 255, 255)), ((0, 255, 0, 0), (255, 0, 255)), ((0, 0, 255, 0), (255, 255, 0)),
        ((0, 0, 0, 0), WHITE), ((0, 0, 0, 255), BLACK), ((0, 255, 255, 0), RED))  # fmt: skip
INK_SEEN = tuple(((at + 0.5) / len(INKS), 0.5, colour) for at, (_, colour) in enumerate(INKS))


def inks() -> np.ndarray:
    """(32, 192, 4) uint8: patches of cyan, magenta, yellow, paper, black, and red from two inks."""
    return np.repeat(np.array([[ink for ink, _ in INKS]], np.uint8), 32, axis=1).repeat(32, axis=0)


def cmyk_jpeg() -> bytes:
    """Pillow writes CMYK as Adobe does, inverted."""
    return encode(Image.fromarray(inks(), "CMYK"), "JPEG", quality=95)


def ycck_jpeg() -> bytes:
    """What Photoshop writes: inverted inks, the three coloured ones turned to Y, Cb and Cr.

    No encoder at hand makes one, so the converted planes are saved as if they were inks (and inverted
    beforehand, since Pillow inverts), and the marker is set to say what they are.
    """
    ink = inks()
    planes = np.empty_like(ink)
    planes[..., :3] = np.asarray(Image.fromarray(np.ascontiguousarray(ink[..., :3])).convert("YCbCr"))
    planes[..., 3] = 255 - ink[..., 3]
    data = bytearray(encode(Image.fromarray(255 - planes, "CMYK"), "JPEG", quality=95, subsampling=0))
    at = data.index(b"Adobe")
    data[at + 11] = 2
    return bytes(data)


def transparent(mode: str) -> bytes:
    """A red square on a transparent ground whose hidden colour is black."""
    image = Image.new("RGBA", (32, 32), (0, 0, 0, 0))
    ImageDraw.Draw(image).rectangle((8, 8, 23, 23), (*RED, 255))
    if mode == "P":
        palette = Image.new("P", (32, 32), 0)
        palette.putpalette([*BLACK, *RED])
        ImageDraw.Draw(palette).rectangle((8, 8, 23, 23), 1)
        return encode(palette, "PNG", transparency=0)
    if mode == "L":
        grey = Image.new("L", (32, 32), 7)
        ImageDraw.Draw(grey).rectangle((8, 8, 23, 23), 76)
        return encode(grey, "PNG", transparency=7)
    if mode == "I;16":
        deep = np.full((32, 32), 7, np.uint16)
        deep[8:24, 8:24] = 76 * 257
        deep[0, 1] = 65535
        row_trns = _chunk(b"tRNS", struct.pack(">H", 7))
        whole = encode(Image.fromarray(deep), "PNG")
        return whole[:33] + row_trns + whole[33:]
    return encode(image.convert(mode), "PNG")


def _cutout(middle: RGB) -> tuple[tuple[float, float, RGB], ...]:
    return (0.5, 0.5, middle), (0.05, 0.9, WHITE), (0.9, 0.05, WHITE)


@cache
def cases() -> tuple[Case, ...]:
    """Every single file."""
    return tuple([*_orientation_cases(), *_damaged_cases(), *_mode_cases(), *_frame_cases(), *_size_cases()])


def _orientation_cases() -> list[Case]:
    upright = corner()
    found = []
    for at in range(1, 9):
        pixels, block = stored(upright, at), exif(at)
        kinds: dict[str, Callable[[Image.Image, bytes, int], bytes]] = {
            "jpg": lambda image, block, _: encode(image, "JPEG", quality=95, subsampling=0, exif=block),
            "png": lambda image, block, _: encode(image, "PNG", exif=block),
            "late.png": lambda image, block, _: late_exif_png(image, block),
            "text.png": lambda image, block, _: imagemagick_png(image, block),
            "webp": lambda image, block, _: encode(image, "WEBP", lossless=True, exif=block),
            "tiff": lambda image, _, at: encode(image, "TIFF", tiffinfo={0x0112: at}),
            "lzw.tif": lambda image, _, at: encode(
                image, "TIFF", tiffinfo={0x0112: at}, compression="tiff_lzw"
            ),
        }
        if features.check("avif"):
            kinds["avif"] = lambda image, block, _: encode(
                image, "AVIF", quality=95, subsampling="4:4:4", exif=block
            )
        for suffix, make in kinds.items():
            found.append(
                Case(
                    1,
                    f"turned-{at}.{suffix}",
                    lambda make=make, pixels=pixels, block=block, at=at: make(pixels, block, at),
                    size=upright.size,
                    seen=CORNER_SEEN,
                    tolerance=LOSSY if suffix in {"jpg", "avif"} else LOSSLESS,
                    orientation=at,
                )
            )
    jpeg = encode(upright, "JPEG", quality=95, subsampling=0)
    blocks = {
        "zero": exif(0),
        "nine": exif(9),
        "huge": exif(65535),
        "text": exif(b"6", 2),
        "words": exif(b"top", 2),
        "cut": exif(6)[:20],
        "cut-in-header": exif(6)[:9],
        "not-exif": b"Exif\0\0" + b"junk" * 9,
        "lost-directory": exif(6).replace(struct.pack(">L", 8), struct.pack(">L", 2**31), 1),
    }
    for name, block in blocks.items():
        found.append(
            Case(
                2,
                f"orientation-{name}.jpg",
                lambda block=block: with_exif(jpeg, block),
                size=upright.size,
                seen=CORNER_SEEN,
                tolerance=LOSSY,
                warning="upright",
            )
        )
    for value in (0, 9):
        found.append(
            Case(
                2,
                f"orientation-{value}.tiff",
                lambda value=value: encode(upright, "TIFF", tiffinfo={0x0112: value}),
                size=upright.size,
                seen=CORNER_SEEN,
                warning="upright",
            )
        )
    portrait = corner(100, 150)
    found.append(
        Case(
            3,
            "portrait.tiff",
            lambda: encode(stored(portrait, 6), "TIFF", tiffinfo={0x0112: 6}),
            size=(100, 150),
            seen=CORNER_SEEN,
            orientation=6,
        )
    )
    return found


def _damaged_cases() -> list[Case]:
    def cut(share: float, kind: str, **options: object) -> Callable[[], bytes]:
        whole = encode(photo(), kind, **options)
        return lambda: whole[: int(len(whole) * share)]

    truncated, bomb = UnreadableReason.TRUNCATED, UnreadableReason.TOO_MANY_PIXELS
    kinds: dict[str, tuple[str, dict[str, object]]] = {
        "cut.jpg": ("JPEG", {}),
        "cut-progressive.jpg": ("JPEG", {"progressive": True}),
        "cut.png": ("PNG", {}),
        "cut.webp": ("WEBP", {}),
        "cut.gif": ("GIF", {}),
        "cut.tiff": ("TIFF", {}),
        "cut-lzw.tiff": ("TIFF", {"compression": "tiff_lzw"}),
        "cut.bmp": ("BMP", {}),
        "cut.jp2": ("JPEG2000", {}),
    }
    if features.check("avif"):
        kinds["cut.avif"] = ("AVIF", {})
    not_image, empty = UnreadableReason.NOT_AN_IMAGE, UnreadableReason.EMPTY
    return [
        *(
            Case(4, name, cut(0.6, kind, **options), reason=truncated)
            for name, (kind, options) in kinds.items()
        ),
        Case(5, "empty.jpg", lambda: b"", reason=empty),
        Case(5, "text.jpg", lambda: b"This is not the picture you are looking for.\n", reason=not_image),
        Case(5, "page.png", lambda: b"<!doctype html><title>404 Not Found</title>", reason=not_image),
        Case(6, "bomb.png", lambda: png(12000, 12000, row=bytes(1500)), reason=bomb),
        Case(6, "bomb-1bit.png", lambda: png(30000, 30000, row=bytes(3750)), reason=bomb),
        Case(6, "bomb-canvas.webp", webp_bomb, reason=bomb),
        Case(6, "bomb-screen.gif", gif_bomb, reason=bomb),
    ]


def _mode_cases() -> list[Case]:
    def grey(image: Image.Image, kind: str = "PNG", **options: object) -> Callable[[], bytes]:
        return lambda: encode(image, kind, **options)

    wide = {"size": (256, 16), "seen": GRADIENT_SEEN, "tolerance": 2}
    half = Image.new("1", (32, 16))
    half.paste(1, (16, 0, 32, 16))
    return [
        Case(7, "gradient-16bit.png", grey(Image.fromarray(gradient(65535, np.uint16))), **wide),
        Case(7, "gradient-12bit.png", grey(Image.fromarray(gradient(4095, np.uint16))), **wide),
        Case(7, "gradient-16bit.tiff", grey(Image.fromarray(gradient(65535, np.uint16)), "TIFF"), **wide),
        Case(8, "cutout-rgba.png", lambda: transparent("RGBA"), size=(32, 32), seen=_cutout(RED)),
        Case(8, "cutout-la.png", lambda: transparent("LA"), size=(32, 32), seen=_cutout((76,) * 3)),
        Case(8, "cutout-p.png", lambda: transparent("P"), size=(32, 32), seen=_cutout(RED)),
        Case(8, "cutout-l.png", lambda: transparent("L"), size=(32, 32), seen=_cutout((76,) * 3)),
        Case(8, "cutout-16bit.png", lambda: transparent("I;16"), size=(32, 32), seen=_cutout((76,) * 3)),
        Case(9, "inks-cmyk.jpg", cmyk_jpeg, size=(192, 32), seen=INK_SEEN, tolerance=LOSSY),
        Case(9, "inks-ycck.jpg", ycck_jpeg, size=(192, 32), seen=INK_SEEN, tolerance=LOSSY),
        Case(10, "mode-1.png", grey(half), size=(32, 16), seen=((0.2, 0.5, BLACK), (0.8, 0.5, WHITE))),
        Case(10, "mode-L.png", grey(Image.fromarray(gradient(255, np.uint8))), **wide),
        Case(10, "mode-I.tiff", grey(Image.fromarray(gradient(65535, np.int32)), "TIFF"), **wide),
        Case(10, "mode-I-large.tiff", grey(Image.fromarray(gradient(2e9, np.int32)), "TIFF"), **wide),
        Case(10, "mode-F.tiff", grey(Image.fromarray(gradient(1, np.float32)), "TIFF"), **wide),
        Case(10, "mode-F-signed.tiff", grey(Image.fromarray(gradient(9, np.float32) - 4.5), "TIFF"), **wide),
        Case(
            10,
            "mode-LAB.tiff",
            lambda: encode(_lab(), "TIFF"),
            size=(48, 32),
            seen=CORNER_SEEN,
            tolerance=LOSSY,
        ),
    ]


def _lab() -> Image.Image:
    srgb, lab = ImageCms.createProfile("sRGB"), ImageCms.createProfile("LAB")
    return ImageCms.buildTransform(srgb, lab, "RGB", "LAB").apply(corner())


def _frame_cases() -> list[Case]:
    first = corner()
    # All different, since an encoder may join frames that are equal.
    several = {
        "save_all": True,
        "append_images": [Image.new("RGB", (48, 32), colour) for colour in (BLACK, GREEN)],
    }
    seen = {"size": (48, 32), "seen": CORNER_SEEN, "frames": 3, "warning": "first of 3"}
    return [
        Case(11, "moving.gif", lambda: encode(first, "GIF", **several), **seen, tolerance=LOSSY),
        Case(11, "moving.webp", lambda: encode(first, "WEBP", **several, lossless=True), **seen),
        Case(11, "moving.png", lambda: encode(first, "PNG", **several), **seen),
        Case(11, "pages.tiff", lambda: encode(first, "TIFF", **several), **seen),
        Case(12, "phone.heic", heic_stub, reason=UnreadableReason.UNSUPPORTED_FORMAT),
    ]


def _size_cases() -> list[Case]:
    found = []
    for width, height in ((1, 1), (1, 10000), (10000, 1), (65535, 1), (1, 65535)):
        image = Image.new("RGB", (width, height), GREEN)
        size, seen = (width, height), ((0.0, 0.0, GREEN), (1.0, 1.0, GREEN))
        name = f"size-{width}x{height}"
        found.append(Case(13, f"{name}.png", lambda image=image: encode(image, "PNG"), size=size, seen=seen))
        if max(size) <= 65500:  # as far as libjpeg goes
            found.append(
                Case(
                    13,
                    f"{name}.jpg",
                    lambda image=image: encode(image, "JPEG", quality=95),
                    size=size,
                    seen=seen,
                    tolerance=LOSSY,
                )
            )
    return found


# A whole folder -------------------------------------------------------------------------------------------

ODD_NAMES = (
    b"caf\xe9.jpg", b"two\nlines.jpg", b"-rf.jpg", "\U0001f996 \u6d77.jpg".encode(), b"a" * 251 + b".jpg",
    b"100%.jpg", b"%41.jpg", b"<img src=x onerror=alert(1)>&\"'.jpg", b"back\\slash.jpg", b"SHOUT.JPG",
    b"tab\there.jpg", b"\x1b[31mred.jpg", b"spaces  .jpg", "line\u2028separator.jpg".encode(),
    "e\u0301.jpg".encode(), "\u00e9.jpg".encode(),
)  # fmt: skip


@dataclass(frozen=True)
class Corpus:
    """What a build over the folder must find; the keys are paths as bytes, parted by ``/``."""

    root: Path
    readable: dict[bytes, Case | None] = field(default_factory=dict)
    """Case, or None for a plain small photograph."""
    unreadable: dict[bytes, UnreadableReason] = field(default_factory=dict)
    skipped: set[bytes] = field(default_factory=set)


def write_corpus(root: Path) -> Corpus:
    """Write every case, the odd names, links, folders and twins below `root` (POSIX only)."""
    corpus = Corpus(root)
    (root / "cases").mkdir(parents=True)
    for case in cases():
        (root / "cases" / case.name).write_bytes(case.make())
        path = b"cases/" + case.name.encode()
        if case.reason is None:
            corpus.readable[path] = case
        else:
            corpus.unreadable[path] = case.reason
    write_names(corpus)
    write_links(corpus)
    write_skipped(corpus)
    return corpus


def write_names(corpus: Corpus) -> None:
    plain = encode(photo(64, 48), "JPEG")
    for name in ODD_NAMES:
        _write(corpus, b"names/" + name, plain)
        corpus.readable[b"names/" + name] = None
    for path in (b"twins/a/same.jpg", b"twins/b/same.jpg", b"twins/other.jpg"):
        _write(corpus, path, plain)
        corpus.readable[path] = None


def write_links(corpus: Corpus) -> None:
    root = corpus.root
    plain = encode(photo(64, 48), "JPEG")
    outside = root.parent / f"{root.name}-outside"
    outside.mkdir()
    (outside / "far.jpg").write_bytes(plain)
    (outside / "back").symlink_to(root)
    links = root / "links"
    (links / "inner").mkdir(parents=True)
    (links / "inner" / "near.jpg").write_bytes(plain)
    (links / "to-file.jpg").symlink_to("inner/near.jpg")
    (links / "again").symlink_to("inner")
    (links / "loop").symlink_to(".")
    (links / "away").symlink_to(outside)
    (links / "away-too").symlink_to(outside)
    (links / "dangling.jpg").symlink_to("nowhere.jpg")
    (links / "unplugged").symlink_to("/nowhere/drive")
    (links / "notes.txt").symlink_to("nowhere.txt")
    (links / "itself.jpg").symlink_to("itself.jpg")
    (links / "folder.jpg").mkdir()
    (links / "folder.jpg" / "within.jpg").write_bytes(plain)
    os.mkfifo(links / "pipe.jpg")
    for path in (b"inner/near.jpg", b"to-file.jpg", b"away/far.jpg", b"folder.jpg/within.jpg"):
        corpus.readable[b"links/" + path] = None
    missing, not_a_file = UnreadableReason.MISSING, UnreadableReason.NOT_A_FILE
    corpus.unreadable.update({
        b"links/dangling.jpg": missing, b"links/unplugged": missing, b"links/itself.jpg": missing,
        b"links/folder.jpg": not_a_file, b"links/pipe.jpg": not_a_file,
    })  # fmt: skip


def write_skipped(corpus: Corpus) -> None:
    plain = encode(photo(64, 48), "JPEG")
    for path in (
        b".hidden.jpg",
        b"._a.jpg",
        b".cache/a.jpg",
        b"@eaDir/a.jpg",
        b"__MACOSX/a.jpg",
        b"notes.txt",
        b"jpg",
        b"photo.jpg.part",
    ):
        _write(corpus, b"skipped/" + path, plain)
        corpus.skipped.add(b"skipped/" + path)


def _write(corpus: Corpus, path: bytes, data: bytes) -> None:
    target = corpus.root / os.fsdecode(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(data)
