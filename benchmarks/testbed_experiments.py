"""The experiments of the one-dimensional world, in the order of their weight, and their two schedules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from benchmarks.testbed_model import Architecture
from benchmarks.testbed_train import Model, Schedule
from benchmarks.testbed_world import World

T = TypeVar("T")

SEEDS = (0, 1, 2)
"""Of the models that are reported. Reduced schedules were tried on seeds from 101; the log of choices in
`benchmarks.testbed` says what was seen of these."""
EPOCHS = 10_000
DIVERSITY = ("diversity", "diversity_rest")
CORE = World(n_tot=20, n_pair=15, n_2=10)
WITHOUT_DROPOUT = Schedule(batch=50, rate=5e-4, decay=0.2, dropout=0.0, cosine=True)
"""The paper's batch and decay at two and a half times its rate in the mean, and nothing dropped: what one layer learns
in minutes."""
FOR_DIVERSITY = replace(WITHOUT_DROPOUT, rate=7e-4)
"""The same at a higher rate: fewer updates of more models."""
THE_PAPERS_FASTER = Schedule(batch=100, rate=6e-4, decay=0.2, dropout=0.1, cosine=True)
"""The paper's batch, decay and dropout at three times its rate in the mean, for a third of its updates."""
SHORTER = replace(THE_PAPERS_FASTER, batch=50)
"""The same for captions of one kind, which the paper takes in batches of 50; its epochs are cut further."""


@dataclass(frozen=True, slots=True)
class Experiment:
    """Models of one architecture that are trained together.

    Attributes
    ----------
    shows : str
        What it is for.
    paper : mapping
        The paper's figures, named as ours; where it gives one in words, the words.
    reduced : Schedule
        The reduced schedule.
    reduced_seeds : tuple of int
        Its seeds.
    reduced_steps : int
        Its updates of each model.
    """

    name: str
    shows: str
    worlds: tuple[World, ...]
    architecture: Architecture = field(default_factory=Architecture)
    batch: int = 50
    mask_true: bool = False
    paper: Mapping[str, float | str] = field(default_factory=dict)
    reduced: Schedule = WITHOUT_DROPOUT
    reduced_seeds: tuple[int, ...] = SEEDS
    reduced_steps: int = 80_000

    def schedule(self, *, full: bool) -> Schedule:
        """How its models are trained."""
        if full:
            return Schedule(batch=self.batch, mask_true=self.mask_true)
        return replace(self.reduced, mask_true=self.mask_true)

    def models(self, *, full: bool) -> list[Model]:
        """Its models; under the full schedule each ends after `EPOCHS` of its own pictures."""
        seeds = SEEDS if full else self.reduced_seeds
        return [
            Model(world, seed, self._full_steps(world) if full else self.reduced_steps)
            for world in self.worlds
            for seed in seeds
        ]

    def _full_steps(self, world: World) -> int:
        return world.training_pictures // self.batch * EPOCHS


EXPERIMENTS = (
    Experiment(
        "left_only",
        "one layer, four heads, 'left of' alone: unseen pairs, and what each term of the attention is for",
        (CORE,),
        paper={"unseen": "about .9", "unseen_EP_zeroed": "near .5", "triple_all": "at most .15"},
    ),
    Experiment(
        "both_text_2",
        "'left of' and 'right of', text encoder of two layers",
        (World(both=True),),
        Architecture(text_layers=2),
        batch=100,
        paper={"unseen": "generalises"},
        reduced=THE_PAPERS_FASTER,
        reduced_steps=143_000,
    ),
    Experiment(
        "both_text_1",
        "'left of' and 'right of', text encoder of one layer",
        (World(both=True),),
        batch=100,
        paper={"unseen": 0.0, "any_first": "at most .5"},
        reduced=THE_PAPERS_FASTER,
        reduced_steps=143_000,
        reduced_seeds=(0,),
    ),
    Experiment(
        "diversity",
        "more labels in pairs, or more placings of each pair",
        tuple(
            World(n_tot=n_pair + 5, n_pair=n_pair, n_2=n_2)
            for n_pair, n_2 in ((5, 10), (10, 10), (15, 10), (15, 2), (15, 20))
        ),
        paper={"labels": "the more, the better", "placings": "little effect"},
        reduced=FOR_DIVERSITY,
        reduced_steps=24_000,
    ),
    Experiment(
        "grid_4x4",
        "pictures of 4 x 4",
        (World(rows=4, columns=4),),
        paper={"single": 1.0, "seen": 1.0, "unseen": 0.98},
    ),
    Experiment(
        "rope",
        "rotary positions in the image encoder instead of learned ones",
        (CORE,),
        Architecture(rope=True),
        paper={"unseen": "generalises"},
        reduced=SHORTER,
        reduced_steps=60_000,
    ),
    Experiment(
        "full_model",
        "two layers each, with LayerNorm and perceptrons",
        (CORE, World(n_tot=10, n_pair=5)),
        Architecture(2, 2, mlp=512, norm=True),
        paper={"unseen": "high with many labels"},
        reduced=replace(WITHOUT_DROPOUT, rate=1e-3, decay=3.0),
        reduced_seeds=(0,),
        reduced_steps=3000,
    ),
    Experiment(
        "diversity_rest",
        "few and many placings with fewer labels",
        tuple(World(n_tot=n_pair + 5, n_pair=n_pair, n_2=n_2) for n_pair in (5, 10) for n_2 in (2, 20)),
        reduced=FOR_DIVERSITY,
        reduced_steps=24_000,
    ),
    Experiment(
        "three_objects_2_2",
        "trained on three objects too; two layers each",
        (World(n_3=2),),
        Architecture(2, 2),
        mask_true=True,
        paper={
            "triple_top1": 0.98,
            "triple_all": 0.82,
            "triple_all_EP_zeroed": 0.28,
            "triple_all_EP+PP+BP_zeroed": 0.17,
        },
        reduced=SHORTER,
        reduced_seeds=(0,),
        reduced_steps=60_000,
    ),
    Experiment(
        "three_objects_1_2",
        "trained on three objects too; one layer for pictures, two for captions",
        (World(n_3=2),),
        Architecture(1, 2),
        mask_true=True,
        paper={"triple_all": 0.56},
        reduced=SHORTER,
        reduced_seeds=(0,),
        reduced_steps=60_000,
    ),
    Experiment(
        "three_objects_1_1",
        "trained on three objects too; one layer each",
        (World(n_3=2),),
        mask_true=True,
        paper={"triple_all": 0.35},
        reduced=SHORTER,
        reduced_seeds=(0,),
        reduced_steps=60_000,
    ),
)


def of_diversity(found: Mapping[str, Sequence[T]]) -> list[T]:
    """What there is of the experiments on diversity, by name of the experiment; of ``left_only`` where it has them."""
    names = [name for name in DIVERSITY if name in found] or ["left_only"]
    return [one for name in names for one in found.get(name, ())]


def stacked(experiments: Sequence[Experiment]) -> list[Experiment]:
    """The same models with those of `DIVERSITY` in one stack with ``left_only``: the fewer steps for a GPU."""
    if "left_only" not in {experiment.name for experiment in experiments}:
        return list(experiments)
    own = next(experiment.worlds for experiment in experiments if experiment.name == "left_only")
    more = [world for e in experiments if e.name in DIVERSITY for world in e.worlds if world not in own]
    return [
        replace(experiment, worlds=(*own, *more)) if experiment.name == "left_only" else experiment
        for experiment in experiments
        if experiment.name not in DIVERSITY
    ]
