"""What do the sketches lose? Accuracy by size, of the moments and of the patch grids.

    python -m benchmarks.sketches RESULT.json --plot FILE.png

draws the curves that `benchmarks.spatial` left in its result file.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.gallery import Seen
from benchmarks.geometry import SIGN, Question, Texts, won
from benchmarks.record import Metric
from indexer.grid import BITS, COMPONENTS, SIDE, fit_grid
from indexer.sketch import Sketcher, fit_sketcher, random_components
from indexer.store import Index
from service.maps import softmax_centroid

Doubles = NDArray[np.float64]
Curve = list[dict[str, float]]

KS = (16, 32, 64, 128, 256)
GRIDS = [(side, k, bits) for side in (3, 4, 6, 8) for k in (32, 64, 128) for bits in (4, 8)]
RANDOM_BASES = 5


def measure_sketches(
    questions: Sequence[Question], text: Texts, seen: Seen, index: Index
) -> tuple[dict[str, Curve], list[Metric]]:
    """Curves by kind of sketch, and the sizes of the default."""
    moments, sample = seen.moments(), seen.sample()
    dim = moments.shape[-1]
    curves: dict[str, Curve] = {"moment_pca": [], "moment_random": [], "grid": []}
    for k in (k for k in KS if k <= dim):
        fitted = fit_sketcher(sample, moments, k=k)
        curves["moment_pca"].append({"k": k, "bytes": 2 * k} | _moment(questions, text, moments, fitted))
        several = [
            _moment(questions, text, moments, _random(dim, k, seed, moments)) for seed in range(RANDOM_BASES)
        ]
        mean = {axis: float(np.mean([one[axis] for one in several])) for axis in ("lr", "ab")}
        curves["moment_random"].append({"k": k, "bytes": 2 * k} | mean)
    curves["moment_full"] = [{"k": dim, "bytes": 8 * dim} | _moment(questions, text, moments, None)]
    for side, group in _by_side(GRIDS):
        cells = seen.cells(side)
        for k, bits in group:
            if k <= dim:
                sketcher = fit_grid(sample, cells, text.vocabulary, k=k, side=side, bits=bits)
                size = {"side": side, "k": k, "bits": bits, "bytes": sketcher.row_bytes}
                packed = sketcher.encode(cells)
                maps = {
                    word: sketcher.similarities(
                        packed,
                        sketcher.query((text.word(word) - text.vocabulary.mean(axis=0))[None]),
                    )[:, 0]
                    for word in {w for q in questions for w in (q.a, q.b)}
                }
                centres = {w: softmax_centroid(m.reshape(len(m), side, side)) for w, m in maps.items()}
                curves["grid"].append(size | _centroid(questions, centres))
    native = 2 * dim
    sketch = 2 * index.manifest.k
    assert index.grid_sketcher is not None
    grid = index.grid_sketcher.row_bytes
    at = {row["k"]: row for row in curves["moment_pca"]}
    chance = {row["k"]: row for row in curves["moment_random"]}
    full = curves["moment_full"][0]
    metrics = [
        Metric("sketch_bytes", sketch, "bytes"),
        Metric("sketch_to_native_fp16", (native + sketch) / native, "ratio"),
        Metric("grid_bytes", grid, "bytes"),
        Metric("grid_to_native_fp16", (native + sketch + grid) / native, "ratio"),
    ]
    for axis in ("lr", "ab"):
        if index.manifest.k in at:
            loss = full[axis] - at[index.manifest.k][axis]
            metrics.append(Metric(f"{axis}_full_minus_pca_default", loss, "difference"))
        if 32 in at:
            metrics.append(
                Metric(f"{axis}_pca_minus_random_32", at[32][axis] - chance[32][axis], "difference")
            )
    return curves, metrics


def plot(curves: dict[str, Curve], path: Path, title: str) -> None:
    """Draw accuracy over bytes, one panel an axis."""
    import matplotlib as mpl  # noqa: PLC0415

    mpl.use("Agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415

    figure, axes = plt.subplots(1, 2, figsize=(10, 4), sharey=True)
    for panel, axis, name in zip(axes, ("lr", "ab"), ("left / right", "above / below"), strict=True):
        for kind, label in (("moment_pca", "moment, PCA"), ("moment_random", "moment, random")):
            rows = curves[kind]
            panel.plot([r["bytes"] for r in rows], [r[axis] for r in rows], "o-", label=label)
        for side in sorted({r["side"] for r in curves["grid"]}):
            for bits, line in ((4, "s-"), (8, "s:")):
                rows = [r for r in curves["grid"] if (r["side"], r["bits"]) == (side, bits)]
                label = f"grid {side:g} x {side:g}, {bits} bit"
                panel.plot([r["bytes"] for r in rows], [r[axis] for r in rows], line, label=label, alpha=0.8)
        chosen = [r for r in curves["grid"] if (r["side"], r["k"], r["bits"]) == (SIDE, COMPONENTS, BITS)]
        panel.plot([r["bytes"] for r in chosen], [r[axis] for r in chosen], "k*", ms=14, label="default")
        panel.set(
            xscale="log", title=name, xlabel="bytes an image", ylabel="accuracy" if axis == "lr" else ""
        )
        panel.grid(alpha=0.3)
    axes[1].legend(fontsize=7, ncol=2)
    figure.suptitle(title)
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def main() -> None:
    """Draw the curves of a result file."""
    options = argparse.ArgumentParser(description="Draw the curves of a spatial result file.")
    options.add_argument("result", type=Path)
    options.add_argument("--plot", type=Path, required=True)
    arguments = options.parse_args()
    document = json.loads(arguments.result.read_text(encoding="utf-8"))
    plot(document["curves"], arguments.plot, f"{document['encoder']}, {document['photos']} photographs")


def _moment(
    questions: Sequence[Question], text: Texts, moments: NDArray[np.float32], sketcher: Sketcher | None
) -> dict[str, float]:
    decoded = moments if sketcher is None else sketcher.decode(sketcher.encode(moments))
    margins: dict[str, list[float]] = {"lr": [], "ab": []}
    for q in questions:
        axis, sign = SIGN[q.relation]
        words = text.word(q.a) - text.word(q.b)
        query = words if sketcher is None else sketcher.project(words)
        margins[q.axis].append(sign * float(decoded[q.photo, axis] @ query))
    return {axis: float(won(np.array(values)).mean()) for axis, values in margins.items()}


def _centroid(questions: Sequence[Question], centres: dict[str, Doubles]) -> dict[str, float]:
    margins: dict[str, list[float]] = {"lr": [], "ab": []}
    for q in questions:
        axis, sign = SIGN[q.relation]
        margins[q.axis].append(sign * float(centres[q.a][q.photo, axis] - centres[q.b][q.photo, axis]))
    return {axis: float(won(np.array(values)).mean()) for axis, values in margins.items()}


def _random(dim: int, k: int, seed: int, moments: NDArray[np.float32]) -> Sketcher:
    components = random_components(dim, k, seed=seed)
    reach = np.abs(moments @ components.T).max(axis=(0, 1))
    return Sketcher(
        components, (reach / 127).astype(np.float32), fit_sketcher(moments[:, 0], moments, k=1).precision
    )


def _by_side(grids: Iterable[tuple[int, int, int]]) -> list[tuple[int, list[tuple[int, int]]]]:
    sides: dict[int, list[tuple[int, int]]] = {}
    for side, k, bits in grids:
        sides.setdefault(side, []).append((k, bits))
    return list(sides.items())


if __name__ == "__main__":
    main()
