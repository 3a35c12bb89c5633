"""How fast, how flat and how small: building an index, against its encoder alone.

    python -m benchmarks.build [--data DIR] [--quick] [--json FILE]
    python -m benchmarks.build --full 118287 --scratch DIR --encoder small-random-vit --pretrained random:0

*Speed*: encoding alone, decoding alone, and a whole build, on the same photographs in turns in one run, so that a
ratio holds although the machine drifts. *Memory*: resident bytes of a build and its decoding processes over 20,000
pictures, with an encoder that costs next to nothing. *Full*: one build of as many pictures as asked for, photographs
varied by crop, scale, colour and mirror; then a cold open and a first answer in a new process. *Cold*: that alone, with
random vectors.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import open_clip
import torch
from PIL import Image, ImageEnhance

from benchmarks.record import DEFAULT_DATA, Metric, encoder_parser, write_result
from benchmarks.synthetic_folder import write_synthetic
from indexer.build import BATCH, FILE_SECONDS, Progress, build_index
from indexer.decode import DecodeJob, DecodeSetup
from indexer.encoder import (
    COMPACT,
    DenseMode,
    DenseView,
    Encoder,
    EncoderSpec,
    ImageFeatures,
    Pixels,
    TextFeatures,
)
from indexer.load import load_encoder
from indexer.pipeline import DecodePool
from indexer.prepare import OpenClipPreparer
from indexer.scan import ScannedFile
from indexer.store import open_index
from indexer.stream import encode_here

SEED = 0
SLOPE_PICTURES = 20_000
SMALL_VIT = Path(__file__).with_name("small-random-vit.json")
"""A vision transformer of 2.7 million weights, for builds that would take a real one hours. Never trained: its speed
and memory mean something, its answers do not."""
_ROUNDS = 5
_DIM = 256


def main() -> None:
    """Run the benchmark from the command line."""
    options = encoder_parser("Speed, memory and size of index builds.", default=COMPACT)
    options.add_argument("--threads", type=int, default=1, help="threads of the encoder (1)")
    options.add_argument("--count", type=int, help="photographs a round (64, quick 32)")
    options.add_argument("--full", type=int, metavar="COUNT", help="build one index of this many pictures")
    options.add_argument("--scratch", type=Path, help="where the pictures of --full are kept, and its index")
    options.add_argument(
        "--cold", type=int, metavar="COUNT", help="only open an index of this many random vectors, cold"
    )
    given = options.parse_args()
    torch.set_num_threads(given.threads)
    if given.cold:
        rounds = measure_cold(given.cold)
        metrics = [
            Metric(name, median(one[name] for one in rounds), "s", n=len(rounds)) for name in rounds[0]
        ]
        cold = {"rounds": rounds, "load_average": os.getloadavg()}
        write_result("build_cold", metrics, encoder=COMPACT, seed=SEED, path=given.json, extra=cold)
        return
    photographs = (given.data or DEFAULT_DATA / "coco" / "train") / "images"
    if not photographs.is_dir():
        raise SystemExit(f"no photographs in {photographs}; name a data folder with --data")
    open_clip.add_model_config(SMALL_VIT)
    encoder = load_encoder(given.encoder, given.pretrained, device="cpu", dense_view=_view(given.encoder))
    name = f"{encoder.spec.name} ({encoder.spec.pretrained})"
    if given.full:
        metrics, extra = measure_full(photographs, given, encoder)
    else:
        count = given.count or (32 if given.quick else 64)
        paths = sorted(photographs.iterdir())[:count]
        speed, extra = measure_speed(paths, encoder, rounds=2 if given.quick else _ROUNDS)
        pictures = SLOPE_PICTURES // 4 if given.quick else SLOPE_PICTURES
        slope, memory = measure_memory(pictures)
        metrics, extra = [*speed, slope], {**extra, "memory": memory}
    extra |= {"encoder_threads": given.threads, "load_average": os.getloadavg()}
    write_result("build", metrics, encoder=name, seed=SEED, path=given.json, extra=extra)


# Speed -----------------------------------------------------------------------------------------------------


def measure_speed(
    paths: Sequence[Path], encoder: Encoder, *, rounds: int
) -> tuple[list[Metric], dict[str, Any]]:
    """Encoding alone, decoding alone, and both in a build, at one and at two decoding processes."""
    setup = DecodeSetup(encoder.preparer, None, FILE_SECONDS)
    with DecodePool(setup, 0) as pool:
        jobs = ((path, DecodeJob(path)) for path in paths)
        pixels = [one.pixels for _, one in pool.in_order(jobs, ahead=1) if one and one.pixels]
    _encode(encoder, pixels[:BATCH])
    seconds: dict[str, list[float]] = {}
    for _ in range(rounds):
        for workers in (1, 2):
            seconds.setdefault("encode", []).append(_timed(lambda: _encode(encoder, pixels)))
            seconds.setdefault(f"decode_{workers}", []).append(_decode_seconds(paths, setup, workers))
            seconds.setdefault(f"both_{workers}", []).append(_both_seconds(paths, encoder, setup, workers))
    n = len(pixels)
    rate = {name: n / median(times) for name, times in seconds.items()}
    # Each build is held against the encoder alone as it was just before, for the machine drifts.
    alone = {w: seconds["encode"][w - 1 :: 2] for w in (1, 2)}
    ratio = {w: median(e / b for e, b in zip(alone[w], seconds[f"both_{w}"], strict=True)) for w in (1, 2)}
    metrics = [
        Metric("images_per_s", rate["both_2"], "images/s", n=n),
        Metric("encode_only_images_per_s", rate["encode"], "images/s", n=n),
        *(Metric(f"images_per_s_{w}_workers", rate[f"both_{w}"], "images/s", n=n) for w in (1, 2)),
        *(
            Metric(f"decode_only_images_per_s_{w}_workers", rate[f"decode_{w}"], "images/s", n=n)
            for w in (1, 2)
        ),
        *(Metric(f"share_of_encode_only_{w}_workers", ratio[w], n=n) for w in (1, 2)),
    ]
    return metrics, {"seconds": seconds}


def _encode(encoder: Encoder, pixels: Sequence[Pixels]) -> None:
    for start in range(0, len(pixels), BATCH):
        encoder.encode_images(pixels[start : start + BATCH])


def _decode_seconds(paths: Sequence[Path], setup: DecodeSetup, workers: int) -> float:
    with DecodePool(setup, workers) as pool:
        _warm(pool, paths[0])
        jobs = ((path, DecodeJob(path)) for path in paths)
        return _timed(lambda: sum(1 for _ in pool.in_order(jobs, ahead=workers + 2 * BATCH)))


def _both_seconds(paths: Sequence[Path], encoder: Encoder, setup: DecodeSetup, workers: int) -> float:
    """From the first vectors to the last: in the steady state of a build, when its processes are up."""
    files = [ScannedFile(path.name, path) for path in paths]
    jobs = ((file, DecodeJob(file.path)) for file in [files[0]] * BATCH + files)
    stream = encode_here(encoder, workers)(jobs, setup, BATCH)
    for _ in range(BATCH):
        next(stream)
    return _timed(lambda: sum(1 for _ in stream))


def _warm(pool: DecodePool, path: Path) -> None:
    for future in [pool.submit(DecodeJob(path)) for _ in range(2 * pool.workers)]:
        future.result()


def _timed(run: Any) -> float:
    started = time.perf_counter()
    run()
    return time.perf_counter() - started


# Memory ----------------------------------------------------------------------------------------------------


class Faint:
    """Costs next to nothing, so that 20,000 pictures take seconds: colours of a 4 x 4 grid in 256 dimensions."""

    def __init__(self) -> None:
        rng = np.random.default_rng(SEED)
        self._colours = rng.standard_normal((3, _DIM)).astype(np.float32)
        self.spec = EncoderSpec(
            name="faint", pretrained="random:0", weights_sha256="0", preprocessing="4 x 4", dim=_DIM, grid=(4, 4),
            dense_mode=DenseMode.HEAD, dense_view=DenseView.NATIVE, template="a {}", context_length=77,
            numeric="float32",
        )  # fmt: skip
        self.preparer = OpenClipPreparer((4, 4), (0.0,) * 3, (1.0,) * 3, "squash", "bicubic", 0)

    def prepare(self, image: Image.Image) -> Pixels:
        """Preprocess one picture."""
        return self.preparer(image)

    def encode_images(self, batch: Sequence[Pixels]) -> ImageFeatures:
        """Embed a batch of pictures."""
        tokens = np.stack([pixels.native for pixels in batch]).transpose(0, 2, 3, 1) @ self._colours
        pooled = tokens.mean(axis=(1, 2)) + 1e-3
        return ImageFeatures(pooled / np.linalg.norm(pooled, axis=1, keepdims=True), list(tokens))

    def encode_texts(self, texts: Sequence[str]) -> TextFeatures:
        """Embed texts, at random."""
        vectors = np.random.default_rng(len(texts)).standard_normal((len(texts), _DIM)).astype(np.float32)
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        return TextFeatures(vectors, (False,) * len(texts))


@dataclass
class Watch:
    """Resident memory and speed while a build runs, every so many pictures."""

    every: int
    started: float = field(default_factory=time.monotonic)
    rows: list[dict[str, float]] = field(default_factory=list)

    def __call__(self, now: Progress) -> None:
        """Take a reading, as a build's progress callback."""
        if self.rows and now.done - self.rows[-1]["done"] < self.every and now.done < now.total:
            return
        seconds = time.monotonic() - self.started
        own, children = resident_bytes()
        last = self.rows[-1] if self.rows else {"done": 0, "seconds": 0.0}
        rate = (now.done - last["done"]) / max(seconds - last["seconds"], 1e-9)
        reading = {"done": now.done, "seconds": round(seconds, 2), "images_per_s": round(rate, 1)}
        self.rows.append({**reading, "rss": own, "rss_decoders": children})


def resident_bytes() -> tuple[int, int]:
    """Resident memory of this process, and of its children together."""
    page = os.sysconf("SC_PAGE_SIZE")

    def of(pid: int | str) -> int:
        try:
            return int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]) * page
        except OSError:
            return 0

    tasks = Path("/proc/self/task")
    children = {c for t in tasks.iterdir() for c in (t / "children").read_text(encoding="ascii").split()}
    return of("self"), sum(map(of, children))


def measure_memory(count: int) -> tuple[Metric, list[dict[str, float]]]:
    """Slope of resident memory over a build, once what grows to a fixed size (basis, sample, buffers) is there."""
    folder = Path(tempfile.mkdtemp(prefix="beside-memory-"))
    try:
        rng = np.random.default_rng(SEED)
        for number in range(count):
            path = folder / "images" / f"{number // 1000:03d}" / f"{number:06d}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(rng.integers(0, 256, (4, 4, 3), dtype=np.uint8)).save(path)
        watch = Watch(every=count // 40)
        build_index(folder / "images", folder / "index", Faint(), workers=1, progress=watch)
    finally:
        shutil.rmtree(folder)
    # The last reading is left out: all decoding is done by then.
    rows = [row for row in watch.rows[:-1] if row["done"] >= count // 5]
    done, rss = ([row[key] for row in rows] for key in ("done", "rss"))
    both = np.array(rss) + np.array([row["rss_decoders"] for row in rows])
    slope, offset = np.polyfit(done, both, 1)
    spread = float(np.std(both - slope * np.array(done) - offset) / np.std(done) / np.sqrt(len(done)))
    metric = Metric(
        "rss_slope_bytes_per_image", float(slope), "bytes", slope - 2 * spread, slope + 2 * spread, count
    )
    return metric, watch.rows


# A full build ----------------------------------------------------------------------------------------------


def measure_full(
    photographs: Path, given: argparse.Namespace, encoder: Encoder
) -> tuple[list[Metric], dict[str, Any]]:
    """One build from nothing, and the index that comes out of it opened cold."""
    if given.scratch is None:
        raise SystemExit("--full needs --scratch, a folder outside the project")
    pictures, folder = given.scratch / "pictures", given.scratch / "index"
    vary_photographs(photographs, pictures, given.full)
    shutil.rmtree(folder, ignore_errors=True)
    watch = Watch(every=max(1, given.full // 100))
    summary = build_index(pictures, folder, encoder, workers=1, progress=watch)
    index = open_index(folder)
    size = {role: file.bytes / len(index) for role, file in index.manifest.files.items()}
    cold = open_cold(folder)
    peak = max(row["rss"] for row in watch.rows)
    late = [row["rss"] for row in watch.rows if row["done"] >= given.full // 10]
    rates = [row["images_per_s"] for row in watch.rows[1:]]
    n = summary.indexed
    metrics = [
        Metric("full_seconds", summary.seconds, "s", n=n),
        Metric("full_images_per_s", summary.images_per_s, "images/s", *_spread(rates), n),
        Metric("full_peak_rss", peak, "bytes", n=n),
        Metric("full_rss_growth", max(late) - late[0], "bytes", n=n),
        *(Metric(f"full_{role}_bytes_per_image", value, "bytes", n=n) for role, value in size.items()),
        *(Metric(f"full_{name}", value, "s", n=n) for name, value in cold.items()),
    ]
    return metrics, {"over_time": watch.rows, "unreadable": len(summary.unreadable)}


def measure_cold(count: int) -> list[dict[str, float]]:
    """Opening an index and its first answer, each time in a new process and with the files out of the cache."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = write_synthetic(Path(scratch) / "index", count, grid=True)
        return [open_cold(folder) for _ in range(_COLD_ROUNDS)]


def open_cold(folder: Path) -> dict[str, float]:
    """Seconds in a new process: to open an index, and for the first answer once the encoder is loaded."""
    command = [sys.executable, "-c", _COLD, str(folder), str(SMALL_VIT)]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    found: dict[str, float] = json.loads(output.splitlines()[-1])
    return found


def _spread(rates: Sequence[float]) -> tuple[float, float]:
    """Where the rate lay for 95 % of the run; a build is one sample, and this is how flat it was."""
    low, high = np.quantile(rates, [0.025, 0.975])
    return float(low), float(high)


_COLD_ROUNDS = 5
_COLD = """
import json, os, sys, time
from pathlib import Path
folder = Path(sys.argv[1])
for path in folder.iterdir():
    if path.is_file():
        with path.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
import open_clip
from indexer.load import load_encoder_for
open_clip.add_model_config(sys.argv[2])
from indexer.manifest import read_manifest
from indexer.store import open_index
from parser import QueryParser
from service.search import Searcher
started = time.perf_counter()
index = open_index(folder)
opened = time.perf_counter() - started
encoder = load_encoder_for(index.manifest.encoder, device="cpu")
parser = QueryParser()
loaded = time.perf_counter()
Searcher(index, encoder, parser, device="cpu").search("a cup to the left of a laptop", k=10)
answered = time.perf_counter() - loaded
print(json.dumps({"cold_open_seconds": opened, "first_answer_seconds": answered}))
"""


def vary_photographs(source: Path, out: Path, count: int) -> None:
    """Write small JPEGs, each a photograph cropped, scaled, recoloured and half the time mirrored. Goes on."""
    photographs: list[Image.Image] = []
    for number in range(count):
        path = out / f"{number // 1000:03d}" / f"{number:06d}.jpg"
        if path.exists():
            continue
        if not photographs:
            for original in sorted(source.iterdir()):
                with Image.open(original) as opened:
                    opened.draft("RGB", (320, 240))
                    photographs.append(opened.convert("RGB"))
        path.parent.mkdir(parents=True, exist_ok=True)
        _varied(photographs[number % len(photographs)], np.random.default_rng((SEED, number))).save(
            path, "JPEG", quality=80
        )


def _varied(picture: Image.Image, rng: np.random.Generator) -> Image.Image:
    width, height = picture.size
    share = rng.uniform(0.6, 1.0)
    w, h = int(width * share), int(height * share)
    x, y = int(rng.integers(0, width - w + 1)), int(rng.integers(0, height - h + 1))
    scale = rng.uniform(144, 208) / min(w, h)
    size = max(1, round(w * scale)), max(1, round(h * scale))
    varied = picture.resize(size, Image.Resampling.BILINEAR, box=(x, y, x + w, y + h))
    if rng.integers(2):
        varied = varied.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    varied = ImageEnhance.Color(varied).enhance(rng.uniform(0.5, 1.5))
    return ImageEnhance.Brightness(varied).enhance(rng.uniform(0.7, 1.3))


def _view(name: str) -> DenseView | None:
    """One pass a picture where the tower allows a choice."""
    return None if name == COMPACT else DenseView.NATIVE


if __name__ == "__main__":
    main()
