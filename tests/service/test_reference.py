from __future__ import annotations

import numpy as np
import pytest

from service.reference import LEAST_SPREAD, Reference
from tests.support import vector_index


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    return vector_index(tmp_path_factory.mktemp("reference"), 200)


def test_the_unit_makes_a_displacement_vary_as_the_native_score(index):
    direction = np.random.default_rng(1).standard_normal((2, index.manifest.k))
    moments = index.sketcher.decode(index.sketch()).reshape(len(index), -1)
    unit = Reference(index).displacement_unit(direction)
    assert (unit * (moments @ direction.ravel())).std() == pytest.approx(
        index.manifest.calibration.native_std, rel=1e-5
    )


def test_opposite_directions_have_the_same_unit(index):
    direction = np.random.default_rng(2).standard_normal((2, index.manifest.k))
    reference = Reference(index)
    assert reference.displacement_unit(direction) == reference.displacement_unit(-direction)


def test_noise_is_not_made_loud(index):
    unit = Reference(index).displacement_unit(np.full((2, index.manifest.k), 1e-9))
    assert unit == pytest.approx(index.manifest.calibration.lam / LEAST_SPREAD)


@pytest.mark.parametrize("images", [0, 1])
def test_where_nothing_can_be_measured_lambda_stands(tmp_path, images):
    index = vector_index(tmp_path, images)
    assert (
        Reference(index).displacement_unit(np.ones((2, index.manifest.k))) == index.manifest.calibration.lam
    )
