"""Does the ranking know left from right? Measured on photographs with boxes and captions.

    python -m benchmarks.spatial --data DIR [--quick] [--json FILE] [--encoder NAME --pretrained TAG_OR_FILE]

Three parts: where each reader puts things (`benchmarks.geometry`), which photograph comes first
(`benchmarks.retrieval`), and what the sketches lose (`benchmarks.sketches`). One command serves every encoder; with the
weights of a checkpoint at hand, its row is ``--encoder ViT-B-16 --pretrained FILE``.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.data import Photo, load_photos
from benchmarks.gallery import index_of, look
from benchmarks.geometry import Texts, margins, questions_of, report
from benchmarks.record import DEFAULT_DATA, Metric, parser, write_result
from benchmarks.retrieval import Scorer, captions, mirror_ranking, reversed_pools, statements
from benchmarks.sketches import measure_sketches
from indexer.encoder import COMPACT, Encoder
from indexer.load import load_encoder
from parser import QueryParser
from service.search import Searcher

QUICK_PHOTOS = 120
SEED = 0

CHOICES = [
    "Chosen on coco/train alone, with heads trained on two thirds of it and measured on the third left out (three "
    "folds, 813 statements): nothing on coco/dev.",
    "unit of the displacement: for the query at hand (MRR .30) over one lambda (.27); least spread .5 (0 .. .7 equal)",
    "reader: softmax of the standardised map, tau 1 (lr .808, ab .906); tau .5 .7 1.5, thresholds, squares, "
    "competition of the two words, background nouns: none better by more than .003",
    "presence: best cell, standardised over the collection, mean of both words (MRR .36); minimum of both .34, pooled "
    "vector .27 or less, competition with a vocabulary .36, saturating .34",
    "PLACE 1.6, PRESENCE 1.5: MRR .380; .8 to 2 and .5 to 1.5 were tried, flat from 1.1 on; tanh .38, linear .38",
    "grid: 6 x 6 x 128 x 4 bit (lr .797, ab .896, MRR .367 in 2,304 bytes) against 12 x 12 x 256 floats (.808, .906, "
    ".375); 64 components (.788, .883, .356), 4 x 4 cells (.791, .873, .341), 32 components (.774, .854, .318)",
    "REST 2: R@1 of the 207 captions of train that parse, by weight 0 .1 .25 .5 .75 1: .314 .338 .362 .367 .353 .353; "
    "fewer words beside the relation want more",
]


def main() -> None:
    """Run the benchmark from the command line."""
    options = parser("Spatial accuracy on photographs with boxes.")
    options.add_argument("--encoder", default=COMPACT, help="compact or an open_clip model name")
    options.add_argument("--pretrained", help="weights file, tag or random:SEED of an open_clip model")
    options.add_argument("--cache", type=Path, help="keep the image tower's output here for the next run")
    arguments = options.parse_args()
    photos = load_photos(arguments.data or DEFAULT_DATA / "coco" / "dev")
    if arguments.quick:
        photos = photos[:QUICK_PHOTOS]
    encoder = load_encoder(arguments.encoder, arguments.pretrained)
    metrics, curves = measure(encoder, photos, cache=arguments.cache)
    spec = encoder.spec
    name = spec.name if spec.name == COMPACT else f"{spec.name} {spec.pretrained}"
    extra = {
        "photos": len(photos),
        "weights_sha256": spec.weights_sha256,
        "choices": CHOICES if spec.name == COMPACT else [],
        "curves": curves,
    }
    write_result("spatial", metrics, encoder=name, seed=SEED, path=arguments.json, extra=extra)


def measure(
    encoder: Encoder, photos: Sequence[Photo], *, cache: Path | None = None
) -> tuple[list[Metric], dict[str, list[dict[str, float]]]]:
    """All metrics of the benchmark for one encoder, and the curves of the sketches."""
    seen = look(encoder, photos, cache=cache)
    mirrored = look(encoder, photos, mirrored=True, cache=cache)
    questions = questions_of(photos)
    text = Texts(encoder, questions)
    with tempfile.TemporaryDirectory() as folder:
        index = index_of(seen, encoder, Path(folder) / "index")
        searcher = Searcher(index, encoder, QueryParser())
        scorer = Scorer(searcher, text)
        calibration = index.manifest.calibration
        metrics = [
            Metric("lambda", calibration.lam, "ratio", n=len(photos)),
            *report(questions, margins(questions, text, seen, index)),
            *mirror_ranking(questions, photos, seen, mirrored, scorer),
            *reversed_pools(questions, photos, seen, mirrored, scorer),
            *statements(searcher, questions, photos),
            *captions(searcher, photos),
        ]
        curves, sizes = measure_sketches(questions, text, seen, index)
    return metrics + sizes, curves


if __name__ == "__main__":
    main()
