from __future__ import annotations

import numpy as np
import pytest

from service.maps import (
    adr_dense,
    argmax_centre,
    centroid,
    coupling,
    excess,
    softmax_centroid,
    standardised,
    total,
    whole_softmax_centroid,
)

RNG = np.random.default_rng(8)
SHAPES = [(6, 6), (5, 8), (1, 3), (7, 7)]
MAPS = {shape: RNG.integers(-900, 900, (20, 2, *shape)).astype(np.float64) for shape in SHAPES}


def slow_centroid(weights):
    height, width = weights.shape
    mass = x = y = 0.0
    for i in range(height):
        for j in range(width):
            mass += weights[i, j]
            x += weights[i, j] * ((j + 0.5) / width)
            y += weights[i, j] * ((i + 0.5) / height)
    return np.array([x, y]) / max(mass, 1e-30) - 0.5


@pytest.mark.parametrize("shape", SHAPES)
def test_the_centroid_is_the_plain_sum(shape):
    weights = np.abs(MAPS[shape])
    assert np.allclose(total(weights), weights.sum(axis=(-2, -1)))
    for n, w in np.ndindex(20, 2):
        assert np.allclose(centroid(weights)[n, w], slow_centroid(weights[n, w]), atol=1e-12)


@pytest.mark.parametrize("shape", SHAPES)
def test_softmax_centroid_against_a_loop(shape):
    for n in range(5):
        flat = MAPS[shape][n, 0]
        z = (flat - flat.mean()) / flat.std()
        p = np.exp(z / 0.7)
        assert np.allclose(softmax_centroid(flat, tau=0.7), slow_centroid(p / p.sum()), atol=1e-12)


@pytest.mark.parametrize("reader", [softmax_centroid, argmax_centre])
@pytest.mark.parametrize("shape", SHAPES)
def test_mirroring_moves_the_centroid_exactly(shape, reader):
    maps = MAPS[shape]
    here = reader(maps)
    assert np.array_equal(reader(np.ascontiguousarray(maps[..., ::-1])), here * [-1, 1])
    assert np.array_equal(reader(np.ascontiguousarray(maps[..., ::-1, :])), here * [1, -1])


def test_whole_numbers_give_the_same_centroid_and_mirror_exactly():
    maps = MAPS[6, 6]

    def whole(square):
        return whole_softmax_centroid(np.ascontiguousarray(square).reshape(len(square), 2, 36), 6)[0]

    assert np.allclose(whole(maps), softmax_centroid(maps), atol=1e-8)
    assert np.array_equal(whole(maps[..., ::-1]), whole(maps) * [-1, 1])
    assert np.array_equal(whole(maps[..., ::-1, :]), whole(maps) * [1, -1])
    assert not whole(np.full((2, 2, 6, 6), -(2.0**23))).any()
    assert all(whole(maps[n : n + 2])[0].tobytes() == whole(maps)[n].tobytes() for n in range(19))


def test_alone_is_as_in_a_batch():
    maps = MAPS[6, 6]
    together = softmax_centroid(maps)
    assert all(together[n].tobytes() == softmax_centroid(maps[n]).tobytes() for n in range(len(maps)))


def test_units_and_constants_do_not_matter():
    maps = MAPS[5, 8]
    assert np.allclose(softmax_centroid(maps), softmax_centroid(maps * 3e-4 + 0.2))
    assert standardised(np.full((3, 3), 7.0)).tolist() == np.zeros((3, 3)).tolist()
    assert softmax_centroid(np.full((4, 3), 7.0)).tolist() == [0.0, 0.0]


def test_temperature_runs_from_the_moment_to_the_best_cell():
    maps = MAPS[6, 6]
    x = (np.arange(6) + 0.5) / 6 - 0.5
    moment = (standardised(maps) * x).mean(axis=(-2, -1))
    assert np.allclose(softmax_centroid(maps, tau=1e4)[..., 0] * 1e4, moment, atol=1e-4)
    assert np.allclose(softmax_centroid(maps, tau=1e-5), argmax_centre(maps))


def slow_plan(s, epsilon=0.05):
    kernel = np.exp((s - s.max()) / epsilon)
    cells, words = kernel.shape
    v = np.ones(words)
    for _ in range(2000):
        u = (1 / cells) / (kernel @ v)
        v = (1 / words) / (kernel.T @ u)
    return u[:, None] * kernel * v


def test_the_coupling_has_its_margins_and_is_sinkhorns():
    s = RNG.uniform(-0.1, 0.4, (6, 20, 5))
    plan = coupling(s)
    assert np.allclose(plan.sum(axis=-1), 1 / 20, atol=1e-8)
    assert np.allclose(plan.sum(axis=-2), 1 / 5, atol=1e-12)
    for n in range(6):
        assert np.allclose(plan[n], slow_plan(s[n]), atol=1e-8)
        assert plan[n].tobytes() == coupling(s[n : n + 1])[0].tobytes()


def test_adr_by_hand():
    # Two cells, two words, each word at home in one cell. By symmetry the plan is [[a, b], [b, a]] with a + b = 1/2
    # and a / b = exp(0.1 / 0.05): a = e^2 / (2 + 2 e^2). What exceeds 1/4 is left on the diagonal.
    s = np.array([[0.3, 0.2], [0.2, 0.3]])
    a = np.exp(2) / (2 + 2 * np.exp(2))
    assert np.allclose(coupling(s), [[a, 0.5 - a], [0.5 - a, a]], atol=1e-12)
    assert np.allclose(excess(s), [[a - 0.25, 0], [0, a - 0.25]], atol=1e-12)
    weights = excess(s).T.reshape(2, 1, 2)
    assert np.allclose(centroid(weights), [[-0.25, 0], [0.25, 0]])
    # The dense variant: softmax over the cells, (e^2, 1) / (e^2 + 1); the centroid is at -1/4 (e^2 - 1) / (e^2 + 1).
    share = np.exp(2) / (np.exp(2) + 1)
    assert np.allclose(adr_dense(s), [[share, 1 - share], [1 - share, share]])
    assert np.allclose(centroid(adr_dense(s).T.reshape(2, 1, 2))[0], [-0.25 * np.tanh(1), 0])


def test_a_word_without_weight_is_at_the_published_origin():
    assert centroid(np.zeros((2, 2))).tolist() == [-0.5, -0.5]
    # An even coupling leaves no excess anywhere: both words are there, and the displacement abstains.
    assert np.abs(excess(np.full((4, 2), 0.2))).max() < 1e-12


def test_two_words_and_a_large_epsilon_have_the_sign_of_the_moment():
    x = (np.arange(6) + 0.5) / 6 - 0.5
    agree = 0
    for _ in range(50):
        s = RNG.normal(0.2, 0.05, (36, 2))
        weights = excess(s, epsilon=50.0).T.reshape(2, 6, 6)
        moment = ((s[:, 0] - s[:, 1]).reshape(6, 6) * x).sum()
        centres = centroid(weights)
        agree += (centres[0, 0] - centres[1, 0] > 0) == (moment > 0)
    assert agree == 50


def test_swapping_the_words_swaps_the_columns():
    s = RNG.uniform(0, 0.4, (12, 2))
    assert np.allclose(excess(s)[:, ::-1], excess(s[:, ::-1]), atol=1e-15)
    assert adr_dense(s)[:, ::-1].tobytes() == np.ascontiguousarray(adr_dense(s[:, ::-1])).tobytes()


def test_a_small_thing_beside_a_large_one_in_one_half():
    small, large = np.zeros((6, 6)), np.zeros((6, 6))
    small[1, 0] = 1.0
    large[2:5, 1:4] = 1.0  # farther right, and still left of the middle
    x = (np.arange(6) + 0.5) / 6 - 0.5
    assert ((small - large) * x).sum() > 0  # the moment has it the wrong way round
    here, there = softmax_centroid(np.stack([small, large]))
    assert here[0] < there[0]
