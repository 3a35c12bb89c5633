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


def test_it_travels_to_a_process_without_torch() -> None:
    preparer = OpenClipPreparer((32, 32), MEAN, STD, "squash", "bicubic", 0, frame_stride=16)
    script = """
import pickle, sys
from PIL import Image
pixels = pickle.load(sys.stdin.buffer)(Image.new("RGB", (640, 480), (1, 2, 3)))
print(pixels.native.shape, pixels.dense.shape, "torch" in sys.modules)
"""
    ran = subprocess.run(
        [sys.executable, "-c", script],
        input=pickle.dumps(preparer),
        capture_output=True,
        cwd=ROOT,
        check=True,
    )
    assert ran.stdout.decode().strip() == "(3, 32, 32) (3, 336, 448) False"
    assert preparer.short_side == 336
