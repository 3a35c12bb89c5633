"""Where is the relation lost? Before pooling, in pooling, or between the pooled vector and the text.

    python -m benchmarks.diagnose [--encoder NAME --pretrained TAG_OR_FILE] [--data DIR] [--quick] [--json FILE]

`benchmarks.access` asks of photographs whether the direction is in the pooled vector and whether a text reaches it;
`benchmarks.pooling` asks of drawn arrangements, turned by quarters, whether pooling keeps it; `benchmarks.verdict`
says by which rules the answer follows. Beside the result file lie two figures and a Markdown page with the published
rows. One command serves every encoder::

    python -m benchmarks.diagnose --encoder small-random-vit --pretrained random:0
    python -m benchmarks.diagnose --encoder ViT-B-16 --pretrained laion2b_s34b_b88k:FILE

The data folder holds ``coco/train`` (on which everything is chosen), ``coco/dev`` (on which everything is reported) and
``phrases/vsr.jsonl``.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import open_clip

from benchmarks.access import TextBank, measure_access
from benchmarks.build import SMALL_VIT
from benchmarks.diagnose_plots import draw_all
from benchmarks.gallery import open_encoder
from benchmarks.objects import THINGS
from benchmarks.orbits import draw_orbits, facts_of, see_orbits
from benchmarks.pooling import measure_pooling
from benchmarks.record import DEFAULT_DATA, Metric, encoder_parser, write_result
from benchmarks.verdict import Access, Pooling, Verdict, above_chance, judge, render
from indexer.encoder import COMPACT, Encoder

SEED = 0
ROUNDS = 4
"""Arrangements of each two things."""
QUICK_ROUNDS = 1
QUICK_THINGS = 16
QUICK_PHOTOS = 30
"""A set."""


def main() -> None:
    """Run the benchmark from the command line."""
    options = encoder_parser("Where is the relation lost?", default=COMPACT)
    options.add_argument("--device", default="auto", help="auto, cpu or cuda")
    options.add_argument("--cache", type=Path, help="keep the towers' output here for the next run")
    arguments = options.parse_args()
    open_clip.add_model_config(SMALL_VIT)
    encoder = open_encoder(arguments.encoder, arguments.pretrained, device=arguments.device)
    data = arguments.data or DEFAULT_DATA
    metrics, facts = diagnose(encoder, data, quick=arguments.quick, cache=arguments.cache)
    spec = encoder.spec
    verdict = judge({metric.name: metric for metric in metrics})
    path = write_result(
        "diagnose",
        metrics,
        encoder=spec.name if spec.name == COMPACT else f"{spec.name} {spec.pretrained}",
        seed=SEED,
        path=arguments.json,
        extra={
            "model": spec.name,
            "pretrained": spec.pretrained,
            "weights_sha256": spec.weights_sha256,
            "verdict": asdict(verdict),
            "notes": notes(verdict, metrics),
        }
        | facts,
    )
    document = json.loads(path.read_text(encoding="utf-8"))
    page = path.with_suffix(".md")
    page.write_text(render(document), encoding="utf-8")
    for made in (page, *draw_all(document, path)):
        print(f"-> {made}")
    print(*verdict.sentences, *notes(verdict, metrics), sep="\n")


def diagnose(
    encoder: Encoder,
    data: Path,
    *,
    quick: bool = False,
    things: Sequence[str] = tuple(THINGS),
    cache: Path | None = None,
) -> tuple[list[Metric], dict[str, object]]:
    """All metrics for one encoder, and facts about how they came about.

    Parameters
    ----------
    things : sequence of str
        What is drawn for the orbits.
    cache : Path, optional
        Folder for the towers' output.
    """
    keep = None if cache is None else cache / encoder.spec.weights_sha256[:12]
    bank = TextBank(encoder, None if keep is None else keep / "texts.npz")
    access, facts = measure_access(encoder, data, bank, quick=QUICK_PHOTOS if quick else None, cache=keep)
    rounds, things = (QUICK_ROUNDS, things[:QUICK_THINGS]) if quick else (ROUNDS, things)
    orbits = draw_orbits(rounds, seed=SEED, things=things)
    file = None if keep is None else keep / f"orbits-{len(things)}-{rounds}-{SEED}.npz"
    seen, mirrored = see_orbits(encoder, orbits, cache=file)
    pooling = measure_pooling(seen, mirrored, facts_of(orbits), bank)
    return access + pooling, facts | {"orbits": len(orbits)}


def notes(verdict: Verdict, metrics: Sequence[Metric]) -> list[str]:
    """What the verdict alone would smooth over."""
    found = {metric.name: metric for metric in metrics}
    said = []
    if verdict.pooling is Pooling.NOTHING and above_chance(found["pooled_axis"]):
        said.append(
            f"The axis is read at {found['pooled_axis'].value:.3f} although the patches give no polarity: features of "
            "a whole picture, learned or not, differ between things side by side and things above each other."
        )
    if above_chance(found["pooled_polarity_orbit"]):
        parts = ", ".join(
            f"{found[name].value:.3f} [{found[name].low:.3f}, {found[name].high:.3f}] {what}"
            for name, what in (
                ("pooled_polarity_orbit_lr", "left/right"),
                ("pooled_polarity_orbit_ab", "above/below"),
            )
        )
        said.append(
            f"A trace of the polarity is left in the pooled vector: with all that an orbit has in common taken off, a "
            f"probe reads {parts}."
        )
    if verdict.access is Access.UNREACHABLE and verdict.pooling is Pooling.DISCARDED:
        said.append(
            "Both at once is no contradiction: on photographs the pooled vector holds a direction that it does not "
            "hold where nothing but the places of two drawn things varies."
        )
    return said


if __name__ == "__main__":
    main()
