"""Figures of the one-dimensional world, drawn from a result file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.testbed_experiments import CORE, DIVERSITY, of_diversity

Document = dict[str, Any]
Model = dict[str, Any]
"""Of a result file, as JSON has it."""
NAMES = {"n_pair": "$N_{pair}$", "n_2": "$n_2$"}
KINDS = {"single": "single object, new place", "seen": "seen pair, new places", "unseen": "unseen pair"}


def draw_all(document: Document, path: Path) -> list[Path]:
    """Draw what a result holds; the figures lie beside it.

    Parameters
    ----------
    document : dict
        A result file.
    path : Path
        Where it is: ``testbed-COMMIT.json`` gives ``testbed-COMMIT.png`` and ``testbed-COMMIT-attention.png``.
    """
    import matplotlib as mpl  # noqa: PLC0415

    mpl.use("Agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415

    pages: dict[str, list[Callable[[Document, Any], bool]]] = {
        "": [_labels, _placings, _both, _others, _ablations, _dynamics],
        "-attention": [_gradient, _bias, _deltas, _grid, _text, _rotation],
    }
    made = []
    for suffix, panels in pages.items():
        figure, axes = plt.subplots(2, 3, figsize=(15, 8.5), layout="constrained")
        for panel, at in zip(panels, axes.flat, strict=True):
            if not panel(document, at):
                at.set_axis_off()
        figure.suptitle(
            f"One-dimensional world, {document['schedule']} schedule, commit {document['commit']}, {document['device']}"
        )
        made.append(path.with_name(f"{path.stem}{suffix}.png"))
        figure.savefig(made[-1], dpi=110)
        plt.close(figure)
    return made


def _models(document: Document, *names: str) -> list[dict[str, Any]]:
    found = document["experiments"]
    return [model for name in names if name in found for model in found[name]["models"]]


def _diverse(document: Document) -> list[dict[str, Any]]:
    return of_diversity({name: found["models"] for name, found in document["experiments"].items()})


def _best(models: list[dict[str, Any]]) -> dict[str, Any]:
    return max(models, key=lambda model: model["accuracy"]["unseen"])


def _core(document: Document) -> list[dict[str, Any]]:
    return [m for m in _models(document, "left_only") if m["world"] == asdict(CORE)]


def _of_core(panel: Callable[[Model, Any], None]) -> Callable[[Document, Any], bool]:
    """A panel about the best model of the core experiment; nothing where that was not run."""

    def drawn(document: Document, at: Any) -> bool:
        models = _core(document)
        if models:
            panel(_best(models), at)
        return bool(models)

    return drawn


def _metric(document: Document, name: str) -> dict[str, Any] | None:
    return next((m for m in document["metrics"] if m["name"] == name), None)


def _curve(at: Any, document: Document, models: list[dict[str, Any]], along: str, beside: str) -> None:
    """Accuracy along one property of the worlds, a line for each value of the other."""
    worlds = [model["world"] for model in models]
    for n, value in enumerate(sorted({world[beside] for world in worlds})):
        xs = sorted({world[along] for world in worlds if world[beside] == value})
        for kind, style in (("unseen", "o-"), ("seen", "s:")):
            means = [
                np.mean(
                    [
                        m["accuracy"][kind]
                        for m in models
                        if m["world"][along] == x and m["world"][beside] == value
                    ]
                )
                for x in xs
            ]
            label = f"{NAMES[beside]} = {value}" if kind == "unseen" else None
            shifted = np.array(xs, dtype=float) + (n - 1.5) * 0.12
            at.plot(shifted, means, style, color=f"C{n}", label=label, alpha=1 if kind == "unseen" else 0.4)
            if kind == "unseen":
                for x, place, mean in zip(xs, shifted, means, strict=True):
                    cell = {along: x, beside: value}
                    found = _metric(
                        document, f"unseen_pair_accuracy_n_pair_{cell['n_pair']}_n_2_{cell['n_2']}"
                    )
                    if found:
                        spread = [[mean - found["low"]], [found["high"] - mean]]
                        at.errorbar([place], [mean], yerr=spread, color=f"C{n}", capsize=3)
    at.set(ylabel="accuracy", ylim=(-0.05, 1.05))
    at.legend(fontsize=8)


def _labels(document: Document, at: Any) -> bool:
    models = _diverse(document)
    if len({model["world"]["n_pair"] for model in models}) < 2:
        return False
    _curve(at, document, models, "n_pair", "n_2")
    at.set(xlabel="labels in training pairs, $N_{pair}$", title="labels (full: unseen, dotted: seen pairs)")
    return True


def _placings(document: Document, at: Any) -> bool:
    models = _diverse(document)
    if len({model["world"]["n_2"] for model in models}) < 2:
        return False
    _curve(at, document, models, "n_2", "n_pair")
    at.set(xlabel="placings of a pair, $n_2$", title="placings")
    return True


def _bars(at: Any, rows: dict[str, list[float]], names: list[str]) -> None:
    width = 0.8 / max(len(rows), 1)
    for n, (label, values) in enumerate(rows.items()):
        at.bar(np.arange(len(values)) + n * width, values, width, label=label)
    at.set_xticks(np.arange(len(names)) + 0.4 - width / 2, names, fontsize=8)
    at.set(ylim=(0, 1.05), ylabel="accuracy")
    at.legend(fontsize=8)


def _both(document: Document, at: Any) -> bool:
    rows = {}
    for name, label in (("both_text_1", "text: 1 layer"), ("both_text_2", "text: 2 layers")):
        for model in _models(document, name):
            found = model["accuracy"], model["unseen"]
            rows[f"{label}, seed {model['seed']}"] = [
                *(found[0][kind] for kind in KINDS),
                found[1]["any_first"],
                found[1]["label_set"],
            ]
    if rows:
        _bars(at, rows, ["single", "seen", "unseen", "unseen:\none of two", "unseen:\nlabels"])
        at.set_title("left + right captions")
    return bool(rows)


def _others(document: Document, at: Any) -> bool:
    rows = {}
    for name in document["experiments"]:
        if name not in {*DIVERSITY, "both_text_1", "both_text_2", "full_model"}:
            best = _best((_core(document) if name == "left_only" else []) or _models(document, name))
            rows[name] = [
                *(best["accuracy"][kind] for kind in KINDS),
                best["triple"]["top1"],
                best["triple"]["all"],
            ]
    if rows:
        _bars(at, rows, ["single", "seen", "unseen", "3 objects:\none of three", "3 objects:\nall three"])
        at.set_title("best seed of each")
    return bool(rows)


@_of_core
def _ablations(best: Model, at: Any) -> None:
    terms = ["EE", "EP", "PE", "PP", "BP", "EP+BP", "EP+PP+BP", "VP"]
    rows = {
        label: [best["unseen"][kind], *(best["zeroed"][term][kind] for term in terms)]
        for label, kind in (("pair in its order", "correct"), ("its labels", "label_set"))
    }
    _bars(at, rows, ["none", *(term.replace("+", "\n+") for term in terms)])
    at.axhline(0.5, color="k", lw=0.8, ls="--")
    at.set(title="unseen pairs, terms left out", xlabel="zeroed at inference")


def _dynamics(document: Document, at: Any) -> bool:
    models = _core(document)
    history = _best(models)["history"] if models else []
    for kind, label in KINDS.items():
        at.plot([row["step"] for row in history], [row[kind] for row in history], "o-", label=label)
    if history:
        loss = at.twinx()
        loss.semilogy([row["step"] for row in history], [row["loss"] for row in history], "k:", label="loss")
        loss.set_ylabel("loss (dotted)")
        at.set(xlabel="updates", ylabel="accuracy", ylim=(-0.05, 1.05), title="on the way")
        at.legend(fontsize=8)
    return bool(history)


@_of_core
def _gradient(best: Model, at: Any) -> None:
    for name, style in (("EP", "o-"), ("PP", "s:"), ("BP", "^--")):
        for head, row in enumerate(best["attention"]["gradient"][name]):
            at.plot(
                np.arange(1, len(row) + 1), row, style, color=f"C{head}", label=f"{name}, head {head}", ms=4
            )
    at.set(xlabel="position of the key", ylabel="logit from the class token", title="horizontal gradient")
    at.legend(fontsize=7, ncol=3)


@_of_core
def _bias(best: Model, at: Any) -> None:
    found = best["attention"]
    heads = np.arange(len(found["right_share"]))
    bottom = np.zeros(len(heads))
    for name in ("relational_left", "relational_right", "label_specific"):
        at.bar(heads - 0.2, found[name], 0.36, bottom=bottom, label=name.replace("_", " "))
        bottom += np.array(found[name])
    at.bar(heads + 0.2, found["right_share"], 0.36, color="0.6", label="right object gets more")
    at.set(xlabel="head", ylabel="share of unseen pictures", title="what a head follows", ylim=(0, 1.3))
    at.set_xticks(heads, [str(h) if alive else f"{h}: empty" for h, alive in enumerate(found["alive"])])
    at.legend(fontsize=8, ncol=2)


@_of_core
def _deltas(best: Model, at: Any) -> None:
    found = best["attention"]
    label, position = np.array(found["delta_label"]), np.array(found["delta_pos"])
    for head in range(label.shape[1]):
        at.plot(label[:, head], position[:, head], ".", ms=4, label=f"head {head}")
    most = float(max(np.abs(label).max(), np.abs(position).max()))
    at.plot([-most, most], [-most, most], "k", lw=0.5)
    at.plot([-most, most], [most, -most], "k", lw=0.5)
    at.set(
        xlabel=r"$\Delta_{label}$, right less left",
        ylabel=r"$\Delta_{pos}$, right less left",
        title="relational where the position term is the larger",
    )
    at.legend(fontsize=8)


def _grid(document: Document, at: Any) -> bool:
    models = _models(document, "grid_4x4")
    if not models:
        return False
    rows, columns = (models[0]["world"][name] for name in ("rows", "columns"))
    maps = [np.reshape(row, (rows, columns)) for row in _best(models)["attention"]["gradient"]["EP"]]
    gap = np.full((rows, 1), np.nan)
    at.imshow(np.concatenate([part for one in maps for part in (one, gap)][:-1], axis=1), cmap="coolwarm")
    at.set(title="4 x 4: EP from the class token, heads 0 to 3", xticks=[], yticks=[])
    return True


@_of_core
def _text(best: Model, at: Any) -> None:
    found = best["text_attention"]
    for head, (mean, deviation) in enumerate(zip(found["mean"], found["deviation"], strict=True)):
        places = np.arange(len(mean)) + (head - 1.5) * 0.2
        at.bar(places, mean, 0.2, yerr=deviation, capsize=2, label=f"head {head}")
    at.set_xticks(range(4), ["X", "left of", "Y", "end"])
    at.set(ylabel="attention of the last token", title="captions of unseen pairs")
    at.legend(fontsize=8)


@_of_core
def _rotation(best: Model, at: Any) -> None:
    found = best["tokens"]
    raw, rotated = np.array(found["raw"]), np.array(found["rotated"])
    gap = np.full((len(raw), 1), np.nan)
    at.imshow(np.concatenate([raw, gap, rotated], axis=1), vmin=-1, vmax=1, cmap="coolwarm")
    at.axhline(found["fitted"] - 0.5, color="k", lw=0.8)
    at.set(
        xlabel="picture token: raw, then rotated",
        ylabel="caption token",
        title=f"cosine; rotation fitted on labels 1 to {found['fitted']}",
    )
