import numpy as np
import pytest

from indexer.sketch import Precision, Sketcher, fit_sketcher, pca_components, random_components, take_codes

RNG = np.random.default_rng(0)
MIX = RNG.standard_normal((24, 24)) * np.geomspace(1, 0.01, 24)[:, None]
TOKENS = (RNG.standard_normal((500, 24)) @ MIX).astype(np.float32)
MOMENTS = (RNG.standard_normal((40, 2, 24)) @ MIX * 0.1).astype(np.float32)


@pytest.mark.parametrize(
    "components", [pca_components(TOKENS, 8), random_components(24, 8, seed=1)], ids=["pca", "random"]
)
def test_components_are_orthonormal(components: np.ndarray) -> None:
    np.testing.assert_allclose(components @ components.T, np.eye(8), atol=1e-5)


def test_components_keep_the_largest_variance_first() -> None:
    kept = np.var(TOKENS @ pca_components(TOKENS, 24).T, axis=0)
    assert (np.diff(kept) <= 1e-5).all()


def test_fitting_is_deterministic_and_blind_to_order() -> None:
    one, other = fit_sketcher(TOKENS, MOMENTS, k=8), fit_sketcher(TOKENS[::-1], MOMENTS[::-1], k=8)
    assert np.array_equal(fit_sketcher(TOKENS, MOMENTS, k=8).components, one.components)
    np.testing.assert_allclose(other.components, one.components, atol=1e-4)


def test_all_components_lose_nothing_but_rounding() -> None:
    sketcher = fit_sketcher(TOKENS, MOMENTS, k=24, precision=Precision.FP16)
    words = RNG.standard_normal((5, 24)).astype(np.float32)
    sketched = sketcher.decode(sketcher.encode(MOMENTS)) @ sketcher.project(words).T
    np.testing.assert_allclose(sketched, MOMENTS @ words.T, atol=2e-2)


@pytest.mark.parametrize("precision", Precision)
def test_codes_survive_and_stay_close(precision: Precision) -> None:
    sketcher = fit_sketcher(TOKENS, MOMENTS, k=8, precision=precision)
    codes = sketcher.encode(MOMENTS)
    assert codes.dtype == (np.int8 if precision is Precision.INT8 else np.float16)
    error = np.abs(sketcher.decode(codes) - sketcher.project(MOMENTS))
    step = sketcher.scale if precision is Precision.INT8 else np.float32(2e-3)
    assert (error <= 0.51 * step).all()


def test_int8_saturates_instead_of_wrapping() -> None:
    sketcher = fit_sketcher(TOKENS, MOMENTS, k=8)
    codes, far = sketcher.encode(MOMENTS).astype(int), sketcher.encode(MOMENTS * 100).astype(int)
    assert np.array_equal(np.sign(far)[codes != 0], np.sign(codes)[codes != 0])
    assert abs(far).max() == 127


def test_a_flat_collection_is_no_division_by_zero() -> None:
    sketcher = fit_sketcher(np.ones((4, 24), np.float32), np.zeros((4, 2, 24), np.float32), k=64)
    assert sketcher.k == 24
    assert not sketcher.encode(np.zeros((1, 2, 24), np.float32)).any()


def test_k_is_capped_at_the_dimension() -> None:
    assert isinstance(fit_sketcher(TOKENS, MOMENTS, k=500), Sketcher)
    assert fit_sketcher(TOKENS, MOMENTS, k=500).k == 24


@pytest.mark.parametrize("count", [0, 1, 50])
def test_some_codes_are_those_of_all(count) -> None:
    random = np.random.default_rng(0)
    codes = random.integers(-128, 128, (40, 6)).astype(np.int8)
    stored = codes.view(np.uint8) + np.uint8(128)
    rows = random.integers(0, 40, count)
    assert np.array_equal(take_codes(stored, rows, 128), codes[rows])


@pytest.mark.parametrize("row", [-1, 40])
def test_a_row_that_is_not_there_is_refused(row) -> None:
    with pytest.raises(IndexError, match=f"{row}.*0 to 39"):
        take_codes(np.zeros((40, 6), np.uint8), np.array([3, row]), 128)
