"""Does one weight of place serve every collection? Each has its own lambda; what a borrowed one would cost.

    python -m benchmarks.lambdas [--data DIR] [--quick] [--json FILE]

Three collections: the photographs of two sets, and drawn scenes. For each, the lambda that an index of it holds; and
for every statement that is true of one of its pictures, how the ranking by moment does with its own lambda and, as a
weight, with those of the others. A rank beyond the largest page counts as none.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.data import Photo, load_photos
from benchmarks.gallery import index_of, look
from benchmarks.geometry import questions_of
from benchmarks.record import DEFAULT_DATA, Metric, parser, share, write_result
from benchmarks.retrieval import answers_of
from benchmarks.scenes import gallery, write_gallery
from indexer.encoder import Encoder
from indexer.load import load_encoder
from indexer.store import Index
from parser import QueryParser
from service.query import K_RANGE, Readout
from service.search import Searcher

SEED = 0
DRAWN = 400
QUICK_PICTURES = 60


def main() -> None:
    """Measure from the command line."""
    options = parser(__doc__ or "")
    options.add_argument("--cache", type=Path, help="keep the image tower's output here for the next run")
    given = options.parse_args()
    root, most = given.data or DEFAULT_DATA / "coco", QUICK_PICTURES if given.quick else None
    encoder = load_encoder("compact")
    with tempfile.TemporaryDirectory() as folder:
        write_gallery(Path(folder) / "drawn", gallery(most or DRAWN, seed=SEED))
        sets = {name: load_photos(root / name)[:most] for name in ("dev", "train")}
        sets["drawn"] = load_photos(Path(folder) / "drawn")
        indexes = {
            name: index_of(look(encoder, photos, cache=given.cache), encoder, Path(folder) / f"index-{name}")
            for name, photos in sets.items()
        }
        metrics = measure(encoder, sets, indexes)
    write_result("lambdas", metrics, encoder=encoder.spec.name, seed=SEED, path=given.json)


def measure(
    encoder: Encoder, sets: Mapping[str, Sequence[Photo]], indexes: Mapping[str, Index]
) -> list[Metric]:
    """The lambda of each collection, and mean reciprocal ranks of its statements with each of them."""
    lambdas = {name: index.manifest.calibration.lam for name, index in indexes.items()}
    metrics = [Metric(f"lambda_{name}", lam, "ratio", n=len(sets[name])) for name, lam in lambdas.items()]
    for name, photos in sets.items():
        searcher = Searcher(indexes[name], encoder, QueryParser())
        answers = answers_of(questions_of(photos))
        clusters = [question.photo for question, _ in answers.values()]
        for other, lam in lambdas.items():
            results = searcher.search_many(
                list(answers),
                k=min(len(photos), K_RANGE[1]),
                readout=Readout.MOMENT,
                weight=lam / lambdas[name],
            )
            reciprocal = [
                next((1 / hit.rank for hit in result.hits if int(hit.path[:6]) in right), 0.0)
                for result, (_, right) in zip(results, answers.values(), strict=True)
            ]
            metrics.append(share(f"mrr_{name}_with_lambda_of_{other}", reciprocal, clusters))
    return metrics


if __name__ == "__main__":
    main()
