"""Two figures from a result file of `benchmarks.diagnose`: one a part."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

Document = Mapping[str, Any]
Bar = tuple[str, str]

ACCESS: tuple[tuple[str, Sequence[Bar]], ...] = (
    (
        "probes, things never seen",
        (
            ("photo_pooled_probe", "pooled vector"),
            ("photo_flip_odd_probe", "its flip-odd part"),
            ("photo_moment_flip_odd_probe", "moment, fitted"),
            ("photo_object_identity_null", "words alone"),
        ),
    ),
    (
        "native score",
        (
            ("photo_native", "of two captions"),
            ("mirror_native", "of two mirror images"),
            ("template_unseen", "best template"),
            ("caption_best_in", "best caption, where chosen"),
            ("caption_luck_p95", "the same by luck (95 %)"),
            ("caption_unseen", "best caption, unseen"),
        ),
    ),
    (
        "moment, nothing fitted",
        (
            ("photo_moment", "of two captions"),
            ("mirror_moment", "of two mirror images"),
            ("photo_moment_shuffled", "patches shuffled"),
            ("photo_moment_wrong_words", "wrong words"),
        ),
    ),
)
POOLING: tuple[tuple[str, Sequence[Bar]], ...] = (
    (
        "pooled vector, probes",
        (
            ("pooled_axis", "axis"),
            ("pooled_polarity", "polarity"),
            ("pooled_polarity_orbit", "polarity, within the orbit"),
            ("pooled_polarity_flip_odd", "polarity, flip-odd part"),
            ("object_identity_null", "orbit's mean alone"),
        ),
    ),
    (
        "patch grid",
        (
            ("moment_axis", "axis: the longer moment"),
            ("moment_polarity", "polarity: moment, nothing fitted"),
            ("grid_probe_polarity", "probe"),
            ("moment_shuffled", "moment, patches shuffled"),
            ("moment_wrong_words", "moment, wrong words"),
        ),
    ),
    (
        "4-way (chance .25)",
        (("four_way_probe", "probe"), ("four_way_native", "native"), ("four_way_moment", "moment")),
    ),
)


def draw_all(document: Document, path: Path) -> list[Path]:
    """Draw both parts of a result; the figures lie beside it.

    Parameters
    ----------
    document : mapping
        A result file.
    path : Path
        Where it is: ``diagnose-COMMIT.json`` gives ``diagnose-COMMIT-access.png`` and ``...-pooling.png``.
    """
    made = []
    for suffix, groups, part in (("access", ACCESS, 0), ("pooling", POOLING, 1)):
        made.append(path.with_name(f"{path.stem}-{suffix}.png"))
        _draw(document, groups, document["verdict"]["sentences"][part].split(". ")[0], made[-1])
    return made


def _draw(document: Document, groups: Sequence[tuple[str, Sequence[Bar]]], title: str, path: Path) -> None:
    import matplotlib as mpl  # noqa: PLC0415

    mpl.use("Agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415

    metrics = {metric["name"]: metric for metric in document["metrics"]}
    figure, axes = plt.subplots(
        1, len(groups), figsize=(13, 4.6), sharey=True, layout="constrained",
        width_ratios=[len(bars) for _, bars in groups],
    )  # fmt: skip
    for at, (heading, bars) in zip(axes, groups, strict=True):
        for place, (name, _) in enumerate(bars):
            metric = metrics[name]
            at.bar(place, metric["value"], color="C0" if metric["low"] is not None else "C7", alpha=0.75)
            if metric["low"] is not None:
                at.plot([place, place], [metric["low"], metric["high"]], color="black", linewidth=1.4)
            at.text(place, 0.03, f"{metric['value']:.2f}", ha="center", color="white")
        chance = 0.25 if "4-way" in heading else 0.5
        at.axhline(chance, color="black", linestyle=":", linewidth=1)
        at.set_xticks(range(len(bars)), [label for _, label in bars], rotation=35, ha="right")
        at.set_title(heading, fontsize=10)
        at.set_ylim(0, 1.02)
    axes[0].set_ylabel("share right")
    figure.suptitle(f"{document['encoder']}. {title} (commit {document['commit']})", fontsize=11)
    figure.savefig(path, dpi=110)
    plt.close(figure)
