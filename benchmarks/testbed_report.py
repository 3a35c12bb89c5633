"""The figures of the one-dimensional world that a reader looks for first, with their intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict

import numpy as np

from benchmarks.record import Metric, cluster_bootstrap
from benchmarks.testbed_experiments import CORE, of_diversity
from benchmarks.testbed_measures import Measured, gain, over_models

Found = Mapping[str, Sequence[Measured]]


def metrics_of(found: Found) -> list[Metric]:
    """Metrics of all experiments that were run.

    Intervals of one model are bootstrapped over its unseen pairs of labels, intervals of several models over models.
    """
    metrics: list[Metric] = []
    if core := [model for model in found.get("left_only", ()) if model.values["world"] == asdict(CORE)]:
        metrics += _core(core)
    metrics += _diversity(found)
    for name in ("both_text_1", "both_text_2", "grid_4x4", "rope", "full_model"):
        if models := found.get(name):
            metrics += _unseen(name, models)
    for name, models in found.items():
        if name.startswith("three_objects"):
            metrics += _triples(name, models)
    return metrics


def best_of(models: Sequence[Measured]) -> Measured:
    """The model that matches the most unseen pairs; on a tie, the first."""
    return max(models, key=lambda model: model.values["accuracy"]["unseen"])


def _core(models: Sequence[Measured]) -> list[Metric]:
    best = best_of(models)
    metrics = [
        _of_pairs("unseen_pair_accuracy", best, "unseen"),
        _of_pairs("label_set_accuracy", best, "label_set"),
    ]
    for term in ("EP", "PE", "PP", "BP", "EE", "EP+BP", "EP+PP+BP", "VP"):
        lower = term.lower().replace("+", "_")
        metrics += [
            _of_pairs(f"unseen_pair_accuracy_{lower}_zeroed", best, f"unseen_{term}_zeroed"),
            _of_pairs(f"label_set_accuracy_{lower}_zeroed", best, f"label_set_{term}_zeroed"),
        ]
    for name, kind in (
        ("unseen_pair_accuracy", "unseen"),
        ("unseen_pair_accuracy_ep_zeroed", "unseen_EP_zeroed"),
        ("label_set_accuracy_ep_zeroed", "label_set_EP_zeroed"),
    ):
        metrics += [_of_pairs(f"{name}_seed_{model.values['seed']}", model, kind) for model in models]
        metrics.append(_mean(f"{name}_mean", models, kind))
    for kind, name in (("single", "single_object_accuracy"), ("seen", "seen_pair_accuracy")):
        metrics.append(Metric(name, best.values["accuracy"][kind]))
    attention, tokens, triple = (best.values[name] for name in ("attention", "tokens", "triple"))
    alive = np.array(attention["alive"])
    relational = np.add(attention["relational_left"], attention["relational_right"])[alive]
    right = np.array(attention["right_share"])[alive]
    gradient = np.array(attention["monotone"]["EP"])[alive]
    rows = {
        "heads_alive": float(alive.sum()),
        "ep_gradient_tau": float(max(gradient, key=abs)),
        "relational_share_of_the_most_relational_head": float(relational.max()),
        "right_share_of_the_most_right_head": float(right.max()),
        "right_share_of_the_most_left_head": float(right.min()),
        "token_cosine_held_out_raw": tokens["held_out_raw"],
        "token_cosine_held_out_rotated": tokens["held_out_rotated"],
        "token_cosine_held_out_control": tokens["held_out_control"],
        "three_objects_transfer_top1": triple["top1"],
        "three_objects_transfer_all": triple["all"],
    }
    words = {"cosine": "cosine", "tau": "tau", "heads": "count"}
    units = {name: next((u for w, u in words.items() if w in name), "share") for name in rows}
    return metrics + [Metric(name, value, units[name]) for name, value in rows.items()]


def _diversity(found: Found) -> list[Metric]:
    cells: dict[tuple[int, int], list[Measured]] = {}
    for model in of_diversity(found):
        cells.setdefault((model.values["world"]["n_pair"], model.values["world"]["n_2"]), []).append(model)
    if len(cells) < 2:
        return []
    metrics = [
        _mean(f"unseen_pair_accuracy_n_pair_{n_pair}_n_2_{n_2}", several)
        for (n_pair, n_2), several in sorted(cells.items())
    ]
    few, many = min(cells)[0], max(cells)[0]
    labels = [m for (_, n_2), ms in cells.items() for m in ms if n_2 == CORE.n_2]
    more, less = ([m for m in labels if m.values["world"]["n_pair"] == n] for n in (many, few))
    if more and less and few < many:
        metrics.append(_gain("unseen_pair_gain_of_labels", more, less))
    placings = sorted(n_2 for n_pair, n_2 in cells if n_pair == many)
    for fewer, name in ((placings[0], "placings"), (CORE.n_2, "more_placings")):
        if fewer in placings and fewer < placings[-1]:
            metrics.append(
                _gain(f"unseen_pair_gain_of_{name}", cells[many, placings[-1]], cells[many, fewer])
            )
    return metrics


def _unseen(name: str, models: Sequence[Measured]) -> list[Metric]:
    worlds = {model.values["world"]["n_pair"] for model in models}
    metrics = []
    for n_pair in sorted(worlds, reverse=True):
        several = [model for model in models if model.values["world"]["n_pair"] == n_pair]
        at = name if len(worlds) == 1 else f"{name}_n_pair_{n_pair}"
        best = best_of(several)
        metrics += [
            _of_pairs(f"{at}_unseen_pair_accuracy", best, "unseen"),
            _mean(f"{at}_unseen_pair_accuracy_mean", several),
        ]
        metrics += [
            _of_pairs(f"{at}_unseen_pair_accuracy_seed_{model.values['seed']}", model, "unseen")
            for model in several
        ]
        for kind in ("any_first", "label_set"):
            metrics.append(_of_pairs(f"{at}_{kind}_accuracy", best, kind))
        term = "EB+BB" if "unseen_EP_zeroed" not in best.correct else "EP"
        lower = term.lower().replace("+", "_")
        metrics.append(_of_pairs(f"{at}_unseen_pair_accuracy_{lower}_zeroed", best, f"unseen_{term}_zeroed"))
    return metrics


def _triples(name: str, models: Sequence[Measured]) -> list[Metric]:
    best = max(models, key=lambda model: model.values["triple"]["all"])
    triple, zeroed = best.values["triple"], best.values["zeroed"]
    rows = {
        "top1": triple["top1"],
        "all": triple["all"],
        "unseen_pair_accuracy": best.values["accuracy"]["unseen"],
    }
    rows |= {
        f"all_{t.lower().replace('+', '_')}_zeroed": zeroed[t]["triple_all"]
        for t in ("EP", "PP", "BP", "EP+PP+BP")
    }
    return [Metric(f"{name}_{what}", value) for what, value in rows.items()]


def _of_pairs(name: str, model: Measured, kind: str) -> Metric:
    values = model.correct[kind].astype(float)
    low, high = cluster_bootstrap(values.tolist(), model.pairs)
    return Metric(name, float(np.mean(values)), "share", low, high, len(values))


def _mean(name: str, models: Sequence[Measured], kind: str = "unseen") -> Metric:
    value, low, high = over_models(models, kind)
    return Metric(name, value, "share", low, high, sum(len(model.pairs) for model in models))


def _gain(name: str, more: Sequence[Measured], less: Sequence[Measured]) -> Metric:
    value, low, high = gain(more, less)
    return Metric(name, value, "share", low, high, sum(len(model.pairs) for model in (*more, *less)))
