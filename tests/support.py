"""What several test packages need: a deterministic encoder, and galleries with a known truth."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from PIL import Image

from indexer.calibrate import vocabulary
from indexer.encoder import DenseMode, DenseView, EncoderSpec, ImageFeatures, Pixels, TextFeatures
from indexer.grid import GridSketcher, Packed, fit_grid, pool_tokens
from indexer.ledger import LEDGER_SCHEMA
from indexer.manifest import Calibration
from indexer.moments import spatial_moments
from indexer.scan import content_hash, format_id, image_id
from indexer.sketch import Precision, Sketcher, fit_sketcher
from indexer.store import Index, open_index, write_index
from parser.relation import ParsedQuery, Position, Relation, SpatialRelation

Floats = NDArray[np.float32]

COLOURS = {
    "red": (220, 30, 30),
    "green": (30, 160, 60),
    "blue": (40, 70, 220),
    "yellow": (240, 210, 40),
    "purple": (140, 50, 170),
    "orange": (250, 130, 20),
}
PAPER = (238, 238, 238)
GRID = 8
DIM = 32
CONTEXT = 40


def word_vector(word: str) -> Floats:
    """A unit vector that depends on the word alone."""
    seed = int.from_bytes(hashlib.sha256(word.encode()).digest()[:8], "big")
    vector = np.random.default_rng(seed).standard_normal(DIM)
    return (vector / np.linalg.norm(vector)).astype(np.float32)


class TinyPreparer:
    """Squashes to 64 pixels."""

    short_side = GRID * 8

    def __call__(self, image: Image.Image) -> Pixels:
        small = image.resize((GRID * 8, GRID * 8), Image.Resampling.NEAREST)
        return Pixels(np.asarray(small, dtype=np.float32).transpose(2, 0, 1).copy())


@dataclass
class TinyEncoder:
    """Sees the colours of an 8 x 8 grid and reads their names; other words get a faint vector of their own.

    A mirrored picture has the mirrored tokens to the last bit. Counts its calls.
    """

    seed: int = 0
    text_calls: list[tuple[str, ...]] = field(default_factory=list)

    @property
    def spec(self) -> EncoderSpec:
        return EncoderSpec(
            name="tiny",
            pretrained=f"random:{self.seed}",
            weights_sha256=hashlib.sha256(str(self.seed).encode()).hexdigest(),
            preprocessing=f"squash {GRID * 8} px",
            dim=DIM,
            grid=(GRID, GRID),
            dense_mode=DenseMode.HEAD,
            dense_view=DenseView.NATIVE,
            template="a {}",
            context_length=CONTEXT,
            numeric="float32",
        )

    @property
    def preparer(self) -> TinyPreparer:
        return TinyPreparer()

    def prepare(self, image: Image.Image) -> Pixels:
        return self.preparer(image)

    def encode_images(self, batch: Sequence[Pixels]) -> ImageFeatures:
        names = [*COLOURS, ""]
        palette = np.array([*COLOURS.values(), PAPER], dtype=np.float32)
        concepts = np.stack([self._concept(name) * (1.0 if name else 0.1) for name in names])
        tokens = []
        for pixels in batch:
            cells = pixels.native.reshape(3, GRID, 8, GRID, 8).astype(np.float64).mean(axis=(2, 4))
            nearest = ((cells.transpose(1, 2, 0)[:, :, None] - palette) ** 2).sum(axis=-1).argmin(axis=-1)
            tokens.append(concepts[nearest].astype(np.float32))
        # Sorted before the sum: a mirrored picture has the same mean to the last bit.
        pooled = np.stack(
            [np.sort(t.reshape(-1, DIM).astype(np.float64), axis=0).mean(axis=0) for t in tokens]
        )
        pooled /= np.linalg.norm(pooled, axis=1, keepdims=True)
        return ImageFeatures(pooled.astype(np.float32), tokens)

    def encode_texts(self, texts: Sequence[str]) -> TextFeatures:
        self.text_calls.append(tuple(texts))
        words = [re.findall(r"\w+|[^\w\s]", text.lower()) for text in texts]
        vectors = np.stack([self._text(w[:CONTEXT]) for w in words])
        return TextFeatures(vectors, tuple(len(w) > CONTEXT for w in words))

    def _text(self, words: Sequence[str]) -> Floats:
        total = np.zeros(DIM)
        for word in words:
            total = total + self._concept(word) * (1.0 if word in COLOURS else 0.05)
        norm = np.linalg.norm(total)
        return (total / norm if norm else self._concept("nothing")).astype(np.float32)

    def _concept(self, word: str) -> NDArray[np.float64]:
        return word_vector(f"{self.seed}/{word}").astype(np.float64)


class SmallParser:
    """``A left of B`` and its kin: keeps tests of the service apart from the grammar."""

    def parse_many(self, texts: Iterable[str]) -> list[ParsedQuery]:
        return [self.parse(text) for text in texts]

    def parse(self, text: str) -> ParsedQuery:
        def bare(phrase: str) -> str:
            return re.sub(r"^(an?|the) ", "", phrase.strip().lower())

        found = []
        for clause in text.split(" and "):
            if match := re.fullmatch(
                r"(.+?) (?:to the |on the )?(left of|right of|above|below|behind) (.+)", clause
            ):
                subject, words, thing = match.groups()
                found.append(SpatialRelation(bare(subject), Relation(words.replace(" ", "_")), bare(thing)))
            elif match := re.fullmatch(r"(.+?) (?:on|at|in) the (left|right|top left|center)", clause):
                found.append(SpatialRelation(bare(match[1]), Position("at_" + match[2].replace(" ", "_"))))
        return ParsedQuery(text, tuple(found))


@dataclass(frozen=True)
class Placed:
    """A coloured square with its upper left corner on the grid."""

    colour: str
    column: int
    row: int
    size: int = 2


def draw(*squares: Placed, side: int = 128) -> Image.Image:
    """Paint squares on paper."""
    picture = Image.new("RGB", (side, side), PAPER)
    cell = side // GRID
    for s in squares:
        box = (s.column * cell, s.row * cell, (s.column + s.size) * cell, (s.row + s.size) * cell)
        picture.paste(COLOURS[s.colour], box)
    return picture


def paint_gallery(folder: Path, count: int = 60, *, seed: int = 5) -> list[tuple[Placed, Placed]]:
    """Write ``count`` pictures of two squares each, ``0000.png`` onwards; returns what is in them."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(seed)
    names, truth = list(COLOURS), []
    for i in range(count):
        a, b = rng.choice(names, size=2, replace=False)
        (x, y), (u, v) = rng.integers(0, GRID - 1, size=(2, 2))
        while abs(int(x) - int(u)) < 2 and abs(int(y) - int(v)) < 2:
            u, v = rng.integers(0, GRID - 1, size=2)
        pair = Placed(str(a), int(x), int(y)), Placed(str(b), int(u), int(v))
        draw(*pair).save(folder / f"{i:04d}.png")
        truth.append(pair)
    return truth


def index_folder(
    images: Path,
    out: Path,
    encoder: TinyEncoder | None = None,
    *,
    k: int = 16,
    precision: Precision = Precision.INT8,
    grids: bool = True,
) -> Index:
    """Index a folder of readable pictures, without the pipeline."""
    encoder = encoder or TinyEncoder()
    paths = sorted(
        (p for p in images.rglob("*") if p.is_file()),
        key=lambda p: image_id(p.relative_to(images).as_posix()),
    )
    rows, pixels = [], []
    for path in paths:
        name = path.relative_to(images).as_posix()
        with Image.open(path) as picture:
            pixels.append(encoder.prepare(picture.convert("RGB")))
            rows.append(
                {"id": format_id(image_id(name)), "path": name, "content_hash": content_hash(path)}
                | {"bytes": path.stat().st_size, "width": picture.width, "height": picture.height}
                | {
                    "orientation": 1,
                    "format": picture.format,
                    "status": "indexed",
                    "reason": None,
                    "detail": None,
                }
            )
    features = encoder.encode_images(pixels)
    moments = spatial_moments(np.stack(list(features.tokens)))
    tokens = np.concatenate([t.reshape(-1, DIM) for t in features.tokens])
    sketcher = fit_sketcher(tokens, moments, k=k, precision=precision)
    cells = np.stack([pool_tokens(t) for t in features.tokens])
    grid = fit_grid(tokens, cells, vocabulary(encoder)) if grids else None
    packed = None if grid is None else grid.encode(cells)
    codes = sketcher.encode(moments)
    return store(out, images, encoder.spec, features.pooled, sketcher, codes, rows, grid, packed)


def vector_index(
    out: Path, n: int, *, k: int = 8, seed: int = 0, precision: Precision = Precision.INT8
) -> Index:
    """An index of random vectors with a few exact and near duplicates, so that ties and near-ties occur."""
    rng = np.random.default_rng(seed)
    native = rng.standard_normal((n, DIM)).astype(np.float32)
    if n >= 10:
        native[n // 2] = native[1]
        native[n // 3] = native[1]
        native[n // 4] = np.nextafter(native[1], np.float32(np.inf))
    native /= np.linalg.norm(native, axis=1, keepdims=True)
    moments = rng.standard_normal((n, 2, DIM)).astype(np.float32) * np.float32(0.02)
    if n >= 10:
        moments[n // 2] = moments[1]
    sketcher = fit_sketcher(
        rng.standard_normal((200, DIM)).astype(np.float32), moments, k=k, precision=precision
    )
    ids = sorted({format_id(image_id(f"{i}.png")) for i in range(n)})
    rows = [
        {"id": i, "path": f"{i}.png", "content_hash": None, "bytes": None, "width": 1, "height": 1}
        | {"orientation": 1, "format": "PNG", "status": "indexed", "reason": None, "detail": None}
        for i in ids
    ]
    return store(out, out, TinyEncoder().spec, native, sketcher, sketcher.encode(moments), rows)


def store(
    out: Path,
    images: Path,
    spec: EncoderSpec,
    native: Floats,
    sketcher: Sketcher,
    codes: NDArray,
    rows: list[dict],
    grid: GridSketcher | None = None,
    packed: Packed | None = None,
) -> Index:
    """Write an index and open it."""
    out.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(11)
    words = rng.standard_normal((2, 50, DIM))
    words /= np.linalg.norm(words, axis=-1, keepdims=True)
    spread = (sketcher.decode(codes) @ sketcher.project(words[0] - words[1]).T).std() if len(native) else 0.0
    native_spread = (native @ words[0].T).std() if len(native) else 0.0
    lam = float(native_spread / spread) if spread else 1.0
    write_index(
        out,
        image_root=images,
        encoder=spec,
        sketcher=sketcher,
        calibration=Calibration(lam, float(native_spread), float(spread), len(native), 50),
        vectors=[(native, codes, np.zeros((len(native), 0), np.uint8) if packed is None else packed)],
        grid=grid,
        ledger=pa.Table.from_pylist(rows, schema=LEDGER_SCHEMA),
        created="2025-01-01T00:00:00Z",
    )
    return open_index(out)


def lane_sums(products: NDArray) -> NDArray:
    """Row sums (R,) of float64 products (R, D) in the order that scores are defined by."""
    lanes = np.zeros((len(products), 64))
    for start in range(0, products.shape[1], 64):
        some = products[:, start : start + 64]
        lanes[:, : some.shape[1]] += some
    while lanes.shape[1] > 1:
        half = lanes.shape[1] // 2
        lanes = lanes[:, :half] + lanes[:, half:]
    return lanes[:, 0]
