"""Contrastive training of a stack of models, on the CPU or as one CUDA graph a step.

A model's pictures, initial parameters, order of batches and dropout follow from its own seed and the step alone, so
that neither its neighbours in the stack nor an interruption changes what it learns beyond rounding.
"""

from __future__ import annotations

import contextlib
import math
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from benchmarks.testbed_model import (
    IMAGE,
    TEXT,
    Architecture,
    Parameters,
    encode,
    initialise,
    split_axis,
    stack,
)
from benchmarks.testbed_world import World, draw

CHUNK, CHUNK_ON_GPU = 200, 1000
"""Steps whose batches are laid out at a time."""
LARGEST_SCALE = math.log(100)
_WARM_UP = 3


@dataclass(frozen=True, slots=True)
class Model:
    """One model to train: a world, a seed, and when it ends.

    Attributes
    ----------
    steps : int
        Updates.
    """

    world: World
    seed: int
    steps: int


@dataclass(frozen=True, slots=True)
class Schedule:
    """How to train.

    Attributes
    ----------
    batch : int
    rate, decay, dropout : float
        Learning rate and weight decay of AdamW; share of activations dropped.
    cosine : bool
        Let the rate fall to nothing at the end, along half a cosine; otherwise it stays.
    mask_true : bool
        Take the other captions that are true of a picture out of its negatives.
    """

    batch: int = 50
    rate: float = 1e-4
    decay: float = 0.2
    dropout: float = 0.1
    cosine: bool = False
    mask_true: bool = False


class Trainer:
    """Trains models of one architecture together.

    Parameters
    ----------
    models : sequence of Model
        Their pictures must have one size.
    device : torch.device
        Holds parameters, moments and all data.
    graph : bool
        Replay the step as a CUDA graph; falls back to plain steps where capturing fails.
    """

    def __init__(
        self,
        models: Sequence[Model],
        architecture: Architecture,
        schedule: Schedule,
        *,
        device: torch.device | None = None,
        graph: bool = True,
    ) -> None:
        self.models, self.architecture, self.schedule = tuple(models), architecture, schedule
        self.device = device or torch.device("cpu")
        self.graph_wanted = graph and self.device.type == "cuda"
        self.chunk = CHUNK_ON_GPU if self.device.type == "cuda" else CHUNK
        self.graph_error: str | None = None
        on_gpu = self.device.type == "cuda"
        self.stream: torch.cuda.Stream | None = torch.cuda.Stream() if on_gpu else None  # type: ignore[no-untyped-call]
        self._event: torch.cuda.Event | None = torch.cuda.Event() if on_gpu else None  # type: ignore[no-untyped-call]
        self.datasets = [draw(model.world, model.seed) for model in models]
        short = [len(data.train) for data in self.datasets if len(data.train) < schedule.batch]
        if short:
            raise ValueError(f"{short[0]} training pictures for batches of {schedule.batch}")
        if schedule.cosine and len({model.steps for model in models}) > 1:
            raise ValueError("a falling rate needs models that end together")
        self.step = 0
        self.finished: dict[int, Parameters] = {}
        self.losses: list[tuple[int, list[float | None]]] = []
        self.active = list(range(len(models)))
        with self._on_stream():
            length = models[0].world.length
            made = [initialise(architecture, length, model.seed) for model in models]
            self._load(stack(made), None)

    # -- what there is ------------------------------------------------------------------------------------------------

    @property
    def end(self) -> int:
        """Steps of the longest model."""
        return max(model.steps for model in self.models)

    @property
    def done(self) -> bool:
        """No model is left to train."""
        return not self.active

    def ready(self) -> bool:
        """What was sent to the device has been done."""
        return self._event is None or bool(self._event.query())  # type: ignore[no-untyped-call]

    def wait(self) -> None:
        """Wait until `ready`."""
        if self.stream is not None:
            self.stream.synchronize()

    def parameters_of(self, model: int) -> Parameters:
        """Parameters of one model as a stack of one, finished or not."""
        self.wait()
        if model in self.finished:
            return self.finished[model]
        at = self.active.index(model)
        return {name: value[at : at + 1].detach().clone() for name, value in self.parameters.items()}

    # -- training -----------------------------------------------------------------------------------------------------

    def advance(self, steps: int | None = None) -> None:
        """Take up to so many steps (a chunk); stops short where a model ends or a chunk of batches does."""
        if self.done:
            return
        with self._on_stream():
            next_end = min(self.models[m].steps for m in self.active)
            steps = min(steps or self.chunk, self.chunk, next_end - self.step)
            self._lay_out(steps)
            for _ in range(steps):
                self._take_step()
            if self._event is not None:
                self._event.record()
            if self.step == next_end:
                self._retire()

    def loss(self) -> list[float | None]:
        """Contrastive loss of each model at the last step; None where it has ended."""
        self.wait()
        values = dict(zip(self.active, self._losses.tolist(), strict=True))
        return [values.get(m) for m in range(len(self.models))]

    def state(self) -> dict[str, Any]:
        """All that `restore` needs, on the CPU."""
        self.wait()
        moments = {
            name: {key: value.detach().cpu().clone() for key, value in self.optimiser.state[tensor].items()}
            for name, tensor in self.parameters.items()
            if tensor in self.optimiser.state
        }
        return {
            "what": self.description(),
            "step": self.step,
            "active": list(self.active),
            "parameters": {name: value.detach().cpu().clone() for name, value in self.parameters.items()},
            "moments": moments,
            "finished": {m: {k: v.cpu() for k, v in found.items()} for m, found in self.finished.items()},
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from a `state` of a trainer of the same models.

        Raises
        ------
        ValueError
            If it is another's.
        """
        if state["what"] != self.description():
            raise ValueError(
                "a checkpoint of other models or another schedule; give another folder or remove it"
            )
        self.wait()
        with self._on_stream():
            self.step, self.active = state["step"], list(state["active"])
            self.finished = {
                m: {k: v.to(self.device) for k, v in found.items()} for m, found in state["finished"].items()
            }
            if self.active:
                self._load(state["parameters"], state["moments"])

    def description(self) -> dict[str, Any]:
        """Models, architecture and schedule, as plain values."""
        return {
            "models": [asdict(model) for model in self.models],
            "architecture": asdict(self.architecture),
            "schedule": asdict(self.schedule),
        }

    def _load(self, parameters: Parameters, moments: dict[str, dict[str, Tensor]] | None) -> None:
        """Set up the active models: parameters, optimiser, data; plain steps come first, then the graph."""
        device, schedule = self.device, self.schedule
        self.parameters = {
            name: value.to(device).clone().requires_grad_() for name, value in parameters.items()
        }
        groups: list[dict[str, Any]] = [
            {"params": [value for name, value in self.parameters.items() if name != "logit_scale"]},
            {"params": [self.parameters["logit_scale"]], "weight_decay": 0.0},
        ]
        self.optimiser = torch.optim.AdamW(
            groups,
            lr=torch.tensor(schedule.rate, device=device) if schedule.cosine else schedule.rate,
            weight_decay=schedule.decay,
            fused=True,
            capturable=device.type == "cuda",
        )
        for name, found in (moments or {}).items():
            place = {key: value.to(device).clone() for key, value in found.items()}
            self.optimiser.state[self.parameters[name]] = place
        data = [self.datasets[m] for m in self.active]
        most = max(len(d.train) for d in data)
        self._images = _padded([torch.from_numpy(d.train.images) for d in data], most, device)
        self._texts = _padded([torch.from_numpy(d.captions[d.train.caption]) for d in data], most, device)
        if schedule.mask_true:
            self._caption = _padded([torch.from_numpy(d.train.caption)[:, None] for d in data], most, device)
            self._valid = _padded([torch.from_numpy(d.train.valid) for d in data], most, device)
        self._row0 = torch.arange(len(data), device=device)[:, None] * most
        seeds = torch.tensor([self.models[m].seed for m in self.active], dtype=torch.int32, device=device)
        self._seeds = scramble(seeds + 77)
        self._clock = torch.tensor([self.step], dtype=torch.int32, device=device)
        self._at = torch.zeros(1, dtype=torch.int64, device=device)
        self._order = torch.zeros(self.chunk, len(data), schedule.batch, dtype=torch.int64, device=device)
        self._losses = torch.zeros(len(data), device=device)
        self._dropped = self._count_dropped() if schedule.dropout else 0
        self._graph: torch.cuda.CUDAGraph | None = None
        self._plain = 0

    def _lay_out(self, steps: int) -> None:
        for at, m in enumerate(self.active):
            self._order[:steps, at] = batches(
                self.models[m].seed,
                len(self.datasets[m].train),
                self.schedule.batch,
                self.step,
                steps,
                self.device,
            )
        self._at.zero_()

    def _take_step(self) -> None:
        if self._graph is not None:
            self._graph.replay()
        elif self.graph_wanted and self._plain >= _WARM_UP:
            self._capture()
            (self._update if self._graph is None else self._graph.replay)()
        else:
            self._update()
            self._plain += 1
        self.step += 1

    def _capture(self) -> None:
        assert self.stream is not None
        graph = torch.cuda.CUDAGraph()
        try:
            self.stream.synchronize()
            self.optimiser.zero_grad(set_to_none=True)
            with torch.cuda.graph(graph, stream=self.stream, capture_error_mode="thread_local"):
                self._update()
            self._graph = graph
        except RuntimeError as error:
            self.graph_wanted, self.graph_error = False, str(error).splitlines()[0]
            print(f"no CUDA graph, plain steps instead: {self.graph_error}", file=sys.stderr)
            self.optimiser.zero_grad(set_to_none=True)

    def _update(self) -> None:
        """One step of all active models. No decision here depends on a value, so that it can be captured."""
        rows = (self._order.index_select(0, self._at)[0] + self._row0).flatten()
        count = len(self.active)

        def take(table: Tensor) -> Tensor:
            return split_axis(table.index_select(0, rows), 0, count, -1)

        drop = None
        if self.schedule.dropout:
            drop = Masks(scramble(self._seeds + self._clock * 40503), self._dropped, self.schedule.dropout)
        similar = self._similarities(take(self._images), take(self._texts), drop)
        if self.schedule.mask_true:
            caption = take(self._caption).squeeze(-1)  # M B
            valid = (take(self._valid)[:, :, None, :] == caption[:, None, :, None]).any(-1)
            others = valid & (caption[:, :, None] != caption[:, None, :])
            similar = similar.masked_fill(others, -torch.inf)
        losses = contrastive_loss(similar)
        self._losses.copy_(losses.detach())
        if self.schedule.cosine:
            rate = self.schedule.rate * (0.5 + 0.5 * torch.cos(math.pi * self._clock[0] / self.end))
            for group in self.optimiser.param_groups:
                group["lr"].copy_(rate)
        self.optimiser.zero_grad(set_to_none=True)
        # A sum: each model's gradient is its own loss's, whoever stands beside it.
        losses.sum().backward()  # type: ignore[no-untyped-call]
        self.optimiser.step()
        self._at += 1
        self._clock += 1

    def _similarities(self, images: Tensor, texts: Tensor, drop: Masks | None) -> Tensor:
        seen = encode(self.parameters, self.architecture, IMAGE, images, dropout=drop)
        said = encode(self.parameters, self.architecture, TEXT, texts, dropout=drop)
        scale = self.parameters["logit_scale"].clamp(max=LARGEST_SCALE).exp()[:, None, None]
        return scale * functional.normalize(seen, dim=-1) @ functional.normalize(said, dim=-1).transpose(1, 2)

    def _count_dropped(self) -> int:
        """Activations of one model that dropout decides on in a step."""
        counted = 0

        def count(x: Tensor) -> Tensor:
            nonlocal counted
            counted += x[0].numel()
            return x

        with torch.no_grad():
            one = {name: value[:1] for name, value in self.parameters.items()}
            for side, table in ((IMAGE, self._images), (TEXT, self._texts)):
                encode(one, self.architecture, side, table[None, : self.schedule.batch], dropout=count)
        return counted

    def _retire(self) -> None:
        """Set aside the models that have ended and restack the rest."""
        self.wait()
        rest = [at for at, m in enumerate(self.active) if self.models[m].steps > self.step]
        for m in self.active:
            if self.models[m].steps <= self.step:
                self.finished[m] = self.parameters_of(m)
        self._graph = None
        if rest:
            chosen = torch.tensor(rest, device=self.device)
            parameters = {name: value.detach()[chosen] for name, value in self.parameters.items()}
            moments = {
                name: {k: v if k == "step" else v[chosen] for k, v in self.optimiser.state[tensor].items()}
                for name, tensor in self.parameters.items()
                if tensor in self.optimiser.state
            }
            self.active = [self.active[at] for at in rest]
            self._load(parameters, moments)
        else:
            self.active = []

    def _on_stream(self) -> contextlib.AbstractContextManager[Any]:
        return contextlib.nullcontext() if self.stream is None else torch.cuda.stream(self.stream)


def contrastive_loss(similar: Tensor) -> Tensor:
    """CLIP's loss of each model: the mean of the cross-entropies from picture to caption and back.

    Parameters
    ----------
    similar : (M, B, B) float
        Scaled similarities; picture and caption of one row belong together.

    Returns
    -------
    (M,) float
    """
    own = similar.diagonal(dim1=1, dim2=2)
    return (similar.logsumexp(2) / 2 + similar.logsumexp(1) / 2 - own).mean(1)


def scramble(x: Tensor) -> Tensor:
    """A hash of int32 to int32 whose bits look random: a seed and a counter give a stream anywhere, in any order.

    References
    ----------
    Chris Wellons, *Prospecting for hash functions* (2018), ``lowbias32``.
    """
    # The masks make the shifts of signed numbers those of unsigned ones.
    x = (x ^ ((x >> 16) & 0xFFFF)) * 0x7FEB352D
    x = (x ^ ((x >> 15) & 0x1FFFF)) * (0x846CA68B - (1 << 32))
    return x ^ ((x >> 16) & 0xFFFF)


class Masks:
    """Dropout whose choices follow from a key a model.

    Parameters
    ----------
    keys : (M,) int32
    size : int
        Activations of one model it will be asked for.
    rate : float
        Share dropped, in steps of 2^-16.
    """

    def __init__(self, keys: Tensor, size: int, rate: float) -> None:
        counter = torch.arange((size + 1) // 2, dtype=torch.int32, device=keys.device)
        bits = scramble(counter * 0x3779B1 ^ keys[:, None]).view(torch.int16)
        self._scale = (bits >= round(rate * 65536) - 32768).float() * (1 / (1 - round(rate * 65536) / 65536))
        self._used = 0

    def __call__(self, x: Tensor) -> Tensor:
        """Drop from the next activations, (M, ...)."""
        size = x[0].numel()
        scale = self._scale[:, self._used : self._used + size]
        self._used += size
        return x * scale.view(x.shape)


def batches(seed: int, n: int, batch: int, first: int, count: int, device: torch.device) -> Tensor:
    """Rows of the batches of some steps: whole epochs in an order of their own, short last batches left out.

    Parameters
    ----------
    seed, n, batch : int
        Of the model; its training pictures; pictures a step.
    first, count : int
        Steps.

    Returns
    -------
    (count, batch) int64
    """
    per_epoch = n // batch
    epochs = torch.arange(first // per_epoch, (first + count - 1) // per_epoch + 1, device=device)
    key = scramble(epochs.to(torch.int32) * 7919 + scramble(torch.tensor(seed, dtype=torch.int32)).to(device))
    at = torch.arange(n, dtype=torch.int32, device=device)
    order = scramble(at * 0x2545F5 ^ key[:, None]).argsort(dim=1, stable=True)[:, : per_epoch * batch]
    start = first - int(first // per_epoch) * per_epoch
    return order.reshape(-1, batch)[start : start + count]


def _padded(tables: Sequence[Tensor], rows: int, device: torch.device) -> Tensor:
    """Tables of each model one below the other, (M * rows, columns)."""
    return torch.cat([functional.pad(t, (0, 0, 0, rows - len(t))) for t in tables]).to(device)
