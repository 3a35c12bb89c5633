from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks.plain_scan import PlainScan
from benchmarks.synthetic import random_queries, synthetic_index
from benchmarks.timing import Times, interleave, ratio
from service.engine import Engine

ROOT = Path(__file__).resolve().parents[2]


def test_synthetic_index_is_one_to_an_engine():
    index = synthetic_index(3000, 64, 8)
    queries = [*random_queries(index, 2, joint=False), *random_queries(index, 2, joint=True)]
    tops = [Engine(index, scan=scan).top(queries, [50] * 4) for scan in (PlainScan(index), None)]
    for a, b in zip(*tops, strict=True):
        assert np.array_equal(a.rows, b.rows)
        assert len(a.rows) == 50
    assert np.allclose(np.linalg.norm(index.native(), axis=1), 1, atol=1e-6)


def test_joint_queries_weigh_both_parts_alike():
    index = synthetic_index(3000, 64, 8)
    query = random_queries(index, 1, joint=True)[0]
    moments = index.sketcher.decode(index.sketch()).reshape(len(index), -1)
    assert (moments @ query.spatial.ravel()).std() == pytest.approx(
        (index.native() @ query.native).std(), rel=0.1
    )


def test_times_are_taken_in_turns():
    order = []
    times = interleave({"a": lambda: order.append("a"), "b": lambda: order.append("b")}, rounds=4)
    assert "".join(order) == "ab" * 5
    assert len(times["a"].seconds) == 4


def test_a_ratio_is_taken_round_by_round():
    value, low, high = ratio(Times((1.0, 10.0, 100.0)), Times((2.0, 20.0, 200.0)))
    assert value == low == high == 0.5


WITHOUT = """
import sys
class Only:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {"faiss", "pyarrow", "open_clip", "timm", "transformers", "PIL", "fastapi",
                                  "pydantic", "safetensors", "torchvision", "scipy", "matplotlib", "numba"}:
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Only())
sys.argv = ["latency_device", "--device", "cpu", "--quick", "--dim", "32", "--k", "4", "--json", sys.argv[1]]
import benchmarks.latency_device as module
module.SIZES = module.BATCHES = (1, 2)
module.clean_environment = lambda: None
module.main()
"""


def test_the_device_script_needs_torch_and_numpy_alone(tmp_path):
    out = tmp_path / "device.json"
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT, str(out)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    metrics = {m["name"]: m["value"] for m in json.loads(out.read_text())["metrics"]}
    assert metrics["exact_top1000_20000"] == 1.0
