from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from benchmarks import testbed, testbed_train
from benchmarks.testbed_experiments import DIVERSITY, EXPERIMENTS, Experiment, of_diversity, stacked
from benchmarks.testbed_measures import ABLATIONS, accuracies, match, measure
from benchmarks.testbed_model import (
    IMAGE,
    TERMS,
    TEXT,
    Architecture,
    attention_terms,
    encode,
    initialise,
    parts,
    pick,
    rotate,
    stack,
)
from benchmarks.testbed_train import Masks, Model, Schedule, Trainer, batches, contrastive_loss, scramble
from benchmarks.testbed_world import BACKGROUND, CLS, END, IN, IS, LEFT, N_VAL_IMAGES, RIGHT, World, draw
from indexer.openclip import one_core

SMALL = World(n_tot=7, n_pair=4, n_1=4, n_2=5)
ARCHITECTURES = {
    "plain": Architecture(width=32),
    "two layers": Architecture(2, 2, width=32),
    "rope": Architecture(rope=True, width=32),
    "rope, two layers": Architecture(2, 1, rope=True, width=32),
    "norm and mlp": Architecture(2, 2, mlp=48, norm=True, width=32),
    "norm": Architecture(norm=True, width=32),
}


@pytest.fixture(autouse=True)
def _one_thread():
    with one_core():
        yield


@pytest.fixture(params=ARCHITECTURES.values(), ids=ARCHITECTURES)
def architecture(request):
    return request.param


def two_models(architecture, length=11):
    return stack([initialise(architecture, length, seed) for seed in (3, 4)])


def keys(scenes):
    return {tuple(image) for image in scenes.images.tolist()}


@pytest.mark.parametrize(
    "world",
    [SMALL, replace(SMALL, both=True), replace(SMALL, n_3=2), World(rows=4, columns=4, n_2=3)],
    ids=["left", "left and right", "three objects", "4 x 4"],
)
def test_what_is_tested_was_not_trained_on(world):
    data = draw(world, 5)
    train, tests = keys(data.train), [data.single, data.seen, data.unseen, data.triple]
    assert not any(train & keys(scenes) for scenes in tests)
    assert len(data.train) == world.training_pictures
    assert len(data.seen) == world.n_pair * (world.n_pair - 1) * N_VAL_IMAGES
    in_pairs = {label for labels in data.train.labels if (labels > 0).sum() > 1 for label in labels if label}
    assert in_pairs == set(range(1, world.n_pair + 1))
    assert set(data.unseen.labels.flat) == set(range(world.n_pair + 1, world.n_tot + 1))
    for scenes in tests:
        assert len(keys(scenes)) == len(scenes)
    assert (draw(world, 5).train.images == data.train.images).all()
    assert not np.array_equal(draw(world, 6).train.images, data.train.images)


@pytest.mark.parametrize("both", [False, True])
def test_captions_say_what_is_there(both):
    world = replace(SMALL, both=both, rows=2, columns=5)
    data = draw(world, 0)
    for scenes in (data.train, data.single, data.seen, data.unseen):
        assert (scenes.images[:, 0] == CLS).all()
        for image, valid, caption in zip(scenes.images, scenes.valid, scenes.caption, strict=True):
            places = [at for at in range(1, world.length) if image[at] != BACKGROUND]
            ordered = [int(image[at]) for at in sorted(places, key=lambda at: (at - 1) % world.columns)]
            if len(ordered) == 1:
                true = {(ordered[0], IS, IN, END)}
            else:
                assert len({(at - 1) % world.columns for at in places}) == 2
                left, right = ordered
                true = {(left, LEFT, right, END)} | ({(right, RIGHT, left, END)} if both else set())
            assert {tuple(data.captions[row]) for row in valid if row >= 0} == true
            assert caption in valid
    assert len({tuple(caption) for caption in data.captions.tolist()}) == len(data.captions)
    assert len(data.captions) == 7 + (4 * 3 + 3 * 2) * (2 if both else 1)


def test_three_objects_have_three_true_captions():
    data = draw(replace(SMALL, n_3=1), 1)
    for labels, valid in zip(data.triple.labels, data.triple.valid, strict=True):
        a, b, c = labels
        assert {tuple(data.captions[row][:3]) for row in valid} == {(a, LEFT, b), (a, LEFT, c), (b, LEFT, c)}


def test_a_world_without_room_for_its_test_says_so():
    with pytest.raises(ValueError, match="n_2=41: expected 0 to 40"):
        World(n_2=41)
    with pytest.raises(ValueError, match="n_pair"):
        World(n_pair=20)


@pytest.mark.parametrize("side", [IMAGE, TEXT])
def test_the_terms_of_the_attention_add_up_to_its_logits(architecture, side):
    parameters = {name: value.double() for name, value in two_models(architecture).items()}
    data = draw(SMALL, 2)
    tokens = torch.from_numpy(data.unseen.images if side == IMAGE else data.captions)[None].expand(2, -1, -1)
    terms = attention_terms(parameters, architecture, side, tokens)
    assert set(terms) == set(TERMS)
    token, position, shift = parts(parameters, architecture, side, tokens)
    made = []
    for name in ("query", "key"):
        x = (token + position + shift) @ parameters[f"{side}.0.{name}"].unsqueeze(1)
        x = (x + parameters[f"{side}.0.{name}_bias"][:, None, None]).unflatten(-1, (4, -1)).transpose(2, 3)
        made.append(rotate(x) if architecture.positions(side) == "rotary" else x)
    whole = made[0] @ made[1].transpose(-1, -2) / (architecture.width // 4) ** 0.5
    torch.testing.assert_close(sum(terms.values()), whole, rtol=1e-12, atol=1e-12)


def test_leaving_terms_out_is_what_it_says():
    architecture = ARCHITECTURES["plain"]
    parameters = two_models(architecture)
    tokens = torch.from_numpy(draw(SMALL, 2).unseen.images)[None].expand(2, -1, -1)
    whole = encode(parameters, architecture, IMAGE, tokens)
    # Positions have no part left but their values' once every term with them is out: as if they were 0.
    without = {**parameters, "image.position": torch.zeros_like(parameters["image.position"])}
    out = encode(
        parameters, architecture, IMAGE, tokens, zero=frozenset(["EP", "PE", "PP", "BP", "PB", "VP"])
    )
    residual = parameters["image.position"][:, 0].unsqueeze(1)
    torch.testing.assert_close(
        out, encode(without, architecture, IMAGE, tokens) + residual, rtol=1e-4, atol=1e-5
    )
    # Terms that every key shares drop out of the softmax.
    shared = encode(parameters, architecture, IMAGE, tokens, zero=frozenset(["EB", "PB", "BB"]))
    torch.testing.assert_close(shared, whole, rtol=1e-4, atol=1e-5)
    changed = encode(parameters, architecture, IMAGE, tokens, zero=frozenset(["EP"]))
    assert (changed - whole).abs().max() > 1e-3
    everything = encode(parameters, architecture, IMAGE, tokens, zero=frozenset(TERMS))
    flat = {name: torch.zeros_like(v) if ".query" in name else v for name, v in parameters.items()}
    torch.testing.assert_close(everything, encode(flat, architecture, IMAGE, tokens), rtol=1e-4, atol=1e-5)


def test_the_short_ways_give_the_same_numbers(architecture):
    # Tables for one layer, and one query a head for the last: against attention written out in full.
    parameters = two_models(architecture)
    data = draw(SMALL, 2)
    for side, table in ((IMAGE, data.seen.images), (TEXT, data.captions)):
        tokens = torch.from_numpy(table)[None].expand(2, -1, -1)
        short = encode(parameters, architecture, side, tokens)
        general = encode(parameters, architecture, side, tokens, dropout=lambda x: x)
        torch.testing.assert_close(short, general, rtol=1e-4, atol=1e-5)
        by_terms = encode(parameters, architecture, side, tokens, zero=frozenset(["none of them"]))
        torch.testing.assert_close(by_terms, general, rtol=1e-4, atol=1e-5)
    if architecture == ARCHITECTURES["plain"]:
        for side, tokens in ((IMAGE, data.seen.images[:3]), (TEXT, data.captions[-3:])):
            for n, one in enumerate(tokens):
                slow = _slowly(pick(parameters, slice(1, 2)), side, one)
                fast = encode(
                    parameters, architecture, side, torch.from_numpy(tokens)[None].expand(2, -1, -1)
                )
                torch.testing.assert_close(slow, fast[1, n], rtol=1e-4, atol=1e-5)


def _slowly(parameters, side, tokens):
    """One picture, one layer, a loop over heads."""
    p = {name.removeprefix(f"{side}.").removeprefix("0."): value[0] for name, value in parameters.items()}
    x = p["token"][tokens] * 32**0.5 + p["position"]
    read = 0 if side == IMAGE else -1
    query, key, value = (x @ p[name] + p[f"{name}_bias"] for name in ("query", "key", "value"))
    heads = [
        ((query[read, at] @ key[:, at].T) / 8**0.5).softmax(0) @ value[:, at]
        for at in (slice(8 * h, 8 * h + 8) for h in range(4))
    ]
    made = x[read] + torch.cat(heads) @ p["out"] + p["out_bias"]
    return made if side == IMAGE else made @ p["projection"] + p["projection_bias"]


def test_rotary_positions_see_distances_only():
    q, k = torch.randn(2, 8, dtype=torch.float64)
    table = rotate(q.expand(6, 8)) @ rotate(k.expand(6, 8)).T
    for offset in range(-5, 6):
        diagonal = table.diagonal(offset)
        torch.testing.assert_close(diagonal, diagonal[:1].expand_as(diagonal))


def trained(models, architecture, steps=20, **schedule):
    trainer = Trainer(models, architecture, Schedule(batch=16, rate=1e-3, **schedule))
    while trainer.step < steps and not trainer.done:
        trainer.advance(7)
    return trainer


@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_a_stack_learns_what_its_models_learn_alone(dropout):
    architecture = ARCHITECTURES["two layers"]
    other = replace(SMALL, n_2=3)
    models = [Model(SMALL, 1, 14), Model(other, 2, 25), Model(SMALL, 3, 25)]
    together = trained(models, architecture, 25, dropout=dropout)
    assert together.done
    for n, model in enumerate(models):
        alone = trained([model], architecture, 25, dropout=dropout)
        for name, value in alone.parameters_of(0).items():
            if "key_bias" in name:  # adds the same to every logit: its gradient is rounding alone
                continue
            torch.testing.assert_close(together.parameters_of(n)[name], value, rtol=1e-3, atol=2e-4, msg=name)


def test_a_resumed_run_equals_one_that_was_not_stopped(tmp_path):
    models = [Model(SMALL, 1, 30), Model(SMALL, 2, 21)]
    architecture, schedule = ARCHITECTURES["plain"], Schedule(batch=16, rate=1e-3)
    whole = trained(models, architecture, 30)
    for stop in (13, 24):
        first = Trainer(models, architecture, schedule)
        while first.step < stop:
            first.advance(stop - first.step)
        torch.save(first.state(), tmp_path / "state.pt")
        second = Trainer(models, architecture, schedule)
        second.restore(torch.load(tmp_path / "state.pt", weights_only=True))
        while not second.done:
            second.advance()
        for n in range(2):
            for name, value in whole.parameters_of(n).items():
                assert torch.equal(second.parameters_of(n)[name], value), name
    with pytest.raises(ValueError, match="other models"):
        Trainer(models[:1], architecture, schedule).restore(whole.state())


def test_every_epoch_shows_every_picture_once():
    order = batches(3, 50, 8, 0, 12, torch.device("cpu"))
    assert order.shape == (12, 8)
    for epoch in (order[:6], order[6:]):
        assert len(set(epoch.flatten().tolist())) == 48
    assert not torch.equal(order[:6], order[6:])
    assert torch.equal(batches(3, 50, 8, 5, 4, torch.device("cpu")), order[5:9])
    assert not torch.equal(batches(4, 50, 8, 0, 12, torch.device("cpu")), order)


def test_dropout_drops_its_share_and_keeps_the_mean():
    keys = scramble(torch.arange(4, dtype=torch.int32))
    masks = Masks(keys, 60_000, 0.1)
    one, other = masks(torch.ones(4, 100, 300)), masks(torch.ones(4, 30_000))
    for x in (one.flatten(1), other):
        dropped = (x == 0).double().mean(1)
        assert ((dropped - 0.1).abs() < 0.01).all()
        assert ((x.double().mean(1) - 1).abs() < 0.01).all()
    flat = one.flatten(1).double()
    correlation = torch.corrcoef(torch.cat([flat, other.double()]))
    assert (correlation - torch.eye(8)).abs().max() < 0.03


def test_the_loss_is_clips():
    similar = torch.randn(2, 5, 5)
    target = torch.arange(5)
    cross = torch.nn.functional.cross_entropy
    slow = [(cross(table, target) + cross(table.T, target)) / 2 for table in similar]
    torch.testing.assert_close(contrastive_loss(similar), torch.stack(slow))


def test_ranking_wants_all_that_is_true():
    data = draw(replace(SMALL, both=True), 0)
    scenes = data.unseen
    truth = torch.zeros(len(scenes), len(data.captions))
    truth.scatter_(1, torch.from_numpy(scenes.valid), 1.0)
    assert match(truth, data, scenes).correct.all()
    half = truth.scatter(1, torch.from_numpy(scenes.valid[:, 1:]), -1.0)
    found = match(half, data, scenes)
    assert not found.correct.any()
    assert found.any_first.all()
    row = {tuple(caption): n for n, caption in enumerate(data.captions.tolist())}
    wrong = torch.zeros_like(truth)
    for n, (left, right) in enumerate(scenes.labels.tolist()):
        wrong[n, [row[right, LEFT, left, END], row[left, RIGHT, right, END]]] = 1
    found = match(wrong, data, scenes)
    assert not found.any_first.any()
    assert found.label_set.all()
    assert found.swapped.all()


def test_a_few_seconds_of_training_teach_something():
    world = World(n_tot=6, n_pair=3, n_1=5, n_2=20)
    trainer = Trainer(
        [Model(world, 1, 250)],
        Architecture(width=32),
        Schedule(batch=25, rate=4e-3, dropout=0.0, cosine=True),
    )
    before = accuracies(trainer.parameters_of(0), trainer.architecture, trainer.datasets[0])
    trainer.advance(1)
    first = trainer.loss()[0]
    while trainer.step < 249:
        trainer.advance(124)
    last = trainer.loss()[0]
    trainer.advance()
    after = accuracies(trainer.parameters_of(0), trainer.architecture, trainer.datasets[0])
    assert before["seen"] < 0.4
    assert after["seen"] > 0.8
    assert after["single"] > 0.8
    assert last < first


def test_the_command_stops_resumes_measures_and_draws(tmp_path, monkeypatch):
    monkeypatch.setattr("benchmarks.testbed_report.CORE", SMALL)
    monkeypatch.setattr("benchmarks.testbed_plots.CORE", SMALL)
    tiny = Experiment(
        "left_only",
        "small",
        (SMALL,),
        Architecture(width=32),
        reduced_seeds=(0, 1),
        reduced_steps=30,
    )
    monkeypatch.setattr(
        testbed,
        "EXPERIMENTS",
        (tiny, replace(tiny, name="grid_4x4", worlds=(replace(SMALL, rows=4, columns=4),))),
    )
    monkeypatch.setattr(testbed_train, "CHUNK", 10)
    draw_file = testbed.draw_file
    monkeypatch.setattr(testbed, "draw_file", lambda path: None)
    out = tmp_path / "result.json"
    command = ["testbed", "--json", str(out), "--checkpoints", str(tmp_path / "kept"), "--threads", "1"]
    monkeypatch.setattr("sys.argv", [*command, "--budget-minutes", "0.0001"])
    testbed.main()
    stopped = json.loads(out.read_text())
    assert stopped["unfinished"] == ["left_only"]
    assert stopped["not_started"] == ["grid_4x4"]
    assert stopped["experiments"]["left_only"]["models"][0]["steps_done"] == 10
    monkeypatch.setattr("sys.argv", command)
    testbed.main()
    result = json.loads(out.read_text())
    assert result["finished"] == ["left_only", "grid_4x4"]
    found = result["experiments"]["grid_4x4"]["models"]
    assert [model["seed"] for model in found] == [0, 1]
    assert set(found[0]["zeroed"]) == set(ABLATIONS)
    assert np.shape(found[0]["attention"]["gradient"]["EP"]) == (4, 16)
    assert found[0]["attention"]["right_share"]
    names = {metric["name"] for metric in result["metrics"]}
    fixed = {"unseen_pair_accuracy", "unseen_pair_accuracy_ep_zeroed", "label_set_accuracy_ep_zeroed"}
    assert fixed <= names
    draw_file(out)
    assert (tmp_path / "result.png").stat().st_size > 10_000
    assert (tmp_path / "result-attention.png").exists()


def test_the_experiments_can_be_drawn_and_stacked():
    for experiment in EXPERIMENTS:
        for full in (False, True):
            models = experiment.models(full=full)
            assert len({model.world.length for model in models}) == 1
            assert min(model.world.training_pictures for model in models) >= experiment.batch
    merged = stacked(EXPERIMENTS)
    (one,) = (e for e in merged if e.name == "left_only")
    apart = [w for e in EXPERIMENTS if e.name == "left_only" or e.name in DIVERSITY for w in e.worlds]
    # left_only is one of the worlds of diversity
    assert len(one.worlds) == len(set(one.worlds)) == len(apart) - 1
    assert set(one.worlds) == set(apart)


def test_diversity_is_its_own_unless_all_models_are_in_one_stack():
    assert of_diversity({"left_only": [1], "diversity": [2, 3], "diversity_rest": [4]}) == [2, 3, 4]
    assert of_diversity({"left_only": [1, 2], "grid_4x4": [3]}) == [1, 2]


def test_rotary_models_have_no_position_terms():
    trainer = trained([Model(SMALL, 1, 10)], ARCHITECTURES["rope"], 10, dropout=0.0)
    found = measure(trainer.parameters_of(0), trainer.architecture, trainer.datasets[0])
    assert set(found.values["zeroed"]) == {"EE", "EB", "BB", "EB+BB"}
    assert set(found.values["attention"]["gradient"]) == {"EB", "BB"}
