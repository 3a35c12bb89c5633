"""Where the relation is lost, in words: rules on intervals, and the published rows beside ours.

*Access*, from photographs. The direction is in the pooled vector if the probe of its flip-odd part is above chance; a
text reaches it if the native score is, for the statements themselves, for the best template or for the best caption,
on photographs that chose neither.

======================  =====================  ======================
..                      a text reaches it      no text found reaches it
======================  =====================  ======================
the probe reads it      accessible             unreachable
the probe does not      accessible             not found in the pooled vector
======================  =====================  ======================

*Pooling*, from orbits. The patches hold the polarity if the moment or a probe of the patch grid is above chance.

* above chance in the pooled vector, and no worse than from the patches: kept;
* above chance, but its interval below that of the patches: mostly discarded;
* at chance, with an interval below that of the patches: discarded;
* at chance, with intervals that overlap: undecided;
* at chance in the patches too: nothing to discard.

"Above chance" means that the whole 95 % interval is. Where any of several will do, the interval is widened to what all
of them together would exceed by luck once in twenty times (Bonferroni).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from statistics import NormalDist
from typing import Any

from benchmarks.record import Metric

CHANCE = 0.5


class Access(StrEnum):
    """What becomes of the direction between the pooled vector and a text."""

    ACCESSIBLE = "accessible"
    UNREACHABLE = "unreachable"
    NOT_FOUND = "not found in the pooled vector"


class Pooling(StrEnum):
    """What becomes of the polarity between the patches and the pooled vector."""

    KEPT = "kept"
    MOSTLY_DISCARDED = "mostly discarded"
    DISCARDED = "discarded"
    UNDECIDED = "undecided"
    NOTHING = "nothing to discard"


REACHES = ("mirror_native", "template_unseen", "caption_unseen")
"""Ways of the native score to a direction; one above chance will do."""
PATCHES = ("moment_polarity", "grid_probe_polarity")


@dataclass(frozen=True, slots=True)
class Verdict:
    """The answer to "where is the relation lost?", with the numbers that say so."""

    access: Access
    pooling: Pooling
    sentences: tuple[str, str]


def judge(metrics: Mapping[str, Metric]) -> Verdict:
    """Apply the rules above.

    Parameters
    ----------
    metrics : mapping of str to Metric
        By name; every rule's metrics with their intervals.
    """
    probe = metrics["photo_flip_odd_probe"]
    reaches = [metrics[name] for name in REACHES]
    if any(above_chance(one, tries=len(reaches)) for one in reaches):
        access = Access.ACCESSIBLE
    else:
        access = Access.UNREACHABLE if above_chance(probe) else Access.NOT_FOUND
    pooled, axis = metrics["pooled_polarity"], metrics["pooled_axis"]
    patches = max((metrics[name] for name in PATCHES), key=lambda metric: metric.low or 0.0)
    kept, held = above_chance(pooled), above_chance(patches, tries=len(PATCHES))
    apart = (pooled.high or 1.0) < (patches.low or 0.0)
    if not held:
        pooling = Pooling.KEPT if kept else Pooling.NOTHING
    elif kept:
        pooling = Pooling.MOSTLY_DISCARDED if apart else Pooling.KEPT
    else:
        pooling = Pooling.DISCARDED if apart else Pooling.UNDECIDED
    read = ", ".join(_said(metric) for metric in reaches)
    return Verdict(
        access,
        pooling,
        (
            f"Photographs: {access}. A probe of the flip-odd part of the pooled vector reads left/right at "
            f"{_said(probe)}, the same of the moment at {_said(metrics['photo_moment_flip_odd_probe'])}; the native "
            f"score at {read}.",
            f"Controlled rotations: {pooling}. The pooled vector gives the axis at {_said(axis)} and the polarity at "
            f"{_said(pooled)}, left/right alone at {_said(metrics['pooled_polarity_lr'])}; the patches give it at "
            f"{', '.join(_said(metrics[name]) for name in PATCHES)}.",
        ),
    )


def above_chance(metric: Metric, *, tries: int = 1) -> bool:
    """Whether the whole interval is above one half, for one of so many figures of which any would do."""
    if metric.low is None:
        return False
    wider = NormalDist().inv_cdf(1 - 0.025 / tries) / NormalDist().inv_cdf(1 - 0.025)
    return metric.value - wider * (metric.value - metric.low) > CHANCE


def _said(metric: Metric) -> str:
    return f"{metric.value:.3f} [{metric.low:.3f}, {metric.high:.3f}] ({metric.name})"


# The paper's rows ------------------------------------------------------------------------------------------

PAPER = "Discarded or Unreachable?"
CHECKPOINTS = {
    ("ViT-B-16", "openai"): "CLIP ViT-B/16",
    ("ViT-B-16", "laion2b_s34b_b88k"): "CLIP LAION-2B",
    ("ViT-B-16", "datacomp_xl_s13b_b90k"): "CLIP DataComp",
    ("ViT-B-16-quickgelu", "metaclip_fullcc"): "MetaCLIP-B",
    ("ViT-B-16", "dfn2b"): "DFN-B",
}
"""open_clip's names of the encoders in the paper's tables."""


@dataclass(frozen=True, slots=True)
class Row:
    """A figure of the paper for each encoder of :data:`CHECKPOINTS`, in order, and what measures the same here."""

    what: str
    theirs: tuple[str, str, str, str, str]
    ours: str
    difference: str


_WHATSUP = "103 staged pairs of photographs there; everyday photographs and their mirror images here"
_DRAWN = "other composites there; drawn things here"
ROWS = (
    Row(
        "left/right, probe of the pooled vector", (".674", ".705", ".713", ".700", ".660"),
        "photo_pooled_probe", _WHATSUP + "; column headings are lost, so this is the likely reading",
    ),
    Row(
        "left/right, probe of the flip-odd part", (".771", ".878", ".805", ".815", ".825"),
        "photo_flip_odd_probe", _WHATSUP,
    ),
    Row("mirror ranking, native", (".510", ".500", ".495", ".510", ".510"), "mirror_native", _WHATSUP),
    Row("mirror ranking, moment", (".951", ".942", ".893", ".951", ".942"), "mirror_moment", _WHATSUP),
    Row(
        "best caption, where it was chosen", (".690", ".728", ".835", ".709", ".775"),
        "caption_best_in", "a million captions there",
    ),
    Row(
        "captions, unseen photographs", (".524", ".510", ".490", ".558", ".505"),
        "caption_unseen", "a million captions there; likely reading of \"real caps.\"",
    ),
    Row("single photograph, moment", (".772", ".806", ".694", ".772", ".782"), "photo_moment", _WHATSUP),
    Row(
        "the same, patches shuffled", (".588", ".635", ".523", ".626", ".630"),
        "photo_moment_shuffled_p95", _WHATSUP + "; an upper quantile in both",
    ),
    Row(
        "object-identity null", (".563", ".597", ".563", ".549", ".437"),
        "photo_object_identity_null", "words alone here; theirs is not described",
    ),
    Row(
        "wrong captions", (".510", ".451", ".398", ".393", ".621"),
        "photo_moment_wrong_words", "moment here; theirs is not described",
    ),
    Row("rotations, axis, pooled", ("1.000", ".998", "1.000", "1.000", "1.000"), "pooled_axis", _DRAWN),
    Row(
        "rotations, polarity, pooled", (".507", ".470", ".490", ".503", ".520"),
        "pooled_polarity", _DRAWN,
    ),
    Row(
        "rotations, polarity †, pooled", (".513", ".557", ".497", ".530", ".580"),
        "pooled_polarity_flip_odd", _DRAWN + "; what † says is lost: flip-odd part here",
    ),
    Row("rotations, 4-way, probe", (".475", ".476", ".481", ".487", ".481"), "four_way_probe", _DRAWN),
    Row("rotations, 4-way, native", (".252", ".284", ".273", ".286", ".266"), "four_way_native", _DRAWN),
    Row("rotations, 4-way, moment", (".819", ".877", ".886", ".823", ".858"), "four_way_moment", _DRAWN),
)  # fmt: skip


def same_encoder(name: str, pretrained: str) -> int | None:
    """Which encoder of the paper this is, as a place in :data:`CHECKPOINTS`; a tag may carry a file after a colon."""
    for place, checkpoint in enumerate(CHECKPOINTS):
        if checkpoint == (name, pretrained.partition(":")[0]):
            return place
    return None


def render(document: Mapping[str, Any]) -> str:
    """A result file as Markdown: verdict, the paper's rows beside ours, everything measured."""
    metrics = {metric["name"]: metric for metric in document["metrics"]}
    place = same_encoder(document["model"], document["pretrained"])
    theirs = list(CHECKPOINTS.values())[place or 0]
    same = "no" if place is None else "yes"
    lines = [
        f"# Where is the relation lost? {document['encoder']}",
        "",
        f"From `{document['command']}` at commit {document['commit']}"
        f"{' with local changes' if document['dirty'] else ''}. Intervals are 95 %, bootstrapped by photograph or by "
        "pair of drawn things.",
        "",
        *(f"- {sentence}" for sentence in document["verdict"]["sentences"]),
        *(f"- {note}" for note in document["notes"]),
        "",
        f"Theirs are typed from the tables of *{PAPER}*, for {theirs} and in brackets for all five base encoders. "
        f"Same encoder: **{same}**. Same pictures: no.",
        "",
        "| row | theirs | ours | same encoder | what differs besides |",
        "|---|---|---|---|---|",
    ]
    for row in ROWS:
        every = f"{row.theirs[place or 0]} ({min(row.theirs, key=float)} to {max(row.theirs, key=float)})"
        metric = metrics.get(row.ours)
        ours = "not measured" if metric is None else f"{_figure(metric)} `{row.ours}`"
        lines.append(f"| {row.what} | {every} | {ours} | {same} | {row.difference} |")
    lines += ["", "| metric | value | n |", "|---|---|---|"]
    lines += [f"| `{name}` | {_figure(metric)} | {metric['n'] or ''} |" for name, metric in metrics.items()]
    return "\n".join(lines) + "\n"


def _figure(metric: Mapping[str, Any]) -> str:
    value, low, high = metric["value"], metric["low"], metric["high"]
    text = f"{value:.3f}" if metric["unit"] != "count" else f"{value:.0f}"
    return text if low is None else f"{text} [{low:.3f}, {high:.3f}]"
