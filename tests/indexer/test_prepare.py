from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from open_clip.transform import image_transform
from PIL import Image

from indexer.prepare import OpenClipPreparer

ROOT = Path(__file__).resolve().parents[2]
MEAN, STD = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)


def noise(width: int, height: int) -> Image.Image:
    return Image.fromarray(np.random.default_rng(width).integers(0, 256, (height, width, 3), dtype=np.uint8))


def said_elsewhere(script: str, preparer: OpenClipPreparer) -> str:
    """What a script prints in a process of its own, with the preparer pickled on its standard input."""
    command = [sys.executable, "-c", script]
    ran = subprocess.run(command, input=pickle.dumps(preparer), capture_output=True, cwd=ROOT, check=True)
    return ran.stdout.decode().strip()


@pytest.mark.parametrize("size", [(64, 64), (48, 80)])
@pytest.mark.parametrize("mode", ["shortest", "longest", "squash"])
@pytest.mark.parametrize("interpolation", ["bicubic", "bilinear"])
def test_the_bits_are_those_of_open_clip(size: tuple[int, int], mode: str, interpolation: str) -> None:
    theirs = image_transform(
        size, is_train=False, mean=MEAN, std=STD, resize_mode=mode, interpolation=interpolation, fill_color=7
    )
    ours = OpenClipPreparer(size, MEAN, STD, mode, interpolation, 7)
    shapes = [(64, 64), (100, 75), (75, 100), (333, 65), (65, 331), (10, 7), (1, 1), (1, 50)]
    for width, height in shapes:
        picture = noise(width, height)
        assert np.array_equal(ours(picture).native, theirs(picture).numpy()), (width, height)
    assert ours(noise(1000, 3)).native.shape == (3, *size)


@pytest.mark.parametrize("size", [(64, 64), (48, 80)])
@pytest.mark.parametrize("shape", [(1, 700), (700, 1), (3, 1000), (1000, 3)])
def test_a_strip_is_cut_before_it_is_scaled_and_looks_the_same(
    size: tuple[int, int], shape: tuple[int, int]
) -> None:
    theirs = image_transform(size, is_train=False, mean=(0.0,) * 3, std=(1.0,) * 3, resize_mode="shortest")
    ours = OpenClipPreparer(size, (0.0,) * 3, (1.0,) * 3, "shortest", "bicubic", 0)
    picture = noise(*shape)
    np.testing.assert_allclose(ours(picture).native, theirs(picture).numpy(), atol=1.01 / 255)


@pytest.mark.parametrize("mode", ["shortest", "longest", "squash"])
@pytest.mark.skipif(
    not Path("/proc/self/status").exists(), reason="the system does not say what memory was taken"
)
def test_a_long_strip_takes_no_memory_beyond_its_own(tmp_path: Path, mode: str) -> None:
    Image.new("RGB", (1, 20_000_000), (51, 102, 204)).save(tmp_path / "strip.png")
    preparer = OpenClipPreparer((224, 224), (0.0,) * 3, (1.0,) * 3, mode, "bicubic", 0, frame_stride=16)
    script = f"""
import pickle, re, sys
from pathlib import Path
from indexer.decode import DecodeJob, DecodeSetup, decode
preparer = pickle.load(sys.stdin.buffer)
decoded = decode(DecodeJob(Path({str(tmp_path / "strip.png")!r})), DecodeSetup(preparer, None, 60.0))
assert decoded.reason is None
assert (decoded.pixels.native.max(axis=(1, 2)) * 255).round().tolist() == [51, 102, 204]
print(re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())[1])
"""
    assert int(said_elsewhere(script, preparer)) < 600_000  # kB; opened, the strip takes 500 MB of them


def test_it_travels_to_a_process_without_torch() -> None:
    preparer = OpenClipPreparer((32, 32), MEAN, STD, "squash", "bicubic", 0, frame_stride=16)
    script = """
import pickle, sys
from PIL import Image
pixels = pickle.load(sys.stdin.buffer)(Image.new("RGB", (640, 480), (1, 2, 3)))
print(pixels.native.shape, pixels.dense.shape, "torch" in sys.modules)
"""
    assert said_elsewhere(script, preparer) == "(3, 32, 32) (3, 336, 448) False"
    assert preparer.short_side == 336
