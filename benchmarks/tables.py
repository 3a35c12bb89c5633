"""The published tables, row by row, beside what a result file of `benchmarks.spatial` says.

    python -m benchmarks.tables RESULT.json [--first benchmarks/results/first_edition-6305ae94cc27.json] [--out FILE]

Figures of others are those of their papers, for the encoder CLIP ViT-B/16 (openai) where they name several, and on
*their* photographs: none of them is at hand here, so no row compares methods on the same data. With the weights of a
checkpoint, the same benchmark fills our column for that encoder. ``--first`` puts a result of the first edition of the
heads of `compact` beside this one's.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MOMENT = "Discarded or Unreachable?"
ADR = "Readout Blindness"


@dataclass(frozen=True, slots=True)
class Row:
    """One figure of a paper, and the metric here that measures the same."""

    paper: str
    what: str
    theirs: str
    ours: str
    difference: str = "other photographs"


ROWS = (
    Row(MOMENT, "left/right pairwise, native", ".510", "pairwise_lr_native"),
    Row(MOMENT, "left/right pairwise, with moment", ".839", "pairwise_lr_moment"),
    Row(MOMENT, "left/right pairwise, both stages", "none", "pairwise_lr_best", "no such row there"),
    Row(MOMENT, "the same, whole pictures alone", "none", "pairwise_lr_whole_best", "no crops"),
    Row(
        MOMENT,
        "left/right R@1 of 21, native",
        ".048",
        "cond_r1_lr_native",
        "negatives mostly crops of mirror images",
    ),
    Row(
        MOMENT,
        "left/right R@1 of 21, with moment",
        ".411",
        "cond_r1_lr_moment",
        "negatives mostly crops of mirror images",
    ),
    Row(MOMENT, "left/right R@1 of 21, both stages", "none", "cond_r1_lr_best", "no such row there"),
    Row(MOMENT, "above/below pairwise, native", ".497", "pairwise_ab_native", "natural negatives only"),
    Row(MOMENT, "above/below pairwise, with moment", ".806", "pairwise_ab_moment", "natural negatives only"),
    Row(MOMENT, "above/below pairwise, both stages", "none", "pairwise_ab_best", "natural negatives only"),
    Row(MOMENT, "multiplier 1/4", ".677", "pairwise_lr_moment_x0.25"),
    Row(MOMENT, "multiplier 1/2", ".768", "pairwise_lr_moment_x0.5"),
    Row(MOMENT, "multiplier 2", ".872", "pairwise_lr_moment_x2"),
    Row(MOMENT, "multiplier 4", ".883", "pairwise_lr_moment_x4"),
    Row(MOMENT, "one term, subject only", ".695", "lr_subject_only", "caption choice, not pairwise"),
    Row(MOMENT, "one term, object only", ".697", "lr_object_only", "caption choice, not pairwise"),
    Row(MOMENT, "caption choice, left/right, moment", ".772", "lr_moment", "two-object photographs there"),
    Row(
        MOMENT,
        "the same, patches shuffled",
        ".588",
        "shuffled_moment",
        "an upper quantile there, a mean here",
    ),
    Row(MOMENT, "mirror ranking, native", ".510", "mirror_native", "mirror images here"),
    Row(MOMENT, "mirror ranking, moment", ".951", "mirror_moment", "mirror images here, the moment alone"),
    Row(MOMENT, "reader: centroid at any published tau", ".827", "lr_centroid_tau_8"),
    Row(MOMENT, "reader: best patch alone", ".713", "lr_argmax"),
    Row(MOMENT, "lambda", ".79", "lambda", "another encoder: a ratio, not a score"),
    Row(MOMENT, "captions R@1, all, native", ".302", "captions_r1_native", "5,000 photographs there"),
    Row(MOMENT, "captions R@1, all, spatial", ".295", "captions_r1_spatial", "5,000 photographs there"),
    Row(
        MOMENT, "captions R@1, parsed, native", ".305", "captions_parsed_r1_native", "5,000 photographs there"
    ),
    Row(
        MOMENT,
        "captions R@1, parsed, spatial",
        ".205",
        "captions_parsed_r1_spatial",
        "5,000 photographs there",
    ),
    Row(ADR, "left/right, adr-dense", ".910", "lr_adr_dense", "relation crops there"),
    Row(ADR, "left/right, deployed score", ".503", "lr_native", "relation crops there"),
    Row(ADR, "misaligned null, adr-dense there", ".496", "lr_centroid_null", "our centroid here"),
    Row(
        ADR,
        "grounded gain, adr-dense there",
        "+.414",
        "lr_centroid_grounded_gain",
        "our centroid, directions balanced",
    ),
    Row(ADR, "grounded gain, deployed score", "+.016", "lr_native_grounded_gain", "directions balanced here"),
)


def render(document: Mapping[str, Any], first: Mapping[str, Any] | None = None) -> str:
    """All tables of a result file as Markdown, and figures of another edition of the encoder beside them."""
    metrics = {metric["name"]: metric for metric in document["metrics"]}
    before = {metric["name"]: _figure(metric) for metric in (first or {"metrics": ()})["metrics"]}
    lines = [
        "# Spatial accuracy",
        "",
        f"Encoder: **{document['encoder']}** (weights {str(document.get('weights_sha256'))[:12]}), "
        f"{document['photos']} photographs. `compact` is a real trained model, but not CLIP.",
        f"From `{document['command'].partition(' --json')[0]}` at commit {document['commit']}"
        f"{' with local changes' if document['dirty'] else ''}. Intervals are 95 %, bootstrapped by photograph; "
        "of `pairwise_`, `cond_r1_` and `absent_` rows by pair of classes. Where all values are the same, Wilson's for "
        "as many photographs or pairs.",
        "",
        "![Accuracy by bytes](results/spatial-sketches.png)",
        "",
        "## Beside the papers",
        "",
        "| paper | row | theirs (CLIP ViT-B/16) | ours | why they differ in kind |",
        "|---|---|---|---|---|",
    ]
    for row in ROWS:
        ours = _figure(metrics[row.ours]) if row.ours in metrics else "not measured"
        lines.append(f"| {row.paper} | {row.what} | {row.theirs} | {ours} `{row.ours}` | {row.difference} |")
    lines += ["", *_sketches(document["curves"]), "", "## Everything measured", ""]
    lines += ["| metric | value | n | first edition of the heads |", "|---|---|---|---|"]
    lines += [
        f"| `{name}` | {_figure(metric)} | {metric['n'] or ''} | {before.get(name, '')} |"
        for name, metric in metrics.items()
    ]
    if "note" in document:
        lines += ["", str(document["note"])]
    lines += ["", "## Log of choices", "", *(f"- {choice}" for choice in document["choices"])]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Write the tables of a result file."""
    options = argparse.ArgumentParser(description="Tables of a spatial result file.")
    options.add_argument("result", type=Path)
    options.add_argument("--first", type=Path, help="a result of the first edition of the heads")
    options.add_argument("--out", type=Path, default=Path(__file__).with_name("tables.md"))
    arguments = options.parse_args()
    document, first = (
        path and json.loads(path.read_text(encoding="utf-8")) for path in (arguments.result, arguments.first)
    )
    arguments.out.write_text(render(document, first), encoding="utf-8")


def _sketches(curves: Mapping[str, list[dict[str, float]]]) -> list[str]:
    lines = [
        "## Sketches",
        "",
        "Moments, left/right and above/below (published, left/right: PCA .748 .774 .784 .808 .820, random "
        ".598 .683 .696 .718 .751 at k = 16 to 256, other photographs):",
        "",
        "| k | bytes | PCA lr | PCA ab | random lr | random ab |",
        "|---|---|---|---|---|---|",
    ]
    for one, other in zip(curves["moment_pca"], curves["moment_random"], strict=True):
        lines.append(
            f"| {one['k']:g} | {one['bytes']:g} | {one['lr']:.3f} | {one['ab']:.3f} | {other['lr']:.3f} | "
            f"{other['ab']:.3f} |"
        )
    full = curves["moment_full"][0]
    lines += [
        f"| full | {full['bytes']:g} | {full['lr']:.3f} | {full['ab']:.3f} | | |",
        "",
        "Patch grids, read by the centroid:",
        "",
        "| cells | k | bits | bytes | lr | ab |",
        "|---|---|---|---|---|---|",
    ]
    for row in sorted(curves["grid"], key=lambda r: r["bytes"]):
        lines.append(
            f"| {row['side']:g} x {row['side']:g} | {row['k']:g} | {row['bits']:g} | {row['bytes']:g} | "
            f"{row['lr']:.3f} | {row['ab']:.3f} |"
        )
    return lines


def _figure(metric: Mapping[str, Any]) -> str:
    value, low, high = metric["value"], metric["low"], metric["high"]
    text = f"{value:.3f}" if abs(value) < 10 else f"{value:.0f}"
    return text if low is None else f"{text} [{low:.3f}, {high:.3f}]"


if __name__ == "__main__":
    main()
