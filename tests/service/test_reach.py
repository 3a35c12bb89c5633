from __future__ import annotations

import numpy as np
import pytest

from indexer.compiled import compiled
from service.reach import TOGETHER, lowest, reaching


@compiled
def reached(scores, residual, other, at, norm, other_norm, floor):
    return reaching(scores, residual, other, at, norm, other_norm, floor)


@compiled
def places(bits, out):
    some = 0
    while bits:
        out[some] = lowest(bits)
        bits &= bits - 1
        some += 1
    return some


@pytest.mark.parametrize("share", [0.0, 0.02, 0.5, 1.0])
def test_bits_are_the_rows_that_reach_a_floor(share):
    random = np.random.default_rng(0)
    out = np.empty(TOGETHER, np.int64)
    for at in (0, 3, 17):
        scores, residual, other = random.standard_normal((3, 64)).astype(np.float32)
        norm, other_norm = np.float32(0.3), np.float32(0.2)
        bounds = scores + (residual * norm + other * other_norm)
        floor = np.float32(np.quantile(bounds, 1 - share)) if share else np.float32(np.inf)
        bits = reached(scores, residual, other, at, norm, other_norm, floor)
        found = out[: places(bits, out)]
        assert np.array_equal(found, np.flatnonzero(bounds[at : at + TOGETHER] >= floor))


def test_what_is_no_number_reaches_nothing():
    scores = np.full(TOGETHER, np.nan, np.float32)
    none = np.zeros(TOGETHER, np.float32)
    assert not reached(scores, none, none, 0, np.float32(0), np.float32(0), np.float32(-np.inf))
